//! Fits of Zipf's law: the object of rank r is asked for with a probability proportional to r^-alpha. Web requests
//! follow it with alpha between 0.6 and 0.9 or so (L. Breslau et al., "Web Caching and Zipf-like Distributions:
//! Evidence and Implications", INFOCOM 1999).
//!
//! There are two estimates since both are in print and they differ: least squares weighs the few hot objects and the
//! many lukewarm ones alike, maximum likelihood weighs each request.

/// Objects with fewer requests are left out of [`zipf_alpha_lsq`]: the many that were asked for once or twice form steps
/// in a log-log plot that say nothing of popularity.
pub const LSQ_COUNT_MIN: u64 = 5;

/// Exponents are searched from 0 (all objects equally popular) to this, where the second object has 2^-64 of the
/// first's requests.
const ALPHA_MAX: f64 = 64.0;

/// The exponent under which a finite Zipf law over ranks 1 to N, N being the number of objects, most likely gives the
/// requests per object in `popularity`, which must be in descending order, without zeros.
///
/// The likelihood is greatest where the law's mean of ln(rank) equals that of the requests. `None` for fewer than two
/// objects.
pub fn zipf_alpha_mle(popularity: &[u64]) -> Option<f64> {
    debug_assert!(popularity.is_sorted_by(|a, b| a >= b));
    if popularity.len() < 2 {
        return None;
    }
    let ln_ranks: Vec<f64> = (1..=popularity.len()).map(|rank| (rank as f64).ln()).collect();
    let requests: f64 = popularity.iter().map(|&count| count as f64).sum();
    let observed =
        popularity.iter().zip(&ln_ranks).map(|(&count, ln)| count as f64 * ln).sum::<f64>() / requests;

    // Newton's method: the law's mean falls with alpha, and its slope is minus the law's variance of ln(rank). The
    // bracket catches steps that overshoot.
    let (mut low, mut high, mut alpha) = (0.0, ALPHA_MAX, 1.0);
    for _ in 0..100 {
        let (mean, variance) = ln_rank_moments(&ln_ranks, alpha);
        if mean > observed {
            low = alpha
        } else {
            high = alpha
        }
        let newton = alpha + (mean - observed) / variance;
        let next = if low < newton && newton < high { newton } else { (low + high) / 2.0 };
        let step = (next - alpha).abs();
        alpha = next;
        if step < 1e-9 {
            break;
        }
    }
    Some(alpha)
}

/// Mean and variance of ln(rank) under a finite Zipf law.
fn ln_rank_moments(ln_ranks: &[f64], alpha: f64) -> (f64, f64) {
    let (mut weights, mut first, mut second) = (0.0, 0.0, 0.0);
    for &ln in ln_ranks {
        let weight = (-alpha * ln).exp();
        weights += weight;
        first += weight * ln;
        second += weight * ln * ln;
    }
    let mean = first / weights;
    (mean, second / weights - mean * mean)
}

/// Minus the slope of the straight line that fits ln(requests) over ln(rank) with the least squared error, over the
/// objects of `popularity` (in descending order) with at least [`LSQ_COUNT_MIN`] requests. `None` if fewer than two
/// have.
pub fn zipf_alpha_lsq(popularity: &[u64]) -> Option<f64> {
    debug_assert!(popularity.is_sorted_by(|a, b| a >= b));
    let popular = &popularity[..popularity.partition_point(|&count| count >= LSQ_COUNT_MIN)];
    if popular.len() < 2 {
        return None;
    }
    let ranks = (1..).zip(popular);
    let points: Vec<(f64, f64)> = ranks.map(|(rank, &count): (u32, _)| (rank.into(), count as f64)).collect();
    Some(-log_slope(&points))
}

/// Hurst exponent of counts whose variance in windows of each length is given, as pairs of length and variance: that
/// grows with the length to the power of 2H (J. Beran, "Statistics for Long-Memory Processes", 1994, 4.4). `None` for
/// fewer than five lengths, or without variance.
pub(crate) fn hurst(variances: &[(f64, f64)]) -> Option<f64> {
    let is_enough = variances.len() >= 5 && variances.iter().all(|&(_, variance)| variance > 0.0);
    is_enough.then(|| log_slope(variances) / 2.0)
}

/// Slope of the straight line that fits ln(y) over ln(x) with the least squared error.
fn log_slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let logs = || points.iter().map(|&(x, y)| (x.ln(), y.ln()));
    let (sum_x, sum_y) = logs().fold((0.0, 0.0), |(sum_x, sum_y), (x, y)| (sum_x + x, sum_y + y));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let covariance: f64 = logs().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zipf_counts(alpha: f64, objects: u32) -> Vec<u64> {
        (1..=objects).map(|rank| (1e16 * f64::from(rank).powf(-alpha)) as u64).collect()
    }

    #[test]
    fn exact_laws_are_found_by_both() {
        for alpha in [0.0, 0.25, 0.5, 0.785, 1.0, 1.5, 3.0] {
            let counts = zipf_counts(alpha, 2000);
            for fitted in [zipf_alpha_mle(&counts), zipf_alpha_lsq(&counts)] {
                assert!((fitted.unwrap() - alpha).abs() < 1e-4, "{alpha}: {fitted:?}");
            }
        }
    }

    #[test]
    fn extremes_stay_in_the_bracket() {
        assert_eq!(zipf_alpha_mle(&[]), None);
        assert_eq!(zipf_alpha_mle(&[9]), None);
        let steep = zipf_alpha_mle(&[u64::MAX, 1]).unwrap();
        assert!((63.0..=ALPHA_MAX).contains(&steep), "{steep}");
        assert!(zipf_alpha_mle(&[1; 1000]).unwrap() < 1e-6);
        assert!(zipf_alpha_mle(&[u64::MAX; 3]).unwrap() < 1e-6);
    }

    #[test]
    fn least_squares_needs_two_popular_objects() {
        assert_eq!(zipf_alpha_lsq(&[100, 4, 4, 1]), None);
        // From 40 to 5 requests at twice the rank: 2^-3.
        assert!((zipf_alpha_lsq(&[40, 5, 4, 1]).unwrap() - 3.0).abs() < 1e-12);
    }
}
