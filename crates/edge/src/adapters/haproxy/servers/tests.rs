use super::*;

const ALPHA: SiteId = SiteId::new(0);
const BETA: SiteId = SiteId::new(1);
const NODE: NodeId = NodeId::new(0);
/// A process that has replaced no other.
const ALONE: u32 = 6;

/// HAProxy as a table: the weights and requests of two servers in each of two backends.
struct Table {
    pid: u32,
    weights: [[u16; 2]; 2],
    current: [[u32; 2]; 2],
    retries: u64,
}

impl Table {
    fn new(pid: u32) -> Self {
        Table { pid, weights: [[100; 2]; 2], current: [[0; 2]; 2], retries: 0 }
    }

    /// Does the first commands of a batch, all of them or so many.
    fn answer(&mut self, batch: &Batch, most: usize) -> Vec<String> {
        let commands = batch.connections.concat();
        commands.iter().take(most).map(|command| self.one(command)).collect()
    }

    fn one(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split(' ').collect();
        let backend = |name: &str| usize::from(name == "beta");
        match words[..] {
            ["set", "server", server, "weight", weight] => {
                let (site, name) = server.split_once('/').unwrap();
                self.weights[backend(site)][usize::from(name == "n2")] = weight.parse().unwrap();
                String::new()
            }
            ["shutdown", "sessions", "server", server] => {
                let (site, name) = server.split_once('/').unwrap();
                self.current[backend(site)][usize::from(name == "n2")] = 0;
                String::new()
            }
            ["show", "info"] => format!("Pid: {}\nUptime_sec: 9\n", self.pid),
            ["show", "stat", site, ..] => {
                let site = backend(site);
                let mut reply = "# pxname,svname,qcur,scur,stot,wretr,status,uweight,addr,\n".to_owned();
                for node in 0..2 {
                    let [weight, current] = [self.weights[site][node].into(), self.current[site][node]];
                    let (name, port) = (["n1", "other"][node], node + 1);
                    reply += &format!(
                        "be,{name},0,{current},{current},{},UP,{weight},10.0.0.1:{port},\n",
                        self.retries
                    );
                }
                reply.replace("other", "n2")
            }
            ["show", "sess", _] => "Session not found.\n".to_owned(),
            _ => panic!("{command}"),
        }
    }
}

fn ms(ms: u64) -> Time {
    Time::from_ns(ms * 1_000_000)
}

fn cluster() -> HaproxyCluster {
    let node = |name: &str, port| HaproxyNode {
        name: name.into(),
        address: Some(SocketAddr::from(([10, 0, 0, 1], port))),
        starts_free: false,
        workers: 1,
        speed: 1.0,
    };
    HaproxyCluster {
        sites: ["alpha", "beta"].map(str::to_owned).into_iter().collect(),
        backends: ["alpha", "beta"].map(str::to_owned).into_iter().collect(),
        cuts: vec![true, false],
        added: None,
        nodes: [node("one", 1), node("two", 2)].into_iter().collect(),
        drain_max: Duration::from_secs(5),
        scan: Duration::from_millis(1),
        stale: Duration::from_millis(150),
    }
}

fn serving(site: SiteId) -> Ownership {
    Ownership::serving(site, 1)
}

fn wanted(nodes: [Ownership; 2]) -> Vec<Wanted> {
    nodes.into_iter().map(|ownership| Wanted { ownership: Some(ownership), weight: 200 }).collect()
}

fn exchange(servers: &mut Servers, table: &mut Table, wanted: &[Wanted], now: Time) {
    let batch = servers.batch(wanted, vec![]);
    let replies = table.answer(&batch, usize::MAX);
    servers.heard(&batch, &replies, now, |pid| Some(pid + 1), |pid| pid == ALONE).unwrap();
}

/// HAProxy that does as is wanted, where the first node serves alpha and the second beta.
fn adapter(table: &mut Table) -> Servers {
    let mut servers = Servers::new(Arc::new(cluster()));
    let both = wanted([serving(ALPHA), serving(BETA)]);
    for now in [1, 2] {
        exchange(&mut servers, table, &both, ms(now));
    }
    servers
}

