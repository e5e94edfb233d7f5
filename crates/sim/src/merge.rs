//! Joins the parts of a sweep that ran separately.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sidelong_files::open_regular;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::sweep::{CONFIG_TOML, Part, RUNS_CSV, Sweep, error, is_of, lock, own, part_of, rewrite, write};

/// Writes the results of the runs in `parts` to `out`: the same bytes as one run of the whole. Returns the number of runs.
///
/// # Errors
/// If a part is of another configuration, a run is missing, two parts differ in a run, or `out` has other results. The error
/// names it, and nothing is written.
pub fn merge(parts: &[PathBuf], out: &Path) -> Result<usize> {
    let refuse = |path: &Path, reason: String| Err(Error::Part { path: path.to_owned(), reason });
    let mut first: Option<(&Path, Config)> = None;
    let mut rows: BTreeMap<usize, (String, &Path)> = BTreeMap::new();
    let mut found: Vec<(Part, &Path)> = Vec::new();
    // The first part's, in whatever order the parts are named.
    let mut told: Option<(Part, String)> = None;
    for path in parts.iter().map(PathBuf::as_path) {
        let config_toml = path.join(CONFIG_TOML);
        let config = Config::load(&config_toml, &[])?;
        let text = open_regular(&config_toml)
            .and_then(std::io::read_to_string)
            .map_err(|source| error(&config_toml, source))?;
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
                    return refuse(path, format!("it has another result of run \"{run}\" than {other}"));
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

/// Refuses parts that lack a run, and names the first that does or is missing.
fn lack(sweep: &Sweep, path: &Path, found: &[(Part, &Path)], rows: &BTreeMap<usize, String>) -> Result<()> {
    let lacking = |part: Part| Some(sweep.missing(part, rows)).filter(|missing| !missing.is_empty());
    for (part, path) in found {
        if let Some(missing) = lacking(*part) {
            let reason = format!(
                "part {part} has no result of {}; run it again with the same --out, and it continues from there",
                sweep.few(&missing)
            );
            return Err(Error::Part { path: path.to_path_buf(), reason });
        }
    }
    let absent = found.iter().flat_map(|(part, _)| part.all()).find_map(|part| Some((part, lacking(part)?)));
    absent.map_or(Ok(()), |(part, missing)| {
        let reason = format!("part {part} is missing, which has {}", sweep.few(&missing));
        Err(Error::Part { path: path.to_owned(), reason })
    })
}
