//! `sidelong trace`: what a trace holds, the same in another format, and traces that nobody logged.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use sidelong_trace::{
    Arrivals, Columns, Format, Known, Reader, Request, Sizes, Stamps, Summary, Synthetic, Tally, Writer,
};

use crate::failure::{Failure, say};
use crate::interrupt::{self, INTERRUPTED};

#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// What traces hold: requests, objects, bytes, span, clients, Zipf alpha, burstiness.
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// In any format that is read, as it is or compressed (gzip, zstd, xz); told by content, not by name.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// One JSON object a file instead of a table.
        #[arg(long)]
        json: bool,
        /// The format, where it shall not be told from the content: wc98, clf, ucb, oracleGeneral, twitter, csv, slt.
        #[arg(long)]
        format: Option<String>,
        /// Which fields of a CSV are what, by number from 1 or by name of its header.
        #[arg(long, value_name = "time=1,object=2[,size=3..]")]
        columns: Option<String>,
    },
    /// Write a trace in another format: the compact one (slt), which is read fastest, oracleGeneral or CSV.
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert {
        /// As for `info`.
        #[arg(value_name = "IN")]
        from: PathBuf,
        /// The file that is written; it is there when it is whole.
        #[arg(value_name = "OUT")]
        to: PathBuf,
        /// Its format: slt, oracleGeneral or csv. Without it, as OUT's name ends, and else slt.
        #[arg(long)]
        format: Option<String>,
        /// The format of IN, as `info` has it.
        #[arg(long, value_name = "FORMAT")]
        from_format: Option<String>,
        /// As for `info`.
        #[arg(long, value_name = "time=1,object=2[,size=3..]")]
        columns: Option<String>,
    },
    /// Write a trace that nobody logged: popularity by Zipf's law, sizes and bursts as on the web. The same options give
    /// the same bytes.
    #[command(after_help = SYNTH_EXAMPLES)]
    Synth {
        /// The file that is written.
        #[arg(value_name = "OUT")]
        to: PathBuf,
        /// Requests.
        #[arg(long, default_value_t = 1_000_000)]
        requests: u64,
        /// Objects, of which some may never be asked for.
        #[arg(long, default_value_t = 100_000)]
        objects: u32,
        /// Exponent of Zipf's law.
        #[arg(long, default_value_t = 0.9)]
        alpha: f64,
        /// Bytes of objects: surge, surge:MAX, fixed:BYTES, log-normal:MEDIAN:SIGMA:MAX or pareto:MIN:SHAPE:MAX.
        #[arg(long, default_value = "surge")]
        sizes: String,
        /// Mean requests a second.
        #[arg(long, default_value_t = 1000.0, value_name = "PER_S")]
        rate: f64,
        /// How they come: none (Poisson), b-model:BIAS or on-off:ON_S:OFF_S.
        #[arg(long, default_value = "none")]
        bursts: String,
        /// Of all that is drawn.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// As for `convert`.
        #[arg(long)]
        format: Option<String>,
    },
}

const INFO_EXAMPLES: &str = "\
Examples:
  sidelong trace info access.log.gz
  sidelong trace info wc_day50_1.gz cluster52.sort.zst --json
  sidelong trace info requests.csv --columns time=1,object=2,size=3
  sidelong trace info requests.tsv --columns time=ts,object=url,unit=ms";

const CONVERT_EXAMPLES: &str = "\
Examples:
  sidelong trace convert wc_day50_1.gz day50.slt
  sidelong trace convert requests.csv.xz requests.slt --columns time=1,object=2,size=3,unit=ms
  sidelong trace convert access.log for-libcachesim.oracleGeneral";

const SYNTH_EXAMPLES: &str = "\
Examples:
  sidelong trace synth calm.slt --requests 10000000 --objects 1000000 --alpha 0.8
  sidelong trace synth bursty.slt --rate 5000 --bursts b-model:0.7 --sizes surge:100000000 --seed 2
  sidelong trace synth equal.csv --sizes fixed:16384 --bursts on-off:10:50";

