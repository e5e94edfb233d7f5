//! What differs between two cluster files, and what each difference takes in a cluster that runs. It compares what the files
//! mean key by key, whatever their comments and layout, and does no I/O.

mod class;

use std::collections::BTreeSet;

use class::{ADMISSION, BOARD, COMMANDS, Class, FOREIGN, REACH, STAYS, TAKEN, class};
use toml::{Table, Value};

use crate::cluster::{Cluster, Node};
use crate::error::{Error, Location, Result};
use crate::file::{ClusterFile, NodeEntry};
use crate::hosts::is_nowhere;
use crate::words::MovedBy;

/// One key that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The key, with the name of its entry: `limits.retries`, `site.shop.floor`, `cache.peer.c1.listen`. `node.n3` is a whole entry
    /// that came or went, and `site` the order of all sites. An entry of several nodes has its own name, without their numbers.
    pub key: String,
    /// The old value as TOML, `(secret)` for a secret; `None` where the file leaves the key out.
    pub old: Option<String>,
    /// The new value, likewise.
    pub new: Option<String>,
    /// What it takes.
    pub takes: Takes,
}

/// What a change takes in a cluster that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Nothing: all parts that read the key take it over while they run.
    Nothing,
    /// A restart of these parts, which keep the old value until then. The nodes come first, then the edges, fronts and caches, each
    /// in the old file's order.
    Restart(Vec<String>),
    /// All parts must be stopped before one starts with the new file. Why, in a few words.
    Stop(&'static str),
}

/// What differs between two cluster files, by key. What only `up` and the lab use, such as `[workload]`, is left out.
///
/// # Errors
/// If a program made one of the files and a value is not usable, or if a path is not UTF-8.
///
/// # Panics
/// Never: a test finds each key in the table that says what its change takes.
pub fn diff(old: &ClusterFile, new: &ClusterFile) -> Result<Vec<Change>> {
    let (pair, _, differences) = compared(old, new, None)?;
    let change = |Difference { key, old, new }| {
        let shown = |value: Value| if key == SECRET { "(secret)".to_owned() } else { value.to_string() };
        let class = class(&key).expect("every key has a class");
        let (old, new, takes) = (old.map(shown), new.map(shown), pair.takes(&key, class));
        Change { key, old, new, takes }
    };
    Ok(differences.into_iter().map(change).collect())
}

/// `old`, by which the part of that name goes, with those changes of `new` that it takes over while it runs. What only `up` and the
/// lab use is left out. The node `holder`, if any, stays where it is.
///
/// # Errors
/// As [`diff`]; if members come or go whom the part cannot take over, since it has waited for a restart; or if it cannot use the rest
/// together with what it keeps.
///
/// # Panics
/// As [`diff`].
pub fn live(old: &ClusterFile, new: &ClusterFile, part: &str, holder: Option<&str>) -> Result<ClusterFile> {
    let (pair, mut tables, differences) = compared(old, new, holder)?;
    for Difference { key, new, .. } in differences {
        let class = class(&key).expect("every key has a class");
        let is_live = match (pair.takes(&key, class), class) {
            (Takes::Nothing, _) | (Takes::Restart(_), Class::Member(_)) => true,
            (Takes::Restart(parts), _) => !parts.iter().any(|waits| waits == part),
            (Takes::Stop(why), Class::Member(_)) => {
                return Err(Error::Check {
                    place: Location::Key(key),
                    found: format!("a change while {part} waits for its restart"),
                    expected: format!("its restart first ({why})"),
                });
            }
            (Takes::Stop(_), _) => false,
        };
        // The order of entries is put right when all that come are there.
        if is_live && !ENTRIES.contains(&&*key) {
            put(&mut tables, &key, new);
        }
    }
    let order = written(&pair.new_cluster.file)?;
    ENTRIES.into_iter().for_each(|key| arrange(&mut tables, key, &order));
    ClusterFile::parse(&toml::to_string(&tables)?, "the live changes")
}

