//! The tests of Kubernetes against a real API server, which is built from its Go module. That takes ten minutes, the first time.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{Failure, Run};
use crate::error::Error;
use crate::exec;

/// The module, and its version. Those that it replaces by directories of its own have the same version, with 0 for 1.
const MODULE: &str = "k8s.io/kubernetes";
const MINOR_AND_PATCH: &str = "36.3";
/// Has the module's dependencies resolved without building anything else of it.
const IMPORT: &str =
    "//go:build tools\n\npackage tools\n\nimport _ \"k8s.io/kubernetes/cmd/kube-apiserver\"\n";

/// Runs a program where the addresses for benchmarks (RFC 2544) are this machine's: an API server takes no pods at loopback addresses.
const ALONE: &str = "exec unshare --map-root-user --net \\
    sh -c 'ip link set lo up && ip route add local 198.18.0.0/15 dev lo && exec \"$@\"' sh \"$@\"\n";

pub(super) fn step(run: &mut Run) -> Result<(), Failure> {
    for (program, argument) in [("go", "version"), ("kubectl", "help"), ("etcd", "--version")] {
        if exec::output(Command::new(program).arg(argument)).is_err() {
            run.tally.skip("kubernetes", &format!("there is no {program}"));
            return Ok(());
        }
    }
    let server = built(run)?;
    let alone = server.with_file_name("alone.sh");
    std::fs::write(&alone, ALONE).map_err(failed(&alone))?;
    for package in ["sidelong-testing", "sidelong"] {
        let mut tests = run.cargo(&["test", "-p", package, "--locked", "--test", "it", "kubernetes::"]);
        tests.env("SIDELONG_KUBE_APISERVER", &server);
        tests.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", format!("sh {}", alone.display()));
        run.must_test(tests)?;
    }
    Ok(())
}

/// The program, which is built unless it has been.
fn built(run: &Run) -> Result<PathBuf, Failure> {
    let directory = run.target()?.join(format!("kube-apiserver-1.{MINOR_AND_PATCH}"));
    let program = directory.join("kube-apiserver");
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(failed(&path))
    };
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(&directory);
        go
    };
    // Before there is a go.mod: it would look for what is replaced here.
    let found =
        exec::output(&mut go(&["mod", "download", "-json", &format!("{MODULE}@v1.{MINOR_AND_PATCH}")]))?;
    let theirs =
        found.lines().find_map(|line| line.trim().strip_prefix("\"GoMod\": \"")?.strip_suffix("\","));
    let theirs = theirs.ok_or_else(|| Failure::Unmet("go does not say where the module is".into()))?;
    let theirs = std::fs::read_to_string(theirs).map_err(failed(Path::new(theirs)))?;
    let replaced = theirs.lines().filter_map(|line| line.trim().split_once(" => ./staging/"));
    write("go.mod", &format!("module tools\n\nrequire {MODULE} v1.{MINOR_AND_PATCH}\n"))?;
    write("tools.go", IMPORT)?;
    for (module, _) in replaced {
        let by = format!("-replace={module}={module}@v0.{MINOR_AND_PATCH}");
        run.must(go(&["mod", "edit", &by]))?;
    }
    run.must(go(&["mod", "tidy", "-e"]))?;
    // Without it the server takes itself for one of no version.
    let versioned = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion=v1.{MINOR_AND_PATCH} -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor={}",
        MINOR_AND_PATCH.split('.').next().unwrap_or_default()
    );
    run.must(go(&[
        "build",
        "-trimpath",
        "-ldflags",
        &versioned,
        "-o",
        "kube-apiserver",
        &format!("{MODULE}/cmd/kube-apiserver"),
    ]))?;
    Ok(program)
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    |source| Error::Read { path, source }
}
