//! The report of R15-R24.

use super::{Utilisation, Watched, find, nodes_max};
use crate::report::{close_beside_balaji, node_seconds};
use crate::setup::{CONFIGURATIONS, Layout};
use crate::story::{Story, number};
use sidelong_config::Configuration::{OverProvisioned, Reconfigured, Rigid};

pub(super) fn tell(study: &Utilisation, watched: &[Watched], story: &mut Story) {
    against_the_paper(story, study.layout, watched);
    story.checks();
    measured(story, study.layout, watched);
    close_beside_balaji(story, study.demand, watched.iter().map(|run| run.errors).sum());
}

fn against_the_paper(report: &mut Story, layout: Layout, watched: &[Watched]) {
    let mean = |burst, configuration| find(watched, burst, configuration).map(|run| run.nodes_busy_mean);
    let most = |burst, configuration| find(watched, burst, configuration).map(|run| run.nodes_busy_max);
    let (few, many) = (nodes_max(layout, Rigid), nodes_max(layout, OverProvisioned));
    report.heading("The paper beside ours");
    report.table(
        &["nodes in use", "Balaji et al. (4.3.2)", "ours, mean over time", "ours, most"],
        [
            ("rigid", 8192, Rigid, format!("{few}, constantly")),
            ("over-provisioned", 8192, OverProvisioned, format!("{many} at most")),
            (
                "reconfigured, bursts of 8192",
                8192,
                Reconfigured,
                format!("the most possible ({many}) \"for large periods of time\""),
            ),
            (
                "reconfigured, bursts of 512",
                512,
                Reconfigured,
                "comparable with rigid; \"not able to completely utilize the maximum\"".to_owned(),
            ),
        ]
        .map(|(what, burst, configuration, paper)| {
            let (mean, most) = (mean(burst, configuration), most(burst, configuration));
            vec![what.to_owned(), paper, number(mean, 2), number(most, 2)]
        }),
    );
    let share = |burst| mean(burst, Reconfigured).map(|nodes| nodes / many);
    let more = mean(512, Reconfigured).zip(mean(512, Rigid)).map(|(ours, rigid)| ours / rigid);
    report.paragraph(&format!(
        "Reconfigured keeps {} of the {many} nodes busy that it could have at bursts of 8192, and {} at bursts of 512, {} \
         times as many as rigid there. The paper describes a drop when the load goes to another site, which then has one node: it \
         lasts as long as the moves, and shows in the figure as far as it fills the 100 ms of a sample. A peak above what \
         one site can have is where a burst ends while the next has begun: both sites' nodes are in use then.",
        percent(share(8192)),
        percent(share(512)),
        number(more, 2),
    ));
    if layout == Layout::Three {
        report.paragraph(
            "The paper's rigid line is that of a site with three nodes. Here every site has its burst in turn, so rigid is at 3, 3 \
             and, for longest, 2.",
        );
    }
}

fn measured(report: &mut Story, layout: Layout, watched: &[Watched]) {
    report.heading(&format!("Measured, {} sites (nodes {})", layout.sites(), layout.label()));
    let columns = [
        "burst",
        "s of one node",
        "configuration",
        "nodes in use, mean",
        "most",
        "requests/s",
        "moves",
        "errors",
    ];
    let rows = watched.iter().map(|run| {
        vec![
            run.burst.to_string(),
            format!("{:.2}", node_seconds(run.burst)),
            run.configuration.to_string(),
            format!("{:.2}", run.nodes_busy_mean),
            format!("{:.2}", run.nodes_busy_max),
            format!("{:.0}", run.requests_per_s),
            run.moves.to_string(),
            run.errors.to_string(),
        ]
    });
    report.table(&columns, rows);
    let configurations = CONFIGURATIONS.map(|configuration| configuration.to_string()).join(", ");
    report.paragraph(&format!(
        "The mean leaves out the first half second. `rows.csv` has every sample of every site; the figure adds the sites up, of the first repetition. \
         Order of the runs at each burst length: {configurations}."
    ));
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
}
