//! `sidelong-lab load`: persons who walk a site that runs somewhere, whatever serves it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use http::{HeaderValue, Uri};
use sidelong_workload::client::{Arrivals, CLIENTS_MAX, loopback_client};
use sidelong_workload::walk::{AT_ONCE_MAX, Mix, Rows, Sessions, Summary, WalkConfig, Walker};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::duration::duration;
use crate::failure::{Failure, say, some};

/// Interval of lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Persons, unless sessions arrive at a rate.
const SESSIONS: u32 = 100;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// The site that the sessions walk.
    #[arg(long, value_name = "SITE", required = true)]
    walk: Option<Site>,
    /// Where the site is: http://HOST:PORT. Give several for several proxies; each session keeps to one.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// The Host header [default: that of the URL].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Sessions at a time; each is followed by another [default: 100].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(AT_ONCE_MAX)))]
    sessions: Option<u32>,
    /// Sessions that arrive in a second, however long they take: a slow site gets no fewer.
    #[arg(long, value_name = "RATE", conflicts_with = "sessions")]
    rate: Option<f64>,
    /// The mix of interactions.
    #[arg(long, value_name = "MIX", default_value = "bidding")]
    mix: MixArg,
    /// How the rows of the transition tables, which do not add up to 1, are read.
    #[arg(long, value_name = "ROWS", default_value = "normalised")]
    rows: RowsArg,
    /// What think times are multiplied by; 1 for 7 s in the mean, 0 for none.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    think: f64,
    /// A person leaves at this error or rejection [default: begins again at the home page, each time].
    #[arg(long, value_name = "N")]
    leave_at: Option<NonZero<u32>>,
    /// Addresses that the sessions come from, in turn, so that the site sees so many clients: of 127.0.0.0/8, for a site on this
    /// machine [default: one, as the system chooses].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX as i64))]
    addresses: Option<u32>,
    /// Stop after this time (500ms, 30s, 1h30m).
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Print one JSON summary at the end and nothing else.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
The sessions are those of RUBiS, an auction site's benchmark: who has a page thinks, then follows a link of it, fills in a form,
goes back or leaves. The site's pages are to be as in demo/auction/PAGES.md. The summary says by interaction: requests, errors,
rejections because of overload, refusals by the auction's rules (such as a bid that is too low), and response times.

Ctrl-C and SIGTERM stop it: requests in flight are awaited, and the summary is printed.

Exit codes: 0; 2 if no request succeeded.

