//! The columns of the table of nodes: content, width and sort order.

use std::cmp::Ordering;
use std::str::FromStr;
use std::time::Duration;

use sidelong_layout::NodeState;

use super::look::{Look, NodeRow};

/// A column; they are shown in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    Node,
    Site,
    RunQueue,
    Cpu,
    Memory,
    Connections,
    Queue,
    Busy,
    Requests,
    Net,
    Age,
    State,
}

impl Column {
    pub(super) const ALL: [Column; 12] = [
        Column::Node,
        Column::Site,
        Column::RunQueue,
        Column::Cpu,
        Column::Memory,
        Column::Connections,
        Column::Queue,
        Column::Busy,
        Column::Requests,
        Column::Net,
        Column::Age,
        Column::State,
    ];

    /// Its heading, which is also its name on the command line.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Column::Node => "node",
            Column::Site => "site",
            Column::RunQueue => "run",
            Column::Cpu => "cpu%",
            Column::Memory => "mem%",
            Column::Connections => "conns",
            Column::Queue => "queue",
            Column::Busy => "busy",
            Column::Requests => "req/s",
            Column::Net => "net/s",
            Column::Age => "age",
            Column::State => "state",
        }
    }

    /// Cells that suffice for all but extreme figures.
    pub(super) const fn width(self) -> usize {
        match self {
            Column::Node | Column::Site => 4,
            Column::RunQueue => 3,
            Column::Busy | Column::Age => 6,
            Column::Requests | Column::Net => 5,
            Column::Cpu | Column::Memory | Column::Connections | Column::Queue | Column::State => 5,
        }
    }

    /// Whether it is text, which is aligned left and sorted alphabetically.
    pub(super) const fn is_text(self) -> bool {
        matches!(self, Column::Node | Column::Site)
    }

    /// Whether sorting starts with the smallest. Figures start with the largest.
    pub(super) const fn begins_with_least(self) -> bool {
        self.is_text()
    }

    /// The order in which columns are dropped on a narrow page; the node's name always stays. Columns that are rarely
    /// needed, or shown elsewhere, go first.
    pub(super) const DROPPED_FIRST: [Column; 11] = [
        Column::Memory,
        Column::Net,
        Column::Connections,
        Column::Queue,
        Column::RunQueue,
        Column::Age,
        Column::Busy,
        Column::Requests,
        Column::Cpu,
        Column::Site,
        Column::State,
    ];

    pub(super) fn text(self, look: &Look, row: &NodeRow) -> String {
        let figure = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        match self {
            Column::Node => row.name.clone(),
            Column::Site => match row.ownership {
                None => "-".to_owned(),
                Some(ownership) => {
                    let site = look.site_name(row.site());
                    match (ownership.state, ownership.next) {
                        (_, Some(next)) => format!("{site} → {}", look.site_name(Some(next.index()))),
                        (NodeState::Draining, None) => format!("{site} → held"),
                        (NodeState::Held, None) => format!("held ({site})"),
                        (NodeState::Pinned, None) => format!("{site} (pinned)"),
                        (NodeState::Free | NodeState::Serving | NodeState::Changing, None) => site.to_owned(),
                    }
                }
            },
            Column::RunQueue => figure(row.run_queue.map(|count| short(count.into()))),
            Column::Cpu => figure(row.cpu_permille.map(percent)),
            Column::Memory => figure(row.memory_permille.map(percent)),
            Column::Connections => figure(row.connections.map(|of| short(of.open.into()))),
            Column::Queue => figure(row.connections.map(|of| short(of.queued.into()))),
            Column::Busy => figure(match (row.workers, row.learned_workers) {
                (Some(of), _) => Some(format!("{}/{}", of.busy, of.all)),
                // How many of them are busy is not known.
                (None, learned) => learned.map(|workers| format!("-/{}", short(workers.into()))),
            }),
            Column::Requests => figure(row.requests_per_s.map(|rate| short(rate.round() as u64))),
            Column::Net => figure(row.net_bytes_per_s.map(short)),
            Column::Age => figure(row.age.map(age)),
            Column::State => row.status.word().to_owned(),
        }
    }

    /// Rows sorted by this column, `most_first` or the other way round. Rows without a figure come last either way, and
    /// equal ones stay in the file's order.
    pub(super) fn sort(self, look: &Look, rows: &mut [usize], most_first: bool) {
        let key = |row: usize| self.key(row, &look.nodes[row]);
        rows.sort_by(|a, b| match (key(*a), key(*b)) {
            (Some(a), Some(b)) if most_first => b.total_cmp(&a),
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        });
    }

    fn key(self, index: usize, row: &NodeRow) -> Option<f64> {
        match self {
            // The file's order, in which n2 comes before n10.
            Column::Node => Some(index as f64),
            Column::Site => row.site().map(|site| site as f64),
            Column::RunQueue => row.run_queue.map(f64::from),
            Column::Cpu => row.cpu_permille.map(f64::from),
            Column::Memory => row.memory_permille.map(f64::from),
            Column::Connections => row.connections.map(|of| f64::from(of.open)),
            Column::Queue => row.connections.map(|of| f64::from(of.queued)),
            Column::Busy => row.workers.map(|of| f64::from(of.busy) / f64::from(of.all.max(1))),
            Column::Requests => row.requests_per_s,
            Column::Net => row.net_bytes_per_s.map(|bytes| bytes as f64),
            Column::Age => row.age.map(|age| age.as_secs_f64()),
            Column::State => Some(f64::from(row.status as u8)),
        }
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Column::ALL.into_iter().find(|column| column.title() == text);
        let all = || Column::ALL.map(Column::title).join(", ");
        found.ok_or_else(|| format!("one of {}", all()))
    }
}

