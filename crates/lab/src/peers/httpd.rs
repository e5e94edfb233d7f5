//! Apache httpd with mod_sidelong: a balancer that `sidelong front` controls.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sidelong_harness::programs::Httpd;

use super::{ASK_MAX, Deployment, Found, Search};
use crate::error::{Error, Result, file};

const HOW: &str = "Debian's packages apache2 and apache2-dev have it, and `make -C fronts install-httpd` makes \
                   mod_sidelong";
const MODULE: &str = "mod_sidelong.so";
const LOG: &str = "error.log";
/// Modules, some of which Debian has built in.
const MODULES: [&str; 5] = ["mpm_event", "proxy", "proxy_http", "proxy_balancer", "slotmem_shm"];
/// Length of the listen queue. httpd closes connections that it answers with 503, so the clients connect again.
const BACKLOG: u32 = 4096;
/// Limit of the requests in flight: an admitted request occupies a thread while it waits for its server.
const THREADS: u32 = 512;

pub(super) fn describe() -> String {
    format!(
        "a virtual host and a balancer (lbmethod=sidelong) for each site, {THREADS} threads of one process, a backlog of {BACKLOG}; controlled by `sidelong \
         front`, with the targets and the interval of ours"
    )
}

pub(super) fn find(search: &Search<'_>) -> Result<std::result::Result<Found, String>> {
    let mut answers = Vec::new();
    for variable in ["SBINDIR", "PROGNAME", "LIBEXECDIR"] {
        let mut command = Command::new("apxs");
        command.args(["-q", variable]);
        match search.said(command, ASK_MAX)? {
            Ok(answer) => answers.push(answer.trim().to_owned()),
            Err(_) => return Ok(Err(HOW.to_owned())),
        }
    }
    let [directory, name, modules] = &answers[..] else { return Ok(Err(HOW.to_owned())) };
    let (program, modules) = (Path::new(directory).join(name), PathBuf::from(modules));
    if !modules.join(MODULE).exists() {
        return Ok(Err(HOW.to_owned()));
    }
    let found = search.first_that_answers(&[program], "-v")?;
    Ok(found.map(|(program, version)| Found { program, version, modules }).ok_or_else(|| HOW.to_owned()))
}

/// Removes the log of an earlier httpd in `place`: httpd appends to its log, and earlier errors may no longer hold.
pub(super) fn forget(place: &Deployment) {
    // A missing file needs no removal.
    let _ = std::fs::remove_file(place.directory.join(LOG));
}

/// Checks that the httpd that runs in `place` reads the front's memory. A module of another release reports this in its log, and
/// admits all requests.
///
/// # Errors
/// If it does not.
pub(crate) fn is_of_this_release(place: &Deployment) -> Result<()> {
    let log = place.directory.join(LOG);
    let said = file(&log, std::fs::read_to_string(&log))?;
    match said.lines().find(|line| line.contains(": of layout ")) {
        None => Ok(()),
        Some(line) => Err(Error::Serve { what: MODULE.to_owned(), said: line.to_owned() }),
    }
}

/// Writes the configuration of httpd, which keeps its log in the directory of `place`. Returns its arguments.
pub(super) fn configure(place: &Deployment, found: &Found) -> sidelong_harness::Result<Vec<OsString>> {
    let more = settings(place, found);
    Httpd {
        directory: &place.directory,
        listen: place.listen,
        modules_at: &found.modules,
        modules: &MODULES,
        // Its processes run as another user if root starts it.
        user: ["www-data", "www-data"],
        more: &more,
    }
    .configure()
}

/// What its configuration has of its own.
fn settings(place: &Deployment, found: &Found) -> String {
    let (modules, listen) = (found.modules.display(), place.listen);
    let mut text = format!(
        "LoadModule sidelong_module {modules}/{MODULE}\n\
         SidelongFront {}\n\
         ListenBacklog {BACKLOG}\n\
         ServerLimit 1\nStartServers 1\nThreadLimit {THREADS}\nThreadsPerChild {THREADS}\nMaxRequestWorkers {THREADS}\n\
         KeepAlive On\nKeepAliveTimeout 60\nMaxKeepAliveRequests 0\n",
        place.front.display(),
    );
    for site in &place.sites {
        let members: String =
            site.nodes.iter().map(|node| format!("        BalancerMember http://{node} retry=0\n")).collect();
        let _ = write!(
            text,
            "<VirtualHost *:{port}>\n    ServerName {host}\n    SidelongAdmission On\n    SidelongSite {name}\n    \
             <Proxy balancer://{name}>\n{members}        ProxySet lbmethod=sidelong\n    </Proxy>\n    \
             ProxyPass / balancer://{name}/\n</VirtualHost>\n",
            port = listen.port(),
            host = site.host,
            name = site.name,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Peer;
    use crate::peers::tests::place;

    #[test]
    fn a_module_of_another_release_is_told_from_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let place = Deployment { directory: directory.path().to_owned(), ..place() };
        let log = |said: &str| std::fs::write(place.directory.join(LOG), said).unwrap();
        log("resuming normal operations\n");
        is_of_this_release(&place).unwrap();
        log(
            "sidelong: edge1.choice.region: of layout version 5, this library reads 4: install those of one release\n",
        );
        let error = is_of_this_release(&place).unwrap_err().to_string();
        assert!(error.starts_with("mod_sidelong.so does not serve") && error.contains("reads 4"), "{error}");

        // A module that was installed since reports nothing.
        let found = Found { program: "apache2".into(), version: String::new(), modules: PathBuf::new() };
        Peer::Httpd.command(&found, &place, "httpd").unwrap();
        assert!(!place.directory.join(LOG).exists());
    }

    #[test]
    fn each_site_has_its_own_servers() {
        let modules = PathBuf::from("/usr/lib/apache2/modules");
        let found = Found { program: "apache2".into(), version: String::new(), modules };
        let text = settings(&place(), &found);
        for line in [
            "LoadModule sidelong_module /usr/lib/apache2/modules/mod_sidelong.so",
            "SidelongFront /tmp/peers/edge1",
            "<VirtualHost *:20000>",
            "SidelongSite low",
            "BalancerMember http://127.0.0.1:20003 retry=0",
            "ProxyPass / balancer://high/",
        ] {
            assert!(text.lines().any(|found| found.trim() == line), "{line}: {text}");
        }
    }
}
