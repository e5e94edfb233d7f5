//! Links that only read: they see all words and change none.

use std::sync::Arc;

use sidelong_fabric::{Host, Initiator, RunDirectory, shm::ShmHost, tcp::TcpHost};
use sidelong_layout::{Budget, Instance, LAYOUT_VERSION, NodeId, SiteId, WORDS_OWNERSHIP};
use sidelong_reconfig::{BoardInit, Links, board_map, expose_board, expose_words};
use sidelong_state::{Op, Reply, Time, Word};

use crate::support::members;

#[test]
fn words_are_seen_and_not_changed() {
    let tcp = Host::Tcp(TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    for tcp in [None, Some(tcp)] {
        let directory = tempfile::tempdir().unwrap();
        let host = tcp.unwrap_or_else(|| Host::Shm(ShmHost::new(directory.path())));
        let map = board_map(1, 1);
        let board = expose_board(&host, map, &[BoardInit { floor: 1, nodes: 1 }], (0, 0), Instance::alone(1))
            .unwrap();
        let words = expose_words(&host, "n1", Some(SiteId::new(0)), Instance::alone(5)).unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        for region in [&board, &words] {
            sidelong_fabric::Directory::publish(&run, region.key()).unwrap();
        }
        let mut links =
            Links::read_only(Arc::new(run), Initiator::new(), (1, map), &members(&["n1".to_owned()], 1));
        links.scan(Time(0));
        let seen = links.ownership(NodeId::new(0)).unwrap();
        assert!(seen.serves(SiteId::new(0)) && links.site(SiteId::new(0)).is_some());

        let before = words.load(WORDS_OWNERSHIP);
        let word = Word::Ownership(NodeId::new(0));
        let changed = links.execute(Op::CompareAndSwap { word, expected: before, new: 0 });
        assert_eq!((changed, words.load(WORDS_OWNERSHIP)), (Reply::Lost, before), "{}", words.key().name);
    }
}

/// The words of a site that comes or goes are on a board that is linked already.
#[test]
fn a_site_that_joins_is_read_from_the_next_scan_on() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::Shm(ShmHost::new(directory.path()));
    let map = board_map(2, 1);
    let starts = [BoardInit { floor: 1, nodes: 1 }; 2];
    let board = expose_board(&host, map, &starts, (0, 0), Instance::alone(1)).unwrap();
    let run = RunDirectory::open(directory.path()).unwrap();
    let with = |sites| members(&["n1".to_owned()], sites);
    let mut links = Links::new(Arc::new(run), Initiator::new(), (1, map), &with(1));
    let joins = SiteId::new(1);
    let floor_of = |links: &mut Links, sites, ms: u64| {
        links.adopt(&with(sites));
        links.scan(Time(ms * 1_000_000));
        links.site(joins).map(|site| site.budget.floor)
    };
    let floors = [(1, 0), (2, 1), (1, 2)].map(|(sites, ms)| floor_of(&mut links, sites, ms));
    assert_eq!(floors, [None, Some(1), None]);
    let expected = board.load(map.budget(joins));
    let new = Budget { floor: 2, ..Budget::decode(expected) }.encode();
    links.execute(Op::CompareAndSwap { word: Word::Budget(joins), expected, new });
    assert_eq!(floor_of(&mut links, 2, 3), Some(2));
}

#[test]
fn words_of_another_version_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::Shm(ShmHost::new(directory.path()));
    let _words = expose_words(&host, "n1", Some(SiteId::new(0)), Instance::alone(5)).unwrap();
    let file = directory.path().join("n1.words.region");
    let own = std::fs::read(&file).unwrap();
    let version_at = own.windows(4).position(|bytes| bytes == LAYOUT_VERSION.to_le_bytes()).unwrap();
    let write = |version: u32| {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        file.write_all_at(&version.to_le_bytes(), version_at as u64).unwrap();
    };
    write(LAYOUT_VERSION + 1);
    let run = RunDirectory::open(directory.path()).unwrap();
    let node = NodeId::new(0);
    let names = ["n1".to_owned(), "n2".to_owned()];
    let mut links =
        Links::read_only(Arc::new(run), Initiator::new(), (2, board_map(1, 1)), &members(&names, 1));
    links.scan(Time(0));
    let problem = links.problem(node).unwrap();
    assert!(problem.contains("n1.words") && problem.contains("layout version"), "{problem}");
    assert_eq!((links.ownership(node), links.problem(NodeId::new(1))), (None, None), "n2 is not there yet");

    write(LAYOUT_VERSION);
    links.scan(Time(10_000_000_000));
    assert!(links.ownership(node).is_some() && links.problem(node).is_none());
}
