//! `sidelong trace`: what a log holds.

use sidelong_trace::{Format, Reader, Summary, summarise};

use crate::cli::{TraceArgs, TraceCommand};
use crate::failure::{Failure, say};

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let TraceCommand::Info { file, json, format } = &args.command;
    let mut reader = match format {
        Some(format) => Reader::open_as(file, format.parse::<Format>()?)?,
        None => Reader::open(file)?,
    };
    let summary = summarise(&mut reader)?;
    if reader.broken().broken > 0 {
        eprintln!("sidelong: {}: {}", file.display(), reader.broken());
    }
    if *json { say(serde_json::to_string_pretty(&summary)? + "\n") } else { say(table(&reader, &summary)) }
}

fn table(reader: &Reader, summary: &Summary) -> String {
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let rows = [
        ("format", reader.format().to_string()),
        ("requests", summary.requests.to_string()),
        ("distinct objects", summary.objects.to_string()),
        ("bytes", summary.bytes.to_string()),
        ("clients", summary.clients.to_string()),
        ("span", format!("{} s", summary.span_s)),
        ("requests/s, mean", format!("{:.1}", summary.rate_mean)),
        ("requests/s, peak", summary.rate_peak.to_string()),
        ("Zipf alpha, maximum likelihood", figure(summary.zipf_alpha_mle)),
        ("Zipf alpha, least squares", figure(summary.zipf_alpha_lsq)),
        ("burstiness, variance/mean in 1 s", figure(summary.dispersion_1s)),
        ("burstiness, variance/mean in 60 s", figure(summary.dispersion_60s)),
        ("broken lines", summary.broken.to_string()),
    ];
    rows.iter().map(|(name, value)| format!("{name:34} {value:>14}\n")).collect()
}
