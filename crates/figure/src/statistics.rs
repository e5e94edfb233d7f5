//! Statistics of measurements, by one rule for the lab, the simulator, the benches, `perf` and `up`.
//!
//! A **quantile** is by nearest rank: the value of rank ⌈qn⌉ in ascending order. It is always a measured value. This is
//! type 1 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50(4), 1996. The
//! HdrHistograms of the load generator and the simulator give the same.
//!
//! A **median** is of a few repetitions. For an even number it is the mean of the two in the middle.
//!
//! An **interval** has 95 % confidence. The interval of a median lies between two order statistics and assumes no
//! distribution. It takes [`REPETITIONS_MIN`] values (Le Boudec, Performance Evaluation of Computer and Communication
//! Systems, 2010, theorem 2.1). The interval of a mean is by Student's t.

use serde::Serialize;

/// The fewest values that give a median an interval of 95 %: the true median lies outside of all n with probability
/// 2^(1-n).
pub const REPETITIONS_MIN: usize = 6;

/// The quantile `q` of `ascending` values, by nearest rank: the first for 0, the last for 1. `None` if there are none.
pub fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    let rank = (q * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied()
}

/// The median, between the two in the middle of an even number. `None` if there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    middle(&values)
}

fn middle(ascending: &[f64]) -> Option<f64> {
    let (below, above) = (ascending.len().checked_sub(1)? / 2, ascending.len() / 2);
    Some(f64::midpoint(ascending[below], ascending[above]))
}

/// The arithmetic mean. `None` if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A median and its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Median {
    /// The median.
    pub median: f64,
    /// The interval that contains the true median with 95 % confidence. `None` for fewer than [`REPETITIONS_MIN`] values.
    pub interval: Option<(f64, f64)>,
    /// Number of values.
    pub count: usize,
}

impl Median {
    /// The median of `values`. `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Median> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let interval = outer_ranks(count).map(|rank| (values[rank - 1], values[count - rank]));
        Some(Median { median: middle(&values)?, interval, count })
    }
}

/// The largest rank j such that the true median lies between the values of ranks j and n+1-j with 95 % confidence: fewer
/// than j of n values lie below it with a probability of at most 2.5 %.
fn outer_ranks(count: usize) -> Option<usize> {
    // P(B = i) of a binomial of n trials with 1/2, from i = 0. It is computed by logarithms, because 2^-n underflows for a
    // large n.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for i in 0..count / 2 {
        below += log.exp();
        if below > 0.025 {
            return (i > 0).then_some(i);
        }
        log += ((count - i) as f64 / (i + 1) as f64).ln();
    }
    None
}

/// A mean and its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval that contains the true mean with 95 % confidence. `None` for a single value.
    pub within: Option<f64>,
}

impl Mean {
    /// The mean of `values`, with an interval by Student's t. `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Mean> {
        let mean = mean(values)?;
        let count = values.len() as f64;
        let within = (values.len() > 1).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            student(values.len() - 1) * (variance / count).sqrt()
        });
        Some(Mean { mean, within })
    }

    /// The interval that contains the true mean with 95 % confidence.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.within.map(|within| (self.mean - within, self.mean + within))
    }
}

/// Student's t for 95 % on both sides, by degrees of freedom.
fn student(freedom: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    // Further values are the first terms of its expansion about the normal distribution's (Abramowitz and Stegun 26.7.5),
    // exact to 0.001.
    const Z: f64 = 1.960;
    let beyond = || {
        let freedom = freedom as f64;
        Z + (Z.powi(3) + Z) / (4.0 * freedom)
            + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom * freedom)
    };
    T.get(freedom - 1).copied().unwrap_or_else(beyond)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn a_quantile_is_the_value_of_nearest_rank() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let of = |part| quantile(&values, part);
        assert_eq!([0.0, 0.5, 0.99, 0.991, 1.0].map(of), [1.0, 100.0, 198.0, 199.0, 200.0].map(Some));
        let few = |count: u8| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            [0.0, 0.25, 0.5, 0.75, 0.99, 1.0].map(|q| quantile(&values, q).unwrap())
        };
        assert_eq!(few(1), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(few(2), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(few(3), [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]);
        assert_eq!(few(4), [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn histograms_answer_the_same() {
        for count in (1..=120u32).chain([1000]) {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let mut histogram = Histogram::<u64>::new_with_max(1000, 3).unwrap();
            (1..=u64::from(count)).for_each(|value| histogram.record(value).unwrap());
            for permille in 0..=1000 {
                let q = f64::from(permille) / 1e3;
                assert_eq!(
                    quantile(&values, q),
                    Some(histogram.value_at_quantile(q) as f64),
                    "{q} of {count}"
                );
            }
        }
    }

    #[test]
    fn medians_of_even_numbers_are_between() {
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_table() {
        // Le Boudec, table A.1: j for n of 6, 8, 9, 11, 12, 15, 20, 25, 30, 50, 70.
        let counts = [6, 8, 9, 11, 12, 15, 20, 25, 30, 50, 70];
        let ranks = [1, 1, 2, 2, 3, 4, 6, 8, 10, 18, 27];
        assert_eq!(counts.map(outer_ranks), ranks.map(Some));
        assert!((0..REPETITIONS_MIN).all(|count| outer_ranks(count).is_none()));
        let large = outer_ranks(100_000).unwrap() as f64;
        assert!((large - (50_000.0 - 0.98 * 100_000f64.sqrt())).abs() < 2.0, "{large}");
        let of = |count: u8| Median::of((1..=count).map(f64::from).collect());
        assert_eq!(of(0), None);
        assert_eq!(of(5), Some(Median { median: 3.0, interval: None, count: 5 }));
        assert_eq!(of(6), Some(Median { median: 3.5, interval: Some((1.0, 6.0)), count: 6 }));
        assert_eq!(of(9).unwrap().interval, Some((2.0, 8.0)));
    }

    #[test]
    fn means_have_their_confidence() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).unwrap();
        // t(2) s / sqrt(3), s = 1.
        assert!((mean.within.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(Mean::of(&[5.0]), Some(Mean { mean: 5.0, within: None }));
        assert_eq!(Mean::of(&[]), None);
        // Tables give 2.0395 for 31, 2.0003 for 60, 1.9799 for 120.
        for (freedom, t) in [(31, 2.0395), (60, 2.0003), (120, 1.9799), (1_000_000, 1.96)] {
            assert!((student(freedom) - t).abs() < 1e-3, "{freedom}: {}", student(freedom));
        }
    }
}
