//! The configuration of the programs: `struct config` of `../bpf/record.bpf.c`, field by field.

use std::net::{IpAddr, SocketAddr};

use bytemuck::{Pod, Zeroable};
use sidelong_layout::{PLACES_MAX, kept, valid};

use super::facts::Facts;
use super::group::Group;
use super::{EVENTS, KernelError, KernelSpec, Needed, SERVERS_MAX};
use crate::sampler::Scope;

/// Fractional bits in the kernel's load averages.
const LOAD_BITS: u32 = 11;

/// Most CPUs that a record can follow: `CPUS_MAX` of `../bpf/record.bpf.c`.
const CPUS_MAX: u32 = 1024;

/// Most memory nodes that a record can sum: `MEMORY_NODES_MAX` of `../bpf/record.bpf.c`.
const MEMORY_NODES_MAX: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Config {
    cgroup_id: u64,
    memory_cgroup_id: u64,
    memory_total_bytes: u64,
    page_bytes: u64,
    load: [u64; 3],
    cpustat: i64,
    kstat: i64,
    tick_sched: i64,
    irq_stat: i64,
    area: i64,
    generation: u32,
    cpus: u32,
    places: u32,
    ip_in_bytes: u32,
    ip_in_packets: u32,
    ip_out_bytes: u32,
    ip_out_packets: u32,
    tcp_established: u32,
    nodes: u32,
    valid: u32,
    server_count: u32,
    reserved: u32,
    servers: [Server; SERVERS_MAX],
}

/// An address at which the foreign server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C)]
struct Server {
    /// As IPv6 has it, in the order of the network.
    address: [u8; 16],
    port: u64,
}

impl From<&SocketAddr> for Server {
    fn from(server: &SocketAddr) -> Self {
        let address = match server.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Server { address: address.octets(), port: server.port().into() }
    }
}

impl Config {
    /// The configuration for a record of `spec`, with the fields that this kernel can fill.
    pub(super) fn new(spec: &KernelSpec, facts: &Facts) -> Result<Self, KernelError> {
        let group = match &spec.scope {
            Scope::Machine => None,
            Scope::Cgroup(path) => Some(Group::find(path)?),
            Scope::Process(_) => {
                let reason = "it can tell control groups apart, but not processes".to_owned();
                return Err(KernelError::Scope { scope: spec.scope.clone(), reason });
            }
        };
        let lacks = |tracepoint: &&str| !facts.has_tracepoint(tracepoint);
        let needed = EVENTS.iter().filter(|(.., needed)| *needed == Needed::Always).map(|(_, name, _)| *name);
        if let Some(tracepoint) = needed.clone().find(lacks) {
            return Err(KernelError::Lacks { what: format!("tracepoint {tracepoint}") });
        }
        let [ip_in_bytes, ip_in_packets, ip_out_bytes, ip_out_packets, tcp_established] =
            facts.counters.map(Option::unwrap_or_default);
        let mut config = Config {
            memory_total_bytes: facts.memory_total_bytes,
            page_bytes: rustix::param::page_size() as u64,
            load: facts.load_milli.map(|milli| (u64::from(milli) << LOAD_BITS) / 1000),
            cpustat: facts.variable("kernel_cpustat"),
            kstat: facts.variable("kstat"),
            tick_sched: facts.variable("tick_cpu_sched"),
            irq_stat: facts.variable("irq_stat"),
            area: facts.variable("this_cpu_off"),
            generation: spec.incarnation as u32,
            cpus: facts.cpus.min(CPUS_MAX),
            places: spec.places_max.min(PLACES_MAX).min(facts.cpus as usize) as u32,
            ip_in_bytes,
            ip_in_packets,
            ip_out_bytes,
            ip_out_packets,
            tcp_established,
            nodes: if facts.nodes <= MEMORY_NODES_MAX { facts.nodes } else { 0 },
            ..Config::zeroed()
        };
        if spec.servers.len() <= SERVERS_MAX {
            config.server_count = spec.servers.len() as u32;
            for (to, server) in config.servers.iter_mut().zip(&spec.servers) {
                *to = Server::from(server);
            }
        } else {
            tracing::warn!(
                "the kernel's record is without the server's connections: it has {} addresses, at most {SERVERS_MAX} are followed",
                spec.servers.len()
            );
        }
        let all = |needed| {
            let mut events = EVENTS.iter().filter(|event| event.2 == needed);
            events.all(|(_, tracepoint, _)| facts.has_tracepoint(tracepoint))
        };
        let mut fields = valid::RUN_QUEUE | valid::CPU | valid::MEMORY;
        if let Some(group) = group {
            config.cgroup_id = group.id;
            config.memory_cgroup_id = group.memory_id.unwrap_or(0);
            fields |= kept::OF_GROUP;
        } else {
            let ip = facts.counters[..4].iter().all(Option::is_some);
            for (bit, had) in [
                (valid::NETWORK, ip),
                (valid::INTERRUPTS, all(Needed::ForInterrupts)),
                (kept::CPU_TIMES, config.cpustat != 0),
                (kept::SWITCHES, true),
                (kept::INTERRUPTS_TOTAL, config.kstat != 0),
                (kept::PRESSURE, facts.pressure),
                (kept::LOAD_AVERAGE, true),
                (kept::TCP, facts.counters[4].is_some()),
            ] {
                fields |= if had { bit } else { 0 };
            }
        }
        if config.server_count > 0 && all(Needed::ForSockets) {
            fields |= kept::SOCKETS;
        }
        config.valid = u32::from(fields);
        Ok(config)
    }

