//! The output of `--once`: a plain table, or one JSON object, whose fields docs/top.md explains.

use std::time::Duration;

use serde::Serialize;
use sidelong_edge::DocumentStatus;

use super::asking::Documents;
use super::column::{Column, age, short};
use super::controls::Controls;
use super::look::{Look, NodeRow, Status, Sums};
use crate::table::table;

#[derive(Serialize)]
struct Report<'a> {
    cluster: &'a str,
    scheme: &'a str,
    fabric: &'a str,
    watched_s: f64,
    moves: u64,
    totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<DocumentFigures>,
    sites: Vec<Site<'a>>,
    nodes: Vec<Node<'a>>,
}

#[derive(Serialize)]
struct Totals {
    nodes: usize,
    fresh: usize,
    never: usize,
    torn: usize,
    stale: usize,
    gone: usize,
    #[serde(flatten)]
    sums: Figures,
    age_max_us: Option<f64>,
}

#[derive(Serialize)]
struct Figures {
    load: Option<f64>,
    busy: u64,
    workers: u64,
    queued: u64,
    connections: u64,
    run_queue: Option<u64>,
    cpu_percent: Option<f64>,
    net_bytes_per_s: u64,
    requests_per_s: f64,
}

/// Of all edges. `None` if no edge reports, or only one answer was there yet.
#[derive(Serialize)]
struct DocumentFigures {
    requests_total: Option<u64>,
    memory_total: Option<u64>,
    memory_after_wait_total: Option<u64>,
    server_total: Option<u64>,
    memory_bytes_total: Option<u64>,
    failed_reads_total: Option<u64>,
    requests_per_s: Option<f64>,
}

impl DocumentFigures {
    fn of(documents: &Documents) -> Self {
        let total = documents.total;
        DocumentFigures {
            requests_total: total.map(|total| total.requests()),
            memory_total: total.map(|total| total.memory),
            memory_after_wait_total: total.map(|total| total.memory_after_wait),
            server_total: total.map(|total| total.server),
            memory_bytes_total: total.map(|total| total.memory_bytes),
            failed_reads_total: total.map(|total| total.failed_reads),
            requests_per_s: documents.requests_per_s(),
        }
    }
}

#[derive(Serialize)]
struct Site<'a> {
    name: &'a str,
    floor: usize,
    ceiling: usize,
    nodes: usize,
    coming: usize,
    leaving: usize,
    /// As the edges report it.
    admitted_ratio: Option<f64>,
    rejected_total: Option<u64>,
    rejected_per_s: Option<f64>,
    rejected_why: Option<&'a str>,
    target_met: Option<bool>,
    #[serde(flatten)]
    sums: Figures,
}

#[derive(Serialize)]
struct Node<'a> {
    name: &'a str,
    status: &'static str,
    age_us: Option<f64>,
    state: &'static str,
    site: Option<&'a str>,
    next_site: Option<&'a str>,
    generation: Option<u64>,
    run_queue: Option<u16>,
    cpu_percent: Option<f64>,
    memory_percent: Option<f64>,
    connections: Option<u32>,
    queued: Option<u32>,
    busy: Option<u32>,
    workers: Option<u16>,
    learned_workers: Option<u32>,
    service_us: Option<u32>,
    requests_total: Option<u64>,
    requests_per_s: Option<f64>,
    net_bytes_per_s: Option<u64>,
}

