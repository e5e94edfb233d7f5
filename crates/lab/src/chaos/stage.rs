//! A cluster on the machines: twelve servers, three fronts of three makes, and etcd.

mod faults;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Rlimit};
use sidelong_config::{
    ClusterFile, EdgeEntry, Etcd, Fabric, FrontEntry, Identity, NodeEntry, Proxy, SiteEntry,
};
use sidelong_harness::programs::{self, ETCD as ETCD_PROGRAM};
use sidelong_harness::serving::answers;
use sidelong_harness::up::led_by;
use sidelong_harness::words::Words;

use self::faults::copy;
use super::machines::{Machines, at};
use super::plan::{ETCD, MACHINES, Target};
use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::nginx;
use crate::process::{Ended, Process, last_line};

pub(super) const SITES: [&str; 3] = ["alpha", "beta", "gamma"];
/// Nodes that each site keeps, of the four that it begins with.
pub(super) const FLOOR: usize = 2;
/// Nodes of each machine. Those of the first three have agents of their own; all of one of the others are in one process.
const NODES: [usize; MACHINES] = [2, 2, 2, 3, 3];
const OWN_AGENTS: usize = 3;
/// The one that leaves and joins: the last.
pub(super) const LEAVES: &str = "n12";
/// Requests/s of a server, and those that wait there at most.
const RATE: u32 = 60;
const QUEUE: u32 = 200;
/// The fronts, on the first three machines.
pub(super) const FRONTS: [&str; 3] = ["edge1", "nginx1", "haproxy1"];
const LISTEN: u16 = 8_080;
const CONTROL: u16 = 6_001;
const SERVER: u16 = 9_001;
/// Leases are longer than on one machine, where all operations are quick.
pub(super) const LEASE: Duration = Duration::from_millis(500);
/// How a part ends whose memory is lost.
const AGAIN: &str = "start this part again";
const REFUSES: i32 = 2;
/// How often a request is tried again, at first and once the file was edited.
const RETRIES: [u32; 2] = [2, 3];
/// Longest time for a command.
const COMMAND_MAX: Duration = Duration::from_secs(60);
const TRIES: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// What the parts of a machine keep: `run_dir` until it restarts, `state_dir` for longer.
const KEPT: [&str; 2] = ["run", "state"];

/// A process that faults may be of.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) machine: usize,
    words: Vec<String>,
    process: Mutex<Option<Process>>,
}

impl Part {
    fn is_etcd(&self) -> bool {
        self.words[0] == ETCD_PROGRAM[0]
    }

