//! `[cache]` and `[[cache.peer]]`: what they mean, and what they are refused for.

use std::net::SocketAddr;
use std::time::Duration;

use sidelong_config::{CachePeer, ClusterFile, Eviction};

use crate::support::refused_after;

#[test]
fn a_cache_has_its_defaults_and_is_written_as_it_is_read() {
    let mut file = ClusterFile::demo();
    assert_eq!(file.cluster().unwrap().cache.peers, []);
    let peers = "[[cache.peer]]\nname = \"c1\"\nlisten = \"127.0.0.1:11211\"\n\
                 [[cache.peer]]\nname = \"c2\"\nlisten = \"127.0.0.1:11212\"\nmemory_mb = 8\n\
                 admin = \"127.0.0.1:9150\"\nclients_max = 2\n";
    let text = ClusterFile::example_text().replace("eviction = \"sieve\"", "eviction = \"s3-fifo\"") + peers;
    let read = ClusterFile::parse(&text, "cache.toml").unwrap();
    let cache = read.cluster().unwrap().cache;
    assert_eq!((cache.eviction, cache.item_bytes_max), (Eviction::S3Fifo, 1 << 20));
    let listen = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let c1 = CachePeer::new("c1", listen(11211));
    assert_eq!((c1.memory_mb, c1.clients_max, c1.admin), (64, 1024, None));
    let c2 = CachePeer {
        admin: Some(listen(9150)),
        memory_mb: 8,
        clients_max: 2,
        ..CachePeer::new("c2", listen(11212))
    };
    assert_eq!(cache.peers, [c1, c2]);
    file.cache = cache;
    assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap(), file);
}

#[test]
fn a_cache_has_a_name_and_addresses_of_its_own_and_room_for_an_item() {
    let peer = |lines: &str| format!("[[cache.peer]]\nname = \"c\"\nlisten = \"127.0.0.1:11211\"\n{lines}");
    let cases = [
        ("name = \"C\"", "11: cache name \"C\"; expected 1 to 64 of a-z, 0-9 and -: it names files"),
        ("listen = \"127.0.0.1:0\"", "12: address 127.0.0.1:0 has port 0; expected a fixed port"),
        ("admin = \"127.0.0.1:0\"", "13: address 127.0.0.1:0 has port 0; expected a fixed port"),
        ("memory_mb = 7", "13: memory_mb is 7; expected from 8 to 65536"),
        ("memory_mb = 65537", "13: memory_mb is 65537; expected from 8 to 65536"),
        ("clients_max = 0", "13: clients_max is 0; expected from 1 to 1000000"),
        ("name = \"e\"", "11: name \"e\" is already used by an edge; expected unique names"),
        ("name = \"n\"", "11: name \"n\" is already used by a node; expected unique names"),
        (
            "listen = \"127.0.0.1:8081\"",
            "12: cache \"c\" would listen on 127.0.0.1:8081, as edge \"e\" does; expected a different address",
        ),
        (
            "admin = \"127.0.0.1:11211\"",
            "13: cache \"c\" would listen on 127.0.0.1:11211, as cache \"c\" does; expected a different address",
        ),
    ];
    for (line, expected) in cases {
        let key = line.split(' ').next().unwrap();
        let text = match key {
            "name" => peer("").replace("name = \"c\"", line),
            "listen" => peer("").replace("listen = \"127.0.0.1:11211\"", line),
            _ => peer(line),
        };
        assert_eq!(refused_after(&text), format!("cluster.toml:{expected}"));
    }
    assert_eq!(
        refused_after(&format!("[cache]\nitem_bytes_max = 4_194_305\n{}memory_mb = 8\n", peer(""))),
        "cluster.toml:15: cache \"c\" has 8 MiB, and item_bytes_max is 4194305; expected at least twice the largest item"
    );
    let secret = "cluster = { name = \"c\", secret = \"what everybody here knows\" }\n";
    let with_copies = |ms: &str, line: &str, memory_mb: u32| {
        let rest = format!("fabric_listen = \"10.0.0.1:7301\"\nmemory_mb = {memory_mb}\n");
        let text = format!("{secret}[cache]\nfresh_ms = {ms}\n{line}\n{}{rest}", peer(""));
        ClusterFile::parse(&text, "cluster.toml").and_then(|file| file.cluster()).map(|cluster| cluster.cache)
    };
    let cache = with_copies("2.5", "", 16).unwrap();
    assert_eq!((cache.fresh, cache.near_bytes(&cache.peers[0])), (Duration::from_micros(2500), 1 << 20));
    let refused = |ms, line, memory_mb| with_copies(ms, line, memory_mb).unwrap_err().to_string();
    assert_eq!(refused("60_001", "", 16), "cluster.toml:3: fresh_ms is 60001; expected from 0 to 60000");
    assert_eq!(
        refused("1", "item_bytes_max = 8_388_608", 16),
        "cluster.toml:9: cache \"c\" has 15 MiB beside copies of others' items, and item_bytes_max is 8388608; expected at \
         least twice the largest item"
    );
    assert_eq!(refused("1", "", 8), "cluster.toml:9: memory_mb is 8; expected from 9 to 65536");
    assert_eq!(
        refused_after(&format!("[cache]\nfresh_ms = 1\n{}", peer(""))),
        "cluster.toml:11: fresh_ms is 1 in a cluster on one machine; expected 0: a cache there reads the others' memory, and a \
         copy would be no faster"
    );
    let peers: String = (0..65).map(|i| peer("").replace("\"c\"", &format!("\"c{i}\""))).collect();
    assert_eq!(refused_after(&peers), "cluster.toml:10: 65 [[cache.peer]]; expected at most 64");
}

