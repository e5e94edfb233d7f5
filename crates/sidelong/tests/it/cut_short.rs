//! Regions whose files are cut short under a cluster that runs.

use std::fs::File;

use crate::support::{Cluster, eventually};

/// Cuts the files of these regions to `left` bytes.
fn cut(cluster: &Cluster, is_meant: impl Fn(&str) -> bool, left: u64) {
    for name in cluster.regions().iter().filter(|name| is_meant(name)) {
        File::options().write(true).open(cluster.run_dir().join(name)).unwrap().set_len(left).unwrap();
    }
}

#[test]
fn a_cluster_comes_back_with_all_parts_when_every_region_is_cut_short() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    let mut up = cluster.serving(&["--json"]);
    // To nothing, and to a page that is partly left, which stays mapped.
    for left in [0, 100] {
        let parts = cluster.parts();
        cut(&cluster, |_| true, left);
        eventually("all parts have begun anew", || {
            assert!(up.is_running(), "ended: {}{}", up.out(), up.err());
            let now = cluster.parts();
            now.len() == parts.len() && parts.iter().all(|part| !now.contains(part))
        });
        cluster.await_whole(&mut up);
    }
    up.end().json();
}

#[test]
fn the_board_is_made_anew_and_no_part_ends_for_it() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    let mut up = cluster.serving(&["--json"]);
    let mut parts = cluster.parts();
    cut(&cluster, |name| name.starts_with("board-"), 0);
    cluster.await_whole(&mut up);
    let mut now = cluster.parts();
    for parts in [&mut parts, &mut now] {
        parts.sort_by(|a, b| a.name.cmp(&b.name));
    }
    assert_eq!(parts, now);
    up.end().json();
}