Examples:
  sidelong-lab load --walk auction http://127.0.0.1:8000
  sidelong-lab load --walk auction --sessions 500 --think 0.1 --for 1m http://127.0.0.1:8081 http://127.0.0.1:8082
  sidelong-lab load --walk auction --rate 20 --mix browsing --json --for 30s http://auction.example
  sidelong-lab load --walk auction --rate 40 --leave-at 1 --addresses 1000 --for 1m http://127.0.0.1:8081";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Site {
    /// The auction of `sidelong up --demo auction`, or any whose pages are alike
    Auction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MixArg {
    /// 7 of 100 interactions write: bids, purchases, items, comments, users
    Bidding,
    /// None writes
    Browsing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RowsArg {
    /// Each divided by its sum: sessions of 12 interactions
    Normalised,
    /// As RUBiS's own clients do: sessions of 51 interactions
    Emulated,
}

/// Runs the load to its end.
pub(crate) fn run(args: &LoadArgs, quiet: bool) -> Result<(), Failure> {
    let config = config(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut run = Walker::new(config)?.start()?;
    let (began, mut line_at) = (Instant::now(), Instant::now());
    while !run.is_finished() && !stop.load(Ordering::Relaxed) {
        sleep(LOOK_EVERY);
        if quiet || args.json || line_at.elapsed() < LINE_EVERY {
            continue;
        }
        line_at = Instant::now();
        let (live, sessions) = (run.live(), run.sessions());
        // A closed standard error does not stop the load.
        let _ = writeln!(
            std::io::stderr(),
            "{:>5.0}s  {sessions} sessions  {:.0}/s p50 {:.1} p99 {:.1} ms, {} errors",
            began.elapsed().as_secs_f64(),
            live.requests_per_s,
            live.p50_ms,
            live.p99_ms,
            live.errors
        );
    }
    run.stopper().stop();
    let summary = run.wait();
    if args.json {
        say(serde_json::to_string_pretty(&summary)? + "\n")?;
    } else {
        say(table(&summary))?;
    }
    let failed = summary.errors + summary.rejected;
    if failed > 0 && failed == summary.requests {
        let urls = args.urls.join(", ");
        let (count, kinds) = (some_requests(failed), kinds(&summary));
        return Err(Failure::new(format!("none of {count} to {urls} succeeded: {kinds}")));
    }
    Ok(())
}

fn some_requests(count: u64) -> String {
    some(usize::try_from(count).unwrap_or(usize::MAX), "request")
}

fn config(args: &LoadArgs) -> Result<WalkConfig, Failure> {
    let places: Vec<_> = args.urls.iter().map(|url| place(url)).collect::<Result<_, _>>()?;
    let host = match (&args.host, places.first()) {
        (Some(host), _) => host.clone(),
        (None, Some((host, _))) => host.clone(),
        (None, None) => String::new(),
    };
    let host = HeaderValue::try_from(&host)
        .map_err(|_| Failure::new(format!("--host {host:?} cannot be a Host header")))?;
    let sessions = match args.rate {
        Some(per_s) => {
            Sessions::Open { arrivals: Arrivals::Poisson { per_s, seed: 1 }, at_once_max: AT_ONCE_MAX }
        }
        None => Sessions::Closed { count: args.sessions.unwrap_or(SESSIONS) },
    };
    let addresses = places.into_iter().map(|(_, address)| address).collect();
    Ok(WalkConfig {
        mix: match args.mix {
            MixArg::Bidding => Mix::Bidding,
            MixArg::Browsing => Mix::Browsing,
        },
        rows: match args.rows {
            RowsArg::Normalised => Rows::Normalised,
            RowsArg::Emulated => Rows::AsEmulated,
        },
        think_factor: args.think,
        leave_at: args.leave_at,
        clients: (0..args.addresses.unwrap_or(0)).map(loopback_client).collect(),
        duration_max: args.duration,
        ..WalkConfig::new(addresses, host, sessions)
    })
}

/// The Host header and the address of a URL.
fn place(url: &str) -> Result<(String, SocketAddr), Failure> {
    let wrong = |why: &str| Failure::new(format!("{url}: {why}; expected http://HOST:PORT"));
    let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(wrong("TLS is not spoken")),
        _ => return Err(wrong("has no scheme")),
    }
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(wrong("has a path"));
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let found = (name, authority.port_u16().unwrap_or(80)).to_socket_addrs();
    let found = found.map_err(|error| wrong(&format!("its host is not found: {error}")))?;
    let address = found.into_iter().next().ok_or_else(|| wrong("its host has no address"))?;
    Ok((authority.as_str().to_owned(), address))
}

/// Errors by kind, in words.
fn kinds(summary: &Summary) -> String {
    let errors = &summary.errors_by_kind;
    let kinds = [
        (errors.connect, "found no server"),
        (errors.timeout, "timed out"),
        (errors.closed + errors.broken + errors.body, "lost their connection"),
        (errors.status_4xx, "got 4xx"),
        (errors.rejected, "were rejected"),
        (errors.unavailable, "got 503"),
        (errors.status_5xx, "got another 5xx"),
        (errors.wrong_page, "got another page"),
    ];
    let some = kinds.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// The summary as text.
fn table(summary: &Summary) -> String {
    let kinds = match kinds(summary) {
        kinds if kinds.is_empty() => kinds,
        kinds => format!(" ({kinds})"),
    };
    let head = format!(
        "\n{} in {:.1} s: {:.0} requests/s, mean {:.1} ms, p99 {:.1} ms, {} errors{kinds}\n",
        some_requests(summary.requests),
        summary.seconds,
        summary.requests_per_s,
        summary.mean_ms,
        summary.p99_ms,
        summary.errors,
    );
    head + &interactions(summary)
}

/// What came of the sessions, and of each interaction, as text.
pub(crate) fn interactions(summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_interactions(&mut out, summary);
    out
}

fn write_interactions(f: &mut String, summary: &Summary) -> std::fmt::Result {
    let sessions = &summary.sessions;
    let dropped = match sessions.dropped {
        0 => String::new(),
        dropped => format!(", {dropped} dropped"),
    };
    writeln!(
        f,
        "{} sessions began, {} ended, {} without an error or a rejection, {} by one{dropped}",
        sessions.begun, sessions.ended, sessions.whole, sessions.left
    )?;
    let width = summary.interactions.iter().map(|of| of.interaction.len()).max().unwrap_or(0);
    let width = width.max("interaction".len());
    writeln!(
        f,
        "{:width$} {:>9} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9}",
        "interaction", "requests", "errors", "rejected", "refused", "mean ms", "p99 ms", "max ms"
    )?;
    for of in &summary.interactions {
        writeln!(
            f,
            "{:width$} {:>9} {:>7} {:>9} {:>8} {:>9.1} {:>9.1} {:>9.1}",
            of.interaction,
            of.requests,
            of.errors,
            of.rejected,
            of.refused_by_rules,
            of.mean_ms,
            of.p99_ms,
            of.max_ms
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_place_and_a_host_and_what_is_none_is_told_why() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(
            place("http://127.0.0.1:8000").unwrap(),
            ("127.0.0.1:8000".into(), address("127.0.0.1:8000"))
        );
        assert_eq!(place("http://[::1]:80/").unwrap(), ("[::1]:80".into(), address("[::1]:80")));
        assert_eq!(place("http://127.0.0.1").unwrap().1, address("127.0.0.1:80"));
        for (url, why) in [
            ("https://127.0.0.1", "TLS"),
            ("127.0.0.1:80", "scheme"),
            ("http://127.0.0.1/auction", "path"),
            ("", "not a URL"),
        ] {
            let Failure(line) = place(url).unwrap_err();
            assert!(line.contains(why) && line.contains("expected http://"), "{line}");
        }
    }
}