#[test]
fn weights_are_raised_before_others_are_lowered() {
    let mut table = Table::new(7);
    let servers = adapter(&mut table);
    assert_eq!(table.weights, [[200, 0], [0, 200]]);
    let batch = servers.batch(&wanted([serving(BETA), serving(ALPHA)]), vec![]);
    let sets = &batch.connections[0][..4];
    assert!(sets[..2].iter().all(|set| set.ends_with("weight 200")), "{sets:?}");
    assert!(sets[2..].iter().all(|set| set.ends_with("weight 0")), "{sets:?}");
    // Wherever a batch is cut, each backend has a server.
    for cut in 0..4 {
        table.weights = [[200, 0], [0, 200]];
        table.answer(&batch, cut);
        assert!(table.weights.iter().all(|weights| weights.iter().any(|weight| *weight > 0)), "{cut}");
    }
}

#[test]
fn loads_that_hardly_change_send_nothing() {
    let servers = adapter(&mut Table::new(7));
    let mut both = wanted([serving(ALPHA), serving(BETA)]);
    both[0].weight = 180;
    assert_eq!(servers.batch(&both, vec![]).sets, []);
    both[0].weight = 100;
    assert_eq!(servers.batch(&both, vec![]).sets, [(ALPHA, "set server alpha/n1 weight 100".into())]);
}

#[test]
fn a_node_is_left_after_two_counts_of_none_with_all_threads_stopped_in_between() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    assert_eq!(servers.stated(NODE), Some((serving(ALPHA), 0)));
    let drains = serving(ALPHA).draining_to(Some(BETA)).unwrap();
    let both = wanted([drains, serving(BETA)]);
    table.current[0][0] = 2;
    exchange(&mut servers, &mut table, &both, ms(10));
    assert_eq!((table.weights[0][0], servers.stated(NODE)), (0, Some((drains, 2))));
    table.current[0][0] = 0;
    exchange(&mut servers, &mut table, &both, ms(11));
    assert_eq!(servers.stated(NODE), Some((drains, 1)));
    assert!(servers.batch(&both, vec![]).stops);
    exchange(&mut servers, &mut table, &both, ms(12));
    assert_eq!(servers.stated(NODE), Some((drains, 0)));
    assert!(!servers.batch(&both, vec![]).stops);
}

#[test]
fn haproxy_is_asked_often_just_after_a_node_has_left_or_come() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    let us = Duration::from_micros;
    let drains = serving(ALPHA).draining_to(Some(BETA)).unwrap();
    let leaving = wanted([drains, serving(BETA)]);
    table.current[0][0] = 1;
    exchange(&mut servers, &mut table, &leaving, ms(10_000));
    let pause = |servers: &Servers, wanted: &[Wanted], rejects: bool, now: u64| {
        servers.pause(wanted, rejects, ms(now))
    };
    // Four servers cost 210 us: at most half of a thread, then a tenth.
    let asked = [10_000, 10_006, 10_100].map(|now| pause(&servers, &leaving, false, now));
    assert_eq!(asked, [us(1_000), us(1_500), us(2_100)]);
    table.current[0][0] = 0;
    for now in 10_101..10_104 {
        exchange(&mut servers, &mut table, &leaving, ms(now));
    }
    assert_eq!(servers.stated(NODE), Some((drains, 0)));

    let come = Ownership::serving(BETA, 2);
    let coming = wanted([come, serving(BETA)]);
    exchange(&mut servers, &mut table, &coming, ms(20_000));
    exchange(&mut servers, &mut table, &coming, ms(20_001));
    let asked = [20_001, 20_020, 20_200].map(|now| pause(&servers, &coming, false, now));
    assert!(asked[0] < us(1_300) && asked[1] < us(6_000) && asked[2] == us(21_000), "{asked:?}");
    assert_eq!(pause(&servers, &coming, true, 20_200), us(5_000));
    // Its first request.
    table.current[1][0] = 1;
    exchange(&mut servers, &mut table, &coming, ms(20_021));
    assert_eq!(pause(&servers, &coming, false, 20_021), us(21_000));
}

#[test]
fn requests_that_outlast_a_drain_are_cut_where_their_site_says_so() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    let drain = |site: SiteId, to| serving(site).draining_to(Some(to)).unwrap();
    let both = wanted([drain(ALPHA, BETA), drain(BETA, ALPHA)]);
    table.current = [[1, 0], [0, 1]];
    exchange(&mut servers, &mut table, &both, ms(10));
    exchange(&mut servers, &mut table, &both, ms(5_009));
    assert_eq!(servers.batch(&both, vec![]).sets, []);
    exchange(&mut servers, &mut table, &both, ms(5_010));
    let command = "shutdown sessions server alpha/n1".to_owned();
    assert_eq!(servers.batch(&both, vec![]).sets, [(ALPHA, command)]);
    for now in 5_011..5_014 {
        exchange(&mut servers, &mut table, &both, ms(now));
    }
    assert_eq!(servers.stated(NODE), Some((both[0].ownership.unwrap(), 0)));
    assert_eq!(table.current, [[0, 0], [0, 1]]);
}

