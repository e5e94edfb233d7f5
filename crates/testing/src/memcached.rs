//! Clients of a cache: one that talks by hand, and memcached's, which run their own tests, too.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{PATIENCE, eventually, skipped};

/// Debian's Python and Perl, which have Debian's modules.
const PYTHON: &str = "/usr/bin/python3";
const PERL: &str = "/usr/bin/perl";

/// Clients of memcached, unmodified, do what applications do. Then they run their own tests.
pub fn unmodified_clients(address: SocketAddr) {
    let [host, port] = host_and_port(address);
    let at = [&*host, &*port];
    run_client(
        "memcached.py",
        Some(PYTHON.into()),
        ["-c", "import pylibmc, pymemcache"],
        &at,
        "Debian's packages python3-pylibmc and python3-pymemcache",
    );
    run_client(
        "memcached_fast.pl",
        Some(PERL.into()),
        ["-e", "use Cache::Memcached::Fast"],
        &at,
        "Debian's package libcache-memcached-fast-perl",
    );
    run_client(
        "memcached_meta.py",
        peer("bin/python"),
        ["-c", "import meta_memcache"],
        &at,
        "PyPI's meta-memcache",
    );
    pymemcaches_own_tests(address);
    pylibmcs_own_tests(address);
    libmemcacheds_own_tests(address);
}

/// A real client of the first of these caches finds all.
pub fn discovering_client(caches: &[SocketAddr]) {
    let all: Vec<_> = caches.iter().map(SocketAddr::to_string).collect();
    run_client(
        "memcached_discovery.py",
        peer("bin/python"),
        ["-c", "import elasticache_auto_discovery"],
        &all.iter().map(String::as_str).collect::<Vec<_>>(),
        "PyPI's elasticache-auto-discovery",
    );
}

/// Real clients of a cache that serves TLS with this certificate, or asks them to log in by SASL as ann with "secret".
pub fn clients_by(way: &str, address: SocketAddr, certificate: Option<&Path>) {
    let [host, port] = host_and_port(address);
    let mut arguments = vec![way, &host, &port];
    arguments.extend(certificate.map(|certificate| certificate.to_str().unwrap()));
    run_client(
        "memcached_secured.py",
        Some(PYTHON.into()),
        ["-c", "import pylibmc, pymemcache; assert pylibmc.support_sasl"],
        &arguments,
        "Debian's packages python3-pylibmc and python3-pymemcache",
    );
}

/// A program or directory that `.ci/run` installs because Debian lacks it, if it is there.
pub fn peer(name: &str) -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("sidelong/peers").join(name)).filter(|path| path.exists())
}

fn succeeds(program: impl AsRef<OsStr>, arguments: [&str; 2]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
}

fn host_and_port(address: SocketAddr) -> [String; 2] {
    [address.ip().to_string(), address.port().to_string()]
}

/// Runs a script of `tests/clients` by a program which, as `has` finds, has the modules that it needs.
fn run_client(script: &str, program: Option<PathBuf>, has: [&str; 2], arguments: &[&str], needs: &str) {
    let Some(program) = program.filter(|program| succeeds(program, has)) else {
        return skipped(&format!("{script}: it needs {needs}"));
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let done = Command::new(program).arg(path).args(arguments).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The integration tests that pymemcache has for memcached, but those of TLS, whose certificate Debian's package lacks.
fn pymemcaches_own_tests(address: SocketAddr) {
    let found = Command::new(PYTHON)
        .args(["-c", "import pytest, pymemcache.test as own; print(own.__path__[0])"])
        .output();
    let Some(found) = found.ok().filter(|found| found.status.success()) else {
        return skipped("pymemcache's own tests: Debian's package python3-pytest runs them");
    };
    let own = String::from_utf8(found.stdout).unwrap();
    let [host, port] = host_and_port(address);
    let mut tests = Command::new(PYTHON);
    tests.args(["-m", "pytest", "-k", "not tls", "test_integration.py", "--server", &host, "--port", &port]);
    pass(tests.current_dir(own.trim_end()));
}

/// The tests that pylibmc has, but those that ask whatever listens at memcached's own port.
fn pylibmcs_own_tests(address: SocketAddr) {
    let has_pytest = succeeds(PYTHON, ["-c", "import pytest, pylibmc"]);
    let Some(own) = peer("pylibmc").filter(|_| has_pytest) else {
        return skipped(
            "pylibmc's own tests: .ci/run installs them; Debian's package python3-pytest runs them",
        );
    };
    let [host, port] = host_and_port(address);
    let mut tests = Command::new(PYTHON);
    tests.args(["-m", "pytest", "-k", "not AutoConf", "tests"]).current_dir(own);
    pass(tests.env("MEMCACHED_HOST", host).env("MEMCACHED_PORT", port));
}

/// Tests by pytest pass, if need be when they are repeated: some of their items live for a second, for which a machine may stall.
fn pass(tests: &mut Command) {
    tests.args(["-q", "-p", "no:cacheprovider"]).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut said = String::new();
    let passes = |_| {
        let done = tests.output().unwrap();
        said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        done.status.success() && said.contains(" passed")
    };
    assert!((0..3).any(passes), "{said}");
}

/// What libmemcached asks of a server, in both protocols: commands, their quiet forms, and what is no command.
fn libmemcacheds_own_tests(address: SocketAddr) {
    let [host, port] = host_and_port(address);
    let mut capable = Command::new("memccapable");
    match capable.args(["-h", &host, "-p", &port, "-t", "60"]).output() {
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("All tests passed"), "{said}");
        }
        Err(error) => skipped(&format!(
            "libmemcached's own tests: Debian's package libmemcached-tools has memccapable: {error}"
        )),
    }
}

