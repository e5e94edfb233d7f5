use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sidelong_config::{BoardStanding, ClusterFile, Etcd, Secret};
use sidelong_edge::NodeStatus;

use super::*;

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(reason, count)| (reason.to_string(), *count)).collect()
}

fn peer(name: &str, heard: bool) -> PeerStatus {
    PeerStatus { name: name.to_owned(), heard }
}

fn first() -> Status {
    let node = |name: &str, unanswered| NodeStatus {
        name: name.to_owned(),
        site: Some("alpha".to_owned()),
        state: "serving".to_owned(),
        unanswered,
        ..NodeStatus::default()
    };
    let alpha = SiteStatus {
        name: "alpha".to_owned(),
        admitted: counts(&[("within-target", 7), ("over-target", 5)]),
        rejected: counts(&[("over-target", 90), ("greedy", 0)]),
        admitted_ratio: Some(0.25),
        queue_delay_ms: Some(20.0),
        target_met: Some(true),
        answers: 100,
        late: 1,
        ..SiteStatus::default()
    };
    let beta = SiteStatus {
        name: "beta".to_owned(),
        admitted_ratio: Some(1.0),
        verdict_lent: true,
        ..SiteStatus::default()
    };
    Status {
        closed_at_accept: 3,
        misses_board: false,
        peers: vec![peer("edge2", false)],
        sites: vec![alpha, beta],
        nodes: vec![node("n1", 4), node("n2", 3)],
        documents: None,
    }
}

fn cluster() -> Cluster {
    let mut file = ClusterFile::demo();
    file.sites[0].response_p99 = Some(Duration::from_millis(50));
    file.cluster().unwrap()
}

#[test]
fn edges_are_summed_up_and_the_worst_is_reported() {
    let cluster = cluster();
    let mut second = first();
    second.sites[0].admitted_ratio = Some(0.5);
    second.sites[0].target_met = Some(false);
    second.nodes[0].unanswered = 9;
    second.peers = vec![peer("edge1", true)];
    let asked = vec![("edge1", Ok(first())), ("edge2", Ok(second))];
    let report = Report::new(&cluster, &asked);
    let alpha = &report.sites[0];
    assert_eq!((alpha.admitted, alpha.rejected, report.closed_at_accept), (24, 180, 6));
    assert_eq!(alpha.rejected_by, BTreeMap::from([("over-target".to_owned(), 180)]));
    assert_eq!(
        (alpha.admitted_ratio, alpha.met, alpha.queue_delay_ms),
        (Some(0.25), Some(false), Some(20.0))
    );
    assert_eq!((alpha.late, alpha.answers), (2, 200));
    assert_eq!(
        (alpha.unanswered, report.nodes[0].unanswered, alpha.verdict_lent),
        (Some(12), Some(9), false)
    );
    let [first, second] = &report.edges[..] else { panic!("{:?}", report.edges) };
    assert_eq!((first.hears.len(), &first.misses[..]), (0, &["edge2".to_owned()][..]));
    assert_eq!((&second.hears[..], second.misses.len()), (&["edge1".to_owned()][..], 0));
    let beta = &report.sites[1];
    assert_eq!((beta.unanswered, beta.verdict_lent), (None, true));
    assert_eq!((beta.admitted_ratio, beta.met, beta.rejected), (Some(1.0), None, 0));
    let text = report.plain();
    let begin = "demo: 2 of 2 edges answer, edge1 does not hear edge2; 6 connections closed at accept\n";
    assert!(text.starts_with(begin), "{text}");
    let row = text.lines().find(|line| line.starts_with("alpha")).unwrap();
    let words: Vec<_> = row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    let expected =
        ["alpha", "p99 50 ms", "no", "25.0 %", "24", "180", "12", "20.0", "-", "1.00 %", "over-target 180"];
    assert_eq!(words, expected);
}

