//! Records that the running kernel keeps: they stay fresh without help for as long as their owner lives. Tests that
//! this kernel does not permit are skipped, with a message.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sidelong_fabric::Region;
use sidelong_layout::{
    Beat, KERNEL_BEAT, KERNEL_PLACES, LOAD_HOT, PLACE_BYTES, PLACE_TICK, RegionKind, Rejected, Slot, Tick,
    kept, valid,
};
use sidelong_load::{
    Error, Keeper, KeeperSpec, KernelError, KernelRecord, KernelSpec, OriginLoad, OwnReader, Reading, Scope,
    ServerLine, Source as _, Status, drop_privileges, monotonic_ns,
};
use sidelong_state::Record;

use crate::support::kernel::{Other, expose, keep, reader, skipped};
use crate::support::{all_are, limits, refresh_until};

#[test]
fn the_kernel_keeps_a_record_that_moves() {
    let life = 0xabcd_0000_0007;
    let test = "the_kernel_keeps_a_record_that_moves";
    let Some(record) = keep(test, &KernelSpec::new(Scope::Machine, life)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let region = expose(&record, directory.path(), life);
    let mut reader = reader(directory.path(), limits());
    let [first] = refresh_until(&mut reader, all_are(Status::Fresh));
    let first = first.hot.unwrap();
    assert_eq!((first.generation, first.valid & valid::ORIGIN), (7, 0));
    let wanted = valid::RUN_QUEUE | valid::CPU | valid::MEMORY;
    refresh_until(&mut reader, |[now]: &[Reading; 1]| {
        now.hot.is_some_and(|hot| hot.valid & wanted == wanted && hot.time_ns > first.time_ns)
    });
    assert_eq!(reader.is_kept_by_kernel(0), Some(true));
    assert_eq!(reader.cpus(0).len(), std::thread::available_parallelism().unwrap().get());

    // The server publishes its own line, and its end.
    let refused = Keeper::start(region.clone(), None, || None, KeeperSpec::default()).unwrap_err();
    assert!(matches!(refused, Error::Region { .. }), "{refused}");
    let gauge = || OriginLoad { workers: 4, served: 9, errors: 2, ..OriginLoad::default() };
    let own_region = region.clone();
    let line = ServerLine::open(region, Box::new(gauge)).unwrap();
    let [served] = refresh_until(&mut reader, |[now]: &[Reading; 1]| {
        now.hot.is_some_and(|hot| hot.valid & valid::ORIGIN != 0)
    });
    assert_eq!(served.hot.map(|hot| (hot.workers, hot.served)), Some((4, 9)));
    let detail = reader.detail(0).unwrap();
    assert_eq!((detail.pid, detail.errors), (std::process::id(), 2));
    assert!(detail.memory_used_bytes > 0 && detail.generation == 7);
    // The node reads it, too. CPU time is the difference of two samples.
    let mut own = OwnReader::new(own_region, None);
    own.read();
    std::thread::sleep(Duration::from_millis(50));
    let own = own.read();
    let (hot, own_detail) = (own.hot.unwrap(), own.detail.unwrap());
    assert_eq!((hot.generation, hot.valid & wanted), (7, wanted));
    assert!(hot.time_ns >= first.time_ns && own_detail.memory_used_bytes > 0);
    assert_eq!((own_detail.pid, own_detail.errors), (std::process::id(), 2));
    drop(line);
    refresh_until(&mut reader, all_are::<1>(Status::Gone));
}

/// The record needs no help: its owner is stopped, and uses no CPU before and after.
#[test]
fn the_owner_need_not_run() {
    sleeps_for("the_owner_need_not_run", Duration::from_secs(2));
}

#[test]
#[ignore = "takes a minute"]
fn the_owner_uses_no_cpu_in_a_minute() {
    sleeps_for("the_owner_uses_no_cpu_in_a_minute", Duration::from_secs(60));
}

/// A process that has set up is idle for this long, or is checked again.
const SETTLE: Duration = Duration::from_millis(500);
const SETTLES_MAX: u32 = 20;

fn sleeps_for(test: &str, span: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let Some(owner) = Other::start(test, directory.path(), 3, &Scope::Machine) else { return };
    let mut reader = reader(directory.path(), limits());
    let [before] = refresh_until(&mut reader, all_are(Status::Fresh));
    // Set-up is over when it has finished handing out the memory.
    let settled = (0..SETTLES_MAX).find_map(|_| {
        let ticks = owner.ticks();
        std::thread::sleep(SETTLE);
        (owner.ticks() == ticks).then_some(ticks)
    });
    let ticks = settled.expect("it never rests");
    std::thread::sleep(span);
    assert_eq!(owner.ticks(), ticks, "in {span:?}, awake");
    owner.stop();
    // Taking the signal is also work.
    std::thread::sleep(SETTLE);
    let ticks = owner.ticks();
    let [first] = refresh_until(&mut reader, all_are(Status::Fresh));
    let switches = reader.machine(0).unwrap().context_switches;
    std::thread::sleep(Duration::from_millis(500));
    let [second] = refresh_until(&mut reader, all_are(Status::Fresh));
    assert!(second.age_ns < 150_000_000, "{second:?}");
    let passed = |from: &Reading, to: &Reading| to.hot.unwrap().time_ns - from.hot.unwrap().time_ns;
    // A beat may be late on a busy machine.
    assert!(passed(&before, &first) + 200_000_000 > span.as_nanos() as u64);
    assert!(passed(&first, &second) > 300_000_000);
    assert!(reader.machine(0).unwrap().context_switches > switches);
    assert_eq!(owner.ticks(), ticks, "stopped");
}

#[test]
fn a_dead_owner_shows_and_its_successor_is_told_apart() {
    let test = "a_dead_owner_shows_and_its_successor_is_told_apart";
    let directory = tempfile::tempdir().unwrap();
    let Some(mut owner) = Other::start(test, directory.path(), 3, &Scope::Machine) else { return };
    let mut reader = reader(directory.path(), limits());
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));
    owner.kill();
    let died = Instant::now();
    // The time that this reader itself was delayed is subtracted.
    let (mut late, mut looked) = (Duration::ZERO, died);
    let mut readings = [Reading::default()];
    loop {
        reader.refresh(monotonic_ns(), &mut readings);
        late = late.max(looked.elapsed());
        looked = Instant::now();
        if readings[0].status != Status::Fresh {
            break;
        }
        assert!(readings[0].age_ns <= 150_000_000, "{readings:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let shown = died.elapsed();
    assert!(shown.saturating_sub(late) < Duration::from_millis(200), "{shown:?}, of which {late:?} asleep");
    assert_eq!(readings[0].fresh(), None);

    let Some(_successor) = Other::start(test, directory.path(), 4, &Scope::Machine) else { return };
    let [fresh] = refresh_until(&mut reader, all_are(Status::Fresh));
    assert_eq!(fresh.hot.unwrap().generation, 4);
}

/// A keeper thread may follow a kernel-kept record, and the other way round.
#[test]
fn who_keeps_the_record_may_change_with_each_life() {
    let test = "who_keeps_the_record_may_change_with_each_life";
    let directory = tempfile::tempdir().unwrap();
    let mut reader = reader(directory.path(), limits());
    for life in [1u64, 3] {
        let Some(owner) = Other::start(test, directory.path(), life, &Scope::Machine) else { return };
        let [fresh] = refresh_until(&mut reader, all_are(Status::Fresh));
        assert_eq!((fresh.hot.unwrap().generation, reader.is_kept_by_kernel(0)), (life as u32, Some(true)));
        drop(owner);
        let region = crate::support::region(directory.path(), "n0", life + 1);
        let keeper =
            Keeper::start(region, Some(crate::support::recorder()), || None, KeeperSpec::default()).unwrap();
        let [fresh] = refresh_until(&mut reader, |[now]: &[Reading; 1]| {
            now.fresh().is_some_and(|hot| u64::from(hot.generation) == life + 1)
        });
        assert_eq!((fresh.status, reader.is_kept_by_kernel(0)), (Status::Fresh, Some(false)));
        drop(keeper);
    }
}

#[test]
fn cpus_without_a_place_are_in_the_sums() {
    let test = "cpus_without_a_place_are_in_the_sums";
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        skipped::<()>(test, &"one CPU only");
        return;
    }
    let spec = KernelSpec { places_max: 1, ..KernelSpec::new(Scope::Machine, 1) };
    let Some(record) = keep(test, &spec) else { return };
    let directory = tempfile::tempdir().unwrap();
    let region = expose(&record, directory.path(), 1);
    let mut reader = reader(directory.path(), limits());
    let wanted = valid::RUN_QUEUE | valid::CPU;
    refresh_until(&mut reader, |[now]: &[Reading; 1]| {
        now.fresh().is_some_and(|hot| hot.valid & wanted == wanted)
    });
    assert_eq!(reader.cpus(0).len(), 1);
    // A record that is being written is read again.
    let mut looks = (0..1_000).map(|_| Beat::validated(&words(&region, KERNEL_BEAT)));
    let beat = looks.find_map(Result::ok).unwrap();
    assert_eq!((usize::from(beat.cpus), beat.places, beat.unplaced as usize), (cpus, 1, cpus - 1));
    let nothing = Slot::validated(&words(&region, KERNEL_PLACES + PLACE_BYTES));
    assert_eq!(nothing, Err(Rejected::Never), "nobody writes beyond the places");
}