/// The object, with all nodes in the file's order whatever the filter.
pub(super) fn json(look: &Look) -> Result<String, serde_json::Error> {
    let sites = look.site_names.iter().zip(&look.sites).enumerate().map(|(index, (name, site))| {
        let admitted = look.admitted.get(index).filter(|of| of.standing.admitted_ratio.is_some());
        Site {
            name,
            floor: site.floor,
            ceiling: site.ceiling,
            nodes: site.serving,
            coming: site.coming,
            leaving: site.leaving,
            admitted_ratio: admitted.and_then(|of| of.standing.admitted_ratio),
            rejected_total: admitted.map(|of| of.standing.rejected),
            rejected_per_s: admitted.and_then(|of| of.rejected_per_s),
            rejected_why: admitted.and_then(|of| of.why.as_deref()),
            target_met: admitted.and_then(|of| of.standing.met),
            sums: figures(&site.sums),
        }
    });
    let report = Report {
        cluster: &look.cluster,
        scheme: &look.scheme,
        fabric: look.fabric,
        watched_s: look.elapsed.as_secs_f64(),
        moves: look.moves,
        totals: Totals {
            nodes: look.nodes.len(),
            fresh: look.count(Status::Fresh),
            never: look.count(Status::Never),
            torn: look.count(Status::Torn),
            stale: look.count(Status::Stale),
            gone: look.count(Status::Gone),
            sums: figures(&look.totals),
            age_max_us: look.totals.age_max.map(micros),
        },
        documents: look.documents.as_ref().map(DocumentFigures::of),
        sites: sites.collect(),
        nodes: look.nodes.iter().map(|row| node(look, row)).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn node<'a>(look: &'a Look, row: &'a NodeRow) -> Node<'a> {
    let site = |site: usize| look.site_names.get(site).map(String::as_str);
    let percent = |permille: u16| f64::from(permille) / 10.0;
    let served = row.served;
    Node {
        name: &row.name,
        status: row.status.word(),
        age_us: row.age.map(micros),
        state: row.state(),
        site: row.site().and_then(site),
        next_site: row.ownership.and_then(|ownership| ownership.next).and_then(|next| site(next.index())),
        generation: row.ownership.map(|ownership| ownership.generation),
        run_queue: row.run_queue,
        cpu_percent: row.cpu_permille.map(percent),
        memory_percent: row.memory_permille.map(percent),
        connections: row.connections.map(|of| of.open),
        queued: row.connections.map(|of| of.queued),
        busy: row.workers.map(|of| of.busy),
        workers: row.workers.map(|of| of.all),
        learned_workers: row.learned_workers,
        service_us: served.map(|served| served.service_us),
        requests_total: served.map(|served| served.total),
        requests_per_s: row.requests_per_s,
        net_bytes_per_s: row.net_bytes_per_s,
    }
}

fn figures(sums: &Sums) -> Figures {
    Figures {
        load: sums.load(),
        busy: sums.busy,
        workers: sums.workers,
        queued: sums.queued,
        connections: sums.connections,
        run_queue: sums.run_queue,
        cpu_percent: sums.cpu_percent(),
        net_bytes_per_s: sums.net_bytes_per_s,
        requests_per_s: sums.requests_per_s,
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// A line on the cluster, a table of the sites, and one of the nodes that `controls` selects.
pub(super) fn plain(look: &Look, controls: &Controls) -> String {
    let mut text = format!("{}: {}\n", look.cluster, summary(look));
    if let Some(total) = look.documents.as_ref().and_then(|documents| documents.total) {
        let DocumentStatus { memory, memory_after_wait, failed_reads, .. } = total;
        let (all, from_memory) = (total.requests(), memory.saturating_add(memory_after_wait));
        text += &format!(
            "documents: {from_memory} of {all} requests answered from memory, {failed_reads} failed reads\n"
        );
    }
    text.push('\n');
    let mut head =
        vec!["site", "nodes", "floor", "ceiling", "load", "busy", "queue", "req/s", "coming", "leaving"];
    if !look.admitted.is_empty() {
        head.extend(["admitted", "rejected", "rejected/s", "target", "why"]);
    }
    let sites = look.site_names.iter().zip(&look.sites).enumerate().map(|(index, (name, site))| {
        let sums = &site.sums;
        let mut row = vec![
            name.clone(),
            site.serving.to_string(),
            site.floor.to_string(),
            site.ceiling.to_string(),
            sums.load().map_or_else(|| "-".to_owned(), |load| format!("{load:.2}")),
            format!("{}/{}", sums.busy, sums.workers),
            sums.queued.to_string(),
            format!("{:.0}", sums.requests_per_s),
            site.coming.to_string(),
            site.leaving.to_string(),
        ];
        row.extend(look.admitted.get(index).into_iter().flat_map(|admitted| {
            let standing = &admitted.standing;
            let ratio = standing.admitted_ratio.map(|ratio| format!("{:.1} %", 100.0 * ratio));
            let met = standing.met.map(|met| if met { "met" } else { "missed" }.to_owned());
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let per_s = admitted.rejected_per_s.map(|rate| format!("{rate:.0}"));
            let why = admitted.why.clone();
            [or_none(ratio), standing.rejected.to_string(), or_none(per_s), or_none(met), or_none(why)]
        }));
        row
    });
    table(&mut text, &head, sites.collect(), 1);
    text.push('\n');
    let rows = controls.rows(look);
    let nodes = rows
        .iter()
        .map(|row| Column::ALL.iter().map(|column| column.text(look, &look.nodes[*row])).collect());
    let texts = Column::ALL.iter().filter(|column| column.is_text()).count();
    table(&mut text, &Column::ALL.map(Column::title), nodes.collect(), texts);
    text
}

/// The collection of load and the totals in a few words.
pub(super) fn summary(look: &Look) -> String {
    let totals = &look.totals;
    let fresh = look.count(Status::Fresh);
    let oldest = totals.age_max.map_or_else(|| "-".to_owned(), age);
    format!(
        "{} over {}, {fresh} of {} nodes fresh, oldest {oldest}, {}/{} busy, {} queued, {} requests/s",
        look.scheme,
        look.fabric,
        look.nodes.len(),
        totals.busy,
        totals.workers,
        totals.queued,
        short(totals.requests_per_s.round() as u64),
    )
}
