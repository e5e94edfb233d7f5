//! `cargo xtask bpf`: the objects that are loaded into the kernel, built from their sources beside them. They are in git, so
//! that users need no clang; `--check` shows that they are what the sources say.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;

/// Where sources and objects lie.
const PLACE: &str = "crates/load/src/bpf";
/// Where the header with the regions lies.
const HEADERS: &str = "fronts/lib";
/// Each object without its ending: `.c` is its source's.
const OBJECTS: [&str; 2] = ["record.bpf", "connect.bpf"];
/// Which compiler made the objects: another makes others, as good.
const MAKER: &str = "objects.clang";

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask bpf            build crates/load/src/bpf/*.bpf.o
  cargo xtask bpf --check    build them elsewhere and compare

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
    /// The objects are what the sources say.
    Same,
    /// This one is not.
    Differs(&'static str),
    /// Another compiler would have to be here: why.
    Skipped(String),
}

/// Builds them, or checks them. Whether all is well.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let place = root.join(PLACE);
    if !args.check {
        build(root, &place)?;
        let maker = place.join(MAKER);
        let clang = clang()?;
        std::fs::write(&maker, format!("{clang}\n"))
            .map_err(|source| Error::Write { path: maker, source })?;
        println!("{PLACE}/*.bpf.o, by {clang}");
        return Ok(true);
    }
    let checked = check(root)?;
    match &checked {
        Checked::Same => println!("{PLACE}/*.bpf.o are what their sources say"),
        Checked::Differs(object) => {
            println!("{PLACE}/{object}.o is not what its source says: run `cargo xtask bpf`");
        }
        Checked::Skipped(why) => println!("SKIPPED: bpf: {why}"),
    }
    Ok(!matches!(checked, Checked::Differs(_)))
}

/// Builds them elsewhere and compares.
pub(crate) fn check(root: &Path) -> Result<Checked, Error> {
    let read = |path: PathBuf| std::fs::read(&path).map_err(|source| Error::Read { path, source });
    let maker = String::from_utf8_lossy(&read(root.join(PLACE).join(MAKER))?).trim().to_owned();
    match clang() {
        Ok(found) if found == maker => {}
        Ok(found) => return Ok(Checked::Skipped(format!("{found} is here, the objects are by {maker}"))),
        Err(Error::Start { .. }) => {
            return Ok(Checked::Skipped(format!("no clang; the objects are by {maker}")));
        }
        Err(error) => return Err(error),
    }
    let directory =
        tempfile::tempdir().map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    build(root, directory.path())?;
    for object in OBJECTS {
        let file = format!("{object}.o");
        if read(directory.path().join(&file))? != read(root.join(PLACE).join(&file))? {
            return Ok(Checked::Differs(object));
        }
    }
    Ok(Checked::Same)
}

/// The compiler, by its first line.
fn clang() -> Result<String, Error> {
    let said = exec::output(Command::new("clang").arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

/// Builds all objects into a directory. What they say depends on the sources and the two tools alone, and not on where they
/// lie.
fn build(root: &Path, directory: &Path) -> Result<(), Error> {
    let (place, libbpf) = (root.join(PLACE), libbpf(root)?);
    for name in OBJECTS {
        let object = directory.join(format!("{name}.o"));
        let mut clang = Command::new("clang");
        clang.current_dir(&place).args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
        clang.arg("-D__TARGET_ARCH_x86").arg("-I").arg(&libbpf).arg("-I").arg(root.join(HEADERS));
        for (from, to) in [(&libbpf, "libbpf"), (&place, ".")] {
            clang.arg(format!("-ffile-prefix-map={}={to}", from.display()));
        }
        exec::output(clang.arg("-c").arg(format!("{name}.c")).arg("-o").arg(&object))?;
        // What is for debuggers goes; what the kernel wants to know of types stays.
        exec::output(Command::new("llvm-strip").arg("--strip-debug").arg(&object))?;
    }
    Ok(())
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
