//! What was measured: for each case and measure a series over the repetitions.

use std::collections::BTreeMap;
use std::ops::Index;

use serde_json::{Map, Value};

use crate::measure::{Case, Dimension, Measure, expand, is_like};
use crate::series::{Claim, Series};

/// The samples of an experiment. `samples["neighbour/busy"]["p99_us"]` is a series.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) dimensions: &'static [Dimension],
    pub(crate) measures: &'static [Measure],
    /// The declared cases, and then others in the order in which they came.
    cases: Vec<(String, Figures)>,
    repetitions: usize,
    claims: BTreeMap<String, Claim>,
    /// The constants of the experiment, and what it found of the machine.
    pub(crate) settings: Map<String, Value>,
}

/// The series of one case, by measure.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    measures: &'static [Measure],
    series: Vec<Series>,
}

impl Index<&str> for Figures {
    type Output = Series;

    /// # Panics
    /// If there is no such measure.
    fn index(&self, measure: &str) -> &Series {
        let at = self.measures.iter().position(|known| known.name == measure);
        &self.series[at.unwrap_or_else(|| panic!("no measure {measure} is declared"))]
    }
}

impl<S: AsRef<str>> Index<S> for Samples {
    type Output = Figures;

    /// # Panics
    /// If the case is neither declared nor measured.
    fn index(&self, case: S) -> &Figures {
        let case = case.as_ref();
        self.get(case).unwrap_or_else(|| panic!("no case {case} is declared"))
    }
}

impl Samples {
    /// No samples. `cases` are patterns of those that are expected.
    pub(crate) fn new(
        dimensions: &'static [Dimension],
        measures: &'static [Measure],
        cases: &[&str],
    ) -> Samples {
        let mut samples = Samples {
            dimensions,
            measures,
            cases: Vec::new(),
            repetitions: 0,
            claims: BTreeMap::new(),
            settings: Map::new(),
        };
        let expected = cases.iter().flat_map(|pattern| expand(pattern, dimensions));
        expected.for_each(|case| _ = samples.series(&case));
        samples
    }

    /// Begins the next repetition.
    pub(crate) fn begin(&mut self) {
        self.repetitions += 1;
        let all = self.cases.iter_mut().flat_map(|(_, figures)| &mut figures.series);
        all.for_each(|series| series.0.push(None));
    }

