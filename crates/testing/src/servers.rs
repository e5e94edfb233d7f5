//! Real servers that know nothing of Sidelong, with settings of their own in the cluster's directory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use sidelong_config::ServerAddress;
use sidelong_harness::programs::{self, HAPROXY, Httpd, Nginx, find, httpd_modules};
use sidelong_harness::serving as serves;

use crate::{Cluster, Done, Running, eventually, program, skipped, try_get};

/// nginx at `address`, once it serves; each answer's body is `name`. `None`, with a printed reason, without nginx.
pub fn nginx(cluster: &Cluster, name: &str, address: impl Into<ServerAddress>) -> Option<Running> {
    nginx_with(cluster, name, &address.into(), "")
}

/// nginx whose answers take a second of no worker's time, besides which what a busy machine adds is little: its first 100
/// bytes are held to 100 bytes a second.
pub fn nginx_that_takes_its_time(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    nginx_with(cluster, name, &address.into(), "limit_rate 100; sendfile_max_chunk 100; ")
}

/// nginx whose answers take a tenth of a second. [`sites_at_once`] reads its access log.
pub fn nginx_that_logs(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    let log = requests_of(cluster, name);
    let settings =
        format!("access_log {} requests; limit_rate 1000; sendfile_max_chunk 100; ", log.display());
    nginx_with(cluster, name, &address.into(), &settings)
}

fn nginx_with(cluster: &Cluster, name: &str, address: &ServerAddress, settings: &str) -> Option<Running> {
    if !is_there("nginx", "-v") {
        return None;
    }
    let directory = cluster.path(&format!("nginx-{name}"));
    let _ = std::fs::create_dir(&directory);
    Some(start_nginx(&directory, address, &format!("{settings}return 200 {name};")))
}

/// nginx that speaks HTTP/2 in clear text, and serves the files of a directory.
pub fn nginx_over_http2(
    cluster: &Cluster,
    address: impl Into<ServerAddress>,
    files: &Path,
) -> Option<Running> {
    if !is_there("nginx", "-v") {
        return None;
    }
    let directory = cluster.path("nginx-http2");
    let _ = std::fs::create_dir(&directory);
    let address = address.into();
    let command =
        nginx_command(&directory, &format!("{address} http2"), &format!("root {};", files.display()));
    Some(ready(command, || serves::listens(&address)))
}

/// One nginx at several addresses, once it serves; each answer's body is the name that stands with the address. `None`, with a printed
/// reason, without nginx.
pub fn nginx_at(cluster: &Cluster, name: &str, addresses: &[(ServerAddress, String)]) -> Option<Running> {
    if !is_there("nginx", "-v") {
        return None;
    }
    let directory = cluster.path(&format!("nginx-{name}"));
    let _ = std::fs::create_dir(&directory);
    let servers: Vec<_> =
        addresses.iter().map(|(at, name)| (at.to_string(), format!("return 200 {name};"))).collect();
    let (last, _) = addresses.last().unwrap();
    Some(serving(nginx_command_of(&directory, &servers), last))
}

/// nginx whose files are in `directory`, and that answers everything by `location`.
fn start_nginx(directory: &Path, address: &ServerAddress, location: &str) -> Running {
    serving(nginx_command(directory, &address.to_string(), location), address)
}

fn nginx_command(directory: &Path, listen: &str, location: &str) -> Command {
    nginx_command_of(directory, &[(listen.to_owned(), location.to_owned())])
}

/// nginx with a server for each of these addresses and locations.
fn nginx_command_of(directory: &Path, servers: &[(String, String)]) -> Command {
    let servers: String = servers
        .iter()
        .map(|(listen, location)| format!("server {{\nlisten {listen};\nlocation / {{ {location} }}\n}}\n"))
        .collect();
    let http = format!(
        "access_log off;\nlog_format requests '$host $msec $request_time';\ndefault_type text/plain;\n{servers}"
    );
    let mut command = Command::new("nginx");
    command.args(Nginx::new(directory, &http).configure().unwrap());
    command
}

