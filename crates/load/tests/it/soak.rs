//! A hundred million reads of records that are being written: no torn or stale record is accepted. Reads without
//! validation do accept some, which shows that there was something to reject.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sidelong_fabric::{Access, Batch, Directory as _, Initiator, Pace, Region, RunDirectory};
use sidelong_layout::{ByServer, Hot, LOAD_BYTES, LOAD_HOT, RegionKind, valid};
use sidelong_load::{OneSided, Reading, Source as _, Status, monotonic_ns};
use sidelong_state::Publisher;

use crate::support::{all_are, limits, records, refresh_until, region};

const NODES: usize = 64;
const READS: u64 = 100_000_000;

/// A record in which every field holds the same number.
fn record(number: u32) -> Hot {
    Hot {
        valid: valid::ALL,
        time_ns: monotonic_ns(),
        net_bytes_per_s: number.into(),
        connections: number,
        queued: number,
        served: number.into(),
        busy: number,
        by_server: ByServer::service_us(number),
        ..Hot::default()
    }
}

fn is_of_one_moment(hot: &Hot) -> bool {
    let number = hot.connections;
    [Some(hot.queued), Some(hot.busy), hot.service_us()].iter().all(|field| *field == Some(number))
        && hot.served == number.into()
        && hot.net_bytes_per_s == number.into()
}

/// Writes all records repeatedly; `written` is a lower bound of each record's number from then on.
fn write(regions: &[Region], written: &[AtomicU32], stop: &AtomicBool) {
    let mut publishers = vec![Publisher::new(1); regions.len()];
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        for ((region, publisher), written) in regions.iter().zip(&mut publishers).zip(written) {
            for (index, value) in publisher.publish(record(number)) {
                region.store(LOAD_HOT + index * 8, value, Ordering::Release);
            }
            written.store(number, Ordering::Release);
        }
    }
}

fn names() -> Vec<String> {
    (0..NODES).map(|node| format!("n{node}")).collect()
}

#[test]
#[ignore = "a hundred million reads, for a release build"]
fn nothing_torn_or_stale_is_accepted() {
    let directory =
        tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let regions: Vec<_> = names().iter().map(|name| region(directory.path(), name, 1)).collect();
    let written: Vec<_> = (0..NODES).map(|_| AtomicU32::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&regions, &written, &stop));
        let read = std::panic::catch_unwind(|| {
            let (reads, changes) = with_validation(directory.path(), &written);
            let (looks, torn) = without_validation(directory.path());
            println!("{reads} reads, {changes} of records not seen before: none torn or stale");
            println!("the control, without validation: {torn} torn of {looks}");
        });
        stop.store(true, Ordering::Relaxed);
        read.unwrap();
    });
}

/// Returns the number of reads, and of those that brought something new.
fn with_validation(directory: &Path, written: &[AtomicU32]) -> (u64, u64) {
    let run = Arc::new(RunDirectory::open(directory).unwrap());
    let mut reader =
        OneSided::new(run, Initiator::new(), &records(names()), false, limits()).with_pace(Pace::WHOLE);
    refresh_until(&mut reader, all_are::<NODES>(Status::Fresh));
    let mut readings = [Reading::default(); NODES];
    let mut last = [0; NODES];
    let mut changes = 0;
    while reader.counts().unwrap().reads < READS {
        let least: [u32; NODES] = std::array::from_fn(|node| written[node].load(Ordering::Acquire));
        let now_ns = monotonic_ns();
        reader.refresh(now_ns, &mut readings);
        for (node, reading) in readings.iter().enumerate() {
            let Some(hot) = reading.fresh() else { continue };
            let number = hot.connections;
            assert!(is_of_one_moment(hot), "n{node} is torn: {hot:?}");
            assert!(number >= last[node], "n{node}: {number} after {}", last[node]);
            // If all copies of a scan were torn, the previous one is kept, with its own time.
            if reading.seen_at_ns == now_ns {
                assert!(
                    number >= least[node],
                    "n{node} is stale: {number}, {} was there before",
                    least[node]
                );
            }
            changes += u64::from(number > last[node]);
            last[node] = number;
        }
    }
    let swept = reader.counts().unwrap();
    assert!(changes > READS / 1000, "hardly anything was written: {changes} of {swept:?}");
    assert!(swept.again > 0, "no copy was ever torn: {swept:?}");
    println!("{swept:?}");
    (swept.reads, changes)
}

/// The same words without validation: the number of copies read until enough of them were torn.
fn without_validation(directory: &Path) -> (u64, u64) {
    let run = RunDirectory::open(directory).unwrap();
    let mut initiator = Initiator::new();
    let mut batch = Batch::new();
    let reads: Vec<_> = (names().iter())
        .map(|name| {
            let key = run.find(name, RegionKind::Load, LOAD_BYTES, Access::ReadOnly).unwrap();
            let link = initiator.connect(&key, limits().connect).unwrap();
            batch.read(link, LOAD_HOT, size_of::<Hot>())
        })
        .collect();
    let (mut looks, mut torn) = (0, 0);
    while torn < 1000 && looks < READS {
        initiator.run(&mut batch, limits().wait);
        for read in &reads {
            let hot = bytemuck::pod_read_unaligned(batch.bytes(*read).unwrap());
            looks += 1;
            torn += u64::from(!is_of_one_moment(&hot));
        }
    }
    assert!(torn > 0, "the control must fail: {looks} looks without validation, and none was torn");
    (looks, torn)
}
