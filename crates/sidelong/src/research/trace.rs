//! `sidelong-lab trace`: what a trace contains, conversion to another format, and synthetic traces.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use sidelong_trace::{
    Arrivals, Columns, Format, Known, Reader, Request, Sizes, Stamps, Summary, Synthetic, Tally, Writer,
};

use crate::failure::{Failure, say};
use crate::interrupt::{self, INTERRUPTED};
use crate::progress;

#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Show what traces contain: requests, objects, bytes, span, clients, Zipf alpha, burstiness
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// Traces in any format, plain or compressed (gzip, zstd, xz). Both are recognised by content, not by name
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print a JSON object for each file instead of a table
        #[arg(long)]
        json: bool,
        /// Read FILE in this format instead of recognising it: wc98, clf, ucb, oracleGeneral, twitter, csv, slt, key32,
        /// key64. key32 and key64 (keys alone, big endian) are never recognised
        #[arg(long)]
        format: Option<String>,
        /// What the fields of a CSV are, by number from 1 or by name in its header
        #[arg(long, value_name = "time=1,object=2[,size=3..]")]
        columns: Option<String>,
    },
    /// Convert a trace to the compact format (slt), which is read fastest, to oracleGeneral or to CSV
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert {
        /// The trace to read, as for `info`
        #[arg(value_name = "IN")]
        from: PathBuf,
        /// The file to write. It appears when it is complete
        #[arg(value_name = "OUT")]
        to: PathBuf,
        /// Write OUT in this format, slt, oracleGeneral or csv, instead of the one that its ending names
        #[arg(long)]
        format: Option<String>,
        /// Read IN in this format, as --format of `info`
        #[arg(long, value_name = "FORMAT")]
        from_format: Option<String>,
        /// What the fields of a CSV are, as for `info`
        #[arg(long, value_name = "time=1,object=2[,size=3..]")]
        columns: Option<String>,
    },
    /// Generate a synthetic trace: popularity by Zipf's law, sizes and bursts as on the web
    ///
    /// The same options give the same bytes.
    #[command(after_help = SYNTH_EXAMPLES)]
    Synth {
        /// The file to write
        #[arg(value_name = "OUT")]
        to: PathBuf,
        /// Number of requests
        #[arg(long, default_value_t = 1_000_000)]
        requests: u64,
        /// Number of objects. Some may never be requested
        #[arg(long, default_value_t = 100_000)]
        objects: u32,
        /// Exponent of Zipf's law
        #[arg(long, default_value_t = 0.9)]
        alpha: f64,
        /// Sizes of objects in bytes: surge, surge:MAX, fixed:BYTES, log-normal:MEDIAN:SIGMA:MAX or pareto:MIN:SHAPE:MAX
        #[arg(long, default_value = "surge")]
        sizes: String,
        /// Mean rate in requests a second
        #[arg(long, default_value_t = 1000.0, value_name = "PER_S")]
        rate: f64,
        /// Bursts: none (Poisson), b-model:BIAS or on-off:ON_S:OFF_S
        #[arg(long, default_value = "none")]
        bursts: String,
        /// Seed of the random numbers
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Write OUT in this format, as for `convert`
        #[arg(long)]
        format: Option<String>,
    },
}

const INFO_EXAMPLES: &str = "\
Examples:
  sidelong-lab trace info access.log.gz
  sidelong-lab trace info wc_day50_1.gz cluster52.sort.zst --json
  sidelong-lab trace info requests.csv --columns time=1,object=2,size=3
  sidelong-lab trace info requests.tsv --columns time=ts,object=url,unit=ms";

const CONVERT_EXAMPLES: &str = "\
Examples:
  sidelong-lab trace convert wc_day50_1.gz day50.slt
  sidelong-lab trace convert requests.csv.xz requests.slt --columns time=1,object=2,size=3,unit=ms
  sidelong-lab trace convert access.log for-libcachesim.oracleGeneral";

const SYNTH_EXAMPLES: &str = "\
Examples:
  sidelong-lab trace synth calm.slt --requests 10000000 --objects 1000000 --alpha 0.8
  sidelong-lab trace synth bursty.slt --rate 5000 --bursts b-model:0.7 --sizes surge:100000000 --seed 2
  sidelong-lab trace synth equal.csv --sizes fixed:16384 --bursts on-off:10:50";

/// Why a command ended early.
enum Ended {
    Failed(Failure),
    /// A signal asked to stop; contains what is missing.
    Interrupted(String),
}