/// gunicorn with `workers` that serve a connection each, once it serves. A request for `/MS` takes that many ms, and one for
/// `/closed` gets no answer. The answer's body is `name`. [`sites_at_once`] reads its log of requests. `None`, with a printed reason, without gunicorn.
pub fn gunicorn(
    cluster: &Cluster,
    name: &str,
    address: impl Into<ServerAddress>,
    workers: u16,
) -> Option<Running> {
    gunicorn_with(cluster, name, address, workers, &[])
}

/// gunicorn as of [`gunicorn`], with further arguments.
pub fn gunicorn_with(
    cluster: &Cluster,
    name: &str,
    address: impl Into<ServerAddress>,
    workers: u16,
    arguments: &[&str],
) -> Option<Running> {
    if !is_there("gunicorn", "--version") {
        return None;
    }
    let directory = cluster.path(&format!("gunicorn-{name}"));
    let _ = std::fs::create_dir(&directory);
    let log = requests_of(cluster, name);
    let application = format!(
        "import os\nimport time\n\nlog = os.open('{}', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n\n\n\
         def application(environ, start_response):\n    \
         host = environ['HTTP_HOST']\n    \
         digits = environ['PATH_INFO'].strip('/')\n    \
         if environ['PATH_INFO'] == '/closed':\n        \
         environ['gunicorn.socket'].shutdown(2)\n    \
         os.write(log, f'{{host}} begins\\n'.encode())\n    \
         time.sleep(int(digits) / 1000 if digits.isdigit() else 0)\n    \
         os.write(log, f'{{host}} ends\\n'.encode())\n    \
         start_response('200 OK', [('content-length', '{}')])\n    return [b'{name}']\n",
        log.display(),
        name.len()
    );
    std::fs::write(directory.join("application.py"), application).unwrap();
    let address = address.into();
    let mut command = Command::new("gunicorn");
    command.args(arguments);
    command.args(programs::gunicorn(&directory, &address.to_string(), workers, "application"));
    Some(serving(command, &address))
}

/// How an httpd serves its connections.
#[derive(Clone, Copy)]
pub enum Mpm {
    /// By threads that wait for no client.
    Event,
    /// By as many processes as this, each of which serves a connection.
    Prefork(u16),
}

/// Apache httpd at `address`, once it serves: a script of CGI answers as [`gunicorn`]. `None`, with a printed reason, without httpd.
pub fn httpd(cluster: &Cluster, name: &str, address: SocketAddr, mpm: Mpm) -> Option<Running> {
    if !is_there("apache2", "-v") {
        return None;
    }
    let directory = cluster.path(&format!("httpd-{name}"));
    let _ = std::fs::create_dir(&directory);
    let script = directory.join("answer");
    let text = format!(
        "#!/bin/sh\nms=${{REQUEST_URI#/}}\nsleep \"$(printf '%d.%03d' $((${{ms:-0}} / 1000)) $((${{ms:-0}} % 1000)))\"\n\
         printf 'Content-Type: text/plain\\r\\nContent-Length: {}\\r\\n\\r\\n{name}'\n",
        name.len()
    );
    std::fs::write(&script, text).unwrap();
    // If it runs as root, its processes have another user.
    for path in [directory.parent().unwrap(), &directory, &script] {
        readable(path, 0o755);
    }
    let (modules, settings) = match mpm {
        Mpm::Event => (["mpm_event", "cgid"], format!("ScriptSock {}/cgid\n", directory.display())),
        Mpm::Prefork(workers) => (
            ["mpm_prefork", "cgi"],
            format!("StartServers {workers}\nServerLimit {workers}\nMaxRequestWorkers {workers}\n"),
        ),
    };
    let modules = modules.into_iter().chain(["alias"]).collect::<Vec<_>>();
    let more = format!("{settings}ScriptAliasMatch ^/ {}\n", script.display());
    let modules_at = Path::new(httpd_modules().unwrap_or("modules"));
    let user = ["www-data", "www-data"];
    let httpd =
        Httpd { directory: &directory, listen: address, modules_at, modules: &modules, user, more: &more };
    let mut command = Command::new("apache2");
    // With prefork it ends its whole process group, which would be that of the test.
    command.args(httpd.configure().unwrap()).process_group(0);
    Some(serving(command, &address.into()))
}

