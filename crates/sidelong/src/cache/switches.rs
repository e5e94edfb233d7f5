//! memcached's switches.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use sidelong_cache::Login;
use sidelong_cache::cache::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN};
use sidelong_policy::cache::store::Eviction;

use sidelong_app::Failure;
use sidelong_app::cache::{MIB, Place, Setup, TlsFiles};

/// The smallest and the largest of the largest items, as memcached has them, in bytes.
const ITEM_BYTES_MIN: usize = 1 << 10;
const ITEM_BYTES_MAX: usize = 1 << 30;
/// Names the file of users for SASL, as for memcached.
const SASL_FILE: &str = "MEMCACHED_SASL_PWDB";

/// Of a switch that is given twice the last one counts, as for memcached.
#[derive(Args)]
#[command(args_override_self = true)]
pub(super) struct Switches {
    /// Memory in MiB, tables included.
    #[arg(short = 'm', long, value_name = "MIB", default_value_t = 64)]
    memory_limit: usize,
    /// TCP port; 0 for a free one, which is printed.
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 11211)]
    port: u16,
    /// Address to listen on. May be given several times, and with a port of its own (10.0.0.1:11212).
    #[arg(short = 'l', long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1", value_parser = listen)]
    listen: Vec<Listen>,
    /// Unix socket to listen on, instead of TCP.
    #[arg(short = 's', long, value_name = "FILE")]
    unix_socket: Option<PathBuf>,
    /// Access to the Unix socket, in octal.
    #[arg(short = 'a', long, value_name = "MASK", default_value = "700", value_parser = octal)]
    unix_mask: u32,
    /// UDP port: must be 0, as UDP is not served.
    #[arg(short = 'U', long, value_name = "PORT", default_value_t = 0, value_parser = no_udp)]
    udp_port: u16,
    /// Most clients at a time.
    #[arg(short = 'c', long, value_name = "CLIENTS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    conn_limit: u32,
    /// Threads that serve clients.
    #[arg(short = 't', long, value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Largest item, with k or m for KiB or MiB.
    #[arg(short = 'I', long, value_name = "BYTES", default_value = "1m", value_parser = bytes)]
    max_item_size: usize,
    /// Refuse what finds no room, instead of evicting.
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    /// Which item is evicted: lru, sieve, s3-fifo.
    #[arg(long, value_name = "RULE", default_value = "sieve")]
    eviction: Eviction,
    /// File of NAME:PASSWORD lines: clients must log in, in the text protocol.
    #[arg(short = 'Y', long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Serve TLS at TCP ports, with the certificate that -o names.
    #[arg(short = 'Z', long, conflicts_with = "unix_socket")]
    enable_ssl: bool,
    /// memcached's extended options: idle_timeout=SECONDS (clients that are silent for so long are let go); ssl_chain_cert=FILE,
    /// ssl_key=FILE (default: in the same file), ssl_ca_cert=FILE with ssl_verify_mode=2 (clients must show a certificate of this
    /// authority), all PEM. Those that tune memcached's own memory and threads change nothing: modern, maxconns_fast,
    /// hash_algorithm, hashpower, lru_crawler, lru_maintainer, slab_reassign, slab_automove.
    #[arg(short = 'o', long, value_name = "OPTION=VALUE", value_delimiter = ',', value_parser = extended)]
    extended: Vec<Extended>,
    /// Clients must log in by SASL (PLAIN), in the binary protocol. The file of NAME:PASSWORD lines is named by the environment
    /// variable MEMCACHED_SASL_PWDB.
    #[arg(short = 'S', long, conflicts_with = "auth_file")]
    enable_sasl: bool,
    /// Accepted for memcached's sake: SIDELONG_LOG says what is logged.
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Accepted for memcached's sake: it stays the user who started it.
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Accepted for memcached's sake, which writes it with -d alone.
    #[arg(short = 'P', long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Accepted for memcached's sake: after some 256 KB of answers others come first.
    #[arg(short = 'R', long, value_name = "REQUESTS")]
    max_reqs_per_event: Option<u32>,
    /// Accepted for memcached's sake: as many clients wait as the kernel lets.
    #[arg(short = 'b', long, value_name = "CLIENTS")]
    listen_backlog: Option<u32>,
    /// Accepted for memcached's sake: let systemd lock the memory (LimitMEMLOCK).
    #[arg(short = 'k', long)]
    lock_memory: bool,
    /// Accepted for memcached's sake, as are -n, -L and -D: this cache chooses its sizes and pages itself, and counts nothing by prefix.
    #[arg(short = 'f', long, value_name = "FACTOR")]
    slab_growth_factor: Option<f64>,
    /// Accepted for memcached's sake: see -f.
    #[arg(short = 'n', long, value_name = "BYTES")]
    slab_min_size: Option<u32>,
    /// Accepted for memcached's sake: see -f.
    #[arg(short = 'L', long)]
    enable_largepages: bool,
    /// Accepted for memcached's sake: see -f.
    #[arg(short = 'D', value_name = "DELIMITER")]
    delimiter: Option<char>,
    /// Accepted for memcached's sake: let systemd keep cores (LimitCORE).
    #[arg(short = 'r', long)]
    enable_coredumps: bool,
    /// Accepted for memcached's sake: a client's first byte says which protocol it speaks.
    #[arg(short = 'B', long, value_name = "PROTOCOL", value_parser = ["auto"])]
    protocol: Option<String>,
    /// Not served: let systemd or a shell run it in the background.
    #[arg(short = 'd', long, hide = true)]
    daemon: bool,
}

