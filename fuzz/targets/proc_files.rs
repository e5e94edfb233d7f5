//! Files of /proc and of control groups.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_load::proc::{cgroup, machine, process};

fuzz_target!(|text: &[u8]| {
    let _ = machine::stat(text);
    let _ = machine::load_average(text);
    let _ = machine::memory(text);
    let _ = machine::pressure_us(text);
    let _ = machine::network(text);
    let _ = machine::tcp(text);
    let _ = machine::tcp_in_use(text);
    let _ = process::process(text);
    let _ = cgroup::cpu_stat(text);
    let _ = cgroup::cpu_max(text);
    let _ = cgroup::memory_limit(text);
    let _ = cgroup::count(text);
    let _ = cgroup::inactive_file(text);
    let _ = cgroup::cpu_list(text);
});