#[test]
fn a_retry_may_be_under_way_for_a_second() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    let drains = serving(ALPHA).draining_to(Some(BETA)).unwrap();
    let both = wanted([drains, serving(BETA)]);
    table.retries = 1;
    for now in 10..900 {
        exchange(&mut servers, &mut table, &both, ms(now));
        assert_eq!(servers.stated(NODE), Some((drains, 1)));
    }
    exchange(&mut servers, &mut table, &both, ms(1_200));
    assert_eq!(servers.stated(NODE), Some((drains, 0)));
}

#[test]
fn a_process_that_was_replaced_may_have_requests_until_it_has_ended() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    let drains = serving(ALPHA).draining_to(Some(BETA)).unwrap();
    let both = wanted([drains, serving(BETA)]);
    let repeat = |servers: &mut Servers, table: &mut Table, from: u64| {
        (from..from + 3).for_each(|now| exchange(servers, table, &both, ms(now)));
        servers.stated(NODE)
    };
    assert_eq!(repeat(&mut servers, &mut table, 10), Some((drains, 0)));
    // Its successor has the weights of the file again.
    let mut table = Table::new(8);
    exchange(&mut servers, &mut table, &both, ms(20));
    assert_eq!(servers.stated(NODE), Some((drains, 1)));
    assert_eq!(repeat(&mut servers, &mut table, 21), Some((drains, 1)));
    assert_eq!(table.weights[0][0], 0);
    assert_eq!(servers.keep_older(|_| true), [Worker { pid: 7, started: 8 }]);
    assert_eq!(servers.keep_older(|_| false), []);
    assert_eq!(repeat(&mut servers, &mut table, 30), Some((drains, 0)));
}

#[test]
fn a_process_that_began_before_the_front_may_have_replaced_another_unless_it_is_alone() {
    let drains = serving(ALPHA).draining_to(Some(BETA)).unwrap();
    let cluster = || HaproxyCluster { drain_max: Duration::from_secs(60), ..cluster() };
    for (pid, requests) in [(ALONE, 0), (7, 1)] {
        let (mut table, mut servers) = (Table::new(pid), Servers::new(Arc::new(cluster())));
        for now in 1..9 {
            exchange(&mut servers, &mut table, &wanted([drains, serving(BETA)]), ms(now));
        }
        assert_eq!(servers.stated(NODE), Some((drains, requests)));
    }
}

#[test]
fn what_is_cut_or_is_something_else_changes_nothing() {
    let mut table = Table::new(7);
    let mut servers = adapter(&mut table);
    let before = servers.stated(NODE);
    let batch = servers.batch(&wanted([serving(BETA), serving(ALPHA)]), vec![]);
    let whole = table.answer(&batch, usize::MAX);
    for most in 0..whole.len() {
        assert!(servers.heard(&batch, &whole[..most], ms(9), Some, |_| false).is_err());
    }
    let mut other = whole.clone();
    other[whole.len() - 1] = "what\n".into();
    assert!(servers.heard(&batch, &other, ms(9), Some, |_| false).is_err());
    assert_eq!(servers.stated(NODE), before);
}

#[test]
fn many_commands_go_over_several_connections_and_the_reads_over_one() {
    let mut cluster = cluster();
    cluster.backends = ["alpha", "beta"].map(|site| format!("{site:b<4000}")).into_iter().collect();
    let mut servers = Servers::new(Arc::new(cluster));
    servers.sites = vec![vec![(Some(NODE), Server { name: "n1".into(), ..Server::default() })]; 2];
    let batch = servers.batch(&wanted([serving(ALPHA), serving(ALPHA)]), vec![]);
    let lengths: Vec<_> = batch.connections.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1, 3]);
}

/// The commands of a batch that change something.
fn changes(servers: &Servers, wanted: &[Wanted]) -> Vec<String> {
    let commands = servers.batch(wanted, vec![]).connections.concat();
    commands.into_iter().filter(|command| !command.starts_with("show ")).collect()
}