/// Why a command did not do all that it was asked.
enum Ended {
    Failed(Failure),
    /// Someone asked to stop; what is missing.
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

/// Whom a command tells how far it is, and who may stop it.
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
                    _ => format!("{} was not read to its end, and {left} more not begun", file.display()),
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

/// The format of a file that is to be written: as said, or by how its name ends.
fn to_write(path: &Path, format: &Option<String>) -> Result<Format, Failure> {
    if let Some(format) = format {
        return Ok(format.parse()?);
    }
    let end = path.extension().map_or_else(String::new, |end| end.to_string_lossy().into_owned());
    let by_name = [Format::Csv, Format::OracleGeneral];
    let found = by_name.into_iter().find(|format| format.as_str().eq_ignore_ascii_case(&end));
    Ok(found.unwrap_or(Format::Compact))
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
    let mut writer = Writer::create(to, format, reader.stamps())?;
    let mut is_finer = false;
    each(from, &mut reader, watch, not_written(to), |request| {
        is_finer |= request.time_ns != 0;
        writer.write(request)
    })?;
    if format == Format::OracleGeneral && is_finer && !watch.is_quiet {
        eprintln!("sidelong: {}: {format} keeps whole seconds: what is finer is cut", to.display());
    }
    Ok(written(writer, format)?)
}

fn synth(synthetic: &Synthetic, to: &Path, format: Format, watch: &Watch) -> Result<(), Ended> {
    let requests = synthetic.requests()?;
    let mut writer = Writer::create(to, format, Stamps::Finer)?;
    let mut bar = Bar::new(synthetic.requests, watch, not_written(to));
    for (number, request) in (0..).zip(requests) {
        bar.show(number)?;
        writer.write(&request)?;
    }
    bar.end();
    Ok(written(writer, format)?)
}

fn not_written(to: &Path) -> String {
    format!("{} is not written", to.display())
}

/// Gives each request of a trace to `take`, with a bar meanwhile, and says what was broken.
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
    bar.end();
    if reader.broken().broken > 0 {
        eprintln!("sidelong: {}: {}", file.display(), reader.broken());
    }
    Ok(())
}

fn written(writer: Writer, format: Format) -> Result<(), Failure> {
    let written = writer.finish()?;
    let each = written.bytes as f64 / written.requests.max(1) as f64;
    say(format!("{} requests in {} bytes of {format}, {each:.2} each\n", written.requests, written.bytes))
}

/// A bar on a terminal, and nothing elsewhere; wherever it is, it notices who asks to stop.
struct Bar<'a> {
    watch: &'a Watch,
    missing: String,
    total: u64,
    is_shown: bool,
    begun: Instant,
    shown: Instant,
    calls: u32,
}

impl<'a> Bar<'a> {
    /// Nobody sees more often than this.
    const INTERVAL: Duration = Duration::from_millis(100);
    /// Calls between two looks at the clock.
    const CALLS: u32 = 1 << 14;

    /// `missing` is said where someone asks to stop.
    fn new(total: u64, watch: &'a Watch, missing: String) -> Bar<'a> {
        let now = Instant::now();
        let is_shown = !watch.is_quiet && total > 0 && std::io::stderr().is_terminal();
        Bar { watch, missing, total, is_shown, begun: now, shown: now, calls: 0 }
    }

    #[inline]
    fn show(&mut self, done: u64) -> Result<(), Ended> {
        self.calls = self.calls.saturating_add(1);
        if self.watch.stop.load(Ordering::Relaxed) {
            self.end();
            return Err(Ended::Interrupted(std::mem::take(&mut self.missing)));
        }
        if self.is_shown && self.calls >= Self::CALLS {
            self.calls = 0;
            self.draw(done);
        }
        Ok(())
    }

    fn draw(&mut self, done: u64) {
        const WIDTH: u64 = 30;
        let now = Instant::now();
        if now - self.shown < Self::INTERVAL {
            return;
        }
        self.shown = now;
        let done = done.min(self.total);
        let full = (WIDTH * done / self.total) as usize;
        let left_s = (now - self.begun).as_secs_f64() * (self.total - done) as f64 / done.max(1) as f64;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH as usize - full));
        let percent = 100 * done / self.total;
        let mut err = std::io::stderr().lock();
        let _ =
            write!(err, "[{bar}] {percent}%, about {left_s:.0} s left\x1b[K\r").and_then(|()| err.flush());
    }

    /// What comes next stands in place of the bar.
    fn end(&self) {
        if self.is_shown && self.shown > self.begun {
            let _ = write!(std::io::stderr(), "\x1b[K");
        }
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
        ("of these asked for once", format!("{:.1} %", once * 100.0)),
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
