//! An experiment as it is declared: what varies, what is measured, its targets, its figure and its report.
//!
//! An experiment is one file and one template. The file has a [`Design`], the function that makes the runs, and the function that judges
//! the samples; `cache/busy.rs` (K4) is the model. The frame repeats the runs, watches the other load of the machine, writes rows.csv as
//! figures come, and at the end result.json, figure.svg and report.md.
//!
//! A repetition is **invalid** if one of its figures is impossible, or if other work took the machine during one of its runs. It is not
//! judged. If no repetition is valid, everything that was measured is shown and marked as invalid.

use serde_json::Value;

use crate::bench::Bench;
use crate::chart::{self, Chart};
use crate::check::{Check, Conclusion};
use crate::drawing::{self, Drawing};
use crate::error::{Error, Result};
use crate::markdown;
use crate::measure::{Dimension, Measure};
use crate::publish::{self, Findings};
use crate::samples::Samples;
use crate::template::Context;

/// The declaration of an experiment.
pub(crate) struct Design {
    /// The default number of repetitions, in full and quick.
    pub(crate) repeat: [u32; 2],
    /// Whether other work on the machine changes the figures. It does not change a simulation.
    pub(crate) needs_the_machine: bool,
    /// What varies from case to case.
    pub(crate) dimensions: &'static [Dimension],
    /// Patterns of the cases that are expected.
    pub(crate) cases: &'static [&'static str],
    /// What is measured in each case.
    pub(crate) measures: &'static [Measure],
    /// The panels of the figure.
    pub(crate) charts: &'static [Chart],
    /// The constants of the experiment, quick or in full, and a null for each that [`Bench::set`] finds.
    pub(crate) settings: fn(bool) -> Value,
    /// The report, in Markdown: `template`.
    pub(crate) template: &'static str,
    /// Sets up what is measured, and makes the runs in [`Bench::rounds`].
    pub(crate) run: fn(&mut Bench<'_>) -> Result<()>,
    /// Computes what is derived of the samples, and judges them by the targets.
    pub(crate) conclude: fn(&mut Samples) -> Vec<Check>,
}

impl Design {
    /// What most experiments have in common: one repetition, on a machine that does nothing else.
    pub(crate) const DEFAULT: Design = Design {
        repeat: [1, 1],
        needs_the_machine: true,
        dimensions: &[],
        cases: &[],
        measures: &[],
        charts: &[],
        settings: |_| Value::Null,
        template: "",
        run: |_| Ok(()),
        conclude: |_| Vec::new(),
    };

    /// The samples before anything is measured.
    fn samples(&self, quick: bool) -> Samples {
        let mut samples = Samples::new(self.dimensions, self.measures, self.cases);
        if let Value::Object(settings) = (self.settings)(quick) {
            samples.settings = settings;
        }
        samples
    }

    /// Makes the runs, and writes what came of them.
    pub(crate) fn carry_out(&self, bench: &mut Bench<'_>) -> Result<Conclusion> {
        let quick = bench.options.quick;
        bench.record(self.samples(quick), self.repeat[usize::from(quick)])?;
        (self.run)(bench)?;
        let (samples, spoilt) = bench.recorded();
        let why = |(repetition, mut why): (usize, Vec<String>)| {
            if !self.needs_the_machine {
                why.clear();
            }
            why.extend(samples.impossible(repetition));
            why
        };
        let invalid: Vec<Vec<String>> = spoilt.into_iter().enumerate().map(why).collect();
        let Judged { samples: judged, checks, invalid, is_invalid } = self.judge(&samples, &invalid);
        let svg = drawing::draw(&publish::title(bench, is_invalid), self.draw(&judged))?;
        let settings = Value::from(judged.settings.clone());
        let context = Context {
            id: bench.experiment.id,
            quick,
            samples: judged,
            checks: checks.clone(),
            is_invalid,
            machine: publish::machine(bench),
        };
        let text = context
            .render(self.template)
            .map_err(|error| Error::Output { path: "report.md".into(), found: format!("{error:#}") })?;
        let tables = markdown::tables(&text);
        let text = format!("\n{text}");
        publish::publish(
            bench,
            Findings { checks, invalid, svg, text, tables, settings, rows: samples.rows() },
        )
    }

    fn draw(&self, samples: &Samples) -> Drawing {
        chart::draw(self.charts, samples)
    }

