use std::net::SocketAddr;

use sidelong_config::{ClusterFile, EdgeEntry, NodeEntry, SiteEntry};
use sidelong_layout::{Hot, SiteId};

use super::*;

const MS: u64 = 1_000_000;
const STALE: Duration = Duration::from_millis(200);

pub(in crate::top) fn serving(site: usize) -> Ownership {
    Ownership::serving(SiteId::new(site), 1)
}

fn looker(sites: &[&str], nodes: usize) -> Looker {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut file = ClusterFile::default();
    let names = (0..sites.len()).map(|site| format!("s{site}"));
    file.sites = names.map(|name| SiteEntry::new(&name, format!("{name}.test"), 1)).collect();
    file.nodes = vec![NodeEntry::new("n", sites.len(), at(7000))];
    file.edges = vec![EdgeEntry::new("edge", at(6000))];
    let cluster = file.cluster().unwrap();
    // Rows are made as a test needs them, even more than a cluster may have.
    let mut looker = Looker::new(&cluster, "rdma-async".to_owned(), "shm");
    looker.look.site_names = sites.iter().map(|name| (*name).to_owned()).collect();
    looker.look.nodes = (1..=nodes).map(|number| NodeRow::new(format!("n{number}"))).collect();
    looker.past = vec![Past::default(); nodes];
    looker
}

/// A record with that many requests served by then.
fn reading(at_ms: u64, served: u64) -> load::Reading {
    let hot = Hot {
        valid: valid::ALL & !valid::INTERRUPTS,
        generation: 7,
        time_ns: at_ms * MS,
        run_queue: 2,
        cpu_permille: 333,
        busy: 1,
        workers: 2,
        queued: 3,
        connections: 4,
        served,
        ..Hot::default()
    };
    load::Reading { hot: Some(hot), status: load::Status::Fresh, age_ns: MS, ..load::Reading::default() }
}

/// A scan of nodes with these statuses and owners.
pub(in crate::top) fn look_at(sites: &[&str], owners: &[Ownership]) -> Look {
    let mut looker = looker(sites, owners.len());
    let seen = owners.iter().map(|owner| (reading(1000, 10), Some(*owner)));
    looker.see(Time(1000 * MS), seen);
    looker.look
}

#[test]
fn sites_and_totals_sum_up_what_is_fresh() {
    let mut looker = looker(&["alpha", "beta"], 4);
    let leaving = serving(0).draining_to(Some(SiteId::new(1))).unwrap();
    let stale = load::Reading { status: load::Status::Stale, age_ns: 300 * MS, ..reading(700, 1) };
    let seen = [
        (reading(1000, 1), Some(serving(0))),
        (reading(1000, 1), Some(leaving)),
        (stale, Some(serving(1))),
        (load::Reading::default(), None),
    ];
    looker.see(Time(1000 * MS), seen.into_iter());
    let look = &looker.look;
    let [alpha, beta] = &look.sites[..] else { panic!() };
    assert_eq!((alpha.serving, alpha.leaving, alpha.coming), (1, 1, 0));
    assert_eq!((beta.serving, beta.leaving, beta.coming), (1, 0, 1));
    assert_eq!((alpha.sums.busy, alpha.sums.workers, alpha.sums.queued), (2, 4, 6));
    assert_eq!((alpha.sums.load(), beta.sums.load()), (Some(2.0), None), "a stale record counts for nothing");
    assert_eq!((look.totals.nodes, look.totals.connections, look.totals.run_queue), (2, 8, Some(4)));
    assert_eq!(look.totals.cpu_percent(), Some(33.3));
    assert_eq!(
        look.nodes.iter().map(|node| node.status).collect::<Vec<_>>(),
        [Status::Fresh, Status::Fresh, Status::Stale, Status::Gone]
    );
    assert_eq!((look.nodes[2].served, look.nodes[2].age), (None, Some(Duration::from_millis(300))));
    assert_eq!(look.nodes[3].state(), "unknown");
}

#[test]
fn who_is_silent_for_long_is_gone() {
    let status = |status, age_ms| {
        let age_ns = if age_ms == u64::MAX { age_ms } else { age_ms * MS };
        Status::of(&load::Reading { status, age_ns, ..load::Reading::default() }, STALE)
    };
    assert_eq!(status(load::Status::Fresh, 199), Status::Fresh);
    assert_eq!(status(load::Status::Stale, 201), Status::Stale);
    assert_eq!(status(load::Status::Stale, 600), Status::Stale);
    assert_eq!(status(load::Status::Stale, 601), Status::Gone);
    assert_eq!(status(load::Status::Torn, 601), Status::Gone);
    assert_eq!(status(load::Status::Gone, u64::MAX), Status::Gone);
    assert_eq!(status(load::Status::NeverWritten, u64::MAX), Status::Never);
}

