//! Entries of a cluster file that come and go by a command: its text is changed, and comments and order stay.

use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, value};

/// The arrays whose entries have names, in the order in which one is looked for.
const KINDS: [&str; 5] = ["node", "edge", "front", "cache.peer", "site"];

/// Adds a node with a foreign server, and where its control endpoint is, on several machines.
///
/// # Errors
/// In words, if the text is no TOML.
pub fn add_node(text: &str, name: &str, server: &str, fabric_listen: Option<&str>) -> Result<String, String> {
    let mut file = without(text, name)?;
    let mut entry = Table::new();
    entry["name"] = value(name);
    entry["server"] = value(server);
    if let Some(address) = fabric_listen {
        entry["fabric_listen"] = value(address);
    }
    push(&mut file, "node", entry)?;
    Ok(file.to_string())
}

/// Says that the server of a node is elsewhere.
///
/// # Errors
/// In words, if the text is no TOML, or has no such node.
pub fn replace_server(text: &str, name: &str, server: &str) -> Result<String, String> {
    let mut file = read(text)?;
    let place = place(&file, "node", name);
    let entry = place.and_then(|place| array_mut(&mut file, "node")?.get_mut(place));
    let entry = entry.ok_or_else(|| format!("it has no [[node]] of the name {name:?}"))?;
    entry["server"] = value(server);
    Ok(file.to_string())
}

/// Adds a cache, where memcached's clients connect, and its memory in MiB; `None` for the default.
///
/// # Errors
/// In words, if the text is no TOML.
pub fn add_cache(text: &str, name: &str, listen: &str, memory_mb: Option<u32>) -> Result<String, String> {
    let mut file = without(text, name)?;
    let mut entry = Table::new();
    entry["name"] = value(name);
    entry["listen"] = value(listen);
    if let Some(memory_mb) = memory_mb {
        entry["memory_mb"] = value(i64::from(memory_mb));
    }
    push(&mut file, "cache.peer", entry)?;
    Ok(file.to_string())
}

/// Says where etcd has the file, which does not say so yet.
///
/// # Errors
/// In words, if the text is no TOML.
pub fn add_etcd(text: &str, endpoints: &[String]) -> Result<String, String> {
    let mut file = read(text)?;
    let mut table = Table::new();
    table["endpoints"] = value(endpoints.iter().collect::<toml_edit::Array>());
    // Behind [cluster], where a reader looks for it.
    let place = file.get("cluster").and_then(Item::as_table).and_then(Table::position);
    table.set_position(place);
    file["etcd"] = Item::Table(table);
    Ok(file.to_string())
}

/// What a machine's own file needs to say: whose it is, its secret, and where etcd has the rest.
///
/// # Errors
/// In words, if the text is no TOML.
pub fn short(text: &str) -> Result<String, String> {
    let mut file = read(text)?;
    file.as_table_mut().retain(|key, _| ["cluster", "etcd"].contains(&key));
    if let Some(cluster) = file.get_mut("cluster").and_then(Item::as_table_mut) {
        cluster.retain(|key, _| ["name", "run_dir", "secret_file"].contains(&key));
        cluster.decor_mut().clear();
    }
    file.set_trailing("");
    Ok(file.to_string())
}

/// The file, in which nothing has that name yet.
fn without(text: &str, name: &str) -> Result<DocumentMut, String> {
    let file = read(text)?;
    match KINDS.into_iter().find(|kind| place(&file, kind, name).is_some()) {
        Some(kind) => Err(format!("it has a [[{kind}]] of the name {name:?} already: choose another name")),
        None => Ok(file),
    }
}

