//! Reports: templates in Markdown, whose figures are computed of the samples.
//!
//! | in a template | stands for |
//! |---|---|
//! | `{{ turn_s }}` | a setting |
//! | `{{ s["neighbour/busy"].p99_us }}` | the median of a measure |
//! | `{{ cell("neighbour/busy", "p99_us") }}` | the median with its interval, for tables |
//! | `{{ total("*/busy", "errors") }}` | the sum of a measure over some cases and all repetitions |
//! | `{{ middle("*/busy", "ratio") }}` | the median of a measure over some cases, the median of the repetitions |
//! | `{{ table(rows="get/*", columns="p50_us p99_us") }}` | a table of measures: [`markdown::measures`] |
//! | `{{ targets() }}` | the section of the targets |
//! | `{{ holds("order") }}` | whether a claim holds |
//! | `{{ machine }}` | when, and on which machine |
//! | `{% if quick %}`, `{% if id == "R10" %}` | a part that only some reports have |
//!
//! A name that is not known is an error.

use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use sidelong_figure::statistics::median;

use crate::check::Check;
use crate::markdown;
use crate::measure::Measure;
use crate::samples::Samples;
use crate::series::{Series, number};

/// What a template is filled with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: &'static str,
    pub(crate) quick: bool,
    pub(crate) samples: Samples,
    pub(crate) checks: Vec<Check>,
    /// Whether the figures cannot be trusted.
    pub(crate) is_invalid: bool,
    pub(crate) machine: String,
}

impl Context {
    /// The report, without its title.
    ///
    /// # Errors
    /// If the template names something that is not known.
    pub(crate) fn render(self, template: &'static str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
        environment.set_syntax(syntax.build()?);
        for (name, value) in &self.samples.settings {
            environment.add_global(name.clone(), setting(value));
        }
        environment.add_global("id", self.id);
        environment.add_global("quick", self.quick);
        environment.add_global("machine", self.machine.clone());
        let context = Arc::new(self);
        environment.add_global("s", Value::from_dyn_object(Arc::new(Cases(Arc::clone(&context)))));
        let of = Arc::clone(&context);
        environment.add_function("cell", move |case: &str, measure: &str| {
            of.shown(case, measure, Series::cell)
                .ok_or_else(|| unknown(format!("no figure {measure} of {case} is declared")))
        });
        let of = Arc::clone(&context);
        environment.add_function("total", move |cases: &str, measure: &str| match of.measure(measure) {
            Some(declared) => Ok(number(of.samples.total(cases, measure), declared.decimals)),
            None => Err(unknown(format!("no measure {measure} is declared"))),
        });
        let of = Arc::clone(&context);
        environment.add_function("middle", move |cases: &str, measure: &str| match of.measure(measure) {
            Some(declared) => Ok(of.samples.over(cases, measure, median).shown(declared.decimals)),
            None => Err(unknown(format!("no measure {measure} is declared"))),
        });
        let of = Arc::clone(&context);
        environment.add_function("table", move |which: Kwargs| {
            let (rows, columns) = (which.get::<Option<&str>>("rows")?, which.get::<Option<&str>>("columns")?);
            which.assert_all_used()?;
            markdown::measures(&of.samples, rows, columns).map_err(unknown)
        });
        let of = Arc::clone(&context);
        environment.add_function("targets", move || markdown::targets(&of.checks));
        let of = Arc::clone(&context);
        environment.add_function("holds", move |name: &str| match of.samples.claimed(name) {
            None => Err(unknown(format!("no claim {name} is made"))),
            Some(_) if of.is_invalid => Ok("**invalid**".to_owned()),
            Some(claim) => Ok(claim.text()),
        });
        environment.render_named_str(context.id, template, ())
    }

    fn measure(&self, name: &str) -> Option<&'static Measure> {
        self.samples.measures.iter().find(|known| known.name == name)
    }

    fn shown(&self, case: &str, measure: &str, show: fn(&Series, usize) -> String) -> Option<String> {
        let declared = self.measure(measure)?;
        Some(show(&self.samples.get(case)?[measure], declared.decimals))
    }
}

fn unknown(what: String) -> Error {
    Error::new(ErrorKind::UndefinedError, what)
}

/// A setting as it is written: whole numbers without decimals.
fn setting(value: &serde_json::Value) -> Value {
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => Value::from(number as i64),
        _ => Value::from(Serde(value)),
    }
}

/// The samples, by case.
#[derive(Debug)]
struct Cases(Arc<Context>);

impl Object for Cases {
    fn get_value(self: &Arc<Self>, case: &Value) -> Option<Value> {
        self.0.samples.get(case.as_str()?)?;
        Some(Value::from_object(Figures { of: Arc::clone(&self.0), case: case.as_str()?.to_owned() }))
    }
}

/// The medians of a case, by measure.
#[derive(Debug)]
struct Figures {
    of: Arc<Context>,
    case: String,
}

impl Object for Figures {
    fn get_value(self: &Arc<Self>, measure: &Value) -> Option<Value> {
        self.of.shown(&self.case, measure.as_str()?, Series::shown).map(Value::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::samples;
    use crate::series::Claim;

    fn context() -> Context {
        let mut samples = samples();
        samples.settings.insert("turn_s".into(), 3.0.into());
        samples.claim("order", Claim(vec![Some(true), Some(false)]));
        let checks = vec![Check::at_most("x", 1.0, Some(0.5))];
        Context {
            id: "K0",
            quick: false,
            samples,
            checks,
            is_invalid: false,
            machine: "On a machine.".into(),
        }
    }

    #[test]
    fn figures_come_of_the_samples() {
        let text = "{{ machine }} {{ s[\"ours/idle\"].p99_us }} µs, {{ cell(\"ours/idle\", \"ratio\") }}, {{ turn_s }} s; {{ holds(\"order\") }} {{ total('*/idle', 'p50_us') }} {{ middle('*/idle', 'p50_us') }}\n\
                    {% if quick %}\nQuick.\n{% endif %}\n{{ targets() }}\n";
        let report = context().render(text).unwrap();
        assert!(
            report.starts_with(
                "On a machine. 30.0 µs, 3.00 (2.00 to 4.00), 3 s; **it holds in 1 of 2 repetitions** 75 12\n## Targets\n"
            ),
            "{report}"
        );
        assert!(report.ends_with("| met |\n"), "{report}");
        let report = Context { is_invalid: true, ..context() }.render("{{ holds('order') }}").unwrap();
        assert_eq!(report, "**invalid**");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for text in [
            "{{ turn }}",
            "{{ s['ours'].p99_us }}",
            "{{ s['ours/idle'].p99 }}",
            "{{ cell('ours/idle', 'p99') }}",
            "{{ table(columns='p99') }}",
            "{{ table(row='*') }}",
            "{{ holds('odder') }}",
            "{% if odd %}{% endif %}",
        ] {
            assert!(context().render(text).is_err(), "{text}");
        }
    }
}