    /// Whether programs that serve this purpose are loaded.
    pub(super) fn wants(&self, needed: Needed) -> bool {
        let bit = match needed {
            Needed::Always => return true,
            Needed::ForInterrupts => valid::INTERRUPTS,
            Needed::ForSockets => kept::SOCKETS,
        };
        self.valid & u32::from(bit) != 0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::COUNTERS;
    use super::*;

    /// A kernel that has everything, at the largest supported numbers.
    fn facts() -> Facts {
        let variables = ["kernel_cpustat", "kstat", "tick_cpu_sched", "irq_stat", "this_cpu_off"];
        Facts {
            cpus: CPUS_MAX,
            nodes: MEMORY_NODES_MAX,
            memory_total_bytes: 1 << 30,
            load_milli: [1000, 0, 0],
            pressure: true,
            variables: variables.iter().map(|name| ((*name).to_owned(), 8)).collect(),
            tracepoints: EVENTS.iter().map(|(_, tracepoint, _)| *tracepoint).collect(),
            counters: [Some(1); COUNTERS.len()],
        }
    }

    fn without(tracepoint: &str) -> Facts {
        let mut facts = facts();
        facts.tracepoints.retain(|name| *name != tracepoint);
        facts
    }

    fn config(facts: &Facts) -> Config {
        let servers = vec!["127.0.0.1:80".parse().unwrap()];
        Config::new(&KernelSpec { servers, ..KernelSpec::new(Scope::Machine, 1) }, facts).unwrap()
    }

    #[test]
    fn sockets_are_those_of_the_servers_that_it_has_room_for() {
        let with = |count: usize| {
            let servers = (0..count).map(|at| SocketAddr::from(([127, 0, 0, 1], 8000 + at as u16))).collect();
            Config::new(&KernelSpec { servers, ..KernelSpec::new(Scope::Machine, 1) }, &facts()).unwrap()
        };
        let counts = [0, 1, SERVERS_MAX, SERVERS_MAX + 1].map(with);
        assert_eq!(counts.map(|config| config.wants(Needed::ForSockets)), [false, true, true, false]);
        let last = with(SERVERS_MAX).servers[SERVERS_MAX - 1];
        assert_eq!((&last.address[10..], last.port), (&[255, 255, 127, 0, 0, 1][..], 8063));
    }

    #[test]
    fn what_a_kernel_lacks_is_left_out_and_said() {
        let all = config(&facts()).valid;
        let lacks = |facts: &Facts| u16::try_from(all & !config(facts).valid).unwrap();
        assert_eq!(lacks(&without("softirq_raise")), valid::INTERRUPTS);
        assert_eq!(lacks(&without("softirq_exit")), valid::INTERRUPTS);
        assert_eq!(lacks(&without("inet_sock_set_state")), kept::SOCKETS);
        assert_eq!(lacks(&Facts { pressure: false, ..facts() }), kept::PRESSURE);
        assert_eq!(lacks(&Facts { counters: [None; COUNTERS.len()], ..facts() }), valid::NETWORK | kept::TCP);
        let unnamed = Facts { variables: Default::default(), ..facts() };
        assert_eq!(lacks(&unnamed), kept::CPU_TIMES | kept::INTERRUPTS_TOTAL);
        assert!(!config(&without("softirq_raise")).wants(Needed::ForInterrupts));
        assert!(!config(&without("inet_sock_set_state")).wants(Needed::ForSockets));
    }

    #[test]
    fn without_its_run_queues_there_is_no_record() {
        for tracepoint in ["sched_switch", "sched_wakeup", "sched_wakeup_new"] {
            let error = Config::new(&KernelSpec::new(Scope::Machine, 1), &without(tracepoint)).unwrap_err();
            assert_eq!(error.to_string(), format!("this kernel has no tracepoint {tracepoint}"));
        }
    }

    #[test]
    fn a_larger_machine_than_the_programs_have_room_for_is_followed_as_far_as_it_goes() {
        let large = Facts { cpus: 8192, nodes: 64, ..facts() };
        let Config { cpus, places, nodes, .. } = config(&large);
        assert_eq!((cpus, places as usize, nodes), (CPUS_MAX, PLACES_MAX, 0));
        let Config { cpus, places, nodes, .. } = config(&Facts { cpus: 2, nodes: 1, ..facts() });
        assert_eq!((cpus, places, nodes), (2, 2, 1));
    }
}
