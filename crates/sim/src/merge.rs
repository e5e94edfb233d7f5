//! Parts of a sweep that ran apart, joined.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::sweep::{CONFIG_TOML, Part, RUNS_CSV, Sweep, error, is_of, lock, own, part_of, rewrite, write};

/// Writes to `out` what the runs in `parts` come to: the same bytes as of a sweep that was not parted. Says how many
/// runs these were.
///
/// # Errors
/// Where one is of another configuration, a run is in none of them, or two tell different things of one; the error names
/// it. So it is where `out` has other results. Nothing is written then.
pub fn merge(parts: &[PathBuf], out: &Path) -> Result<usize> {
    let refuse = |path: &Path, reason: String| Err(Error::Part { path: path.to_owned(), reason });
    let mut first: Option<(&Path, Config)> = None;
    let mut rows: BTreeMap<usize, (String, &Path)> = BTreeMap::new();
    let mut found: Vec<(Part, &Path)> = Vec::new();
    // One and the same in whatever order the parts are named: that of the first part.
    let mut told: Option<(Part, String)> = None;
    for path in parts.iter().map(PathBuf::as_path) {
        let config_toml = path.join(CONFIG_TOML);
        let config = Config::load(&config_toml, &[])?;
        let text = fs::read_to_string(&config_toml).map_err(|source| error(&config_toml, source))?;
        let (first, whole) = first.get_or_insert_with(|| (path, config.clone()));
        if let Some(difference) = config.difference(whole) {
            let reason =
                format!("its config.toml asks for other runs than that of {}: {difference}", first.display());
            return refuse(path, reason);
        }
        let part = part_of(path)?;
        found.push((part, path));
        told = Some(told.map_or((part, text.clone()), |told| told.min((part, text))));
        let sweep = Sweep::new(whole);
        for (run, row) in sweep.kept(&path.join(RUNS_CSV))? {
            match rows.get(&run) {
                Some((known, other)) if *known != row => {
                    let (run, other) = (sweep.name(run), other.display());
                    return refuse(path, format!("it tells something else of run \"{run}\" than {other}"));
                }
                Some(_) => (),
                None => _ = rows.insert(run, (row, path)),
            }
        }
    }
    let (Some((path, whole)), Some((_, text))) = (first, told) else { return Ok(0) };
    let sweep = Sweep::new(&whole);
    let rows = rows.into_iter().map(|(run, (row, _))| (run, row)).collect();
    lack(&sweep, path, &found, &rows)?;
    is_of(&whole, out)?;
    let _lock = lock(out)?;
    own(out, Part::WHOLE)?;
    write(&out.join(CONFIG_TOML), &text)?;
    rewrite(&out.join(RUNS_CSV), sweep.head(), rows.values())?;
    sweep.finish(out, &text, &rows)?;
    Ok(sweep.len())
}

/// Says which part lacks a run, or is not there.
fn lack(sweep: &Sweep, path: &Path, found: &[(Part, &Path)], rows: &BTreeMap<usize, String>) -> Result<()> {
    let lacking = |part: Part| Some(sweep.missing(part, rows)).filter(|missing| !missing.is_empty());
    for (part, path) in found {
        if let Some(missing) = lacking(*part) {
            let reason = format!(
                "part {part} has no result of {}; run it again with the same --out, it goes on from there",
                sweep.few(&missing)
            );
            return Err(Error::Part { path: path.to_path_buf(), reason });
        }
    }
    let absent = found.iter().flat_map(|(part, _)| part.all()).find_map(|part| Some((part, lacking(part)?)));
    absent.map_or(Ok(()), |(part, missing)| {
        let reason = format!("beside it there is no part {part}, which has {}", sweep.few(&missing));
        Err(Error::Part { path: path.to_owned(), reason })
    })
}