/// A client that talks by hand.
pub struct Client {
    /// Its connection.
    pub stream: TcpStream,
}

impl Client {
    /// Connects to a cache.
    pub fn connect(address: SocketAddr) -> Self {
        Client::of(TcpStream::connect(address).unwrap())
    }

    /// Connects anew, once the cache is there.
    pub fn reconnect(&mut self, address: SocketAddr) {
        eventually("it takes clients", || match TcpStream::connect(address) {
            Ok(stream) => {
                *self = Client::of(stream);
                true
            }
            Err(_) => false,
        });
    }

    /// The line that answers a command; `None` if the connection has ended.
    pub fn try_ask(&mut self, command: &str) -> Option<String> {
        self.stream.write_all(command.as_bytes()).ok()?;
        self.try_line()
    }

    /// The value of a key, if it has one; `None` if the connection has ended.
    pub fn try_get(&mut self, key: &str) -> Option<Option<String>> {
        Some(self.try_gets(key)?.map(|(value, _)| value))
    }

    /// The value of a key with its unique number, if it has one; `None` if the connection has ended.
    pub fn try_gets(&mut self, key: &str) -> Option<Option<(String, String)>> {
        let line = self.try_ask(&format!("gets {key}\r\n"))?;
        if line == "END\r\n" {
            return Some(None);
        }
        let [_, _, _, bytes, unique] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("not a value: {line}")
        };
        let bytes: usize = bytes.parse().unwrap();
        let mut value = vec![0; bytes + b"\r\nEND\r\n".len()];
        self.stream.read_exact(&mut value).ok()?;
        value.truncate(bytes);
        Some(Some((String::from_utf8(value).unwrap(), unique.to_owned())))
    }

    /// The next line.
    pub fn line(&mut self) -> String {
        self.try_line().expect("the connection stands")
    }

    fn try_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).ok()?;
            line.extend(byte);
        }
        Some(String::from_utf8(line).unwrap())
    }

    /// One on a connection.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    /// Sends bytes.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// The next `wanted.len()` bytes are these.
    pub fn hears(&mut self, wanted: impl AsRef<[u8]>) {
        let wanted = wanted.as_ref();
        let mut found = vec![0; wanted.len()];
        self.stream.read_exact(&mut found).unwrap();
        assert!(
            found == wanted,
            "{:?} and not {:?}",
            found.escape_ascii().to_string(),
            wanted.escape_ascii().to_string()
        );
    }

    /// Sends bytes. Those that answer are `wanted`.
    pub fn asks(&mut self, bytes: impl AsRef<[u8]>, wanted: impl AsRef<[u8]>) {
        self.say(bytes);
        self.hears(wanted);
    }

    /// The rows that a command lists.
    pub fn list(&mut self, command: &str) -> String {
        self.say(format!("{command}\r\n"));
        self.rest_of_list()
    }

    /// The rows up to the end of a list.
    pub fn rest_of_list(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"END\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            text.extend(byte);
        }
        String::from_utf8(text).unwrap()
    }

    /// Where all caches of the cluster are, as clients of Amazon ElastiCache ask, and the version of that.
    pub fn addresses(&mut self) -> (u64, Vec<SocketAddr>) {
        let answer = self.list("config get cluster");
        let (head, body) = answer.split_once("\r\n").unwrap();
        let body = body.strip_suffix("\r\nEND\r\n").expect("an answer of that form");
        assert_eq!(head, format!("CONFIG cluster 0 {}", body.len()));
        let (version, caches) = body.strip_suffix('\n').unwrap().split_once('\n').unwrap();
        let cache = |text: &str| match text.split('|').collect::<Vec<_>>()[..] {
            [host, address, port] if host == address => format!("{address}:{port}").parse().unwrap(),
            _ => panic!("not a cache: {text}"),
        };
        (version.parse().unwrap(), caches.split(' ').map(cache).collect())
    }

    /// A figure of `stats`.
    pub fn stat(&mut self, name: &str) -> u64 {
        let text = self.list("stats");
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        found.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }
}
