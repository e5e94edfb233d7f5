//! `cargo xtask deb`: Debian's packages of what cargo and make build. deploy/debian says what each has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;
use crate::repo;

/// What packages are built from, beside the sources.
const DEBIAN: &str = "deploy/debian";
/// As what packages have the programs built (README.md).
pub(crate) const PROFILE: &str = "dist";

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask deb               build all packages, in cargo's target directory
  cargo xtask deb --out debs    the same, in debs

Needs Debian's debhelper, and what `Build-Depends` of deploy/debian/control names.";

/// What to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory that gets the packages [default: deb in cargo's target directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds the packages, and prints their paths. Whether all is well.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let out = args.out.clone().map_or_else(|| Ok(repo::target(root)?.join("deb")), Ok::<_, Error>)?;
    build(root, &out, PROFILE)
}

/// Builds them in `out` of programs of that profile of cargo. Whether all is well.
pub(crate) fn build(root: &Path, out: &Path, profile: &str) -> Result<bool, Error> {
    let target = repo::target(root)?;
    // As CI's step `release`: another selection of packages has other features, and is built anew.
    let mut build = exec::cargo();
    let programs = ["--bin", "sidelong", "--bin", "sidelong-lab"];
    build.current_dir(root).args(["build", "--locked", "--profile", profile]).args(programs);
    if !exec::status(&mut build)?.success() {
        return Ok(false);
    }
    let written = |path: &Path| {
        let path = path.to_owned();
        |source| Error::Write { path, source }
    };
    fs::create_dir_all(out).map_err(written(out))?;
    let out = out.canonicalize().map_err(written(out))?;
    let work = tempfile::Builder::new().prefix(".build").tempdir_in(&out).map_err(written(&out))?;
    let source = work.path().join("sidelong");
    copy(&root.join(DEBIAN), &source.join("debian")).map_err(written(&source))?;
    let mut packages = Command::new("dpkg-buildpackage");
    packages.args(["--build=binary", "--no-sign", "--no-check-builddeps"]).current_dir(&source);
    packages.env("SRC", root).env("BIN", target.join(profile));
    if !exec::status(&mut packages)?.success() {
        return Ok(false);
    }
    for entry in fs::read_dir(work.path()).map_err(written(work.path()))? {
        let path = entry.map_err(written(work.path()))?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|kind| kind == "deb")) {
            let there = out.join(name);
            fs::rename(&path, &there).map_err(written(&there))?;
            println!("{}", there.display());
        }
    }
    Ok(true)
}

/// Copies a directory with what is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &there)?;
        } else {
            fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_packages_have_the_version_of_the_program() {
        let changelog = include_str!("../../deploy/debian/changelog");
        let version = changelog.split(['(', ')']).nth(1);
        assert_eq!(version, Some(env!("CARGO_PKG_VERSION")));
    }
}