/// Two files, the old one as tables, and where they differ.
fn compared<'a>(
    old: &'a ClusterFile,
    new: &'a ClusterFile,
    holder: Option<&'a str>,
) -> Result<(Pair<'a>, Value, Vec<Difference>)> {
    let pair = Pair { old, new, old_cluster: old.cluster()?, new_cluster: new.cluster()?, holder };
    let (tables, mut differences) = (written(&pair.old_cluster.file)?, Vec::new());
    walk("", Some(&tables), Some(&written(&pair.new_cluster.file)?), &mut differences);
    Ok((pair, tables, differences))
}

/// The key whose value is not shown.
const SECRET: &str = "cluster.secret";
/// The arrays of tables, whose entries have names.
const ENTRIES: [&str; 5] = ["site", "node", "edge", "front", "cache.peer"];

/// Two files and what they mean.
struct Pair<'a> {
    old: &'a ClusterFile,
    new: &'a ClusterFile,
    old_cluster: Cluster,
    new_cluster: Cluster,
    /// The node that has the board, if it must have it still.
    holder: Option<&'a str>,
}

impl Pair<'_> {
    fn takes(&self, key: &str, class: Class) -> Takes {
        use Class::*;

        let Cluster { nodes, edges, fronts, cache, .. } = &self.old_cluster;
        let own = || self.own(key);
        let nodes_all = || nodes.values().map(|node| node.name.clone());
        // The edges are among them.
        let movers = || fronts.values().map(|front| front.name.clone());
        let led = || fronts.values().filter(|front| front.controls.is_some()).map(|front| front.name.clone());
        let takes_no_address =
            |node: &&Node| !self.old_cluster.has_roster() && node.is_foreign && !node.is_exclusive;
        let agents = || nodes.values().filter(takes_no_address).map(|node| node.name.clone());
        let is_asked_there = self.old_cluster.etcd.is_some() && key.ends_with(".fabric_listen");
        let parts: Vec<String> = match class {
            // Nobody can have been there.
            _ if is_asked_there && self.was_nowhere(key) => own(),
            Server if self.becomes_foreign(key) => return Takes::Stop(FOREIGN),
            Place | Server if self.nodes_may_go() => match self.why_it_stays(&own()) {
                Some(why) => return Takes::Stop(why),
                None => own().into_iter().chain(led()).collect(),
            },
            // Who is not at the new address yet would seem to have ended.
            _ if is_asked_there && !matches!(class, CacheMember(_)) => {
                return Takes::Stop(if key.starts_with("node.") { REACH } else { STAYS });
            }
            Live => return Takes::Nothing,
            Policy if self.old_cluster.baseline.by == MovedBy::Edge => return Takes::Nothing,
            Target if !self.differs(Cluster::has_admission) => return Takes::Nothing,
            Certificates if self.has_tls(self.old, key) == self.has_tls(self.new, key) => {
                return Takes::Nothing;
            }
            Command if self.differs(Cluster::has_commands) => return Takes::Stop(COMMANDS),
            CacheMember(why) if !self.old_cluster.is_of_one_machine() => return Takes::Stop(why),
            CacheMember(_) => return Takes::Nothing,
            Member(_) if self.differs(Cluster::has_commands) => return Takes::Stop(COMMANDS),
            Member(_) if self.differs(Cluster::has_admission) => return Takes::Stop(ADMISSION),
            Member(why) if !self.old_cluster.is_open() => return Takes::Stop(why),
            Member(_) => return Takes::Nothing,
            Stop(why) => return Takes::Stop(why),
            Own | Certificates => own(),
            OwnAndMovers | Place | Server => own().into_iter().chain(movers()).collect(),
            EdgeAddress => agents().chain(own()).collect(),
            FrontAddress => agents().chain(movers()).collect(),
            Nodes | Policy => nodes_all().collect(),
            Edges => edges.iter().map(|edge| edge.name.clone()).collect(),
            Movers | Target => movers().collect(),
            Caches => cache.peers.iter().map(|peer| peer.name.clone()).collect(),
            All | Command => nodes_all().chain(movers()).collect(),
        };
        // A cluster may have none of those that read it.
        if parts.is_empty() { Takes::Nothing } else { Takes::Restart(parts) }
    }

    /// Whether the part whose address the key is was nowhere so far, since its host was not found.
    fn was_nowhere(&self, key: &str) -> bool {
        let Cluster { nodes, fronts, .. } = &self.old_cluster;
        let own = self.own(key);
        let nodes = nodes.values().filter(|node| own.contains(&node.name)).map(|node| node.fabric_listen);
        let fronts = fronts.values().filter(|front| own.contains(&front.name));
        nodes.chain(fronts.filter_map(|front| front.fabric_listen)).any(|at| is_nowhere(at.ip()))
    }

    /// Whether edges follow a node to another address while they run. Where nodes share a machine, the file's new address is that of
    /// nobody until they restart.
    fn nodes_may_go(&self) -> bool {
        self.old_cluster.etcd.is_some() && self.old_cluster.is_open()
    }

    /// Why these nodes cannot go to their new addresses while parts run.
    fn why_it_stays(&self, own: &[String]) -> Option<&'static str> {
        let old = || self.old_cluster.nodes.values();
        let mut new = self.new_cluster.nodes.values().filter(|node| own.contains(&node.name));
        let holder = old().find(|old| Some(&*old.name) == self.holder);
        let takes_board = |new: &Node| {
            holder.is_some_and(|old| old.name == new.name && old.fabric_listen != new.fabric_listen)
        };
        let takes_anothers = |new: &Node| {
            let is_there = |old: &Node| {
                old.fabric_listen == new.fabric_listen
                    || old.addresses.iter().any(|at| new.addresses.contains(at))
            };
            old().filter(|old| old.name != new.name).any(is_there)
        };
        if new.clone().any(takes_board) {
            return Some(BOARD);
        }
        new.any(takes_anothers).then_some(TAKEN)
    }

    /// Whether the two clusters differ in that.
    fn differs(&self, of: impl Fn(&Cluster) -> bool) -> bool {
        of(&self.old_cluster) != of(&self.new_cluster)
    }

    /// Whether the server of the node that has the key becomes foreign or stops being so.
    fn becomes_foreign(&self, key: &str) -> bool {
        let is_foreign = |file| node_of(file, key).map(|(_, entry)| entry.is_foreign());
        is_foreign(self.old) != is_foreign(self.new)
    }

    /// Whether the edge whose entry has the key speaks TLS.
    fn has_tls(&self, file: &ClusterFile, key: &str) -> bool {
        file.edges.iter().any(|edge| edge.name == name_in(key) && !edge.tls.is_empty())
    }

    /// The parts that are of the entry that has the key.
    fn own(&self, key: &str) -> Vec<String> {
        let Some((index, entry)) = node_of(self.old, key) else { return vec![name_in(key).to_owned()] };
        let before = self.old.nodes[..index].iter().map(|entry| entry.count).sum();
        let nodes = self.old_cluster.nodes.values().skip(before).take(entry.count);
        nodes.map(|node| node.name.clone()).collect()
    }
}