/// A server of Node.js at `address`, once it serves. It answers as [`gunicorn`], and any number of requests at a time. `None`, with a
/// printed reason, without Node.js.
pub fn nodejs(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    if !is_there("nodejs", "--version") {
        return None;
    }
    let script = cluster.path(&format!("{name}.js"));
    let text = format!(
        "require('http').createServer((request, response) =>\n  \
         setTimeout(() => response.end('{name}'), Number(request.url.slice(1)))\n).listen({}, '{}');\n",
        address.port(),
        address.ip()
    );
    std::fs::write(&script, text).unwrap();
    let mut command = Command::new("nodejs");
    command.arg(&script);
    Some(serving(command, &address.into()))
}

/// uvicorn, an asynchronous server of Python, as [`nodejs`].
pub fn uvicorn(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    if !is_there("uvicorn", "--version") {
        return None;
    }
    let directory = cluster.path(&format!("uvicorn-{name}"));
    let _ = std::fs::create_dir(&directory);
    let application = format!(
        "import asyncio\n\n\n\
         async def application(scope, receive, send):\n    \
         digits = scope['path'].strip('/')\n    \
         await asyncio.sleep(int(digits) / 1000 if digits.isdigit() else 0)\n    \
         head = [(b'content-length', b'{}')]\n    \
         await send({{'type': 'http.response.start', 'status': 200, 'headers': head}})\n    \
         await send({{'type': 'http.response.body', 'body': b'{name}'}})\n",
        name.len()
    );
    std::fs::write(directory.join("application.py"), application).unwrap();
    let mut command = Command::new("uvicorn");
    command.arg("--app-dir").arg(&directory).args(["--log-level", "warning", "--lifespan", "off"]);
    command.arg("--host").arg(address.ip().to_string()).arg("--port").arg(address.port().to_string());
    command.arg("application:application");
    Some(serving(command, &address.into()))
}

/// nginx at `address` that answers each request with 500 at once. `None`, with a printed reason, without nginx.
pub fn failing_nginx(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    if !is_there("nginx", "-v") {
        return None;
    }
    let directory = cluster.path(&format!("nginx-{name}"));
    let _ = std::fs::create_dir(&directory);
    let command = nginx_command(&directory, &address.to_string(), "return 500;");
    Some(ready(command, || serves::listens(&address)))
}

/// nginx at `address` that closes each connection after an answer, whose body is `name`. `None`, with a printed reason, without
/// nginx.
pub fn closing_nginx(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    nginx_with(cluster, name, &address.into(), "keepalive_timeout 0; ")
}

/// Python's own server at `address`, which speaks HTTP/1.0 and closes after each answer; each answer's body is `name`. `None`, with a
/// printed reason, without Python.
pub fn closing_server(cluster: &Cluster, name: &str, address: SocketAddr) -> Option<Running> {
    if !is_there("python3", "--version") {
        return None;
    }
    let directory = cluster.path(&format!("files-{name}"));
    let _ = std::fs::create_dir(&directory);
    std::fs::write(directory.join("index.html"), name).unwrap();
    let mut command = Command::new("python3");
    command.args(["-m", "http.server", "--directory"]).arg(&directory);
    command.arg("--bind").arg(address.ip().to_string()).arg(address.port().to_string());
    Some(serving(command, &address.into()))
}

/// Sends a signal to a server and to all processes that it started.
pub fn signal_all(server: &Running, signal: Signal) {
    family(server).into_iter().for_each(|pid| _ = kill_process(pid, signal));
}

/// A server's process and all those that it started.
pub fn family(server: &Running) -> Vec<Pid> {
    sidelong_harness::process::family(server.pid())
}

