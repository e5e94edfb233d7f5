//! The report of R10-R14.

use sidelong_config::Configuration::{OverProvisioned, Reconfigured, Rigid};

use super::judge::Results;
use super::{PAYS, Throughput};
use crate::report::{BALAJI_NODE_RATE, close_beside_balaji, node_seconds};
use crate::setup::Layout;
use crate::story::{Story, number};

pub(super) fn tell(study: &Throughput, results: &Results, story: &mut Story) {
    against_the_paper(story, study, results);
    story.checks();
    shape(story, results);
    shortest(story, study.quick, results);
    for layout in Layout::ALL {
        measured(story, layout, results);
    }
    close_beside_balaji(story, study.demand, results.errors());
}

fn against_the_paper(report: &mut Story, study: &Throughput, results: &Results) {
    let is_r10 = study.id == "R10";
    let printed = |text: &str| if is_r10 { text.to_owned() } else { "in the figure only".to_owned() };
    let ends = |layout| {
        let bursts = results.bursts(layout, false);
        (bursts.first().copied().unwrap_or(0), bursts.last().copied().unwrap_or(0))
    };
    let ((shortest, longest), (_, longest_of_four)) = (ends(Layout::Three), ends(Layout::Four));
    let best = |configuration| {
        let rates = results.bursts(Layout::Three, false).into_iter();
        rates.filter_map(|burst| results.rate(Layout::Three, burst, configuration)).reduce(f64::max)
    };
    let over = results.ratio(Layout::Three, longest, OverProvisioned, Rigid);

    report.heading("The paper beside ours");
    report.table(
        &["", "Balaji et al. (4.3.1)", "ours"],
        [
            ("3 sites, rigid, requests/s", printed("about 26,000"), number(best(Rigid), 0)),
            (
                "3 sites, over-provisioned, requests/s",
                printed("about 51,000"),
                number(best(OverProvisioned), 0),
            ),
            ("3 sites, over-provisioned / rigid", printed("1.96"), number(over, 2)),
            (
                "3 sites, longest bursts: reconfigured / over-provisioned",
                "close to 1".to_owned(),
                number(results.share(Layout::Three, longest), 2),
            ),
            (
                "3 sites, shortest bursts: reconfigured / rigid",
                "comparable, close to 1".to_owned(),
                number(results.gain(Layout::Three, shortest), 2),
            ),
            (
                "4 sites, longest bursts: reconfigured / rigid",
                printed("up to 2.5"),
                number(results.gain(Layout::Four, longest_of_four), 2),
            ),
            (
                "4 sites, longest bursts: reconfigured / over-provisioned",
                "comparable, with half the nodes".to_owned(),
                number(results.share(Layout::Four, longest_of_four), 2),
            ),
        ]
        .map(|(what, paper, ours)| vec![what.to_owned(), paper, ours]),
    );
    if !is_r10 {
        report.paragraph(
            "Of this workload the paper says that \"the trend is similar\"; its numbers are of one file of 1 KB.",
        );
    }
    report.paragraph(
        "The paper's rigid 26,000 are those of a site with three nodes, so that six of them make 1.96 times as many. Here every \
         site has its burst in turn, the one with two nodes too: rigid then is the harmonic mean of the sites, ideally \
         2.57 nodes, and the best possible ratio is 2.33. With four sites both are 2 nodes against 5, at best 2.5.",
    );
}

/// Which configuration is faster, by what factor, and where the lines cross.
fn shape(report: &mut Story, results: &Results) {
    report.heading("Whether the shape holds");
    report.paragraph(
        "The paper's: reconfigured is never below rigid, rises with burst length, and at the longest comes close to over-provisioned.",
    );
    let lines = Layout::ALL.map(|layout| {
        let bursts = results.bursts(layout, false);
        let (Some(&first), Some(&last)) = (bursts.first(), bursts.last()) else {
            return format!("{} sites: not measured.", layout.sites());
        };
        let holds = report.holds(Some(results.has_the_papers_shape(layout)));
        let ratios = |burst| {
            let (gain, share) = (results.gain(layout, burst), results.share(layout, burst));
            format!("{} of rigid and {} of over-provisioned at {burst}", number(gain, 2), number(share, 2))
        };
        let from = |burst: Option<u64>| burst.map_or("at no length".into(), |burst| format!("from {burst} on"));
        let beats = results.shortest_from(layout, |burst| results.gain(layout, burst).is_some_and(|gain| gain > 1.0));
        let reaches =
            results.shortest_from(layout, |burst| results.share(layout, burst).is_some_and(|share| share >= 0.95));
        format!(
            "{} sites: {}. Reconfigured has {}, {}. It is above rigid {}, and has 0.95 of over-provisioned {}.",
            layout.sites(),
            holds,
            ratios(first),
            ratios(last),
            from(beats),
            from(reaches),
        )
    });
    report.list(lines);
}

fn shortest(report: &mut Story, quick: bool, results: &Results) {
    report.heading("The shortest burst that pays");
    report.paragraph(&format!(
        "The shortest from which on reconfigured has at least {PAYS} times the throughput of rigid{}:",
        if quick { ", among the bursts of a quick run, which does not search below the paper's" } else { "" }
    ));
    report.list(Layout::ALL.iter().map(|&layout| {
        let sites = layout.sites();
        match results.shortest_that_pays(layout) {
            Some(burst) => format!(
                "{sites} sites: {burst} requests, {:.3} s of one node (on the paper's nodes as many seconds are {:.0} requests){}.",
                node_seconds(burst),
                node_seconds(burst) * BALAJI_NODE_RATE,
                match results.bursts(layout, true).first() {
                    Some(least) if *least == burst => "; shorter ones were not tried",
                    _ => "",
                }
            ),
            None => format!("{sites} sites: none."),
        }
    }));
}

fn measured(report: &mut Story, layout: Layout, results: &Results) {
    report.heading(&format!("Measured, {} sites (nodes {})", layout.sites(), layout.label()));
    let columns = [
        "burst",
        "s of one node",
        "rigid, requests/s",
        "reconfigured",
        "over-provisioned",
        "reconfigured / rigid",
        "/ over-provisioned",
        "moves",
        "p50 / p99 rigid, ms",
        "reconfigured, ms",
        "over-provisioned, ms",
    ];
    let rows = results.bursts(layout, true).into_iter().map(|burst| {
        let rate = |configuration| number(results.rate(layout, burst, configuration), 0);
        let times = |configuration| match results.row(layout, burst, configuration) {
            Some(row) => format!("{:.1} / {:.1}", row.p50_ms, row.p99_ms),
            None => number(None, 0),
        };
        let moves = results.row(layout, burst, Reconfigured).map(|row| row.moves as f64);
        vec![
            burst.to_string(),
            format!("{:.2}", node_seconds(burst)),
            rate(Rigid),
            rate(Reconfigured),
            rate(OverProvisioned),
            number(results.gain(layout, burst), 2),
            number(results.share(layout, burst), 2),
            number(moves, 0),
            times(Rigid),
            times(Reconfigured),
            times(OverProvisioned),
        ]
    });
    report.table(&columns, rows);
    let ideal = |configuration| {
        let burst = results.bursts(layout, false).last().copied().unwrap_or(0);
        number(results.row(layout, burst, configuration).map(|row| row.ideal_requests_per_s), 0)
    };
    report.paragraph(&format!(
        "Ideal, with nothing but the nodes in the way: rigid {}, reconfigured and over-provisioned {}. Short bursts can pass \
         it, since a burst's last requests and the next one's first are at different nodes.",
        ideal(Rigid),
        ideal(OverProvisioned)
    ));
}
