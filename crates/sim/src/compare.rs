//! Two results side by side.

use std::path::Path;

use crate::error::{Error, Result};
use crate::report::{Table, short};

/// The points that two results have in common, with the figures of both and what the second is of the first. A ratio is
/// marked with `*` where the confidence of the two means does not overlap.
///
/// # Errors
/// Where one of the directories holds no result.
pub fn compare(first: &Path, second: &Path) -> Result<String> {
    let (a, b) = (Table::parse(&first.join("rows.csv"))?, Table::parse(&second.join("rows.csv"))?);
    if a.model != b.model {
        let reason = format!("it is of the model {}, the other of {}", b.model.as_str(), a.model.as_str());
        return Err(Error::Result { path: second.to_owned(), reason });
    }
    let mut text = String::new();
    let shared: Vec<_> = a.keys.iter().filter(|key| b.keys.contains(key)).collect();
    let key_of = |table: &Table, values: &[String]| {
        let of = |key: &&&String| table.keys.iter().position(|own| own == **key);
        let at: Vec<_> = shared.iter().filter_map(|key| of(&key)).collect();
        at.into_iter().map(|at| values[at].clone()).collect::<Vec<_>>()
    };
    let mut unmatched = 0;
    for rows in &a.points {
        let key = key_of(&a, &rows.values);
        let Some(other) = b.points.iter().find(|other| key_of(&b, &other.values) == key) else {
            unmatched += 1;
            continue;
        };
        let of: Vec<_> = shared.iter().zip(&key).map(|(key, value)| format!("{key} {value}")).collect();
        text += &format!("{}\n", of.join(", "));
        for name in a.model.told() {
            let (was, is) = (rows.mean(name), other.mean(name));
            let apart = match (was.within, is.within) {
                (Some(a), Some(b)) => (was.mean - is.mean).abs() > a + b,
                _ => false,
            };
            let ratio = if was.mean == 0.0 { "-".to_owned() } else { short(is.mean / was.mean) };
            let mark = if apart { " *" } else { "" };
            text += &format!("  {name:28} {:>22} {:>22}  {ratio}{mark}\n", was.text(), is.text());
        }
    }
    if unmatched > 0 {
        text += &format!("{unmatched} points of {} have no match in {}\n", first.display(), second.display());
    }
    Ok(text)
}