#[test]
fn a_site_without_a_node_and_a_board_that_is_away_have_a_line() {
    let cluster = cluster();
    let lines = |statuses: [Status; 2]| {
        let asked = ["edge1", "edge2"].into_iter().zip(statuses.map(Ok)).collect();
        let text = Report::new(&cluster, &asked).plain();
        [
            "the board cannot be read, so that no node moves\n",
            "\nbeta has no node that answers",
            "\nalpha has no node",
        ]
        .map(|line| text.contains(line))
    };
    assert_eq!(lines([first(), first()]), [false, true, false], "the demo's third site has none either");
    let away = Status { misses_board: true, ..first() };
    assert_eq!(lines([away.clone(), first()]), [false, true, false], "one edge reads it");
    let mut failing = away.clone();
    failing.nodes.iter_mut().for_each(|node| node.is_failing = true);
    assert_eq!(lines([away.clone(), failing]), [true, true, true]);

    // Where it is memory of a node, that is named, and what to do if it is no more.
    let mut of_several = cluster.clone();
    of_several.secret = Some(Secret::File("/secret".into()));
    let line = |cluster: &Cluster| {
        let text = Report::new(cluster, &vec![("edge1", Ok(away.clone()))]).plain();
        text.lines().find(|line| line.starts_with("the board")).unwrap().to_owned()
    };
    assert!(line(&of_several).ends_with("no node moves: n1 has it, start that"), "{}", line(&of_several));
    of_several.etcd = Some(Etcd::default());
    assert!(line(&of_several).contains("`sidelong remove n1 --lost"), "{}", line(&of_several));
    let (node, from) = (Some("n3".to_owned()), Some("n1".to_owned()));
    of_several.standing.board = BoardStanding { term: 1, node, from };
    assert!(line(&of_several).contains(": n1 was to give it up to n3."), "{}", line(&of_several));
}

#[test]
fn an_edge_that_does_not_answer_is_named() {
    let cluster = cluster();
    let asked = vec![("edge1", Ok(Status::default())), ("edge2", ask_one(None))];
    let report = Report::new(&cluster, &asked);
    let text = report.plain();
    assert!(text.starts_with("demo: 1 of 2 edges answer, edge2 has no admin address"), "{text}");
    assert!(text.contains("all requests are admitted: no site has a target"), "{text}");
    let mut off = cluster.clone();
    off.admission.rule = AdmissionRule::None;
    let text = Report::new(&off, &vec![("edge1", Ok(Status::default()))]).plain();
    assert!(text.contains("all requests are admitted: admission.rule"), "{text}");
}

/// What an edge might say: names of this cluster or any, and any figures.
fn any_status() -> impl Strategy<Value = Status> {
    let name = || prop_oneof![Just("alpha".to_owned()), Just("n1".to_owned()), any::<String>()];
    let counts = || btree_map(name(), any::<u64>(), 0..4);
    let figure = || proptest::option::of(any::<f64>());
    let site = (
        (name(), counts(), counts(), any::<bool>(), proptest::option::of(any::<bool>())),
        (figure(), figure(), figure(), any::<u64>(), any::<u64>()),
    );
    let site = site.prop_map(|((name, admitted, rejected, verdict_lent, target_met), figures)| {
        let (admitted_ratio, queue_delay_ms, queue_budget_ms, answers, late) = figures;
        SiteStatus {
            name,
            admitted,
            rejected,
            admitted_ratio,
            verdict_lent,
            queue_delay_ms,
            queue_budget_ms,
            target_met,
            answers,
            late,
        }
    });
    let count = || proptest::option::of(any::<u32>());
    let state = prop_oneof![Just("held".to_owned()), name()];
    let node = (name(), proptest::option::of(name()), state, any::<u64>(), count(), count(), count());
    let node =
        node.prop_map(|(name, site, state, unanswered, connections, queued, learned_workers)| NodeStatus {
            name,
            site,
            state,
            unanswered,
            connections,
            queued,
            learned_workers,
            is_failing: unanswered % 3 == 0,
            bypassing: unanswered as u32,
            is_shared: unanswered % 2 == 0,
            is_bound: learned_workers.map(|workers| workers % 2 == 0),
        });
    let peer = (name(), any::<bool>()).prop_map(|(name, heard)| PeerStatus { name, heard });
    let documents =
        any::<[u64; 6]>().prop_map(|[memory, after_wait, server, bytes, answered, failed]| DocumentStatus {
            memory,
            memory_after_wait: after_wait,
            server,
            memory_bytes: bytes,
            answered_reads: answered,
            failed_reads: failed,
        });
    let documents = proptest::option::of(documents);
    (any::<u64>(), vec(peer, 0..3), vec(site, 0..4), vec(node, 0..4), documents).prop_map(
        |(closed_at_accept, peers, sites, nodes, documents)| Status {
            closed_at_accept,
            misses_board: closed_at_accept % 2 == 0,
            peers,
            sites,
            nodes,
            documents,
        },
    )
}