/// The name of the entry that has the key.
fn name_in(key: &str) -> &str {
    key.strip_prefix("cache.").unwrap_or(key).split('.').nth(1).unwrap_or_default()
}

/// The `[[node]]` that has the key, with its number; `None` if none has.
fn node_of<'a>(file: &'a ClusterFile, key: &str) -> Option<(usize, &'a NodeEntry)> {
    let names = names(file.nodes.iter().map(|entry| &*entry.name));
    let index = names.iter().position(|name| key.starts_with("node.") && name == name_in(key))?;
    Some((index, &file.nodes[index]))
}

/// By which names keys tell entries apart. Two `[[node]]` may have one name, if only one stands for several nodes; the second is
/// `NAME[1]`.
fn names<'a>(entries: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names = Vec::new();
    for name in entries {
        let is_second = names.iter().any(|first| first == name);
        names.push(if is_second { format!("{name}[1]") } else { name.to_owned() });
    }
    names
}

/// The file as tables, without what only `up` and the lab use.
fn written(file: &ClusterFile) -> Result<Value> {
    let mut file = file.clone();
    file.workload = None;
    for site in &mut file.sites {
        (site.alpha, site.rates) = (None, Vec::new());
    }
    let mut tables: Table = toml::from_str(&file.to_toml()?).expect("a written file can be read");
    // Which is left out while it has its defaults.
    tables.insert("baseline".into(), Value::try_from(&file.baseline)?);
    Ok(tables.into())
}

