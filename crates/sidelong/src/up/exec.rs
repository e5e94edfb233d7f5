//! `sidelong exec`: what `up` and the commands of sites run as, before they become a program of another make.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use sidelong_harness::cgroup;
use sidelong_harness::parent::end_with_parent;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct ExecArgs {
    /// The parent, with which the process ends.
    #[arg(long, value_name = "PID")]
    pub(crate) with_parent: i32,
    /// A control group that it joins.
    #[arg(long, value_name = "DIR")]
    pub(crate) join_cgroup: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Becomes the given command, in the given control group if there is one. The process ends with its parent.
pub(crate) fn exec(args: &ExecArgs) -> Result<(), Failure> {
    end_with_parent(Some(args.with_parent))?;
    if let Some(group) = &args.join_cgroup {
        cgroup::join(group)?;
    }
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::new(format!("cannot run {}: {error}", PathBuf::from(program).display())))
}