#[test]
fn caches_share_the_memory_of_one_machine_or_have_a_secret() {
    let peer = "[[cache.peer]]\nname = \"c\"\nlisten = \"127.0.0.1:11211\"\n";
    for fabric in ["tcp", "verbs"] {
        assert_eq!(
            refused_after(&format!("[cluster]\nfabric = \"{fabric}\"\n{peer}")),
            format!(
                "cluster.toml:11: fabric is \"{fabric}\" without a secret, beside [[cache.peer]]; \
                 expected \"shm\" for caches of one machine, or a secret for those of several"
            )
        );
    }
    let secret = "[cluster]\nsecret = \"sixteen bytes it\"\n";
    for cluster in ["", "[cluster]\nfabric = \"shm\"\n", secret] {
        let cluster = ClusterFile::parse(&format!("{cluster}{peer}"), "cluster.toml").unwrap();
        assert!(cluster.cluster().unwrap().has_only_caches());
    }
}

#[test]
fn caches_of_several_machines_are_reached_at_addresses() {
    let peer = |number: u16, more: &str| {
        format!("[[cache.peer]]\nname = \"c{number}\"\nlisten = \"10.0.0.{number}:11211\"\n{more}")
    };
    let file = |more: &str| {
        let reached = "fabric_listen = \"10.0.0.1:7301\"\n";
        format!("[cluster]\nsecret = \"sixteen bytes it\"\n{}{}", peer(1, reached), peer(2, more))
    };
    let parsed = |more: &str| ClusterFile::parse(&file(more), "cluster.toml");
    let expected = "expected with a secret, an address and a port that other machines can reach";
    for (more, line, found) in [
        ("", 7, "cache \"c2\" has no fabric_listen"),
        ("fabric_listen = \"10.0.0.2:0\"\n", 10, "cache \"c2\" has fabric_listen = \"10.0.0.2:0\""),
        ("fabric_listen = \"0.0.0.0:7301\"\n", 10, "cache \"c2\" has fabric_listen = \"0.0.0.0:7301\""),
    ] {
        let refused = parsed(more).unwrap_err().to_string();
        assert_eq!(refused, format!("cluster.toml:{line}: {found}; {expected}"));
    }
    let reached = "fabric_listen = \"10.0.0.2:7301\"\n";
    parsed(reached).unwrap();
    for (port, refused) in [
        (
            0,
            "cache \"c2\" has verbs_listen = \"10.0.0.2:0\"; expected an address and a port that other machines can reach",
        ),
        (
            7301,
            "cache \"c2\" would listen on 10.0.0.2:7301, as cache \"c2\" does; expected a different address",
        ),
    ] {
        let found =
            parsed(&format!("{reached}verbs_listen = \"10.0.0.2:{port}\"\n")).unwrap_err().to_string();
        assert_eq!(found, format!("cluster.toml:11: {refused}"));
    }
    parsed(&format!("{reached}verbs_listen = \"10.0.0.2:7302\"\n")).unwrap();
}

#[test]
fn the_files_of_the_page_are_cluster_files() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cache.md");
    let page = std::fs::read_to_string(page).unwrap();
    let files: Vec<_> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 4);
    for file in files {
        ClusterFile::parse(file, "docs/cache.md").unwrap().cluster().unwrap();
    }
}
