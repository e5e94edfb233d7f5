//! `cargo xtask bpf`: the object that is loaded into the kernel, built from its source beside it. It is in git, so that
//! users need no clang; `--check` shows that it is what the source says.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;

/// Where source and object lie.
const PLACE: &str = "crates/load/src/bpf";
const SOURCE: &str = "record.bpf.c";
const OBJECT: &str = "record.bpf.o";
/// Which compiler made the object: another makes another one, as good.
const MAKER: &str = "record.bpf.clang";

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask bpf            build crates/load/src/bpf/record.bpf.o
  cargo xtask bpf --check    build it elsewhere and compare

Needs clang and llvm. The check is left out where clang is not the one that built what is in git.";

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare with what is in git, and write nothing.
    #[arg(long)]
    check: bool,
}

/// What a check came to.
pub(crate) enum Checked {
    /// The object is what the source says.
    Same,
    /// It is not.
    Differs,
    /// Another compiler would have to be here: why.
    Skipped(String),
}

/// Builds it, or checks it. Whether all is well.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let place = root.join(PLACE);
    if !args.check {
        build(root, &place.join(OBJECT))?;
        let maker = place.join(MAKER);
        let clang = clang()?;
        std::fs::write(&maker, format!("{clang}\n"))
            .map_err(|source| Error::Write { path: maker, source })?;
        println!("{PLACE}/{OBJECT}, by {clang}");
        return Ok(true);
    }
    let checked = check(root)?;
    match &checked {
        Checked::Same => println!("{PLACE}/{OBJECT} is what its source says"),
        Checked::Differs => println!("{PLACE}/{OBJECT} is not what its source says: run `cargo xtask bpf`"),
        Checked::Skipped(why) => println!("SKIPPED: bpf: {why}"),
    }
    Ok(!matches!(checked, Checked::Differs))
}

/// Builds it elsewhere and compares.
pub(crate) fn check(root: &Path) -> Result<Checked, Error> {
    let read = |path: PathBuf| std::fs::read(&path).map_err(|source| Error::Read { path, source });
    let maker = String::from_utf8_lossy(&read(root.join(PLACE).join(MAKER))?).trim().to_owned();
    match clang() {
        Ok(found) if found == maker => {}
        Ok(found) => return Ok(Checked::Skipped(format!("{found} is here, the object is by {maker}"))),
        Err(Error::Start { .. }) => {
            return Ok(Checked::Skipped(format!("no clang; the object is by {maker}")));
        }
        Err(error) => return Err(error),
    }
    let directory =
        tempfile::tempdir().map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let fresh = directory.path().join(OBJECT);
    build(root, &fresh)?;
    let same = read(fresh)? == read(root.join(PLACE).join(OBJECT))?;
    Ok(if same { Checked::Same } else { Checked::Differs })
}

/// The compiler, by its first line.
fn clang() -> Result<String, Error> {
    let said = exec::output(Command::new("clang").arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

/// What it says depends on the source and the two tools alone, and not on where they lie.
fn build(root: &Path, object: &Path) -> Result<(), Error> {
    let (place, libbpf) = (root.join(PLACE), libbpf(root)?);
    let mut clang = Command::new("clang");
    clang.current_dir(&place).args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    clang.arg("-D__TARGET_ARCH_x86").arg("-I").arg(&libbpf);
    for (from, to) in [(&libbpf, "libbpf"), (&place, ".")] {
        clang.arg(format!("-ffile-prefix-map={}={to}", from.display()));
    }
    exec::output(clang.args(["-c", SOURCE, "-o"]).arg(object))?;
    // What is for debuggers goes; what the kernel wants to know of types stays.
    exec::output(Command::new("llvm-strip").arg("--strip-debug").arg(object)).map(|_| ())
}

/// Where the headers lie that programs are written with: those of the loader that is linked.
fn libbpf(root: &Path) -> Result<PathBuf, Error> {
    let mut cargo = exec::cargo();
    cargo.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    let metadata = exec::output(&mut cargo)?;
    let not_understood = |why: String| Error::Parse { what: "`cargo metadata`".into(), why };
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).map_err(|error| not_understood(error.to_string()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut manifests = packages
        .filter(|package| package["name"] == "libbpf-sys")
        .filter_map(|package| package["manifest_path"].as_str());
    let manifest = manifests.next().ok_or_else(|| not_understood("no package libbpf-sys".into()))?;
    Ok(Path::new(manifest).with_file_name("libbpf/src"))
}