/// A control group, removed when this is dropped; its processes must have ended by then.
pub struct ControlGroup(Vec<PathBuf>);

impl ControlGroup {
    /// A control group with these processes in it.
    ///
    /// # Errors
    /// If this process may not make one.
    pub fn of(name: &str, processes: &[Pid]) -> std::io::Result<Self> {
        let trees = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"].map(Path::new);
        let trees = if trees[0].is_dir() { &trees[..] } else { &[Path::new("/sys/fs/cgroup")] };
        let name = format!("sidelong-test-{}-{name}", std::process::id());
        let group = ControlGroup(trees.iter().map(|tree| tree.join(&name)).collect());
        for directory in &group.0 {
            let _ = std::fs::create_dir(directory);
            for process in processes {
                std::fs::write(directory.join("cgroup.procs"), process.as_raw_nonzero().to_string())?;
            }
        }
        Ok(group)
    }

    /// Runs `sidelong` in it.
    pub fn run(&self, arguments: &[&str]) -> Done {
        let enter = "for tree in $TREES; do echo $$ > \"$tree/cgroup.procs\"; done; exec \"$0\" \"$@\"";
        let trees: Vec<_> = self.0.iter().map(|tree| tree.display().to_string()).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", enter]).arg(program("sidelong")).args(arguments).env("TREES", trees.join(" "));
        Running::start_command(shell).finish()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.0.iter().for_each(|directory| _ = std::fs::remove_dir(directory));
    }
}

/// php-fpm with `workers` processes behind an nginx that accepts whatever comes, once it serves, as [`gunicorn`]. `None`, with
/// a printed reason, without php-fpm or nginx.
pub fn php_fpm(cluster: &Cluster, name: &str, address: SocketAddr, workers: u16) -> Option<[Running; 2]> {
    let Some(program) = php_fpm_program() else {
        skipped("servers: no php-fpm here; Debian's package php-fpm has it");
        return None;
    };
    if !is_there("nginx", "-v") {
        return None;
    }
    let directory = cluster.path(&format!("php-{name}"));
    let _ = std::fs::create_dir(&directory);
    let at = |file: &str| directory.join(file).display().to_string();
    let application = format!(
        "<?php\n\
         function note($what) {{ file_put_contents('{}', \"{{$_SERVER['HTTP_HOST']}} $what\\n\", FILE_APPEND); }}\n\
         note('begins');\n\
         usleep(1000 * (int) trim($_SERVER['REQUEST_URI'], '/'));\n\
         note('ends');\n\
         header('content-length: {}');\necho '{name}';\n",
        requests_of(cluster, name).display(),
        name.len()
    );
    std::fs::write(at("application.php"), application).unwrap();
    let user = if geteuid().is_root() { "user = root\n" } else { "" };
    let pool = format!(
        "[global]\nerror_log = /dev/stderr\n[www]\n{user}listen = {}\npm = static\npm.max_children = {workers}\n",
        at("socket"),
    );
    std::fs::write(at("pool.conf"), pool).unwrap();
    let mut command = Command::new(program);
    command.args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"]).arg(at("pool.conf"));
    let php = Running::start_command(command);
    let location = format!(
        "fastcgi_pass unix:{}; fastcgi_param SCRIPT_FILENAME {}; fastcgi_param REQUEST_METHOD $request_method; \
         fastcgi_param REQUEST_URI $request_uri; fastcgi_param HTTP_HOST $http_host;",
        at("socket"),
        at("application.php"),
    );
    Some([start_nginx(&directory, &address.into(), &location), php])
}

fn php_fpm_program() -> Option<PathBuf> {
    let files = std::fs::read_dir("/usr/sbin").ok()?.flatten();
    files.map(|file| file.path()).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("php-fpm"))
    })
}

/// Where a server writes when a request begins and ends.
pub fn requests_of(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.path(&format!("{name}.requests"))
}

/// How many requests the server of that name has had, likewise.
pub fn requests_at(cluster: &Cluster, name: &str) -> usize {
    let log = std::fs::read_to_string(requests_of(cluster, name)).unwrap();
    requests(&log).iter().filter(|(_, begins)| *begins).count()
}