/// An extended option.
#[derive(Clone, Debug)]
enum Extended {
    Chain(PathBuf),
    Key(PathBuf),
    ClientCa(PathBuf),
    /// Whether clients must show a certificate.
    Verify(bool),
    /// After how many seconds a silent client is let go; 0 for never.
    Idle(u32),
    /// It changes nothing here.
    Ignored,
}

/// Options of memcached's that tune what this cache has otherwise or not at all, also with `no_` before them or a value behind.
const IGNORED: [&str; 8] = [
    "modern",
    "maxconns_fast",
    "hash_algorithm",
    "hashpower",
    "lru_crawler",
    "lru_maintainer",
    "slab_reassign",
    "slab_automove",
];

fn extended(text: &str) -> Result<Extended, String> {
    match text.split_once('=') {
        Some(("ssl_chain_cert", file)) => Ok(Extended::Chain(file.into())),
        Some(("ssl_key", file)) => Ok(Extended::Key(file.into())),
        Some(("ssl_ca_cert", file)) => Ok(Extended::ClientCa(file.into())),
        Some(("ssl_verify_mode", "0")) => Ok(Extended::Verify(false)),
        Some(("ssl_verify_mode", "2")) => Ok(Extended::Verify(true)),
        Some(("ssl_verify_mode", _)) => Err("ssl_verify_mode must be 0 or 2".to_owned()),
        Some(("idle_timeout", seconds)) => {
            seconds.parse().map(Extended::Idle).map_err(|_| "idle_timeout must be seconds".to_owned())
        }
        parts => {
            let name = parts.map_or(text, |(name, _)| name);
            match IGNORED.contains(&name.strip_prefix("no_").unwrap_or(name)) {
                true => Ok(Extended::Ignored),
                false => Err("known are idle_timeout, ssl_chain_cert, ssl_key, ssl_ca_cert, ssl_verify_mode, and those that change \
                              nothing (--help)"
                    .to_owned()),
            }
        }
    }
}

/// An address, and a port if it has one of its own.
#[derive(Clone, Copy, Debug)]
struct Listen {
    address: IpAddr,
    port: Option<u16>,
}

fn listen(text: &str) -> Result<Listen, String> {
    if let Ok(both) = text.parse::<SocketAddr>() {
        return Ok(Listen { address: both.ip(), port: Some(both.port()) });
    }
    let address = text.trim_start_matches('[').trim_end_matches(']').parse();
    address.map(|address| Listen { address, port: None }).map_err(|_| "it must be an IP address".to_owned())
}

fn octal(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| "it must be 0 to 777, in octal".to_owned())
}

fn no_udp(text: &str) -> Result<u16, String> {
    if text == "0" { Ok(0) } else { Err("UDP is not served: it must be 0".to_owned()) }
}

fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], MIB),
        _ => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.filter(|bytes| (ITEM_BYTES_MIN..=ITEM_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| "it must be 1k to 1024m".to_owned())
}