    /// Puts figures of a case into the current repetition.
    ///
    /// # Panics
    /// If there is no repetition, a measure is not declared, or the case has another number of words than there are dimensions.
    pub(crate) fn put(&mut self, case: &str, values: impl IntoIterator<Item = (&'static str, f64)>) {
        assert_eq!(case.split('/').count(), self.dimensions.len(), "{case} has a word of each dimension");
        let measures = self.measures;
        let series = self.series(case);
        for (measure, value) in values {
            let at = measures.iter().position(|known| known.name == measure);
            let at = at.unwrap_or_else(|| panic!("no measure {measure} is declared"));
            *series[at].0.last_mut().expect("a repetition is under way") = Some(value);
        }
    }

    fn series(&mut self, case: &str) -> &mut [Series] {
        let at = self.cases.iter().position(|(known, _)| known == case).unwrap_or_else(|| {
            let series = vec![Series(vec![None; self.repetitions]); self.measures.len()];
            self.cases.push((case.to_owned(), Figures { measures: self.measures, series }));
            self.cases.len() - 1
        });
        &mut self.cases[at].1.series
    }

    /// The cases that a pattern covers, declared or measured.
    pub(crate) fn cases(&self, pattern: &str) -> Vec<&str> {
        self.cases.iter().map(|(case, _)| case.as_str()).filter(|case| is_like(case, pattern)).collect()
    }

    /// How cases begin whose first words a pattern covers: each beginning once.
    pub(crate) fn begins(&self, pattern: &str) -> Vec<String> {
        let depth = pattern.split('/').count();
        let mut begins = Vec::new();
        for (case, _) in &self.cases {
            let begin = case.split('/').take(depth).collect::<Vec<_>>().join("/");
            if is_like(&begin, pattern) && !begins.contains(&begin) {
                begins.push(begin);
            }
        }
        begins
    }

    /// The sum of a measure over the cases that a pattern covers and all repetitions. `None` if it was not measured.
    pub(crate) fn total(&self, pattern: &str, measure: &str) -> Option<f64> {
        let known = |case: &str| self[case][measure].known().collect::<Vec<_>>();
        self.cases(pattern).into_iter().flat_map(known).reduce(|all, one| all + one)
    }

    /// What `of` makes, in each repetition, of a measure in the cases that a pattern covers.
    pub(crate) fn over(&self, pattern: &str, measure: &str, of: impl Fn(Vec<f64>) -> Option<f64>) -> Series {
        let all: Vec<&Series> = self.cases(pattern).into_iter().map(|case| &self[case][measure]).collect();
        Series::combine(&all, of)
    }

    /// The pattern of all cases.
    pub(crate) fn all(&self) -> String {
        vec!["*"; self.dimensions.len()].join("/")
    }

    /// The figures of a case, if it is declared or was measured.
    pub(crate) fn get(&self, case: &str) -> Option<&Figures> {
        self.cases.iter().find(|(known, _)| known == case).map(|(_, figures)| figures)
    }

    /// Computes a measure of each case that a pattern covers.
    pub(crate) fn derive(
        &mut self,
        measure: &'static str,
        pattern: &str,
        of: impl Fn(&Samples, &str) -> Series,
    ) {
        let at = self.measures.iter().position(|known| known.name == measure);
        let at = at.unwrap_or_else(|| panic!("no measure {measure} is declared"));
        let derived: Vec<(String, Series)> =
            self.cases(pattern).into_iter().map(|case| (case.to_owned(), of(self, case))).collect();
        for (case, mut series) in derived {
            series.0.resize(self.repetitions, None);
            self.series(&case)[at] = series;
        }
    }

    /// Keeps what each repetition says of a claim, for the report.
    pub(crate) fn claim(&mut self, name: impl Into<String>, claim: Claim) {
        self.claims.insert(name.into(), claim);
    }

    pub(crate) fn claimed(&self, name: &str) -> Option<&Claim> {
        self.claims.get(name)
    }

    /// Number of repetitions.
    pub(crate) fn repetitions(&self) -> usize {
        self.repetitions
    }

    /// The samples of some repetitions, by their numbers from 0.
    pub(crate) fn only(&self, repetitions: &[usize]) -> Samples {
        let mut samples = Samples { repetitions: repetitions.len(), ..self.clone() };
        for series in samples.cases.iter_mut().flat_map(|(_, figures)| &mut figures.series) {
            series.0 = repetitions.iter().map(|at| series.at(*at)).collect();
        }
        samples
    }

    /// The case for people.
    pub(crate) fn label(&self, case: &str) -> String {
        let label = |(word, dimension): (&str, &Dimension)| dimension.label_of(word).to_owned();
        case.split('/').zip(self.dimensions).map(label).collect::<Vec<_>>().join(", ")
    }

    /// The figures of a repetition that the set-up does not allow, and why.
    pub(crate) fn impossible(&self, repetition: usize) -> Vec<String> {
        let mut found = Vec::new();
        for (name, figures) in &self.cases {
            let figure = |measure: &str| figures[measure].at(repetition);
            let case = Case { name, figure: &figure };
            for measure in self.measures {
                let possible = (measure.possible)(&case);
                let Some(value) = figure(measure.name).filter(|value| !possible.contains(value)) else {
                    continue;
                };
                let number = |value: f64| (value * 1e3).round() / 1e3;
                let (from, to) = (number(*possible.start()), number(*possible.end()));
                let (label, value) = (self.label(name), number(value));
                found.push(format!("{label}: {} is {value}, possible is {from} to {to}", measure.label));
            }
        }
        found
    }

    /// The columns of rows.csv.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let dimensions = self.dimensions.iter().map(|dimension| dimension.name);
        let measures = self.measures.iter().filter(|measure| measure.csv.is_some());
        ["repetition"].into_iter().chain(dimensions).chain(measures.map(|measure| measure.name)).collect()
    }

    /// The line of a case in rows.csv, for a repetition from 0. `None` if nothing was measured.
    pub(crate) fn row(&self, case: &str, repetition: usize) -> Option<Vec<String>> {
        let figures = self.get(case)?;
        let of = |measure: &Measure| Some((figures[measure.name].at(repetition), measure.csv?));
        let values: Vec<_> = self.measures.iter().filter_map(of).collect();
        values.iter().any(|(value, _)| value.is_some()).then_some(())?;
        let cell =
            |(value, digits): (Option<f64>, usize)| value.map_or(String::new(), |y| format!("{y:.digits$}"));
        let words = case.split('/').map(str::to_owned);
        let head = [(repetition + 1).to_string()].into_iter().chain(words);
        Some(head.chain(values.into_iter().map(cell)).collect())
    }

