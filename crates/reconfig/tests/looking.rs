//! Links of who only looks: they see all words and change none.

use std::sync::Arc;

use sidelong_fabric::{Host, Initiator, RunDirectory, shm::ShmHost, tcp::TcpHost};
use sidelong_layout::{NodeId, SiteId, WORDS_OWNERSHIP};
use sidelong_reconfig::{BoardInit, Links, board_map, offer_board, offer_words};
use sidelong_state::{Op, Reply, Time, Word};

#[test]
fn words_are_seen_and_not_changed() {
    let tcp = Host::Tcp(TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap());
    for tcp in [None, Some(tcp)] {
        let directory = tempfile::tempdir().unwrap();
        let host = tcp.unwrap_or_else(|| Host::Shm(ShmHost::new(directory.path())));
        let map = board_map(1, 1);
        let board = offer_board(&host, map, &[BoardInit { floor: 1, nodes: 1 }], 1).unwrap();
        let words = offer_words(&host, "n1", Some(SiteId::new(0)), 5).unwrap();
        let run = RunDirectory::open(directory.path()).unwrap();
        for region in [&board, &words] {
            sidelong_fabric::Directory::publish(&run, region.key()).unwrap();
        }
        let mut links = Links::read_only(Arc::new(run), Initiator::new(), &["n1".to_owned()], map);
        links.scan(Time(0));
        let seen = links.ownership(NodeId::new(0)).unwrap();
        assert!(seen.serves(SiteId::new(0)) && links.site(SiteId::new(0)).is_some());

        let before = words.load(WORDS_OWNERSHIP);
        let word = Word::Ownership(NodeId::new(0));
        let changed = links.execute(Op::CompareAndSwap { word, expected: before, new: 0 });
        assert_eq!((changed, words.load(WORDS_OWNERSHIP)), (Reply::Lost, before), "{}", words.key().name);
    }
}