#[test]
fn without_a_capability_it_says_which() {
    let Some(record) = keep("without_a_capability_it_says_which", &KernelSpec::new(Scope::Machine, 1)) else {
        return;
    };
    let refused = |kept: CapabilitySet| {
        // A thread of its own, because dropped capabilities cannot be regained.
        let refused = std::thread::spawn(move || {
            let held = capabilities(None).unwrap();
            let (effective, permitted) = (held.effective & kept, held.permitted & kept);
            set_capabilities(None, CapabilitySets { effective, permitted, ..held }).unwrap();
            KernelRecord::start(&KernelSpec::new(Scope::Machine, 1)).map(drop)
        });
        refused.join().unwrap().unwrap_err()
    };
    let some = CapabilitySet::all() - CapabilitySet::SYS_ADMIN;
    for (kept, missing) in [
        (some - CapabilitySet::BPF, "CAP_BPF is missing"),
        (some - CapabilitySet::PERFMON, "CAP_PERFMON is missing"),
        (CapabilitySet::empty(), "CAP_BPF and CAP_PERFMON are missing"),
    ] {
        let error = refused(kept);
        assert!(matches!(error, KernelError::Capability { .. }), "{error}");
        assert!(error.to_string().starts_with(missing), "{error}");
    }
    // These two suffice until they are dropped, and the record then needs none.
    let kept = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let directory = tempfile::tempdir().unwrap();
    let region = expose(&record, directory.path(), 1);
    std::thread::spawn(move || {
        set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable: kept & !kept },
        )
        .unwrap();
        let second = KernelRecord::start(&KernelSpec::new(Scope::Machine, 2)).unwrap();
        drop_privileges().unwrap();
        assert!(capabilities(None).unwrap().permitted.is_empty());
        let again = KernelRecord::start(&KernelSpec::new(Scope::Machine, 3)).unwrap_err();
        assert!(matches!(again, KernelError::Capability { .. }), "{again}");
        let beat =
            |region: &Region| Beat::validated(&words(region, KERNEL_BEAT)).map_or(0, |beat| beat.beats);
        let directory = tempfile::tempdir().unwrap();
        let second = expose(&second, directory.path(), 2);
        let before = beat(&second);
        let began = Instant::now();
        while beat(&second) == before {
            assert!(began.elapsed() < Duration::from_secs(10), "it stands still");
        }
    })
    .join()
    .unwrap();
    drop(region);
}