impl<E> From<E> for Ended
where
    Failure: From<E>,
{
    fn from(error: E) -> Self {
        Ended::Failed(error.into())
    }
}

/// How a command reports progress, and how it is stopped.
struct Watch {
    is_quiet: bool,
    stop: Arc<AtomicBool>,
}

pub(crate) fn run(args: &TraceArgs, is_quiet: bool) -> Result<ExitCode, Failure> {
    let watch = Watch { is_quiet, stop: interrupt::watch()? };
    match command(args, &watch) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Ended::Failed(failure)) => Err(failure),
        Err(Ended::Interrupted(missing)) => {
            let _ = writeln!(std::io::stderr(), "sidelong: interrupted: {missing}");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

fn command(args: &TraceArgs, watch: &Watch) -> Result<(), Ended> {
    match &args.command {
        TraceCommand::Info { files, json, format, columns } => {
            let known = known(format, columns)?;
            (1..).zip(files).try_for_each(|(number, file)| {
                let left = files.len() - number;
                let missing = match left {
                    0 => format!("{} was not read to its end", file.display()),
                    _ => {
                        format!("{} was not read to its end, and {left} more were not begun", file.display())
                    }
                };
                info(file, &known, *json, files.len() > 1, watch, missing)
            })
        }
        TraceCommand::Convert { from, to, format, from_format, columns } => {
            convert(from, &known(from_format, columns)?, to, to_write(to, format)?, watch)
        }
        TraceCommand::Synth { to, requests, objects, alpha, sizes, rate, bursts, seed, format } => {
            let synthetic = Synthetic {
                requests: *requests,
                objects: *objects,
                alpha: *alpha,
                sizes: sizes.parse::<Sizes>()?,
                per_s: *rate,
                arrivals: bursts.parse::<Arrivals>()?,
                seed: *seed,
            };
            synth(&synthetic, to, to_write(to, format)?, watch)
        }
    }
}

fn known(format: &Option<String>, columns: &Option<String>) -> Result<Known, Failure> {
    let format = format.as_deref().map(str::parse::<Format>).transpose()?;
    Ok(Known { format, columns: columns.as_deref().map(str::parse::<Columns>).transpose()? })
}

/// The format of a file to be written: the one named, or the one of the file's ending.
fn to_write(path: &Path, format: &Option<String>) -> Result<Format, Failure> {
    if let Some(format) = format {
        return Ok(format.parse()?);
    }
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let written = [Format::Compact, Format::OracleGeneral, Format::Csv];
    let found = written.into_iter().find(|format| format.as_str().eq_ignore_ascii_case(&ending));
    found.ok_or_else(|| {
        Failure::new(format!(
            "{}: a trace is written to a file that ends in .slt, .oracleGeneral or .csv; name its --format to end it otherwise",
            path.display()
        ))
    })
}

fn info(
    file: &Path,
    known: &Known,
    json: bool,
    is_one_of_many: bool,
    watch: &Watch,
    missing: String,
) -> Result<(), Ended> {
    let mut reader = Reader::open_with(file, known)?;
    let mut tally = Tally::new(reader.origin());
    each(file, &mut reader, watch, missing, |request| tally.add(request))?;
    let summary = tally.finish(reader.broken().broken)?;
    let text = if json {
        serde_json::to_string_pretty(&summary)? + "\n"
    } else {
        let title = if is_one_of_many { format!("{}:\n", file.display()) } else { String::new() };
        title + &table(&reader, &summary)
    };
    Ok(say(text)?)
}

fn convert(from: &Path, known: &Known, to: &Path, format: Format, watch: &Watch) -> Result<(), Ended> {
    let mut reader = Reader::open_with(from, known)?;
    if is_same(from, to) {
        let to = to.display();
        return Err(Failure::new(format!(
            "{to} is the trace to read, which would be lost: write another file"
        ))
        .into());
    }
    let mut writer = Writer::create(to, format, reader.stamps())?;
    let mut is_finer = false;
    each(from, &mut reader, watch, not_written(to), |request| {
        is_finer |= request.time_ns != 0;
        writer.write(request)
    })?;
    if format == Format::OracleGeneral && is_finer && !watch.is_quiet {
        eprintln!("sidelong: {}: {format} has whole seconds only: fractions are cut", to.display());
    }
    Ok(written(writer, format)?)
}

/// Whether two paths, which links may make different, name one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    of(one).is_some_and(|file| of(other) == Some(file))
}