/// The sites of which the server of that name, a gunicorn, php-fpm or [`nginx_that_logs`], had requests under way at one time, at
/// most, and how often the site changed.
pub fn sites_at_once(cluster: &Cluster, name: &str) -> (usize, usize) {
    let log = std::fs::read_to_string(requests_of(cluster, name)).unwrap();
    let mut under_way = BTreeMap::<&str, usize>::new();
    let (mut most, mut changes, mut last) = (0, 0, None);
    for (host, begins) in requests(&log) {
        // Another than the sites' hosts is the test's own.
        if !host.ends_with(".test") {
            continue;
        }
        match begins {
            true => *under_way.entry(host).or_default() += 1,
            false if under_way[host] == 1 => _ = under_way.remove(host),
            false => *under_way.get_mut(host).unwrap() -= 1,
        }
        most = most.max(under_way.len());
        changes += usize::from(last.replace(host).is_some_and(|last| last != host));
    }
    (most, changes)
}

/// The host of the last request in the log of the server of that name.
pub fn last_request(cluster: &Cluster, name: &str) -> Option<String> {
    let log = std::fs::read_to_string(requests_of(cluster, name)).ok()?;
    Some(log.lines().last()?.split(' ').next()?.to_owned())
}

/// The hosts whose requests begin (true) and end in a log, in order.
fn requests(log: &str) -> Vec<(&str, bool)> {
    let mut requests = Vec::new();
    for (line, at) in log.lines().zip(0..) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [host, what] => requests.push((at, what == "begins", host)),
            // nginx tells when a request ended and how long it took, in seconds with three decimals, by a clock of its one worker.
            [host, ended, took] => {
                let [ended, took] = [ended, took].map(|s| s.replace('.', "").parse::<u64>().unwrap());
                requests.extend([(ended - took, true, host), (ended, false, host)]);
            }
            _ => panic!("{line}"),
        }
    }
    requests.sort_by_key(|&(at, begins, _)| (at, begins));
    requests.into_iter().map(|(_, begins, host)| (host, begins)).collect()
}

fn serving(command: Command, address: &ServerAddress) -> Running {
    ready(command, || serves::answers(address, "any", "/"))
}

fn ready(command: Command, is_ready: impl Fn() -> bool) -> Running {
    let mut server = Running::start_command(command);
    eventually("the server answers", || {
        assert!(server.is_running(), "{}", server.err());
        is_ready()
    });
    server
}

/// HAProxy; `None`, with a printed reason, without it.
pub fn haproxy_program() -> Option<&'static str> {
    let found = find(HAPROXY);
    if found.is_none() {
        is_there("haproxy", "-v");
    }
    found
}

/// The processes of a program of another make that `up` has started for the cluster, by its name as a part, the oldest first.
pub fn processes_of(cluster: &Cluster, name: &str) -> Vec<u32> {
    let settings = cluster.run_dir().join("foreign").join(name);
    let is_of_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // What `up` starts becomes the server.
        !line.windows(13).any(|part| part == b"\0--with-parent")
            && line.windows(settings.as_os_str().len()).any(|part| part == settings.as_os_str().as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut found: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_of_it).collect();
    found.sort_unstable();
    found
}

/// Lets others read a file or directory, with this mode.
pub fn readable(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether a program can be run; prints the reason if not.
pub fn is_there(program: &str, version: &str) -> bool {
    let is_there = Command::new(program).arg(version).output().is_ok();
    if !is_there {
        skipped(&format!("servers: no {program} here; Debian's package {program} has it"));
    }
    is_there
}

/// Requests that take `time` each, from `clients` that never stop to ask until this is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts to ask at `address` for the site that has this host.
    pub fn start(address: SocketAddr, host: &'static str, time: Duration, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = try_get(address, host, &format!("/{}", time.as_millis()));
                }
            })
        };
        Load { clients: (0..clients).map(client).collect(), stop }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}
