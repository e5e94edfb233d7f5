//! `sidelong cache`: a cache that memcached's clients use, on this machine.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use rustix::rand::{GetRandomFlags, getrandom};
use sidelong_cache::cache::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN};
use sidelong_cache::server::{self, Listener, Options};
use sidelong_cache::{Cache, Settings, Users};
use sidelong_policy::cache::store::Eviction;

use crate::failure::{Failure, say};
use crate::hangup::Hangup;

const MIB: usize = 1 << 20;
/// The smallest and the largest of the largest items, as memcached has them, in bytes.
const ITEM_BYTES_MIN: usize = 1 << 10;
const ITEM_BYTES_MAX: usize = 1 << 30;
/// Descriptors beside those of clients.
const OTHER_DESCRIPTORS: u64 = 64;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
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
    /// Threads: must be 1. More are not served yet.
    #[arg(short = 't', long, value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1))]
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
    /// Accepted for memcached's sake: SIDELONG_LOG says what is logged.
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Not served: let systemd or a shell run it in the background.
    #[arg(short = 'd', long, hide = true)]
    daemon: bool,
}

const EXAMPLES: &str = "\
It takes memcached's switches and speaks its protocols: text, meta and binary. SIGTERM and SIGINT stop it.

Examples:
  sidelong cache -m 1024 -p 11211
  sidelong cache -m 256 -l 10.0.0.5 -c 4096 -I 8m
  sidelong cache -s /run/app/cache.sock -a 770";

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

pub(crate) fn run(args: &CacheArgs, quiet: bool) -> Result<(), Failure> {
    if args.daemon {
        return Err(Failure::new(
            "-d: it stays in the foreground; let systemd or a shell run it in the background",
        ));
    }
    let memory_bytes = args.memory_limit.saturating_mul(MIB);
    if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory_bytes) {
        let (min, max) = (MEMORY_BYTES_MIN / MIB, MEMORY_BYTES_MAX / MIB);
        return Err(Failure::new(format!("-m {}: it must be {min} to {max} MiB", args.memory_limit)));
    }
    if args.max_item_size > memory_bytes / 2 {
        return Err(Failure::new(format!(
            "-I: items of {} bytes need -m {} or more, twice their size",
            args.max_item_size,
            (2 * args.max_item_size).div_ceil(MIB)
        )));
    }
    Hangup::ignore()?.log()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let clients_max = u64::from(args.conn_limit);
    raise_descriptors(clients_max + OTHER_DESCRIPTORS)?;
    let listeners = listeners(args)?;
    let users = args.auth_file.as_deref().map(users).transpose()?;

    let mut secret = [0; 16];
    getrandom(&mut secret, GetRandomFlags::empty())?;
    let (halves, _) = secret.as_chunks::<8>();
    let seed = [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])];
    let settings = Settings {
        memory_bytes,
        item_bytes_max: args.max_item_size,
        eviction: args.eviction,
        evicts: !args.disable_evictions,
        seed,
    };
    let mut cache = Cache::new(settings)?;
    let options = Options {
        clients_max: args.conn_limit as usize,
        users,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: shown(args),
    };
    if !quiet {
        let at: Vec<String> = listeners.iter().map(ToString::to_string).collect();
        say(format_args!("{} MiB of cache at {}\n", args.memory_limit, at.join(", ")))?;
    }
    server::serve(&listeners, &options, &mut cache, &stop)?;
    Ok(())
}

/// The rows of `stats settings` that dashboards know.
fn shown(args: &CacheArgs) -> Vec<(&'static str, String)> {
    let is_tcp = args.unix_socket.is_none();
    vec![
        ("tcpport", if is_tcp { args.port } else { 0 }.to_string()),
        ("udpport", "0".to_owned()),
        ("domain_socket", args.unix_socket.as_ref().map_or("NULL".into(), |path| path.display().to_string())),
        ("umask", format!("{:o}", args.unix_mask)),
        ("verbosity", args.verbose.to_string()),
        ("evictions", if args.disable_evictions { "off" } else { "on" }.to_owned()),
        ("eviction_rule", args.eviction.to_string()),
        ("num_threads", args.threads.to_string()),
        ("cas_enabled", "yes".to_owned()),
        ("hash_algorithm", "siphash13".to_owned()),
        ("auth_enabled_ascii", args.auth_file.as_ref().map_or("no", |_| "yes").to_owned()),
    ]
}

fn users(path: &Path) -> Result<Users, Failure> {
    let named = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let text = std::io::read_to_string(sidelong_files::open_regular(path).map_err(named)?).map_err(named)?;
    let users = Users::parse(&text);
    if users.is_empty() {
        return Err(Failure::new(format!("{}: it has no line NAME:PASSWORD", path.display())));
    }
    Ok(users)
}

fn listeners(args: &CacheArgs) -> Result<Vec<Listener>, Failure> {
    if let Some(path) = &args.unix_socket {
        let named = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
        // A socket at which nobody answers was left by a process that was killed.
        if UnixStream::connect(path).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            fs::remove_file(path).map_err(named)?;
        }
        let before = umask(Mode::from_raw_mode(0o777 & !args.unix_mask));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.map_err(named)?;
        return Ok(vec![Listener::Unix(listener, path.clone())]);
    }
    let tcp = |listen: &Listen| {
        let address = SocketAddr::new(listen.address, listen.port.unwrap_or(args.port));
        let listener = TcpListener::bind(address);
        listener.map(Listener::Tcp).map_err(|error| Failure::new(format!("{address}: {error}")))
    };
    args.listen.iter().map(tcp).collect()
}

/// Lets this process have as many descriptors as its clients need.
fn raise_descriptors(needed: u64) -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|_| {
        let maximum = maximum.map_or_else(String::new, |maximum| maximum.to_string());
        Failure::new(format!("-c: {needed} descriptors are needed, and the limit is {maximum} (ulimit -Hn)"))
    })
}