    /// What of it faults may be of.
    pub(super) fn target(&self) -> Target {
        // Over TCP, memory is a process's own, but for what a proxy on its machine reads.
        Target { machine: self.machine, shares_memory: self.name == FRONTS[1] }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing is left of it.
fn kill(process: &mut Option<Process>) {
    process.take().iter_mut().for_each(Process::kill);
}

pub(super) struct Stage {
    pub(super) machines: Machines,
    pub(super) parts: Vec<Part>,
    pub(super) file: ClusterFile,
    directory: PathBuf,
    program: PathBuf,
    stop: Arc<AtomicBool>,
    /// The limits that processes had.
    limits: Mutex<Vec<(Pid, Rlimit)>>,
}

/// Where a node is.
fn node(number: usize) -> (usize, SocketAddr) {
    let mut before = 0;
    for (machine, count) in (1..).zip(NODES) {
        if number <= before + count {
            return (machine, at(machine, SERVER + number as u16));
        }
        before += count;
    }
    unreachable!("there are that many")
}

fn nodes() -> impl Iterator<Item = (usize, usize, SocketAddr)> {
    (1..=NODES.iter().sum()).map(|number| {
        let (machine, server) = node(number);
        (number, machine, server)
    })
}

/// The machine of the node of that name.
pub(super) fn machine_of(name: &str) -> usize {
    name.strip_prefix('n').and_then(|number| number.parse().ok()).map_or(0, |number| node(number).0)
}

/// Where clients ask the fronts.
pub(super) fn fronts() -> Vec<SocketAddr> {
    let of = |(place, name): (usize, &&str)| at(place + 1, if *name == "nginx1" { 80 } else { LISTEN });
    FRONTS.iter().enumerate().map(of).collect()
}

pub(super) fn host(site: &str) -> String {
    format!("{site}.test")
}

impl Stage {
    /// All of it, once each front serves each site.
    pub(super) fn set(bench: &Bench<'_>, name: &str) -> Result<Stage> {
        let machines = Machines::begin(&bench.options.program)?;
        let directory = bench.path(&format!("runs/{name}"));
        let _ = fs::remove_dir_all(&directory);
        let cluster = cluster_file(&bench.ground.name, &directory);
        let mut stage = Stage {
            machines,
            parts: Vec::new(),
            file: cluster,
            directory,
            program: bench.options.program.clone(),
            stop: Arc::clone(&bench.options.stop),
            limits: Mutex::default(),
        };
        stage.write_files()?;
        for machine in 1..=MACHINES {
            stage.machines.give_files(&stage.run_dir(machine))?;
        }
        stage.parts = stage.all_parts()?;
        let is_etcd = |part: &usize| stage.parts[*part].is_etcd();
        let (etcd, others): (Vec<_>, Vec<_>) = (0..stage.parts.len()).partition(is_etcd);
        etcd.into_iter().try_for_each(|part| stage.start(part))?;
        let whole = stage.directory.join("whole.toml");
        file(&whole, fs::write(&whole, stage.file.to_toml()?))?;
        // A vote takes its time.
        stage.until(bench, "etcd", || {
            let own = stage.program.display().to_string();
            stage.run(&[own, "cluster".into(), "init".into(), whole.display().to_string()])
        })?;
        others.into_iter().try_for_each(|part| stage.start(part))?;
        stage.until(bench, "the cluster", || {
            let ended = stage.tend()?.into_iter().next();
            Ok(if stage.serves() { String::new() } else { ended.unwrap_or("a front does not answer".into()) })
        })?;
        for machine in 1..=MACHINES {
            for name in KEPT {
                copy(&stage.machine_dir(machine).join(name), &stage.old_dir(machine).join(name))?;
            }
        }
        Ok(stage)
    }

    /// Waits until nothing is missing.
    fn until(&self, bench: &Bench<'_>, what: &str, missing: impl Fn() -> Result<String>) -> Result<()> {
        wait(bench, what, &self.directory, [TRIES, PAUSE], missing)
    }

    /// Whether each front answers for each site.
    pub(super) fn serves(&self) -> bool {
        fronts().iter().all(|front| SITES.iter().all(|site| answers(front, &host(site), "/0")))
    }

    fn machine_dir(&self, machine: usize) -> PathBuf {
        self.directory.join(format!("m{machine}"))
    }

    /// The directory that a machine loses when it restarts, which has the roster.
    fn run_dir(&self, machine: usize) -> PathBuf {
        self.machine_dir(machine).join("run")
    }

    /// The files that it had there before the first fault.
    fn old_dir(&self, machine: usize) -> PathBuf {
        self.machine_dir(machine).join("old")
    }

    fn secret(&self, machine: usize) -> PathBuf {
        self.machine_dir(machine).join("secret")
    }

    /// What each machine has: the secret, and where etcd is.
    fn write_files(&self) -> Result<()> {
        for machine in 1..=MACHINES {
            let at = self.machine_dir(machine);
            file(&at, fs::create_dir_all(&at))?;
            let secret = self.secret(machine);
            write_secret(&secret)?;
            let identity = Identity {
                secret_file: Some("secret".into()),
                run_dir: Some("run".into()),
                ..self.file.cluster.clone()
            };
            let etcd = self.file.etcd.clone().map(|etcd| Etcd { state_dir: Some("state".into()), ..etcd });
            let short = ClusterFile { cluster: identity, etcd, ..ClusterFile::default() };
            let path = at.join("cluster.toml");
            file(&path, fs::write(&path, short.to_toml()?))?;
        }
        Ok(())
    }

    fn own(&self, machine: usize, words: &[&str]) -> Vec<String> {
        own(&self.program, words, &self.machine_dir(machine).join("cluster.toml"))
    }

    fn all_parts(&self) -> Result<Vec<Part>> {
        let part = |name: String, machine, words| Part { name, machine, words, process: Mutex::default() };
        let mut parts = Vec::new();
        for machine in 1..=ETCD {
            parts.push(part(format!("etcd{machine}"), machine, self.etcd(machine)));
        }
        for machine in 1..=MACHINES {
            let servers: String = nodes()
                .filter(|(_, on, _)| *on == machine)
                .map(|(number, _, server)| {
                    format!(
                        "  server {{\n    listen {server};\n    location / {{ limit_req zone=rate burst={QUEUE}; try_files /none @answer; }}\n\
                         location @answer {{ return 200 \"n{number} $host $request_uri\\n\"; }}\n  }}\n"
                    )
                })
                .collect();
            let http = format!(
                "  access_log off;\n  default_type text/plain;\n  keepalive_requests 1000000;\n  \
                 limit_req_zone $server_port zone=rate:1m rate={RATE}r/s;\n{servers}"
            );
            let command = nginx::command(&self.machine_dir(machine).join("servers"), &http)?;
            parts.push(part(format!("servers{machine}"), machine, words_of(&command)));
        }
        for (number, machine, _) in nodes().filter(|(_, machine, _)| *machine <= OWN_AGENTS) {
            let name = format!("n{number}");
            parts.push(part(name.clone(), machine, self.own(machine, &["node", &name])));
        }
        for machine in OWN_AGENTS + 1..=MACHINES {
            let host = at(machine, 0).ip().to_string();
            let words = self.own(machine, &["agents", "--at", &host]);
            parts.push(part(format!("agents{machine}"), machine, words));
        }
        for (machine, name) in (1..).zip(FRONTS) {
            let kind = if machine == 1 { "edge" } else { "front" };
            parts.push(part(name.to_owned(), machine, self.own(machine, &[kind, name])));
        }
        for (entry, address) in self.file.fronts.iter().zip(&fronts()[1..]) {
            let machine = if entry.proxy == Proxy::Nginx { 2 } else { 3 };
            let mut its = self.file.clone();
            its.cluster.run_dir = Some(self.run_dir(machine));
            let words = led_by(&its.cluster()?, entry, *address, &self.machine_dir(machine))
                .map_err(|why| Error::Serve { what: entry.name.clone(), said: why.0 })?;
            let words: Vec<_> = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
            // What it does between its start and the first word of its front: docs/fronts.md.
            for config in words.iter().filter(|word| word.ends_with("haproxy.cfg")) {
                let text = file(config.as_ref(), fs::read_to_string(config))?;
                file(config.as_ref(), fs::write(config, text.replace(" weight 128", " weight 0")))?;
            }
            parts.push(part(format!("{}", entry.proxy), machine, words));
        }
        Ok(parts)
    }

    fn etcd(&self, machine: usize) -> Vec<String> {
        let of = |machine: usize| format!("e{machine}=http://{}", at(machine, 2_380));
        let all = (1..=ETCD).map(of).collect::<Vec<_>>().join(",");
        let urls = [2_379, 2_380].map(|port| format!("http://{}", at(machine, port)));
        let data = self.machine_dir(machine).join("etcd");
        let mut command = Command::new(ETCD_PROGRAM[0]);
        command.args(programs::etcd(&format!("e{machine}"), &data, &urls, &all));
        words_of(&command)
    }

    /// All servers of etcd but the first.
    fn majority(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(|(_, part)| part.is_etcd() && part.machine > 1)
    }

    fn of_machine(&self, machine: usize) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.machine == machine)
    }

