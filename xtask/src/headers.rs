//! `cargo xtask headers`: the C header with the regions, as an example of `layout` prints it. It is in git, so that users of the C
//! library need no Rust; `--check` shows that it is what the declarations say.

use std::path::Path;

use crate::error::Error;
use crate::exec;

const HEADER: &str = "fronts/lib/layout.h";

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask headers            write fronts/lib/layout.h; then rebuild the objects by `cargo xtask bpf`
  cargo xtask headers --check    compare with it";

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare with what is in git, and write nothing.
    #[arg(long)]
    check: bool,
}

/// Writes the header, or checks it. Whether all is well.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let path = root.join(HEADER);
    if !args.check {
        let header = printed(root)?;
        std::fs::write(&path, header).map_err(|source| Error::Write { path, source })?;
        println!("{HEADER}");
        return Ok(true);
    }
    let is_same = is_same(root)?;
    println!("{HEADER} is {}", if is_same { "what crates/layout says" } else { OTHERWISE });
    Ok(is_same)
}

/// What it is where it is not the same.
pub(crate) const OTHERWISE: &str =
    "not what crates/layout says: run `cargo xtask headers`, then `cargo xtask bpf`";

/// Whether the header that is in git is the one that the declarations make.
pub(crate) fn is_same(root: &Path) -> Result<bool, Error> {
    let path = root.join(HEADER);
    let header = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    Ok(printed(root)? == header)
}

fn printed(root: &Path) -> Result<String, Error> {
    let mut cargo = exec::cargo();
    cargo.current_dir(root).args(["run", "--quiet", "--locked"]);
    exec::output(cargo.args(["--package", "sidelong-layout", "--example", "header"]))
}
