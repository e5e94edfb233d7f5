//! Records that the kernel keeps (Vaidyanathan et al. 2006, 3.2.2): eBPF programs at its own events write them into
//! memory that peers map or register.
//!
//! This is the loader. It asks the running kernel for its features, leaves out unsupported programs, attaches the rest
//! and starts a timer. From then on no thread of this process works for the record. It loads the object beside this
//! file (`../bpf/record.bpf.o`, made by `cargo xtask bpf`), one for all kernels. Nothing is pinned: when this process
//! ends, the programs are removed, the timer stops, and the record becomes stale.

mod config;
mod crosscheck;
mod error;
mod facts;
mod group;
pub(crate) mod privilege;
pub(crate) mod verifier;

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use libbpf_rs::{Iter, Link, MapCore as _, Object, ObjectBuilder, OpenObject, ProgramInput, ProgramMut};
use sidelong_layout::{KERNEL_BYTES, PLACES_MAX};

use crate::sampler::Scope;
use config::Config;
pub use error::KernelError;
use facts::Facts;
pub use privilege::{drop_privileges, keep_privileges_to_detach};

/// The programs, as `cargo xtask bpf` builds them.
const OBJECT: &[u8] = include_bytes!("../bpf/record.bpf.o");
/// The map that is the region, and the map that holds the programs' configuration.
const REGION: &str = ".data.region";
const CONFIG: &str = ".rodata.config";
/// Most addresses of a server whose sockets a record counts: `SERVERS_MAX` of `../bpf/record.bpf.c`.
const SERVERS_MAX: usize = 64;
/// Runs a program on a given CPU (BPF_F_TEST_RUN_ON_CPU).
const ON_CPU: u32 = 1;

/// The programs that are attached, their tracepoints, and whether a record needs them.
const EVENTS: [(&str, &str, Needed); 8] = [
    ("on_switch", "sched_switch", Needed::Always),
    ("on_wakeup", "sched_wakeup", Needed::Always),
    ("on_new", "sched_wakeup_new", Needed::Always),
    ("on_raise", "softirq_raise", Needed::ForInterrupts),
    ("on_serve", "softirq_entry", Needed::ForInterrupts),
    ("on_served", "softirq_exit", Needed::ForInterrupts),
    ("on_state", "inet_sock_set_state", Needed::ForSockets),
    ("on_state_again", "inet_sock_set_state", Needed::ForSockets),
];

/// The purpose of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needed {
    Always,
    ForInterrupts,
    ForSockets,
}

/// The record to keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSpec {
    /// The scope: the machine, or a control group. The kernel keeps no record of a process.
    pub scope: Scope,
    /// The node's incarnation; its low 32 bits are the record's generation.
    pub incarnation: u64,
    /// CPUs with a place of their own, at most [`PLACES_MAX`]; the others are only in the sums.
    pub places_max: usize,
    /// Where the node's foreign server listens, whose sockets the record counts: at most 64 addresses. Of none,
    /// or of more, it counts none.
    pub servers: Vec<SocketAddr>,
}

impl KernelSpec {
    /// A record of `scope` in this life, with all available places, and of no server's sockets.
    pub const fn new(scope: Scope, incarnation: u64) -> Self {
        KernelSpec { scope, incarnation, places_max: PLACES_MAX, servers: Vec::new() }
    }
}

/// A record that the kernel keeps until this is dropped.
pub struct KernelRecord {
    memory: File,
    // Detached before the object is dropped.
    _links: Vec<Link>,
    _object: Object,
}