/// Alpha's backend has these servers: name, number, port, status. Beta has no backend. The replies to what changes something come first.
fn hears(servers: &mut Servers, wanted: &[Wanted], replies: &[&str], listed: &[(&str, u32, u16, &str)]) {
    let batch = servers.batch(wanted, vec![]);
    let mut list = "# pxname,svname,sid,qcur,scur,stot,wretr,status,uweight,addr,\n".to_owned();
    for (name, id, port, status) in listed {
        list += &format!("be,{name},{id},0,0,0,0,{status},0,10.0.0.1:{port},\n");
    }
    let reads = ["Pid: 7\nUptime_sec: 9\n", &list, "No such proxy.\n"];
    let replies: Vec<_> = replies.iter().chain(&reads).map(|&reply| reply.to_owned()).collect();
    servers.heard(&batch, &replies, ms(1), |pid| Some(pid + 1), |_| true).unwrap();
}

#[test]
fn servers_are_added_for_nodes_without_one_and_deleted_with_their_nodes() {
    let adds = HaproxyCluster { added: Some("check inter 1s".into()), ..cluster() };
    let mut servers = Servers::new(Arc::new(adds.clone()));
    let idle = vec![Wanted::default(); 2];
    assert_eq!(changes(&servers, &idle), [""; 0], "nothing is known of HAProxy");
    hears(&mut servers, &idle, &[], &[("n1", 1, 1, "UP")]);
    let added = [
        "add server alpha/two 10.0.0.1:2 weight 0 id 1073741824 check inter 1s",
        "enable health alpha/two",
        "enable server alpha/two",
    ];
    assert_eq!(changes(&servers, &idle), added);
    let two = ("two", ADDED, 2, "UP");
    hears(&mut servers, &idle, &["New server registered.\n", "", ""], &[("n1", 1, 1, "UP"), two]);
    assert_eq!(changes(&servers, &idle), [""; 0]);
    assert!(!servers.notes().iter().any(|note| matches!(note, Note::Missing(ALPHA, _))));

    // Its node leaves, and is back before its last connection has ended.
    let one = [adds.nodes.get(0).cloned()].into_iter().collect();
    servers.adopt(Arc::new(HaproxyCluster { nodes: one, ..adds.clone() }));
    let deleted = ["disable server alpha/two", "del server alpha/two"];
    assert_eq!(changes(&servers, &idle), deleted);
    let held = ("two", ADDED, 2, "MAINT");
    hears(
        &mut servers,
        &idle,
        &["", "Server still has connections attached to it.\n"],
        &[("n1", 1, 1, "UP"), held],
    );
    assert_eq!(changes(&servers, &idle), deleted);
    servers.adopt(Arc::new(adds.clone()));
    assert_eq!(changes(&servers, &idle), ["enable server alpha/two"]);

    // A node that has another address gets another server.
    let moved = |at: &HaproxyNode| HaproxyNode {
        address: Some(SocketAddr::from(([10, 0, 0, 1], if at.name == "two" { 9 } else { 1 }))),
        ..at.clone()
    };
    servers.adopt(Arc::new(HaproxyCluster { nodes: adds.nodes.map(moved), ..adds.clone() }));
    assert_eq!(changes(&servers, &idle), deleted);
    hears(&mut servers, &idle, &["", "Server deleted.\n"], &[("n1", 1, 1, "UP")]);
    assert_eq!(changes(&servers, &idle)[0], added[0].replace("10.0.0.1:2 ", "10.0.0.1:9 "));

    // A reload of HAProxy forgets what was added. A backend that takes no more servers is told once.
    let mut servers = Servers::new(Arc::new(adds));
    hears(&mut servers, &idle, &[], &[("n1", 1, 1, "UP")]);
    hears(
        &mut servers,
        &idle,
        &["Backend must use a dynamic load balancing.\n", "No such server.\n", "No such server.\n"],
        &[("n1", 1, 1, "UP")],
    );
    assert_eq!(changes(&servers, &idle), [""; 0]);
    assert!(servers.notes().contains(&Note::Missing(ALPHA, NodeId::new(1))));
    // A person's maintenance is left alone.
    hears(&mut servers, &idle, &[], &[("n1", 1, 1, "UP"), held]);
    assert_eq!(changes(&servers, &idle), [""; 0]);
}