    fn log(&self, part: &Part) -> PathBuf {
        self.directory.join(format!("{}.log", part.name))
    }

    fn start(&self, part: usize) -> Result<()> {
        let part = &self.parts[part];
        let log = self.log(part);
        let process = self.machines.spawn(part.machine, &log, &part.words)?;
        *part.process() = Some(process);
        Ok(())
    }

    /// Bytes of memory that a part has.
    pub(super) fn resident_bytes(&self, part: usize) -> Result<f64> {
        let part = &self.parts[part];
        let process = part.process();
        let absent = || Error::Serve { what: part.name.clone(), said: "it does not run".into() };
        Ok(process.as_ref().ok_or_else(absent)?.resident_bytes()? as f64)
    }

    /// Ends a part as a service manager does, and starts it again.
    pub(super) fn restart(&self, part: usize) -> Result<()> {
        drop(self.parts[part].process().take());
        self.start(part)
    }

    /// All servers of etcd end, and start again after `work`.
    pub(super) fn without_etcd<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let etcd = || self.parts.iter().enumerate().filter(|(_, part)| part.is_etcd());
        etcd().for_each(|(_, part)| kill(&mut part.process()));
        let done = work()?;
        etcd().try_for_each(|(part, _)| self.start(part))?;
        Ok(done)
    }

    /// Starts parts again that have ended although nobody ended them, as a service manager does. Returns which, with what they said last; without
    /// those that ask for it.
    pub(super) fn tend(&self) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let status = part.process().as_mut().map(Process::status).transpose()?.flatten();
            let Some(status) = status else { continue };
            let said = last_line(&self.log(part)).unwrap_or_default();
            let asks = said.ends_with(AGAIN) && part.target().shares_memory && status.code() == Some(REFUSES);
            // One that may open nothing more has just started.
            let is_limited = part.is_etcd() && said.contains("file descriptor limit");
            if !asks && !is_limited {
                told.push(format!("{} ended ({status}): {said}", part.name));
            }
            self.start(place)?;
        }
        Ok(told)
    }

    /// Runs a command on the last machine, as a person there does. Returns why it failed; nothing if it did not.
    pub(super) fn command(&self, words: &[String]) -> Result<String> {
        let words = words.iter().map(String::as_str).collect::<Vec<_>>();
        let said = self.run(&[vec!["env".to_owned(), editor()], self.own(MACHINES, &words)].concat())?;
        if words[0] == "secret" {
            self.copy_secret()?;
        }
        Ok(said)
    }

    /// Takes the secret of the last machine to all others.
    fn copy_secret(&self) -> Result<()> {
        let newest = self.secret(MACHINES);
        for machine in 1..MACHINES {
            let [path, next] = [self.secret(machine), self.machine_dir(machine).join("secret.next")];
            file(&next, fs::copy(&newest, &next))?;
            file(&path, fs::rename(&next, &path))?;
        }
        Ok(())
    }

    fn run(&self, words: &[String]) -> Result<String> {
        let [output, log] = ["out", "log"].map(|end| self.directory.join(format!("command.{end}")));
        let mut process = Process::start(self.machines.command(MACHINES, words), &output, &log)?;
        Ok(match process.wait(COMMAND_MAX, &self.stop)? {
            Ended::Itself(status) if status.success() => String::new(),
            Ended::Itself(status) => last_line(&log).unwrap_or_else(|| format!("it ends with {status}")),
            Ended::TooLong => format!("it is not done after {} s", COMMAND_MAX.as_secs()),
            Ended::Stopped => return Err(Error::Interrupted),
        })
    }

    /// The command by which the last node joins again.
    pub(super) fn join(&self) -> Vec<String> {
        let number = NODES.iter().sum();
        let (machine, server) = node(number);
        let (server, control) = (server.to_string(), at(machine, CONTROL + number as u16).to_string());
        let words = ["join", "node", LEAVES, "--server", &server, "--fabric-listen", &control];
        words.map(str::to_owned).to_vec()
    }

    /// Who reads all words from outside.
    pub(super) fn words(&self) -> Result<Words> {
        Words::new(&self.run_dir(1)).map_err(|why| Error::Serve { what: "the roster".into(), said: why.0 })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The last server would look for others to lead for ten seconds.
        for part in self.parts.iter().filter(|part| part.is_etcd()) {
            kill(&mut part.process());
            // Hundreds of megabytes, of which nobody wants to read anything.
            let _ = fs::remove_dir_all(self.machine_dir(part.machine).join("etcd"));
        }
    }
}