/// A count in five cells, with k, M, G or T for thousands, millions and so on.
pub(super) fn short(count: u64) -> String {
    if count < 10_000 {
        return count.to_string();
    }
    let mut value = count as f64;
    let mut unit = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if value < 99.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

fn percent(permille: u16) -> String {
    format!("{:.1}", f64::from(permille) / 10.0)
}

/// An age in six cells.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs_f64();
    if seconds < 0.000_999_5 {
        format!("{:.0}us", seconds * 1e6)
    } else if seconds < 0.099_95 {
        format!("{:.1}ms", seconds * 1e3)
    } else if seconds < 0.999_5 {
        format!("{:.0}ms", seconds * 1e3)
    } else if seconds < 99.95 {
        format!("{seconds:.1}s")
    } else if seconds < 5_970.0 {
        format!("{:.0}min", seconds / 60.0)
    } else if seconds < 360_000.0 {
        format!("{:.0}h", seconds / 3600.0)
    } else {
        format!("{:.0}d", (seconds / 86_400.0).min(9999.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        let counts =
            (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([9_999, 10_000, 999_499, u64::MAX]);
        for count in counts {
            let text = short(count);
            assert!(text.len() <= 5, "{count}: {text}");
        }
        assert_eq!(
            [9_999, 10_000, 99_960, 999_600, 1_250_000].map(short),
            ["9999", "10.0k", "100k", "1.0M", "1.2M"]
        );
        for us in (0..50).map(|bit| 1u64 << bit) {
            let text = age(Duration::from_micros(us));
            assert!(text.len() <= Column::Age.width(), "{us}: {text}");
        }
        let ages = [0, 412, 999, 1_000, 99_949, 250_000, 1_500_000, 120_000_000, 7_200_000_000];
        let texts = ages.map(|us| age(Duration::from_micros(us)));
        assert_eq!(texts, ["0us", "412us", "999us", "1.0ms", "99.9ms", "250ms", "1.5s", "2min", "2h"]);
    }

    #[test]
    fn they_are_chosen_by_their_titles() {
        for column in Column::ALL {
            assert_eq!(column.title().parse(), Ok(column));
            assert!(column.title().len() <= column.width(), "{column:?}");
        }
        assert!("cpu".parse::<Column>().unwrap_err().contains("cpu%"));
    }
}