    /// Judges the valid repetitions, or all if none is valid. `invalid` says why each is not, and is empty for those that are.
    fn judge(&self, samples: &Samples, invalid: &[Vec<String>]) -> Judged {
        let number =
            |at: usize| if invalid.len() > 1 { format!("repetition {}, ", at + 1) } else { String::new() };
        let why = |(at, why): (usize, &Vec<String>)| {
            why.iter().map(|why| format!("{}{why}", number(at))).collect::<Vec<_>>()
        };
        let mut reasons: Vec<String> = invalid.iter().enumerate().flat_map(why).collect();
        let valid: Vec<usize> = (0..invalid.len()).filter(|at| invalid[*at].is_empty()).collect();
        let is_invalid = valid.is_empty();
        let mut samples = if is_invalid { samples.clone() } else { samples.only(&valid) };
        let mut checks = (self.conclude)(&mut samples);
        if is_invalid {
            checks = checks.into_iter().map(Check::invalid).collect();
        }
        let impossible = checks.iter().filter(|check| check.is_impossible());
        reasons
            .extend(impossible.map(|check| format!("{}: {} is not possible", check.what, check.figure(2))));
        Judged { samples, checks, invalid: reasons, is_invalid }
    }
}

/// The settings that several experiments share, with those of one of them.
pub(crate) fn settings(mut shared: Value, own: Value) -> Value {
    if let (Value::Object(all), Value::Object(own)) = (&mut shared, own) {
        all.extend(own);
    }
    shared
}

/// The judged repetitions and their checks.
struct Judged {
    samples: Samples,
    checks: Vec<Check>,
    /// The reasons why others are invalid, with their numbers.
    invalid: Vec<String>,
    /// Whether no repetition is valid.
    is_invalid: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiments::experiments;

    /// The verdicts of an experiment on one repetition.
    pub(crate) fn judged(experiment: &Experiment, fill: impl FnOnce(&mut Samples)) -> Vec<&'static str> {
        let design = &experiment.design;
        let mut samples = design.samples(false);
        samples.begin();
        fill(&mut samples);
        (design.conclude)(&mut samples).iter().map(Check::verdict).collect()
    }

    /// Samples in which no two figures are alike, and the first case alone has been measured in the last repetition.
    fn synthetic(design: &Design, quick: bool, repetitions: usize) -> Samples {
        let mut samples = design.samples(quick);
        for repetition in 1..=repetitions {
            samples.begin();
            let cases: Vec<String> = samples.cases(&samples.all()).into_iter().map(str::to_owned).collect();
            let some = if repetition == repetitions { 1 } else { cases.len() };
            for (at, case) in cases.iter().enumerate().take(some) {
                let taken = design.measures.iter().filter(|measure| measure.csv.is_some());
                let value = |place: usize| 10.0 + (repetition * (at + 1)) as f64 / (place + 1) as f64;
                samples.put(case, taken.enumerate().map(|(place, measure)| (measure.name, value(place))));
            }
        }
        samples
    }

    /// What an experiment names, its template, its figure and its targets, it has declared.
    #[test]
    fn every_declared_experiment_has_a_report_and_a_figure() {
        for experiment in experiments() {
            let design = &experiment.design;
            for (quick, repetitions) in [(false, 7), (true, 2), (true, 1)] {
                let samples = synthetic(design, quick, repetitions);
                let invalid = vec![Vec::new(); repetitions];
                let Judged { samples, checks, .. } = design.judge(&samples, &invalid);
                assert!(!checks.is_empty(), "{experiment:?} has targets");
                let svg = drawing::draw("", design.draw(&samples)).unwrap();
                assert!(svg.starts_with("<svg"));
                let machine = "On a machine.".to_owned();
                let context =
                    Context { id: experiment.id, quick, samples, checks, is_invalid: false, machine };
                let report = match context.render(design.template) {
                    Ok(report) => report,
                    Err(error) => panic!("{experiment:?}: {error:#}"),
                };
                for part in ["\n## Targets\n", "\n## How it was measured\n", "On a machine."] {
                    assert!(report.contains(part), "{experiment:?}: {part} is not in\n{report}");
                }
                assert!(markdown::tables(&report).len() >= 2, "{experiment:?}\n{report}");
                // Kept where a person can look at them.
                if let Some(to) = std::env::var_os("SIDELONG_LAB_FIGURES") {
                    let to = std::path::Path::new(&to).join(format!("{}-{repetitions}", experiment.id));
                    std::fs::write(to.with_extension("svg"), svg).unwrap();
                    std::fs::write(to.with_extension("md"), report).unwrap();
                }
            }
        }
    }
}
