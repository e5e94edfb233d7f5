//! Debian's packages: that docs/install.md holds in a container whose first process is systemd, and what else their users rely on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::run::{Failure, Run, announce};
use crate::deb;
use crate::error::Error;
use crate::exec;
use crate::image;

/// What a container may take, its start included.
const LIMIT: Duration = Duration::from_secs(300);
/// What docs/install.md and the checks need besides the packages: a container has no network.
const BESIDES: &str = "systemd-sysv,dbus,nginx,python3,openssl,curl,procps,adduser,libelf1,zlib1g";
/// How often the long step upgrades under load, and what that may take.
const UPGRADES: u32 = 100;
const UPGRADES_LIMIT: Duration = Duration::from_secs(3600);
/// How boot.sh says that there can be none.
const NO_CONTAINER: i32 = 77;
/// What builds the packages, and what starts a container.
const CONTAINER: &[&str] = &["dpkg-buildpackage", "systemd-nspawn"];
const BOOT: &str = include_str!("packages/boot.sh");
const CHECKS: &str = include_str!("packages/checks.sh");
const TRAFFIC: &str = include_str!("packages/traffic.py");
/// What the operator's package may take, in bytes.
const PACKAGE_MAX: u64 = 12_000_000;
/// The heading of the page below which its commands take all away.
const END: &str = "## Remove it";

/// Builds the packages once, and runs the page's commands in a container.
pub(super) fn step(run: &mut Run) -> Result<(), Failure> {
    if lacks(run, CONTAINER) || lacks_root(run) {
        return Ok(());
    }
    let packages = built(run, "first")?;
    fits(&packages)?;
    // What this machine has is at hand.
    in_container(run, &packages, Path::new("/"), 1, LIMIT)
}

/// As [`step`], on a Debian that has nothing besides, with many upgrades instead of one.
pub(super) fn upgrades(run: &mut Run) -> Result<(), Failure> {
    if lacks(run, CONTAINER) || lacks(run, &["mmdebstrap"]) || lacks_root(run) {
        return Ok(());
    }
    let packages = built(run, "first")?;
    let tree = run.target()?.join("deb").join("tree");
    emptied(&tree)?;
    let mut debian = Command::new("mmdebstrap");
    debian.args(["--variant=apt", &format!("--include={BESIDES}"), image::SUITE]).arg(&tree);
    announce(&debian);
    match exec::status(&mut debian)?.success() {
        true => in_container(run, &packages, &tree, UPGRADES, UPGRADES_LIMIT),
        false => Err(Failure::Unmet("mmdebstrap made no Debian".into())),
    }
}

/// Builds them twice, and has lintian(1) look at them.
pub(super) fn lint(run: &mut Run) -> Result<(), Failure> {
    if lacks(run, &["dpkg-buildpackage", "lintian"]) {
        return Ok(());
    }
    let [first, second] = [built(run, "first")?, built(run, "second")?];
    same(&first, &second)?;
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root"]).args(packages(&first)?);
    announce(&lintian);
    match exec::status(&mut lintian)?.success() {
        true => Ok(()),
        false => Err(Failure::Unmet("lintian found faults in the packages".into())),
    }
}

/// Builds an image, and runs the program of it by a runtime of containers.
pub(super) fn image(run: &mut Run) -> Result<(), Failure> {
    if lacks(run, &["dpkg-buildpackage", "mmdebstrap", "umoci", "runc"]) {
        return Ok(());
    }
    let dir = tempfile::tempdir().map_err(failed(&std::env::temp_dir()))?;
    let (out, bundle) = (dir.path().join("image"), dir.path().join("bundle"));
    if !image::build(&built(run, "first")?, &out)? {
        return Err(Failure::Unmet("no image was built".into()));
    }
    let mut unpack = Command::new("umoci");
    unpack.args(["unpack", "--image"]).arg(format!("{}:{}", out.display(), image::TAG)).arg(&bundle);
    run.must(unpack)?;
    let path = bundle.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
    let parsed =
        |error: serde_json::Error| Error::Parse { what: "config.json".into(), why: error.to_string() };
    let mut config: serde_json::Value = serde_json::from_str(&text).map_err(parsed)?;
    // What the entry point is given, as by a person who tries it.
    config["process"]["args"].as_array_mut().into_iter().for_each(|args| args.push("--version".into()));
    config["process"]["terminal"] = false.into();
    std::fs::write(&path, config.to_string()).map_err(failed(&path))?;
    let mut runtime = Command::new("runc");
    runtime.args(["run", "--bundle"]).arg(&bundle).arg("sidelong-image");
    let said = run.must_print(runtime, LIMIT, &[0])?;
    print!("{said}");
    match said.starts_with("sidelong ") {
        true => Ok(()),
        false => Err(Failure::Unmet("the program of the image does not say its version".into())),
    }
}