#[test]
fn what_the_kernel_does_not_tell_apart_is_refused() {
    if keep("what_the_kernel_does_not_tell_apart_is_refused", &KernelSpec::new(Scope::Machine, 1)).is_none() {
        return;
    }
    let start = |scope| KernelRecord::start(&KernelSpec::new(scope, 1)).unwrap_err();
    let process = start(Scope::Process(1));
    assert!(matches!(process, KernelError::Scope { .. }) && process.to_string().contains("process 1"));
    let nowhere = start(Scope::Cgroup("/nowhere".into()));
    assert!(matches!(nowhere, KernelError::Read { .. }) && nowhere.to_string().contains("/nowhere"));
}

/// Like a kernel built without type information: it is hidden from one process.
#[test]
fn without_types_it_says_so() {
    let test = "without_types_it_says_so";
    if keep(test, &KernelSpec::new(Scope::Machine, 1)).is_none() {
        return;
    }
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hidden]).arg(std::env::current_exe().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let why = Other::refused(command, directory.path(), &Scope::Machine);
    assert!(why.contains("does not describe its types (/sys/kernel/btf/vmlinux: no such file)"), "{why}");
}

#[test]
fn no_torn_record_is_read() {
    soak("no_torn_record_is_read", 1_000_000);
}

#[test]
#[ignore = "takes a minute: 100 million reads"]
fn no_torn_record_is_read_in_100_million() {
    soak("no_torn_record_is_read_in_100_million", 100_000_000);
}

/// Longest that a CPU of a guest may stand still.
const CLOCK_ERROR_NS_MAX: u64 = 1_000_000_000;