impl KernelRecord {
    /// Makes the kernel keep a record. It is being updated when this returns.
    ///
    /// # Errors
    /// What is missing (a capability, type information, an event), or the kernel's error for the programs.
    pub fn start(spec: &KernelSpec) -> Result<Self, KernelError> {
        let facts = Facts::read()?;
        let config = Config::new(spec, &facts)?;
        let mut object = load(&config)?;
        let program = |name: &str| {
            let found = object.progs_mut().find(|program| program.name() == name);
            found.ok_or_else(|| KernelError::Object { what: name.to_owned() })
        };
        let mut online = 0;
        for cpu in 0..facts.cpus {
            // A CPU that is offline is found once it switches threads.
            online += u32::from(run(&program("prime")?, cpu, ON_CPU).is_ok());
        }
        if online == 0 {
            run(&program("prime")?, 0, ON_CPU).map_err(|source| refused("the look at each CPU", source))?;
        }
        let mut links = Vec::new();
        for (name, tracepoint, needed) in EVENTS {
            if !config.wants(needed) {
                continue;
            }
            let attached = program(name)?.attach();
            links.push(attached.map_err(|source| refused(tracepoint, source))?);
        }
        if config.wants(Needed::ForSockets) {
            find_sockets(&program("on_found")?).map_err(|source| refused("the look at sockets", source))?;
        }
        let armed = run(&program("arm")?, 0, 0).map_err(|source| refused("the timer", source))?;
        if armed != 0 {
            return Err(KernelError::Timer { code: armed as i32 });
        }
        if spec.scope == Scope::Machine {
            crosscheck::check(&mut object)?;
        }
        let region = object.maps().find(|map| map.name() == REGION);
        let region = region.ok_or_else(|| KernelError::Object { what: REGION.to_owned() })?;
        assert!(region.value_size() as usize == KERNEL_BYTES, "the object is of another layout");
        let memory = region.as_fd().try_clone_to_owned().map_err(KernelError::Memory)?;
        Ok(KernelRecord { memory: memory.into(), _links: links, _object: object })
    }

    /// Tests whether the kernel would keep a record of `scope` for this process, by starting and dropping one.
    ///
    /// # Errors
    /// As [`KernelRecord::start`].
    pub fn probe(scope: &Scope) -> Result<(), KernelError> {
        let facts = Facts::read()?;
        let config = Config::new(&KernelSpec::new(scope.clone(), 0), &facts)?;
        load(&config).map(|_| ())
    }

    /// The file to map: [`KERNEL_BYTES`] bytes, of which the first 384 are the owner's.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn memory(&self) -> Result<File, KernelError> {
        self.memory.try_clone().map_err(KernelError::Memory)
    }
}

impl std::fmt::Debug for KernelRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelRecord").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// Loads the programs that this kernel supports and `config` needs.
fn load(config: &Config) -> Result<Object, KernelError> {
    verifier::listen();
    let opened = ObjectBuilder::default().name("sidelong").and_then(|builder| builder.open_memory(OBJECT));
    let mut object = opened.map_err(|source| refused("the object", source))?;
    for mut program in object.progs_mut() {
        let event = EVENTS.iter().find(|(name, ..)| program.name() == *name);
        let wanted = match event {
            Some((.., needed)) => config.wants(*needed),
            None if program.name() == "on_found" => config.wants(Needed::ForSockets),
            None => true,
        };
        program.set_autoload(wanted);
    }
    configure(&mut object, config)?;
    object.load().map_err(|source| match verifier::take() {
        Some(reason) => KernelError::Verifier { reason },
        None => refused("the programs", source),
    })
}

fn configure(object: &mut OpenObject, config: &Config) -> Result<(), KernelError> {
    let map = object.maps_mut().find(|map| map.name() == CONFIG);
    let mut map = map.ok_or_else(|| KernelError::Object { what: CONFIG.to_owned() })?;
    map.set_initial_value(config.bytes()).map_err(|source| refused("the configuration", source))
}

/// Runs the program and returns its result.
fn run(program: &ProgramMut<'_>, cpu: u32, flags: u32) -> Result<u32, libbpf_rs::Error> {
    program.test_run(ProgramInput { cpu, flags, ..ProgramInput::default() }).map(|output| output.return_value)
}

/// Makes the kernel show each TCP socket to `program`.
fn find_sockets(program: &ProgramMut<'_>) -> Result<(), libbpf_rs::Error> {
    let link = program.attach()?;
    let mut nothing = [0; 64];
    // The program prints nothing, so the first read is the last.
    while Iter::new(&link)?.read(&mut nothing)? > 0 {}
    Ok(())
}

pub(crate) fn refused(what: &str, source: libbpf_rs::Error) -> KernelError {
    let hint = match source.kind() {
        // The capabilities are there, so something else forbids it.
        libbpf_rs::ErrorKind::PermissionDenied => {
            " (a container's seccomp filter, or lockdown, may forbid it)"
        }
        _ => "",
    };
    KernelError::Refused { what: what.to_owned(), source, hint }
}
