//! What the project does for itself: `cargo xtask tidy` looks over the tree, `cargo xtask ci` runs all that must pass
//! before a change lands, `cargo xtask headers` writes the C header with the regions, `cargo xtask bpf` rebuilds the objects that
//! are loaded into the kernel, `cargo xtask deb` builds Debian's packages, `cargo xtask image` an OCI image of them, `cargo xtask vm` runs a command in a guest that has RDMA.
//! No crate depends on this one, and it links none of theirs: it drives cargo, git and the built program from outside, as a developer would.
#![forbid(unsafe_code)]

mod bpf;
mod ci;
mod deb;
mod error;
mod exec;
mod headers;
mod image;
mod repo;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Error;
use crate::repo::Repo;

/// What the project does for itself.
#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    after_help = "Exit codes: 0 all is well, 1 something must be mended, 2 it could not be found out."
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Look over the tree for what no compiler checks.
    ///
    /// Prints each finding as path:line: what it is and how to mend it.
    #[command(after_long_help = tidy::help())]
    Tidy,
    /// Run all that must pass before a change lands, in order, and stop at what fails.
    ///
    /// The last line sums up all test binaries: N passed, N failed, N skipped.
    #[command(after_help = ci::EXAMPLES)]
    Ci(ci::Args),
    /// Write the C header with the regions, or check that it is what their declarations say.
    #[command(after_help = headers::EXAMPLES)]
    Headers(headers::Args),
    /// Rebuild the objects that are loaded into the kernel, or check that they are what their sources say.
    #[command(after_help = bpf::EXAMPLES)]
    Bpf(bpf::Args),
    /// Build Debian's packages.
    #[command(after_help = deb::EXAMPLES)]
    Deb(deb::Args),
    /// Build an OCI image with Debian's package.
    #[command(after_help = image::EXAMPLES)]
    Image(image::Args),
    /// Run a command where there is RDMA: in a guest with soft-RoCE, on the files of this machine.
    #[command(after_help = vm::EXAMPLES)]
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let code = |well: bool| if well { 0 } else { 1 };
    let done = match Cli::parse().task {
        Task::Tidy => find_root().and_then(|root| tidy::run(&Repo::read(root)?)).map(code),
        Task::Ci(args) => find_root().and_then(|root| ci::run(root, &args)).map(code),
        Task::Headers(args) => find_root().and_then(|root| headers::run(&root, &args)).map(code),
        Task::Bpf(args) => find_root().and_then(|root| bpf::run(&root, &args)).map(code),
        Task::Deb(args) => find_root().and_then(|root| deb::run(&root, &args)).map(code),
        Task::Image(args) => find_root().and_then(|root| image::run(&root, &args)).map(code),
        Task::Vm(args) => vm::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// The root of the workspace that the current directory lies in. Asked at run time: with a build directory that clones
/// share, what was true when this program was built need not be.
fn find_root() -> Result<PathBuf, Error> {
    let said =
        exec::output(exec::cargo().args(["locate-project", "--workspace", "--message-format", "plain"]))?;
    let mut root = PathBuf::from(said.trim_end());
    root.pop();
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn steps_are_known_by_name() {
        assert!(Cli::try_parse_from(["xtask", "ci", "fmt", "tidy"]).is_ok());
        let refused = Cli::try_parse_from(["xtask", "ci", "frobnicate"]).err().expect("no such step");
        assert!(refused.to_string().contains("clippy"), "the steps that there are: {refused}");
    }
}
