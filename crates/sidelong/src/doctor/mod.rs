//! `sidelong doctor`: what is wrong with this machine and the cluster, what it costs, and what mends it.

mod bundle;
mod facts;
mod findings;
mod gather;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::failure::{Failure, say};
use crate::own_part::Parse;
use crate::running::running;
use findings::{Finding, Grade, Ill, judge};

#[derive(Args)]
#[command(after_help = DOCTOR_END)]
pub(crate) struct DoctorArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine, or /etc/sidelong/cluster.toml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write what a report of a fault needs into this file, a tar archive: what this command finds, the cluster file, what parts
    /// say of themselves, and the histories. It has no secret.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

const DOCTOR_END: &str = "\
It looks at this machine, and asks the parts of the cluster at their admin addresses. It changes nothing. Run it as root, or as the cluster's user:
others do not see what parts have open.

Exit codes: 0 if nothing is wrong; 1 if what is wrong can be borne; 2 if something does not work.

Examples:
  sudo sidelong doctor
  sidelong doctor --config cluster.toml --json
  sudo sidelong doctor --bundle report.tar";

pub(crate) fn run(args: &DoctorArgs, parse: Parse) -> Result<ExitCode, Failure> {
    let config = args.config.clone().map_or_else(running, Ok)?;
    // Root's, before this process acts as the cluster's user.
    let bundle = args.bundle.as_deref().map(bundle::create).transpose()?;
    let (facts, cluster) = gather::gather(&config, parse);
    let findings = judge(&facts);
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => plain(&findings),
    };
    if let Some(file) = bundle {
        bundle::write(file, cluster.as_ref(), &findings)?;
    }
    say(text)?;
    let worst = findings.iter().map(|finding| finding.grade).max();
    Ok(match worst {
        None | Some(Grade::Good) => ExitCode::SUCCESS,
        Some(Grade::Warning) => ExitCode::from(1),
        Some(Grade::Error) => ExitCode::from(2),
    })
}

/// What is wrong, the worst last, where people look; one line if nothing is.
fn plain(findings: &[Finding]) -> String {
    let mut wrong: Vec<_> = findings.iter().filter(|finding| finding.ill.is_some()).collect();
    wrong.sort_by_key(|finding| finding.grade);
    let mut text = String::new();
    for Finding { grade, what, found, ill } in &wrong {
        let grade = if *grade == Grade::Error { "ERROR" } else { "warning" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{grade}: {what}: {found}");
        if let Some(Ill { costs, mend }) = ill {
            let _ = writeln!(text, "  costs: {costs}\n  mend:  {mend}");
        }
    }
    if wrong.is_empty() {
        let _ = writeln!(
            text,
            "nothing is wrong with the {} things looked at (--json names them)",
            findings.len()
        );
    }
    text
}