    /// All that was measured, as `result.json` has it: a row has the figures of its case, and no others.
    pub(crate) fn rows(&self) -> Vec<Value> {
        let row = |(repetition, case): (usize, &str)| {
            self.row(case, repetition)?;
            let mut row = Map::from_iter([("repetition".to_owned(), Value::from(repetition + 1))]);
            let words = self.dimensions.iter().zip(case.split('/'));
            row.extend(words.map(|(dimension, word)| (dimension.name.to_owned(), Value::from(word))));
            let taken = self.measures.iter().filter(|measure| measure.csv.is_some());
            let figure = |measure: &Measure| {
                Some((measure.name.to_owned(), self[case][measure.name].at(repetition)?.into()))
            };
            row.extend(taken.filter_map(figure));
            Some(Value::from(row))
        };
        let cases = |repetition| self.cases.iter().map(move |(case, _)| (repetition, case.as_str()));
        (0..self.repetitions).flat_map(cases).filter_map(row).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::Word;
    use crate::series::sum;
    use sidelong_figure::Style;

    const DIMENSIONS: &[Dimension] = &[
        Dimension::new(
            "system",
            "",
            &[Word::new("ours", "our system", Style::OURS), Word::plain("other", "the other")],
        ),
        Dimension::new("load", "load", &[]),
    ];
    const MEASURES: &[Measure] = &[
        Measure::new("p50_us", "p50, µs", [1, 0]).possible(|case| 0.0..=case.most("p99_us")),
        Measure::new("p99_us", "p99, µs", [2, 1]),
        Measure::derived("ratio", "p99 / p50", 2),
    ];

    pub(crate) fn samples() -> Samples {
        let mut samples = Samples::new(DIMENSIONS, MEASURES, &["*/idle,busy"]);
        for p99_us in [20.0, 40.0, 30.0] {
            samples.begin();
            samples.put("ours/idle", [("p50_us", 10.0), ("p99_us", p99_us)]);
            samples.put("other/idle", [("p50_us", 15.0)]);
        }
        samples.derive("ratio", "*/*", |samples, case| &samples[case]["p99_us"] / &samples[case]["p50_us"]);
        samples
    }

    #[test]
    fn figures_are_found_by_case_and_measure() {
        let samples = samples();
        assert_eq!(samples["ours/idle"]["ratio"].shown(1), "3.0");
        assert_eq!(samples["other/busy"]["p99_us"].shown(1), "–", "it is declared and was not measured");
        assert_eq!(samples.cases("ours/*"), ["ours/idle", "ours/busy"]);
        assert_eq!([samples.begins("*").len(), samples.begins("*/busy").len()], [2, 2]);
        assert_eq!(samples.over("*/idle", "p50_us", sum).0, [Some(25.0); 3]);
        let total = |measure| samples.total("*/idle", measure);
        assert_eq!((total("p50_us"), total("p99_us")), (Some(75.0), Some(90.0)));
        assert_eq!(samples.label("other/64"), "the other, 64");
        assert!(samples.get("ours/64").is_none());
        assert_eq!(samples.only(&[0, 2])["ours/idle"]["p99_us"].0, [Some(20.0), Some(30.0)]);
    }

    #[test]
    fn cases_that_were_not_expected_have_no_figures_before() {
        let mut samples = samples();
        samples.begin();
        samples.put("ours/64", [("p99_us", 1.0)]);
        assert_eq!(samples["ours/64"]["p99_us"].0, [None, None, None, Some(1.0)]);
    }

    #[test]
    fn rows_have_the_columns_of_their_declarations() {
        let samples = samples();
        assert_eq!(samples.columns(), ["repetition", "system", "load", "p50_us", "p99_us"]);
        assert_eq!(samples.row("ours/idle", 1).unwrap(), ["2", "ours", "idle", "10.0", "40.00"]);
        assert_eq!(samples.row("other/idle", 0).unwrap(), ["1", "other", "idle", "15.0", ""]);
        assert_eq!(samples.row("ours/busy", 0), None);
        assert_eq!(samples.rows().len(), 6);
        assert_eq!(samples.rows()[0]["p99_us"], 20.0);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let mut samples = samples();
        samples.begin();
        samples.put("ours/busy", [("p50_us", 30.0), ("p99_us", 20.0)]);
        samples.put("other/idle", [("p50_us", f64::NAN)]);
        assert_eq!(samples.impossible(0), Vec::<String>::new());
        let said = samples.impossible(3);
        assert_eq!(said[0], "our system, busy: p50, µs is 30, possible is 0 to 20");
        assert!(said[1].starts_with("the other, idle: p50, µs is NaN"), "{said:?}");
    }
}
