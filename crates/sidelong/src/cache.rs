//! `sidelong cache`: a cache that memcached's clients use, by memcached's switches or by a cluster file.

mod switches;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use sidelong_app::cache::Setup;
use sidelong_app::{Event, Failure};

use crate::event;
use crate::failure::say;
use crate::hangup::Hangup;
use crate::part::{self, PartArgs};
use crate::supervisor;
use sidelong_harness::parent::{self, end_with_parent};
use switches::Switches;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
    #[command(flatten)]
    switches: Switches,
    /// Name of the cache in the cluster file.
    #[arg(requires = "config")]
    name: Option<String>,
    /// Cluster file, instead of memcached's switches.
    #[arg(long, value_name = "FILE", requires = "name", conflicts_with = "Switches")]
    config: Option<PathBuf>,
    /// Print events as JSON lines on standard output.
    #[arg(long, requires = "config")]
    pub(crate) events: bool,
    /// Exit when the parent process does; with PID, exit at once unless PID is the parent.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, default_missing_value = "0", requires = "config")]
    with_parent: Option<i32>,
}

const EXAMPLES: &str = "\
It takes memcached's switches, or a cluster file that has the cache's settings. It speaks memcached's protocols: text, meta and
binary. SIGTERM and SIGINT stop it.

Examples:
  sidelong cache -m 1024 -p 11211
  sidelong cache -m 256 -l 10.0.0.5 -c 4096 -I 8m
  sidelong cache -s /run/app/cache.sock -a 770
  sidelong cache c1 --config cluster.toml";

impl CacheArgs {
    /// The arguments of a part of a cluster, if it is one.
    pub(crate) fn part(&self) -> Option<PartArgs> {
        Some(PartArgs {
            config: self.config.clone()?,
            name: self.name.clone()?,
            fabric: None,
            events: self.events,
            with_parent: self.with_parent,
            join_cgroup: None,
        })
    }
}

pub(crate) fn run(args: &CacheArgs, quiet: bool) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    let (setup, _held) = match args.part() {
        Some(args) => {
            let cluster = part::read(&args)?;
            let held = parent::hold(args.with_parent, &cluster)?;
            (Setup::of_cluster(cluster, &args.name)?, held)
        }
        None => (args.switches.setup()?, None),
    };
    let hangup = Hangup::ignore()?;
    match &args.config {
        Some(config) => hangup.reload(config.clone())?,
        None => hangup.log()?,
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let ready = |at: &[String]| {
        supervisor::ready();
        if args.events {
            event::print(&Event::Ready);
        } else if !quiet {
            say(format_args!("{} MiB of cache at {}\n", setup.memory_mib, at.join(", ")))?;
        }
        Ok(())
    };
    setup.serve(ready, &stop)
}
