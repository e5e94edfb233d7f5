//! Brings another site onto a node by the commands of the cluster file: leave the old site, enter the new one, wait until the
//! server is ready. It never decides whether a node changes, and writes no word: its caller does.
//!
//! If the agent dies in a change, its command gets SIGTERM, and the next agent begins the change again. So commands must be
//! idempotent, also after a partial run.

mod broken;
mod command;
mod ready;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};

use sidelong_layout::{ChangeResult, ChangeStep, Fault, FaultCause, SiteId};

use broken::Broken;
pub(crate) use ready::Ready;

/// Most characters of a command that are logged.
const COMMAND_CHARS_MAX: usize = 200;

/// The commands of a node.
pub(crate) struct Commands {
    /// The node's name.
    pub(crate) node: String,
    /// Every site of the cluster, in the order of its file.
    pub(crate) sites: Vec<SiteCommands>,
    /// When its server is ready. Without it, it is ready when the commands have ended.
    pub(crate) ready: Option<Ready>,
    /// A command that takes longer is killed.
    pub(crate) command_max: Duration,
    /// The words before each command: a program that becomes the command, and ends with this process.
    pub(crate) runner: Vec<OsString>,
}

/// The commands of a site: a program and its arguments each. If empty, there is nothing to do.
#[derive(Clone, Default)]
pub(crate) struct SiteCommands {
    /// The site's name.
    pub(crate) name: String,
    /// Brings the site onto a node.
    pub(crate) on_enter: Vec<String>,
    /// Takes it away.
    pub(crate) on_leave: Vec<String>,
}

/// Why a change did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// It became void, and what ran was killed.
    Void,
    /// A step failed.
    Failed(Fault),
}

impl Commands {
    /// Changes from a site to another. Returns when the new site runs, or the old one runs again, or neither does; `None` if
    /// `is_void` said meanwhile that nobody waits for that any more.
    ///
    /// Without a site to come from, nobody knows what runs, and every other site is left. `Cluster::change_max` is the longest
    /// time that this takes.
    pub(crate) fn change(
        &self,
        from: Option<SiteId>,
        to: SiteId,
        is_void: &dyn Fn() -> bool,
    ) -> Option<ChangeResult> {
        let there = match from {
            Some(from) if from == to => Ok(()),
            Some(from) => self.leave(from, to, is_void),
            None => self.leave_others(to, is_void),
        };
        let fault = match there.and_then(|()| self.enter_from(from, to, is_void)) {
            Ok(()) => return Some(ChangeResult::Changed),
            Err(Stopped::Void) => return None,
            Err(Stopped::Failed(fault)) => fault,
        };
        let Some(from) = from.filter(|from| *from != to) else { return Some(ChangeResult::Failed(fault)) };
        // What came up of the new site may be in the way. That it cannot leave shows when the old one enters.
        if fault.step != ChangeStep::Leave && self.leave(to, from, is_void) == Err(Stopped::Void) {
            return None;
        }
        match self.enter_from(Some(to), from, is_void) {
            Ok(()) => Some(ChangeResult::Undone(fault)),
            Err(Stopped::Void) => None,
            Err(Stopped::Failed(_)) => Some(ChangeResult::Failed(fault)),
        }
    }

    /// Leaves every other site, one of which may run. Where it does not, its command may say so by failing.
    fn leave_others(&self, to: SiteId, is_void: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let others = (0..self.sites.len()).map(SiteId::new).filter(|site| *site != to);
        for other in others {
            if self.leave(other, to, is_void) == Err(Stopped::Void) {
                return Err(Stopped::Void);
            }
        }
        Ok(())
    }

    fn leave(&self, from: SiteId, to: SiteId, is_void: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let left = self.site(from);
        self.run(ChangeStep::Leave, left, &left.on_leave, [Some(from), Some(to)], is_void)
    }

    /// Enters `to`, and waits until the server is ready.
    fn enter_from(
        &self,
        from: Option<SiteId>,
        to: SiteId,
        is_void: &dyn Fn() -> bool,
    ) -> Result<(), Stopped> {
        let entered = self.site(to);
        self.run(ChangeStep::Enter, entered, &entered.on_enter, [from, Some(to)], is_void)?;
        let Some(ready) = &self.ready else { return Ok(()) };
        let address = &ready.addresses[to.index()];
        let what = format!("the server at {address}, which is to serve {},", entered.name);
        done(ChangeStep::Ready, &what, || ready.wait(address, is_void))
    }

    /// Runs the command `argv` of a site, in a change between two.
    fn run(
        &self,
        step: ChangeStep,
        site: &SiteCommands,
        argv: &[String],
        between: [Option<SiteId>; 2],
        is_void: &dyn Fn() -> bool,
    ) -> Result<(), Stopped> {
        let Some(program) = argv.first() else { return Ok(()) };
        let [from, to] = between.map(|site| site.map_or("", |site| &self.site(site).name));
        let mut words = self.runner.iter().map(OsString::as_os_str).chain(argv.iter().map(OsStr::new));
        let mut command = std::process::Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.env("SIDELONG_SITE", to).env("SIDELONG_FROM", from).env("SIDELONG_NODE", &self.node);
        let what = shown(step, site, argv);
        done(step, &what, || match is_executable(program) {
            true => command::run(command, self.command_max, is_void),
            false => {
                let why = format!("could not be started: there is no {program} that may be executed");
                Err(Broken::Failed(FaultCause::NotStarted, why))
            }
        })
    }

    fn site(&self, site: SiteId) -> &SiteCommands {
        &self.sites[site.index()]
    }
}

/// Whether there is such a program, in PATH if it has no slash.
fn is_executable(program: &str) -> bool {
    let may_be = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    match program.contains('/') {
        true => may_be(Path::new(program)),
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|directory| may_be(&directory.join(program)))
        }
    }
}

/// A command, for the log.
fn shown(step: ChangeStep, site: &SiteCommands, argv: &[String]) -> String {
    let command: String = argv.join(" ").chars().take(COMMAND_CHARS_MAX).collect();
    format!("{step} of {} ({command})", site.name)
}

/// Does a step, and logs how it ended.
fn done(step: ChangeStep, what: &str, work: impl FnOnce() -> Result<(), Broken>) -> Result<(), Stopped> {
    let begun = Instant::now();
    let result = work();
    let how = ending(step, &result, begun.elapsed());
    match result {
        Err(Broken::Failed(cause, _)) => {
            tracing::warn!("{what} {how}");
            Err(Stopped::Failed(Fault { step, cause }))
        }
        Err(Broken::Void) => {
            tracing::info!("{what} {how}");
            Err(Stopped::Void)
        }
        Ok(()) => {
            tracing::info!("{what} {how}");
            Ok(())
        }
    }
}

/// How a step ended, for the log.
fn ending(step: ChangeStep, result: &Result<(), Broken>, took: Duration) -> String {
    match result {
        Ok(()) if step == ChangeStep::Ready => format!("was ready after {took:.1?}"),
        Ok(()) => format!("ended well after {took:.1?}"),
        Err(Broken::Void) => format!("was given up after {took:.1?}, because the change is void"),
        Err(Broken::Failed(_, why)) => why.clone(),
    }
}

#[cfg(test)]
mod tests;