impl Switches {
    /// The cache that they describe.
    ///
    /// # Errors
    /// If they ask for what is not served.
    pub(super) fn setup(&self) -> Result<Setup, Failure> {
        if self.daemon {
            return Err(Failure::new(
                "-d: it stays in the foreground; let systemd or a shell run it in the background",
            ));
        }
        let memory_bytes = self.memory_limit.saturating_mul(MIB);
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory_bytes) {
            let (min, max) = (MEMORY_BYTES_MIN / MIB, MEMORY_BYTES_MAX / MIB);
            return Err(Failure::new(format!("-m {}: it must be {min} to {max} MiB", self.memory_limit)));
        }
        if self.max_item_size > memory_bytes / 2 {
            return Err(Failure::new(format!(
                "-I: items of {} bytes need -m {} or more, twice their size",
                self.max_item_size,
                (2 * self.max_item_size).div_ceil(MIB)
            )));
        }
        let place = match &self.unix_socket {
            Some(path) => Place::Unix(path.clone()),
            None => {
                let address =
                    |listen: &Listen| SocketAddr::new(listen.address, listen.port.unwrap_or(self.port));
                Place::Tcp(self.listen.iter().map(address).collect())
            }
        };
        Ok(Setup {
            tls: self.tls()?,
            memory_mib: self.memory_limit,
            item_bytes_max: self.max_item_size,
            eviction: self.eviction,
            evicts: !self.disable_evictions,
            threads: self.threads,
            clients_max: self.conn_limit,
            idle_max_s: self.idle_max_s(),
            place,
            unix_mask: self.unix_mask,
            tcp_port: self.port,
            users: self.users()?,
            admin: None,
            verbosity: self.verbose,
            member: None,
        })
    }

    fn users(&self) -> Result<Option<(PathBuf, Login)>, Failure> {
        if !self.enable_sasl {
            return Ok(self.auth_file.clone().map(|file| (file, Login::Text)));
        }
        let Some(file) = env::var_os(SASL_FILE) else {
            return Err(Failure::new(format!("-S: set {SASL_FILE} to the file of NAME:PASSWORD lines")));
        };
        Ok(Some((file.into(), Login::Sasl)))
    }

    fn idle_max_s(&self) -> Option<u32> {
        let idle =
            |option: &Extended| if let Extended::Idle(seconds) = option { Some(*seconds) } else { None };
        self.extended.iter().rev().find_map(idle).filter(|seconds| *seconds > 0)
    }

    fn tls(&self) -> Result<Option<TlsFiles>, Failure> {
        let last =
            |which: fn(&Extended) -> Option<&PathBuf>| self.extended.iter().rev().find_map(which).cloned();
        let chain = last(|option| if let Extended::Chain(file) = option { Some(file) } else { None });
        let key = last(|option| if let Extended::Key(file) = option { Some(file) } else { None });
        let client_ca = last(|option| if let Extended::ClientCa(file) = option { Some(file) } else { None });
        let verify = self.extended.iter().rev().find_map(|option| match option {
            Extended::Verify(verify) => Some(*verify),
            _ => None,
        });
        if !self.enable_ssl {
            let why = "-o: its ssl options need -Z (--enable-ssl)";
            let are_plain =
                self.extended.iter().all(|option| matches!(option, Extended::Idle(_) | Extended::Ignored));
            return if are_plain { Ok(None) } else { Err(Failure::new(why)) };
        }
        let Some(certificate) = chain else {
            return Err(Failure::new("-Z: it needs a certificate: -o ssl_chain_cert=FILE,ssl_key=FILE"));
        };
        if client_ca.is_some() != verify.unwrap_or_default() {
            let why =
                "-o: ssl_ca_cert=FILE and ssl_verify_mode=2 need each other: clients must show a certificate";
            return Err(Failure::new(why));
        }
        Ok(Some(TlsFiles { key: key.unwrap_or_else(|| certificate.clone()), certificate, client_ca }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        switches: Switches,
    }

    fn setup(words: &str) -> Setup {
        let line = Line::parse_from(["cache"].into_iter().chain(words.split_whitespace()));
        line.switches.setup().unwrap_or_else(|why| panic!("{words}: {}", why.0))
    }

    #[test]
    fn a_cache_is_what_memcacheds_switches_say() {
        let told =
            setup("-m 16 -M -c 10 -t 3 -I 4m -p 0 -l 127.0.0.1,[::1]:7 -Y /users -a 770 --eviction lru");
        assert_eq!((told.memory_mib, told.evicts, told.clients_max, told.threads), (16, false, 10, 3));
        assert_eq!((told.item_bytes_max, told.unix_mask, told.eviction), (4 << 20, 0o770, Eviction::Lru));
        let Place::Tcp(at) = told.place else { panic!("not at TCP ports") };
        assert_eq!(at, ["127.0.0.1:0".parse().unwrap(), "[::1]:7".parse().unwrap()]);
        assert!(told.users.is_some_and(|(file, login)| file == Path::new("/users") && login == Login::Text));
        assert!(told.tls.is_none());
        let told = setup(
            "-u memcache -P /run/m.pid -R 20 -b 1024 -k -f 1.05 -n 72 -L -D : -r -B auto -o modern,no_lru_crawler \
             -o hashpower=20,idle_timeout=9 -m 16 -m 32 -l 127.0.0.1 -l ::1",
        );
        assert_eq!((told.idle_max_s, told.memory_mib), (Some(9), 32));
        assert!(matches!(told.place, Place::Tcp(at) if at.len() == 2));
        let told = setup("-s /run/cache.sock");
        assert_eq!(told.idle_max_s, None);
        assert!(matches!(told.place, Place::Unix(path) if path == Path::new("/run/cache.sock")));
        assert!(told.evicts && told.users.is_none());
    }

    #[test]
    fn a_key_may_be_in_the_file_of_its_certificate_and_clients_may_have_to_show_one() {
        let files = |words: &str| {
            let TlsFiles { certificate, key, client_ca } = setup(words).tls.unwrap();
            [Some(certificate), Some(key), client_ca].map(|file| file.map(|file| file.display().to_string()))
        };
        let file = |name: &str| Some(name.to_owned());
        assert_eq!(files("-Z -o ssl_chain_cert=/a"), [file("/a"), file("/a"), None]);
        let all = "-Z -o ssl_chain_cert=/a,ssl_key=/b,ssl_ca_cert=/c,ssl_verify_mode=2";
        assert_eq!(files(all), ["/a", "/b", "/c"].map(file));
    }
}