fn synth(synthetic: &Synthetic, to: &Path, format: Format, watch: &Watch) -> Result<(), Ended> {
    let requests = synthetic.requests()?;
    let mut writer = Writer::create(to, format, Stamps::Finer)?;
    let mut bar = Bar::new(synthetic.requests, watch, not_written(to));
    for (number, request) in (0..).zip(requests) {
        bar.show(number)?;
        writer.write(&request)?;
    }
    drop(bar);
    Ok(written(writer, format)?)
}

fn not_written(to: &Path) -> String {
    format!("{} is not written", to.display())
}

/// Passes each request of a trace to `take`, with a progress bar, and reports broken records.
fn each(
    file: &Path,
    reader: &mut Reader,
    watch: &Watch,
    missing: String,
    mut take: impl FnMut(&Request) -> sidelong_trace::Result<()>,
) -> Result<(), Ended> {
    let mut bar = Bar::new(std::fs::metadata(file).map_or(0, |file| file.len()), watch, missing);
    while let Some(request) = reader.next() {
        take(&request?)?;
        bar.show(reader.bytes_read())?;
    }
    drop(bar);
    if reader.broken().is_worth_telling() {
        eprintln!("sidelong: {}: {}", file.display(), reader.broken());
    }
    Ok(())
}

fn written(writer: Writer, format: Format) -> Result<(), Failure> {
    let written = writer.finish()?;
    let each = written.bytes as f64 / written.requests.max(1) as f64;
    say(format!("{} requests in {} bytes of {format}, {each:.2} each\n", written.requests, written.bytes))
}

/// A progress bar on a terminal, nothing elsewhere. It also notices a request to stop.
struct Bar<'a> {
    watch: &'a Watch,
    missing: String,
    bar: ProgressBar,
    calls: u32,
}

impl<'a> Bar<'a> {
    /// Calls between two updates: each reads the clock.
    const CALLS: u32 = 1 << 14;

    /// `missing` is printed if the command is stopped. A total of 0 means unknown, and shows nothing.
    fn new(total: u64, watch: &'a Watch, missing: String) -> Bar<'a> {
        let is_shown = !watch.is_quiet && total > 0;
        let bar = is_shown.then(|| progress::bar(total, "[{bar:30}] {percent}%, about {eta} left"));
        Bar { watch, missing, bar: bar.unwrap_or_else(ProgressBar::hidden), calls: 0 }
    }

    #[inline]
    fn show(&mut self, done: u64) -> Result<(), Ended> {
        self.calls = self.calls.wrapping_add(1);
        if self.watch.stop.load(Ordering::Relaxed) {
            return Err(Ended::Interrupted(std::mem::take(&mut self.missing)));
        }
        if self.calls.is_multiple_of(Self::CALLS) {
            self.bar.set_position(done);
        }
        Ok(())
    }
}

fn table(reader: &Reader, summary: &Summary) -> String {
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let sampled =
        |part: f64| if part < 1.0 { format!("{:.3} % of them", part * 100.0) } else { "all".to_owned() };
    let once = summary.one_hit_wonders as f64 / summary.objects.max(1) as f64;
    let rows = [
        ("format", reader.format().to_string()),
        ("requests", summary.requests.to_string()),
        ("distinct objects", summary.objects.to_string()),
        ("objects requested once", format!("{:.1} %", once * 100.0)),
        ("bytes", summary.bytes.to_string()),
        ("footprint, bytes of all objects", summary.footprint_bytes.to_string()),
        ("clients", summary.clients.to_string()),
        ("span", format!("{} s", summary.span_s)),
        ("requests/s, mean", format!("{:.1}", summary.rate_mean)),
        ("requests/s, peak", summary.rate_peak.to_string()),
        ("Zipf alpha, maximum likelihood", figure(summary.zipf_alpha_mle)),
        ("Zipf alpha, least squares", figure(summary.zipf_alpha_lsq)),
        ("burstiness, variance/mean in 1 s", figure(summary.dispersion_1s)),
        ("burstiness, variance/mean in 60 s", figure(summary.dispersion_60s)),
        ("burstiness, Hurst exponent", figure(summary.hurst)),
        ("objects and clients counted", sampled(summary.objects_sampled.min(summary.clients_sampled))),
        ("broken lines", summary.broken.to_string()),
    ];
    rows.iter().map(|(name, value)| format!("{name:34} {value:>14}\n")).collect()
}
