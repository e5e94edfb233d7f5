//! Compares two results.

use std::collections::BTreeMap;
use std::path::Path;

use sidelong_figure::statistics::Mean;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::fields::{FIELDS, find};
use crate::report::{Rows, Table, short, with_confidence};
use crate::sweep::{CONFIG_TOML, ROWS_CSV};

/// Compares two results: fields that differ, and for each point that both have, the figures of both and their ratio.
///
/// Two points match if they agree in every field that either result sweeps. A `*` marks differences that are significant at
/// 95 % confidence: of the mean difference if both have the same seeds, otherwise if the confidence intervals of the two
/// means do not overlap.
///
/// # Errors
/// If one of the directories holds no result, or they are of different models.
pub fn compare(first: &Path, second: &Path) -> Result<String> {
    let (a, b) = (Side::load(first)?, Side::load(second)?);
    let model = a.table.model;
    if model != b.table.model {
        return Err(Error::Models {
            first: (first.to_owned(), model),
            second: (second.to_owned(), b.table.model),
        });
    }
    let of_model =
        || (0..FIELDS.len()).filter(|&field| FIELDS[field].is_of(model) && FIELDS[field].key != "seed");
    let is_fixed = |field: &usize| a.config.fixed(*field).is_some() && b.config.fixed(*field).is_some();
    let (fixed, swept): (Vec<_>, Vec<_>) = of_model().partition(is_fixed);
    let apart: Vec<_> = fixed.iter().filter(|&&of| a.config.fixed(of) != b.config.fixed(of)).collect();

    let mut text = format!("first   {}\nsecond  {}\n", first.display(), second.display());
    for field in of_model() {
        let (ours, theirs) = (a.config.values(field).join(", "), b.config.values(field).join(", "));
        if ours != theirs {
            text += &format!("{}: first {ours}; second {theirs}\n", FIELDS[field].name());
        }
    }
    text += &format!("\n  {:28} {:>22} {:>22}  second / first\n", "", "first", "second");
    // What every row tells is told here too, where it is the same in both.
    let is_told = |field: &usize| {
        swept.contains(field) || (model.always().contains(&FIELDS[*field].key) && !apart.contains(&field))
    };
    let told: Vec<_> = of_model().filter(is_told).collect();
    let others: BTreeMap<_, _> =
        b.table.points.iter().map(|other| (b.values(other, &swept), other)).collect();
    let mut matched = 0;
    for rows in &a.table.points {
        let Some(other) = others.get(&a.values(rows, &swept)) else { continue };
        matched += 1;
        let values = a.values(rows, &told);
        let of = told.iter().zip(values).map(|(field, value)| format!("{} {value}", FIELDS[*field].key));
        text += &format!("{}\n", of.collect::<Vec<_>>().join(", "));
        for name in model.told() {
            let (was, is) = (rows.mean(name), other.mean(name));
            let ratio = if was.mean == 0.0 { "-".to_owned() } else { short(is.mean / was.mean) };
            let mark = if is_apart(name, rows, other) { " *" } else { "" };
            text += &format!(
                "  {name:28} {:>22} {:>22}  {ratio}{mark}\n",
                with_confidence(was),
                with_confidence(is)
            );
        }
    }
    for (side, path, other) in [(&a, first, second), (&b, second, first)] {
        let unmatched = side.table.points.len() - matched;
        if unmatched > 0 {
            let points = if unmatched == 1 { "point of" } else { "points of" };
            text += &format!("no match in {}: {unmatched} {points} {}\n", other.display(), path.display());
        }
    }
    if text.contains(" *\n") {
        text += "* not by chance, with 95 % confidence over the seeds\n";
    }
    Ok(text)
}

/// One of the two results.
struct Side {
    config: Config,
    table: Table,
}

impl Side {
    fn load(directory: &Path) -> Result<Side> {
        let table = Table::parse(&directory.join(ROWS_CSV))?;
        Ok(Side { config: Config::load(&directory.join(CONFIG_TOML), &[])?, table })
    }

    /// A point's values of these fields: those in its row, otherwise the configuration's.
    fn values<'a>(&'a self, rows: &'a Rows, fields: &[usize]) -> Vec<&'a str> {
        let value = |field: &usize| {
            let column = self.table.keys.iter().position(|key| find(key) == Some(*field));
            let of_row = column.map(|column| rows.values[column].as_str());
            of_row.or_else(|| self.config.fixed(*field)).unwrap_or_default()
        };
        fields.iter().map(value).collect()
    }
}

/// Whether a figure differs significantly over the seeds.
fn is_apart(name: &str, first: &Rows, second: &Rows) -> bool {
    if let Some(Mean { mean, within: Some(within) }) = first.difference(second, name) {
        return mean.abs() > within;
    }
    let (was, is) = (first.mean(name), second.mean(name));
    matches!((was.within, is.within), (Some(a), Some(b)) if (was.mean - is.mean).abs() > a + b)
}