/// Adds an entry to an array.
fn push(file: &mut DocumentMut, kind: &str, entry: Table) -> Result<(), String> {
    let mut above = file.as_table_mut();
    let (tables, last) = kind.rsplit_once('.').unwrap_or(("", kind));
    for name in tables.split('.').filter(|name| !name.is_empty()) {
        let mut implicit = Table::new();
        implicit.set_implicit(true);
        let table = above.entry(name).or_insert(Item::Table(implicit));
        above = table.as_table_mut().ok_or_else(|| format!("its {name} is not written as [{name}]"))?;
    }
    let array = above.entry(last).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let array = array.as_array_of_tables_mut();
    array.ok_or_else(|| format!("its entries are not written as [[{kind}]]"))?.push(entry);
    Ok(())
}

/// The entries of an array, if it has some.
fn array<'a>(file: &'a DocumentMut, kind: &str) -> Option<&'a ArrayOfTables> {
    kind.split('.').try_fold(file.as_item(), |above, name| above.get(name))?.as_array_of_tables()
}

fn array_mut<'a>(file: &'a mut DocumentMut, kind: &str) -> Option<&'a mut ArrayOfTables> {
    let above = file.as_item_mut();
    kind.split('.').try_fold(above, |above, name| above.get_mut(name))?.as_array_of_tables_mut()
}

/// Takes the node, edge, front, cache or site of that name out. If nodes are too few then for what sites start with, the site with the most above
/// its floor starts with one less.
///
/// # Errors
/// In words, if the text is no TOML, or has no entry of that name alone.
pub fn remove(text: &str, name: &str) -> Result<String, String> {
    let mut file = read(text)?;
    let found: Vec<_> =
        KINDS.into_iter().filter_map(|kind| Some((kind, place(&file, kind, name)?))).collect();
    let (kind, index) = match found[..] {
        [one] => one,
        [] => {
            return Err(format!(
                "it has no [[node]], [[edge]], [[front]], [[cache.peer]] or [[site]] of the name {name:?}; to take one of \
                 the nodes of an entry with `count` away, first write each as a [[node]] of its own, and reload"
            ));
        }
        [(one, _), (other, _), ..] => {
            return Err(format!(
                "both [[{one}]] and [[{other}]] have an entry of the name {name:?}: take one out, and reload"
            ));
        }
    };
    let array = array_mut(&mut file, kind).ok_or("its entries are not written as tables")?;
    if array.get(index).is_some_and(|entry| number(entry, "count", 1) > 1) {
        return Err(format!("{name:?} stands for several nodes: give each an entry of its own"));
    }
    let heading = array.get(index).and_then(heading);
    array.remove(index);
    if let (0, Some(heading), Some(next)) = (index, heading, array.get_mut(0)) {
        let own = next.decor().prefix().and_then(RawString::as_str).unwrap_or_default().to_owned();
        next.decor_mut().set_prefix(format!("{heading}{}", own.trim_start_matches('\n')));
    }
    if kind == "node" {
        fit(&mut file);
    }
    Ok(file.to_string())
}

/// The comments above an entry that are not its own, since an empty line follows them.
fn heading(entry: &Table) -> Option<String> {
    let prefix = entry.decor().prefix()?.as_str()?;
    prefix.rfind("\n\n").map(|end| prefix[..end + 2].to_owned()).filter(|heading| heading.contains('#'))
}

fn read(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.to_string())
}

fn place(file: &DocumentMut, kind: &str, name: &str) -> Option<usize> {
    array(file, kind)?.iter().position(|entry| entry.get("name").and_then(Item::as_str) == Some(name))
}

fn number(entry: &Table, key: &str, default: i64) -> i64 {
    entry.get(key).and_then(Item::as_integer).unwrap_or(default)
}