proptest! {
    #[test]
    fn whatever_edges_say_is_summed_up(statuses in vec(any_status(), 1..4)) {
        let cluster = cluster();
        let answers = statuses.iter().map(|status| {
            let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}", serde_json::to_string(status).unwrap());
            ("edge1", Status::from_answer(&answer).ok_or_else(|| "has no status".to_owned().into()))
        });
        let asked: Vec<_> = answers.collect();
        prop_assert!(asked.iter().all(|(_, answer)| answer.is_ok()));
        let report = Report::new(&cluster, &asked);
        prop_assert!(serde_json::to_string(&report).is_ok());
        let text = report.plain();
        prop_assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
    }

    #[test]
    fn an_answer_cut_or_changed_anywhere_is_no_panic(
        at in any::<prop::sample::Index>(), put in any::<u8>(), cut in any::<bool>(),
    ) {
        let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}", serde_json::to_string(&first()).unwrap());
        let mut answer = answer.into_bytes();
        let at = at.index(answer.len());
        if cut {
            answer.truncate(at);
        } else {
            answer[at] = put;
        }
        if let Some(status) = Status::from_answer(&String::from_utf8_lossy(&answer)) {
            let _ = Report::new(&cluster(), &vec![("edge1", Ok(status))]).plain();
        }
    }
}

#[test]
fn of_foreign_servers_the_connections_and_workers_are_told() {
    let mut file = ClusterFile::demo();
    let servers = "127.0.0.1:18080".parse().unwrap();
    file.nodes = vec![sidelong_config::NodeEntry::foreign("n", 8, servers)];
    file.nodes[0].workers = Some(3);
    let cluster = file.cluster().unwrap();
    let mut status = first();
    let counted = NodeStatus { connections: Some(9), queued: Some(5), ..status.nodes[0].clone() };
    status.nodes[0] = NodeStatus { learned_workers: Some(4), is_bound: Some(true), ..counted };
    status.nodes[1].is_bound = Some(false);
    (status.nodes[1].bypassing, status.nodes[1].is_shared, status.nodes[0].is_failing) = (2, true, true);
    let text = Report::new(&cluster, &vec![("edge1", Ok(status))]).plain();
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(row("n1"), ["n1", "alpha", "4 (learned)", "4", "9", "5"]);
    assert_eq!(row("n2"), ["n2", "alpha", "not bound", "3", "-", "-"]);
    assert_eq!(row("n3"), ["n3", "-", "3", "-", "-", "-"]);
    let named =
        "n2 has 2 connections that no edge made: it does not move, unless the file says exclusive = true";
    assert_eq!(text.lines().last(), Some(named));
    assert!(text.contains("\nn1 does not answer: requests to it have failed\n"), "{text}");
    assert!(!text.contains("n2 does not answer"), "{text}");
}

/// As somebody else may, who has taken the port of an edge that has ended.
#[test]
fn an_answer_without_end_is_not_awaited() {
    let endless = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = endless.local_addr().unwrap();
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = endless.accept().unwrap();
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let problem = ask_one(Some(address)).unwrap_err();
    assert!(problem.said.ends_with("within 2s"), "{problem:?}");
    answer.join().unwrap();
}

#[test]
fn an_edge_that_hangs_is_said_to() {
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let problem = ask_one(Some(hangs.local_addr().unwrap())).unwrap_err();
    assert!(problem.said.ends_with("within 2s") && problem.is_silent, "{problem:?}");
    let cluster = cluster();
    let text = Report::new(&cluster, &vec![("edge1", Ok(first())), ("edge2", Err(problem))]).plain();
    assert!(text.contains("within 2s (it keeps nodes from moving until it answers or ends)"), "{text}");
}