/// Reads the kernel's parts as a peer does, while threads on every CPU make the kernel write them. A valid part is
/// never older than an earlier one, and never of another life.
fn soak(test: &str, reads: u64) {
    let Some(record) = keep(test, &KernelSpec::new(Scope::Machine, 9)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let region = expose(&record, directory.path(), 9);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let churn =
        || {
            let stop = std::sync::Arc::clone(&stop);
            let (tell, told) = std::sync::mpsc::sync_channel::<()>(0);
            std::thread::spawn(move || while told.recv().is_ok() {});
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && tell.send(()).is_ok() {}
            })
        };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let churners: Vec<_> = (0..cpus).map(|_| churn()).collect();
    let (mut torn, mut changes) = (0u64, 0u64);
    let mut slots = vec![Slot::default(); cpus];
    let mut ticks = vec![Tick::default(); cpus];
    let mut beat = Beat::default();
    let mut done = 0;
    while done < reads {
        for cpu in 0..cpus {
            let at = KERNEL_PLACES + cpu * PLACE_BYTES;
            done += 2;
            if let Some(now) = used::<{ Slot::WORDS }, Slot>(&region, at, &mut torn) {
                let before = slots[cpu];
                assert!(now.generation == 9 && now.flags <= 1 && now.runnable < 10_000, "{now:?}");
                assert!(
                    now.switches >= before.switches && now.busy_ns >= before.busy_ns,
                    "{before:?} {now:?}"
                );
                // The clock is compared with the monotonic one each second, and is wrong by as long as a CPU of this machine
                // stood still meanwhile. A time of another life, or half of one, is further away.
                assert!(now.time_ns + CLOCK_ERROR_NS_MAX > before.time_ns, "{before:?} {now:?}");
                assert!(now.time_ns < monotonic_ns() + CLOCK_ERROR_NS_MAX, "{now:?}");
                changes += u64::from(now.sequence != before.sequence);
                slots[cpu] = now;
            }
            if let Some(now) = used::<{ Tick::WORDS }, Tick>(&region, at + PLACE_TICK, &mut torn) {
                let before = ticks[cpu];
                assert!(now.generation == 9 && now.time_ns >= before.time_ns, "{before:?} {now:?}");
                ticks[cpu] = now;
            }
        }
        done += 1;
        if let Some(now) = used::<{ Beat::WORDS }, Beat>(&region, KERNEL_BEAT, &mut torn) {
            assert!(now.time_ns >= beat.time_ns && now.beats >= beat.beats, "{beat:?} {now:?}");
            assert_ne!(now.valid & kept::SWITCHES, 0);
            beat = now;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    churners.into_iter().for_each(|churner| churner.join().unwrap());
    println!("{done} reads, {changes} of them of another event, {torn} torn and refused");
    assert!(changes > 100);
}

/// A part, if this copy of it is valid.
fn used<const W: usize, R: Record<W>>(region: &Region, at: usize, torn: &mut u64) -> Option<R> {
    match R::validated(&words(region, at)) {
        Ok(record) => Some(record),
        Err(Rejected::Torn | Rejected::Writing) => {
            *torn += 1;
            None
        }
        Err(Rejected::Never) => None,
    }
}

fn words<const W: usize>(region: &Region, at: usize) -> [u64; W] {
    assert_eq!(region.key().kind, RegionKind::Kernel);
    assert!(at >= LOAD_HOT);
    std::array::from_fn(|word| region.load(at + word * 8))
}

/// For a guest, whose CPUs no other program needs.
#[test]
#[ignore = "takes a CPU offline: run in a guest by `cargo xtask ci guest`"]
fn a_cpu_may_go_offline() {
    let test = "a_cpu_may_go_offline";
    let switch = std::path::Path::new("/sys/devices/system/cpu/cpu1/online");
    if std::fs::read(switch).is_ok_and(|text| text != b"1\n") || std::fs::write(switch, "1").is_err() {
        skipped::<()>(test, &"no second CPU that may be taken offline");
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    for states in [["0", "1", "0", "1"].as_slice(), &["1", "0", "1"]] {
        follows(test, cpus, states);
    }
}

/// Starts a record while CPU 1 is in the first of these states, and passes through the others.
fn follows(test: &str, cpus: usize, states: &[&str]) {
    let switch = "/sys/devices/system/cpu/cpu1/online";
    std::fs::write(switch, states[0]).unwrap();
    let Some(record) = keep(test, &KernelSpec::new(Scope::Machine, 1)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let _region = expose(&record, directory.path(), 1);
    let mut reader = reader(directory.path(), limits());
    refresh_until(&mut reader, all_are::<1>(Status::Fresh));
    for state in states {
        let online = *state == "1";
        std::fs::write(switch, state).unwrap();
        let began = Instant::now();
        let mut readings = [Reading::default()];
        while reader.cpus(0)[1].online != online {
            reader.refresh(monotonic_ns(), &mut readings);
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", reader.cpus(0));
        }
        let machine = refresh_until(&mut reader, all_are::<1>(Status::Fresh));
        assert!(machine[0].hot.unwrap().run_queue < 1000);
        std::thread::sleep(Duration::from_millis(50));
        let machine = reader.machine(0).unwrap();
        assert_eq!(usize::from(machine.cpus), if online { cpus } else { cpus - 1 });
    }
}
