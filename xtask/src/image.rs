//! `cargo xtask image`: an OCI image with Debian's package of sidelong, as a directory that container tools read.
//!
//! Source: OCI Image Format Specification 1.1, image layout, manifest and configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::deb;
use crate::error::Error;
use crate::exec;
use crate::repo;

/// The release of Debian that the packages are built for.
pub(crate) const SUITE: &str = "bookworm";
/// What the image has beside the essential packages and what `sidelong` depends on: authorities for TLS to etcd and Kubernetes.
const BESIDES: &str = "ca-certificates";
/// By which tools name it within the directory.
pub(crate) const TAG: &str = "latest";

/// Shown below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask image                                              build it, in cargo's target directory
  skopeo copy oci:target/image:latest docker://REGISTRY/sidelong  put it where a cluster finds it
  podman pull oci:target/image:latest                            or into podman

Needs mmdebstrap, and what `cargo xtask deb` needs. Debian's packages come from the sources of this machine's apt.";

/// What to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory that gets the image [default: image in cargo's target directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory with packages that were built before, in place of new ones.
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
}

/// Builds the image. Whether all is well.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, Error> {
    let target = repo::target(root)?;
    let out = args.out.clone().unwrap_or_else(|| target.join("image"));
    if let Some(packages) = &args.packages {
        return build(packages, &out);
    }
    let packages = target.join("deb");
    Ok(deb::build(root, &packages, deb::PROFILE)? && build(&packages, &out)?)
}

/// Builds it in `out` of the package in a directory. Whether all is well.
pub(crate) fn build(packages: &Path, out: &Path) -> Result<bool, Error> {
    let work = tempfile::tempdir().map_err(written(&std::env::temp_dir()))?;
    let (package, tar) = (work.path().join("sidelong.deb"), work.path().join("root.tar"));
    let built = found(packages)?;
    fs::copy(&built, &package).map_err(written(&package))?;
    let epoch = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".to_owned());
    let depends = exec::output(Command::new("dpkg-deb").arg("--field").arg(&package).arg("Depends"))?;
    let mut debian = Command::new("mmdebstrap");
    debian.args([
        "--variant=essential",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
    ]);
    debian.arg(format!("--include={BESIDES},{}", names(&depends).join(",")));
    debian.arg(format!("--customize-hook=copy-in {} /", package.display()));
    debian.arg("--customize-hook=chroot \"$1\" dpkg --install /sidelong.deb && rm \"$1/sidelong.deb\"");
    debian.arg(SUITE).arg(&tar).env("SOURCE_DATE_EPOCH", &epoch);
    if !exec::status(&mut debian)?.success() {
        return Ok(false);
    }
    let blobs = out.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(written(&blobs))?;
    let unpacked = digest(&tar)?;
    // Its name and its time are not in it.
    if !exec::status(Command::new("gzip").args(["--no-name", "--fast"]).arg(&tar))?.success() {
        return Ok(false);
    }
    let layer =
        keep(&blobs, &work.path().join("root.tar.gz"), "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let file = |name: &str, value: &Value, kind: &str| {
        let path = work.path().join(name);
        fs::write(&path, value.to_string()).map_err(written(&path))?;
        keep(&blobs, &path, kind)
    };
    let architecture = exec::output(Command::new("dpkg").arg("--print-architecture"))?;
    let config = json!({
        "architecture": architecture.trim(),
        "os": "linux",
        "config": { "Entrypoint": ["/usr/bin/sidelong"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [unpacked] },
    });
    let config = file("config", &config, "application/vnd.oci.image.config.v1+json")?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] });
    let mut manifest = file("manifest", &manifest, kind)?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": TAG });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    for (name, value) in [("index.json", index), ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }))] {
        let path = out.join(name);
        fs::write(&path, value.to_string()).map_err(written(&path))?;
    }
    println!("{}:{TAG}", out.display());
    Ok(true)
}

/// The package of the operator's program, of several the one that was built last.
fn found(packages: &Path) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(packages).map_err(written(packages))?.flatten();
    let paths = entries.map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("sidelong_") && name.ends_with(".deb"))
    };
    let built = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    paths.filter(is_it).max_by_key(built).ok_or_else(|| Error::Read {
        path: packages.join("sidelong_*.deb"),
        source: std::io::ErrorKind::NotFound.into(),
    })
}

/// The names of a field with dependencies. Of alternatives it takes the second: a container needs no systemd.
fn names(depends: &str) -> Vec<&str> {
    fn name(all: &str) -> Option<&str> {
        let mut alternatives = all.split('|');
        let first = alternatives.next()?;
        alternatives.next().unwrap_or(first).split_whitespace().next()
    }
    depends.split(',').filter_map(name).collect()
}

/// Moves a file to where its digest says, and returns its descriptor.
fn keep(blobs: &Path, file: &Path, kind: &str) -> Result<Value, Error> {
    let digest = digest(file)?;
    let size = fs::metadata(file).map_err(written(file))?.len();
    let blob = blobs.join(digest.trim_start_matches("sha256:"));
    fs::copy(file, &blob).map_err(written(&blob))?;
    Ok(json!({ "mediaType": kind, "digest": digest, "size": size }))
}

fn digest(file: &Path) -> Result<String, Error> {
    let sum = exec::output(Command::new("sha256sum").arg("--binary").arg(file))?;
    Ok(format!("sha256:{}", sum.split_whitespace().next().unwrap_or_default()))
}

fn written(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    |source| Error::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_named_without_versions() {
        let depends = "adduser, libc6 (>= 2.34), systemd | systemd-standalone-sysusers | systemd-sysusers\n";
        assert_eq!(names(depends), ["adduser", "libc6", "systemd-standalone-sysusers"]);
    }
}
