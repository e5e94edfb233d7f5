//! `figure.svg`: a sweep's figures over the first field swept in numbers, with a line for each combination of the
//! others, and confidence intervals of the means over the seeds as error bars.

use std::collections::BTreeSet;

use sidelong_figure::{Axis, Line, Panel, SERIES_MAX, Style, draw};

use crate::error::Result;
use crate::report::{Rows, Table};

/// Values with at least this ratio of largest to smallest are drawn on a logarithmic scale.
const RATIO_MIN: f64 = 8.0;

/// The figure of a table.
pub(crate) enum Drawing {
    Svg(String),
    /// No figure, and the reason.
    None(String),
}

pub(crate) fn of(table: &Table) -> Result<Drawing> {
    let Some(across) =
        (0..table.keys.len()).find(|&key| places(table, key).is_some_and(|places| places.len() > 1))
    else {
        return Ok(Drawing::None("no field was swept in numbers".to_owned()));
    };
    let name = |rows: &Rows| {
        let varied = |key: &usize| *key != across && differs(table, *key);
        let parts = (0..table.keys.len()).filter(varied).map(|key| rows.values[key].as_str());
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut known = BTreeSet::new();
    let mut names: Vec<String> = table.points.iter().map(name).collect();
    names.retain(|name| known.insert(name.clone()));
    if names.len() > SERIES_MAX {
        return Ok(Drawing::None(format!("{} lines could not be told apart", names.len())));
    }

    let places = places(table, across).unwrap_or_default();
    let (first, last) = (places[0], places[places.len() - 1]);
    let title = table.keys[across].replace('_', " ");
    let is_wide = first > 0.0 && last / first >= RATIO_MIN;
    let (x, place): (Axis, fn(f64) -> f64) = match is_wide {
        true => (Axis::powers_of_two(title.clone(), first, last), f64::log2),
        false => {
            let margin = (last - first) * 0.05;
            (Axis::between(title.clone(), first - margin, last + margin), |value| value)
        }
    };
    let panel = |(figure, title, unit): (&str, &str, &str)| {
        let line = |(index, of): (usize, &String)| {
            let points = table.points.iter().filter(|rows| name(rows) == *of).filter_map(|rows| {
                let mean = rows.mean(figure);
                Some((place(rows.values[across].parse().ok()?), mean.mean, mean.interval()))
            });
            let mut points: Vec<_> = points.filter(|(_, y, _)| y.is_finite()).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line::with_intervals(Style::series(index), points)
        };
        let lines: Vec<_> = names.iter().enumerate().map(line).collect();
        let most = lines.iter().map(Line::most).fold(0.0, f64::max);
        Panel { title: title.to_owned(), x: x.clone(), y: Axis::from_zero(unit, most), lines }
    };
    let panels: Vec<_> = table.model.shown().into_iter().map(panel).collect();
    let legend: Vec<_> = match &names[..] {
        [_] => Vec::new(),
        _ => names.iter().enumerate().map(|(index, name)| (name.clone(), Style::series(index))).collect(),
    };
    Ok(Drawing::Svg(draw(&format!("Simulated, by {title}"), &panels, &legend)?))
}

/// The distinct values of a column in ascending order, if all are numbers.
fn places(table: &Table, key: usize) -> Option<Vec<f64>> {
    let values: Option<Vec<f64>> = table.points.iter().map(|rows| rows.values[key].parse().ok()).collect();
    let mut values = values?;
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.iter().all(|value| value.is_finite()).then_some(values)
}

fn differs(table: &Table, key: usize) -> bool {
    table.points.iter().map(|rows| &rows.values[key]).collect::<BTreeSet<_>>().len() > 1
}