#[test]
fn a_rate_is_of_the_last_second_and_begins_again_with_a_new_life() {
    let mut rate = Rate::default();
    assert_eq!(rate.see(1, 0, 1000), None);
    assert_eq!(rate.see(1, 100 * MS, 1010), Some(100.0));
    for step in 2..=100 {
        rate.see(1, step * 100 * MS, 1000 + 10 * step);
    }
    // From then on it serves twice as many; half a second to a second later only the new rate is left.
    let rates: Vec<_> =
        (1..=10).filter_map(|step| rate.see(1, (10_000 + step * 100) * MS, 2000 + 20 * step)).collect();
    assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9) && rates[0] < 150.0, "{rates:?}");
    assert!((rates[9] - 200.0).abs() < 1e-9, "{rates:?}");
    assert_eq!(rate.see(2, 20_000 * MS, 3), None, "another life");
    assert_eq!(rate.see(2, 20_000 * MS, 3), None, "the same record again");
    assert_eq!(rate.see(2, 20_500 * MS, 2), None, "a count that falls");
}

#[test]
fn moves_are_counted_by_the_words_and_told_by_the_sites() {
    let mut looker = looker(&["alpha", "beta"], 1);
    let mut look = |at_ms: u64, ownership: Option<Ownership>| {
        looker.see(Time(at_ms * MS), [(reading(at_ms, 1), ownership)].into_iter());
        let last = looker.look.moved.back();
        (looker.look.moves, last.map(|moved| (moved.from, moved.to)))
    };
    let first = serving(0);
    let leaving = first.draining_to(Some(SiteId::new(1))).unwrap();
    let moved = leaving.now_serving(SiteId::new(1));
    assert_eq!(look(1000, Some(first)), (0, None));
    assert_eq!(look(1001, Some(leaving)), (0, None), "under way");
    assert_eq!(look(1002, None), (0, None), "out of reach");
    assert_eq!(look(1003, Some(moved)), (1, Some((Some(0), Some(1)))));
    assert_eq!(look(1004, Some(moved)), (1, Some((Some(0), Some(1)))));
    // There and back between two scans.
    let back = Ownership { generation: moved.generation + 4, ..moved };
    assert_eq!(look(1005, Some(back)), (3, Some((Some(0), Some(1)))));
    // A restarted node counts from another start, and has not moved a million times.
    let again = Ownership { generation: moved.generation + 2_000_000, ..first };
    assert_eq!(look(1006, Some(again)), (3, Some((Some(0), Some(1)))));
    assert_eq!(
        look(1007, Some(again.draining_to(Some(SiteId::new(1))).unwrap().now_serving(SiteId::new(1)))).0,
        4
    );
}

/// Whoever writes a record may write any number of requests.
#[test]
fn a_count_that_falls_begins_a_new_rate() {
    let mut rate = Rate::default();
    let second = 1_000_000_000;
    assert_eq!(rate.see(1, second, 100), None);
    assert_eq!(rate.see(1, 2 * second, 300), Some(200.0));
    assert_eq!(rate.see(1, 3 * second, 200), None, "above the first count, below the second");
    assert_eq!(rate.see(1, 4 * second, 250), Some(50.0));
    assert_eq!(rate.see(1, 5 * second, 350), Some(100.0));
}

#[test]
fn no_more_moves_are_remembered_than_are_of_use() {
    let mut looker = looker(&["alpha", "beta"], 1);
    let mut word = serving(0);
    for at_ms in 1000..1200 {
        looker.see(Time(at_ms * MS), [(reading(at_ms, 1), Some(word))].into_iter());
        let next = SiteId::new(1 - word.site.unwrap().index());
        word = word.draining_to(Some(next)).unwrap().now_serving(next);
    }
    assert_eq!((looker.look.moves, looker.look.moved.len()), (199, MOVES_MAX));
}

#[test]
fn a_move_is_explained_once_its_mover_has_told_and_by_no_other_move() {
    let mut looker = looker(&["alpha", "beta"], 2);
    let mut look = |at_ms: u64, owner: Ownership| {
        let seen = [owner, serving(0)].map(|owner| (reading(at_ms, 10), Some(owner)));
        looker.see(Time(at_ms * MS), seen.into_iter());
        let told =
            |node: &str, to: &str| [node, to, "beta 2.4 requests a worker, alpha idle"].map(str::to_owned);
        let known = if at_ms < 1003 {
            vec![told("n2", "beta"), told("n1", "alpha")]
        } else {
            vec![told("n1", "beta")]
        };
        looker.explain(|_| known.clone());
        looker.look.moved.back().and_then(|moved| moved.why.clone())
    };
    let moved = serving(0).draining_to(Some(SiteId::new(1))).unwrap().now_serving(SiteId::new(1));
    assert_eq!(look(1000, serving(0)), None);
    assert_eq!(look(1001, moved), None, "another node's, and another site's");
    assert_eq!(look(1003, moved).as_deref(), Some("beta 2.4 requests a worker, alpha idle"));
    assert!(look(1004, moved).is_some());
}
