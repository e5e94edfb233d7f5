//! Reports of a sweep's rows: means over seeds, with confidence intervals.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sidelong_figure::statistics::Mean;
use sidelong_os::open_regular;

use crate::error::{Error, Result};
use crate::figure::Drawing;
use crate::model::Model;

/// A `rows.csv`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Table {
    /// The model of the figures.
    pub(crate) model: Model,
    /// Columns before the figures, without the seed.
    pub(crate) keys: Vec<String>,
    /// In the order of the file.
    pub(crate) points: Vec<Rows>,
}

/// The rows of one point, which differ only in their seeds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rows {
    names: Arc<[&'static str]>,
    pub(crate) values: Vec<String>,
    pub(crate) seeds: Vec<String>,
    /// By figure and seed.
    figures: Vec<Vec<f64>>,
}

impl Table {
    pub(crate) fn parse(path: &Path) -> Result<Table> {
        let wrong = |reason: &str| Error::Result { path: path.to_owned(), reason: reason.to_owned() };
        let text =
            open_regular(path).and_then(std::io::read_to_string).map_err(|source| match source.kind() {
                ErrorKind::NotFound => wrong("it is not there; run the sweep to its end"),
                _ => Error::File { path: path.to_owned(), source },
            })?;
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().ok_or_else(|| wrong("it is empty"))?;
        let of = |model: &Model| head.ends_with(&model.figures());
        let model = Model::ALL.iter().copied().find(of);
        let model = model.ok_or_else(|| wrong("its columns are not those of this version"))?;
        let names: Arc<[_]> = model.figures().into();
        let key_count = head.len() - names.len();
        let seed =
            head[..key_count].iter().position(|key| *key == "seed").ok_or_else(|| wrong("it has no seed"))?;
        let mut keys: Vec<_> = head[..key_count].iter().map(|key| (*key).to_owned()).collect();
        keys.remove(seed);
        let mut points: Vec<Rows> = Vec::new();
        let mut index: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for line in lines {
            if line.len() != head.len() {
                return Err(wrong("a line has too few or too many values"));
            }
            let mut values: Vec<_> = line[..key_count].iter().map(|value| (*value).to_owned()).collect();
            let seed = values.remove(seed);
            let figures = line[key_count..].iter().map(|value| value.parse::<f64>());
            let figures =
                figures.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| wrong("a figure is none"))?;
            let at = *index.entry(values.clone()).or_insert_with(|| {
                let (names, figures) = (Arc::clone(&names), vec![Vec::new(); names.len()]);
                points.push(Rows { names, values, seeds: Vec::new(), figures });
                points.len() - 1
            });
            points[at].seeds.push(seed);
            points[at].figures.iter_mut().zip(figures).for_each(|(of, figure)| of.push(figure));
        }
        Ok(Table { model, keys, points })
    }
}

impl Rows {
    /// The mean of a figure over the seeds.
    pub(crate) fn mean(&self, name: &str) -> Mean {
        Mean::of(self.by_seed(name)).expect("a row has a seed")
    }

    /// The mean difference of a figure to another point, seed by seed, which cancels the seeds' common effect. `None`
    /// if the seeds differ.
    pub(crate) fn difference(&self, other: &Rows, name: &str) -> Option<Mean> {
        let (ours, theirs) = (self.by_seed(name), other.by_seed(name));
        if self.seeds.len() != other.seeds.len() {
            return None;
        }
        let theirs: BTreeMap<_, _> = other.seeds.iter().zip(theirs).collect();
        let by_seed = |(seed, ours): (&String, &f64)| Some(*theirs.get(seed)? - ours);
        let differences: Option<Vec<_>> = self.seeds.iter().zip(ours).map(by_seed).collect();
        Mean::of(&differences?)
    }

    fn by_seed(&self, name: &str) -> &[f64] {
        let figure = self.names.iter().position(|figure| *figure == name).expect("a figure of the table");
        &self.figures[figure]
    }
}

/// A mean as shown in tables.
pub(crate) fn with_confidence(Mean { mean, within }: Mean) -> String {
    let within = within.map_or_else(String::new, |within| format!(" ± {}", short(within)));
    format!("{}{within}", short(mean))
}

/// Rounded to four significant digits.
pub(crate) fn short(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

/// `result.json`.
pub(crate) fn json(config: &str, table: &Table) -> String {
    let point = |rows: &Rows| {
        let figures: BTreeMap<_, _> = rows.names.iter().map(|name| (*name, rows.mean(name))).collect();
        let values: BTreeMap<_, _> = table.keys.iter().zip(&rows.values).collect();
        serde_json::json!({ "values": values, "seeds": rows.seeds, "figures": figures })
    };
    let points: Vec<_> = table.points.iter().map(point).collect();
    let result = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "config": config,
        "points": points,
    });
    format!("{result:#}\n")
}

/// `report.md`.
pub(crate) fn markdown(config: &str, table: &Table, figure: &Drawing) -> String {
    let mut text = String::from("# Simulation\n\n");
    let seeds = table.points.first().map_or(0, |rows| rows.seeds.len());
    text += &format!(
        "{} point{}, {seeds} seed{} each{}.\n\n",
        table.points.len(),
        if table.points.len() == 1 { "" } else { "s" },
        if seeds == 1 { "" } else { "s" },
        if seeds > 1 {
            "; ± is 95 % confidence of the mean over them"
        } else {
            ", so there are no confidence intervals"
        },
    );
    match figure {
        Drawing::Svg(_) => text += "![The figures over what was swept](figure.svg)\n\n",
        Drawing::None(why) => text += &format!("There is no figure: {why}.\n\n"),
    }
    let keys = table.keys.iter().map(String::as_str);
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let told = table.model.told();
    let head: Vec<_> = keys.chain(told.iter().copied()).map(|name| name.replace('_', " ")).collect();
    text += &line(head.clone());
    text += &line(head.iter().map(|_| "---".to_owned()).collect());
    for rows in &table.points {
        let figures = told.iter().map(|name| with_confidence(rows.mean(name)));
        text += &line(rows.values.iter().cloned().chain(figures).collect());
    }
    text += match table.model {
        Model::Cache => "\nTimes are those of simulated clients, from a request's arrival at its node; ",
        Model::Reconfig => "\nTimes are those of simulated clients, from asking to being answered; ",
    };
    text += "`rows.csv` has every figure of every run.\n\n## Configuration\n\n```toml\n";
    text += config;
    text += "```\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_told_with_their_confidence() {
        let told = |values: &[f64]| with_confidence(Mean::of(values).unwrap());
        assert_eq!(told(&[1.0, 2.0, 3.0]), "2.000 ± 2.484");
        assert_eq!(told(&[1234.5]), "1234");
        assert_eq!((short(0.00123456), short(0.0)), ("0.001235".to_owned(), "0".to_owned()));
    }
}