/// The variable by which an editor puts one number of retries in the place of the other. Its words are parted by blanks.
fn editor() -> String {
    let [one, other] = RETRIES.map(|retries| format!(r"retries\x20=\x20{retries}"));
    format!("EDITOR=sed -i /^.limits/,/^$/{{s/^{one}$/{other}/;t;s/^{other}$/{one}/}}")
}

/// Waits until nothing is missing, at most so long, with so long a pause between two looks. Parts log to that directory.
pub(super) fn wait(
    bench: &Bench<'_>,
    what: &str,
    logs: &Path,
    [longest, pause]: [Duration; 2],
    mut missing: impl FnMut() -> Result<String>,
) -> Result<()> {
    let deadline = Instant::now() + longest;
    loop {
        let missing = missing()?;
        if missing.is_empty() {
            return Ok(());
        }
        bench.go_on()?;
        if Instant::now() > deadline {
            let said =
                format!("not in {} s: {missing}; its parts log to {}", longest.as_secs(), logs.display());
            return Err(Error::Serve { what: what.to_owned(), said });
        }
        std::thread::sleep(pause);
    }
}

/// The words of a command of Sidelong's, for a cluster by that file.
pub(super) fn own(program: &Path, words: &[&str], config: &Path) -> Vec<String> {
    let (program, config) = (program.display().to_string(), config.display().to_string());
    let words = [&[program.as_str()], words, &["--config", &config]].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Writes the secret of all machines, which only its owner may read.
pub(super) fn write_secret(path: &Path) -> Result<()> {
    file(path, fs::write(path, "what the machines of the lab know"))?;
    file(path, fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
}

pub(super) fn words_of(command: &Command) -> Vec<String> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

fn cluster_file(name: &str, directory: &Path) -> ClusterFile {
    let site = |name: &&str| SiteEntry { floor: FLOOR, ..SiteEntry::new(*name, host(name), 4) };
    let entry = |(number, machine, server): (usize, usize, SocketAddr)| NodeEntry {
        fabric_listen: Some(at(machine, CONTROL + number as u16)),
        workers: Some(2),
        ..NodeEntry::foreign(format!("n{number}"), 1, server)
    };
    let front = |(machine, name, proxy): (usize, &str, Proxy)| FrontEntry {
        fabric_listen: Some(at(machine, CONTROL + 100)),
        socket: (proxy == Proxy::Haproxy).then(|| directory.join("haproxy.socket")),
        ..FrontEntry::new(name, proxy)
    };
    let endpoints = (1..=ETCD).map(|machine| format!("http://{}", at(machine, 2_379))).collect();
    let mut file = ClusterFile {
        cluster: Identity {
            name: name.to_owned(),
            fabric: Fabric::Tcp,
            secret_file: Some(directory.join("m5/secret")),
            ..Identity::default()
        },
        sites: SITES.iter().map(site).collect(),
        nodes: nodes().map(entry).collect(),
        edges: vec![EdgeEntry {
            fabric_listen: Some(at(1, CONTROL + 100)),
            ..EdgeEntry::new(FRONTS[0], fronts()[0])
        }],
        fronts: vec![front((2, FRONTS[1], Proxy::Nginx)), front((3, FRONTS[2], Proxy::Haproxy))],
        etcd: Some(Etcd { endpoints, ..Etcd::default() }),
        ..ClusterFile::default()
    };
    file.reconfig.lease = LEASE;
    // All machines share the CPUs of one, which are busy.
    let weights = &mut file.balance.weights;
    (weights.cpu, weights.memory, weights.network) = (0.0, 0.0, 0.0);
    file.limits.connect_timeout = Duration::from_millis(250);
    file.limits.response_timeout = Duration::from_secs(2);
    // Two faults at once may be of one site's servers.
    file.limits.retries = RETRIES[0];
    file
}