/// A key with its two values.
struct Difference {
    key: String,
    old: Option<Value>,
    new: Option<Value>,
}

/// Finds what differs below `key`, the whole file if that is empty.
fn walk(key: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Difference>) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match (old, new) {
        _ if old == new => {}
        _ if ENTRIES.contains(&key) => {
            let [old, new] = [old, new].map(entries);
            if let Some(order) = order(key, &old, &new) {
                found.push(order);
            }
            let came = new.iter().filter(|(name, _)| find(&old, name).is_none());
            for (name, _) in old.iter().chain(came) {
                walk(&below(name), find(&old, name), find(&new, name), found);
            }
        }
        (Some(Value::Table(old)), Some(Value::Table(new))) => {
            for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                walk(&below(name), old.get(name), new.get(name), found);
            }
        }
        _ => found.push(Difference { key: key.to_owned(), old: old.cloned(), new: new.cloned() }),
    }
}

/// Gives a key another value, or takes it away. A new entry of an array comes last.
fn put(tables: &mut Value, key: &str, value: Option<Value>) {
    let (above, last) = key.rsplit_once('.').unwrap_or(("", key));
    let (mut at, mut path) = (tables, String::new());
    for name in above.split('.').filter(|name| !name.is_empty()) {
        let index = entries(Some(at)).iter().position(|(known, _)| known == name);
        path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let next = match at {
            Value::Array(array) => index.map(|index| &mut array[index]),
            Value::Table(table) => {
                Some(table.entry(name).or_insert_with(|| match ENTRIES.contains(&&*path) {
                    // Its first entry comes.
                    true => Value::Array(Vec::new()),
                    false => Value::Table(Table::default()),
                }))
            }
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match (at, value) {
        (Value::Table(table), Some(value)) => _ = table.insert(last.to_owned(), value),
        (Value::Table(table), None) => _ = table.remove(last),
        (Value::Array(array), Some(entry)) => array.push(entry),
        (Value::Array(array), None) => {
            let index = names_of(array).iter().position(|name| name == last);
            index.into_iter().for_each(|index| _ = array.remove(index));
        }
        _ => {}
    }
}

/// Puts the entries of an array into the order of other ones, as far as both have them.
fn arrange(tables: &mut Value, key: &str, as_in: &Value) {
    let mut path = key.split('.');
    let at = path.clone().try_fold(tables, |at, name| at.get_mut(name));
    let (Some(Value::Array(array)), Some(order)) = (at, path.try_fold(as_in, |at, name| at.get(name))) else {
        return;
    };
    let order = order.as_array().map(|order| names_of(order)).unwrap_or_default();
    let mut named: Vec<_> = names_of(array).into_iter().zip(std::mem::take(array)).collect();
    named.sort_by_key(|(name, _)| order.iter().position(|other| other == name));
    *array = named.into_iter().map(|(_, entry)| entry).collect();
}

/// The tables of an array, by name.
fn entries(array: Option<&Value>) -> Vec<(String, &Value)> {
    let tables = array.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    names_of(tables).into_iter().zip(tables).collect()
}

fn names_of(tables: &[Value]) -> Vec<String> {
    names(tables.iter().map(|table| table.get("name").and_then(Value::as_str).unwrap_or_default()))
}

fn find<'a>(entries: &[(String, &'a Value)], name: &str) -> Option<&'a Value> {
    entries.iter().find(|(known, _)| known == name).map(|(_, table)| *table)
}

/// The order of the entries, if some that are in both files changed places.
fn order(key: &str, old: &[(String, &Value)], new: &[(String, &Value)]) -> Option<Difference> {
    let stays = old.iter().filter(|(name, _)| find(new, name).is_some());
    let stayed = new.iter().filter(|(name, _)| find(old, name).is_some());
    if stays.map(|(name, _)| name).eq(stayed.map(|(name, _)| name)) {
        return None;
    }
    let names = |of: &[(String, &Value)]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    Some(Difference { key: key.to_owned(), old: Some(names(old).into()), new: Some(names(new).into()) })
}