/// Has sites start with no more nodes than there are.
fn fit(file: &mut DocumentMut) {
    let entries = |file: &DocumentMut, kind| -> Vec<Table> {
        array(file, kind).into_iter().flatten().cloned().collect()
    };
    let pool: i64 = entries(file, "node").iter().map(|node| number(node, "count", 1)).sum();
    let sites = entries(file, "site");
    let wanted: i64 = sites.iter().map(|site| number(site, "nodes", 1)).sum();
    let spare = |site: &Table| number(site, "nodes", 1) - number(site, "floor", 1);
    let most = sites.iter().enumerate().max_by_key(|(_, site)| spare(site)).map(|(index, _)| index);
    let Some(index) = most.filter(|index| wanted > pool && spare(&sites[*index]) > 0) else { return };
    let nodes = number(&sites[index], "nodes", 1) - 1;
    let site = array_mut(file, "site").and_then(|sites| sites.get_mut(index));
    let Some(known) = site.and_then(|site| site.get_mut("nodes")).and_then(Item::as_value_mut) else {
        return;
    };
    let decor = known.decor().clone();
    *known = nodes.into();
    *known.decor_mut() = decor;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ClusterFile;

    const TEXT: &str = "\
# The shop.
[[site]]
name = \"shop\" # ours
hosts = [\"shop.test\"]
nodes = 2 # at first

[[edge]]
name = \"edge1\"
listen = \"127.0.0.1:8081\"

# Ours.

# The old machine.
[[node]]
name = \"n1\"
server = \"127.0.0.1:7101\"

[[node]]
name = \"n2\"
server = \"127.0.0.1:7102\"
";

    #[test]
    fn what_stays_stays_as_it_was_written() {
        let added = add_node(TEXT, "web9", "127.0.0.1:8080", None).unwrap();
        assert_eq!(added, format!("{TEXT}\n[[node]]\nname = \"web9\"\nserver = \"127.0.0.1:8080\"\n"));
        assert_eq!(ClusterFile::parse(&added, "x").unwrap().nodes.len(), 3);
        assert_eq!(remove(&added, "web9").unwrap(), TEXT);
        let taken = add_node(TEXT, "shop", "127.0.0.1:8080", None).unwrap_err();
        assert!(taken.contains("it has a [[site]] of the name \"shop\" already"), "{taken}");

        let left = remove(TEXT, "n1").unwrap();
        assert!(
            left.starts_with("# The shop.")
                && left.contains("# ours")
                && left.contains("nodes = 1 # at first"),
            "{left}"
        );
        let nodes = "\n# Ours.\n\n[[node]]\nname = \"n2\"";
        assert!(!left.contains("n1") && !left.contains("old machine") && left.contains(nodes), "{left}");
        assert_eq!(ClusterFile::parse(&left, "x").unwrap().nodes.len(), 1);
    }

    #[test]
    fn caches_come_and_go() {
        for text in [TEXT.to_owned(), format!("{TEXT}\n[cache]\neviction = \"lru\" # not by chance\n")] {
            let one = add_cache(&text, "c1", "127.0.0.1:11211", None).unwrap();
            assert_eq!(one, format!("{text}\n[[cache.peer]]\nname = \"c1\"\nlisten = \"127.0.0.1:11211\"\n"));
            let two = add_cache(&one, "c2", "127.0.0.1:11212", Some(128)).unwrap();
            assert_eq!(ClusterFile::parse(&two, "x").unwrap().cache.peers[1].memory_mb, 128);
            assert_eq!(remove(&two, "c2").unwrap(), one);
            assert_eq!(remove(&one, "c1").unwrap(), text);
        }
        assert!(add_cache("cache = 1", "c1", "127.0.0.1:1", None).unwrap_err().contains("[cache]"));
    }

    #[test]
    fn what_has_no_entry_of_its_own_is_refused() {
        let several = TEXT.replace("name = \"n2\"", "name = \"n2\"\ncount = 3");
        assert!(remove(&several, "n2").unwrap_err().contains("an entry of its own"));
        assert!(remove(&several, "n3").unwrap_err().contains("of the name \"n3\""));
        assert!(
            remove(TEXT.replace("n2", "shop").as_str(), "shop")
                .unwrap_err()
                .contains("both [[node]] and [[site]]")
        );
        assert!(remove("[[node", "n3").is_err());
    }
}