/// Whether a program is missing, which is counted.
fn lacks(run: &mut Run, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| exec::output(Command::new(name).arg("--version")).is_err());
    if let Some(program) = missing {
        run.tally.skip("packages", &format!("there is no {program}"));
    }
    missing.is_some()
}

fn lacks_root(run: &mut Run) -> bool {
    let lacks = !rustix::process::geteuid().is_root();
    if lacks {
        run.tally.skip("packages", "a container takes root");
    }
    lacks
}

/// The directory with packages that were built just now.
fn built(run: &Run, name: &str) -> Result<PathBuf, Failure> {
    let out = run.target()?.join("deb").join(name);
    emptied(&out)?;
    // As the step `release` has built them.
    match deb::build(&run.root, &out, "release")? {
        true => Ok(out),
        false => Err(Failure::Unmet("no packages were built".into())),
    }
}

fn emptied(directory: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(directory)(error)),
        _ => Ok(()),
    }
}

fn packages(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(directory).map_err(failed(directory))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(failed(directory))?;
    paths.sort();
    match paths.is_empty() {
        true => Err(Failure::Unmet(format!("{} has no packages", directory.display()))),
        false => Ok(paths),
    }
}

/// That the operator's package is no larger than it may be.
fn fits(directory: &Path) -> Result<(), Failure> {
    let is_it =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sidelong_"));
    let Some(path) = packages(directory)?.into_iter().find(is_it) else {
        return Err(Failure::Unmet("there is no package sidelong".into()));
    };
    let bytes = std::fs::metadata(&path).map_err(failed(&path))?.len();
    match bytes <= PACKAGE_MAX {
        true => Ok(()),
        false => Err(Failure::Unmet(format!("{} has {bytes} bytes, at most {PACKAGE_MAX}", path.display()))),
    }
}

/// That two directories have the same packages, byte by byte.
fn same(first: &Path, second: &Path) -> Result<(), Failure> {
    for path in packages(first)? {
        let other = second.join(path.file_name().unwrap_or_default());
        let [one, two] = [&path, &other].map(|path| std::fs::read(path).map_err(failed(path)));
        if one? != two? {
            return Err(Failure::Unmet(format!("{} differs from a second build of it", path.display())));
        }
    }
    Ok(())
}

/// Runs the page's commands and the checks as root in a container. All must end well.
fn in_container(
    run: &mut Run,
    debs: &Path,
    root: &Path,
    upgrades: u32,
    limit: Duration,
) -> Result<(), Failure> {
    let page = run.root.join("docs/install.md");
    let text = std::fs::read_to_string(&page).map_err(failed(&page))?;
    let (before, after) = text.split_once(END).unwrap_or((&text, ""));
    let script = CHECKS
        .replace("@ROUNDS@", &upgrades.to_string())
        .replace("@INSTALL@", &commands(before, 1))
        .replace("@REMOVE@", &commands(after, 0));
    let dir = tempfile::tempdir().map_err(failed(&std::env::temp_dir()))?;
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).map(|()| path.clone()).map_err(failed(&path))
    };
    let (boot, _) = (write("boot.sh", BOOT)?, write("script.sh", &script)?);
    write("traffic.py", TRAFFIC)?;
    let copies = dir.path().join("debs");
    std::fs::create_dir(&copies).map_err(failed(&copies))?;
    for path in packages(debs)? {
        let copy = copies.join(path.file_name().unwrap_or_default());
        std::fs::copy(&path, &copy).map_err(failed(&path))?;
    }
    let work = tempfile::tempdir().map_err(failed(&std::env::temp_dir()))?;
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sh"]).args([
        &boot,
        work.path(),
        dir.path(),
        root,
    ]);
    announce(&container);
    let (status, printed) = exec::output_within(container.current_dir(&run.root), limit)?;
    print!("{printed}");
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) if status.code() == Some(NO_CONTAINER) => {
            run.tally.skip("packages", "no container with systemd starts here: its last lines are above");
            Ok(())
        }
        Some(_) => Err(Failure::Unmet("a command of docs/install.md failed in the container".into())),
        None => Err(Failure::Unmet(format!("the container was not done after {limit:?}"))),
    }
}

/// The commands of a page after so many blocks, but for what a person is to edit.
fn commands(page: &str, blocks: usize) -> String {
    let blocks = page.split("```sh\n").skip(1 + blocks).filter_map(|block| block.split_once("```"));
    let lines = blocks.flat_map(|(block, _)| block.lines());
    lines.filter(|line| !line.contains("systemctl edit")).map(|line| format!("{line}\n")).collect()
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    |source| Error::Read { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_page_are_those_after_the_build() {
        let page = "a\n```sh\nbuild\n```\nb\n```sh\none\ntwo\n```\n```ini\nx\n```\n```sh\nsudo systemctl edit y\nthree\n```\n";
        assert_eq!(commands(page, 1), "one\ntwo\nthree\n");
    }
}
