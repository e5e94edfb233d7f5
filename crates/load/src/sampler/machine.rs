//! Samples the whole machine.

use std::path::Path;

use super::probe::Probe;
use super::{Counters, CpuCounter, Sample, Source, ticks_ns};
use crate::proc::machine;

#[derive(Debug)]
pub(super) struct Machine {
    stat: Probe,
    load_average: Probe,
    memory: Probe,
    network: Probe,
    tcp: Probe,
    sockets: Probe,
}

impl Machine {
    pub(super) fn open(proc: &Path) -> Self {
        let open = |name| Probe::open(proc.join(name));
        Machine {
            stat: open("stat"),
            load_average: open("loadavg"),
            memory: open("meminfo"),
            network: open("net/dev"),
            tcp: open("net/snmp"),
            sockets: open("net/sockstat"),
        }
    }
}

impl Source for Machine {
    fn probes(&self) -> Vec<&Probe> {
        vec![&self.stat, &self.load_average, &self.memory, &self.network, &self.tcp, &self.sockets]
    }

    fn look(&mut self, _now_ns: u64, buffer: &mut Vec<u8>, sample: &mut Sample) -> Counters {
        let mut counters = Counters::default();
        let mut running = None;
        if let Some(stat) = self.stat.read(buffer, machine::stat) {
            let detail = &mut sample.detail;
            detail.cpu_user_ns = ticks_ns(stat.cpu.user);
            detail.cpu_system_ns = ticks_ns(stat.cpu.system);
            detail.cpu_iowait_ns = ticks_ns(stat.cpu.iowait);
            detail.cpu_idle_ns = ticks_ns(stat.cpu.idle);
            detail.context_switches = stat.context_switches;
            detail.interrupts = stat.interrupts;
            detail.cpus = stat.cpus;
            running = stat.running;
            let (used_ns, offered_ns) = (ticks_ns(stat.cpu.used()), ticks_ns(stat.cpu.total()));
            counters.cpu = Some(CpuCounter { used_ns, offered_ns });
        }
        if let Some(average) = self.load_average.read(buffer, machine::load_average) {
            let detail = &mut sample.detail;
            [detail.load_1m_milli, detail.load_5m_milli, detail.load_15m_milli] = average.milli;
            detail.threads = average.threads;
            running = running.or(Some(average.running));
        }
        if let Some(running) = running {
            // One of them is this thread.
            sample.set_run_queue(running.saturating_sub(1));
        }
        if let Some(memory) = self.memory.read(buffer, machine::memory) {
            sample.set_memory(memory.total_bytes.saturating_sub(memory.available_bytes), memory.total_bytes);
        }
        if let Some(network) = self.network.read(buffer, machine::network) {
            let detail = &mut sample.detail;
            detail.net_received_bytes = network.received_bytes;
            detail.net_sent_bytes = network.sent_bytes;
            detail.net_received_packets = network.received_packets;
            detail.net_sent_packets = network.sent_packets;
            counters.network_bytes = Some(network.received_bytes.saturating_add(network.sent_bytes));
        }
        let established = self.tcp.read(buffer, machine::tcp).map(|tcp| tcp.established);
        let established = established.or_else(|| self.sockets.read(buffer, machine::tcp_in_use));
        sample.detail.tcp_established = established.unwrap_or(0);
        counters
    }
}

impl Machine {}
