//! The targets of F1. What Sidelong leads is compared with the same proxy by its own best method, and under bursts with Sidelong's
//! own edge.

use super::load::{BURST, LAYOUT, Load, PROXIES_MAX};
use super::{By, Proxy, Row, find};
use crate::check::Check;
use crate::setup::{EDGES, RATIO_SLACK};
use sidelong_config::Configuration;

/// Bursts: requests/s of what is led to itself, and to Sidelong's own edge.
const GAIN_MIN: f64 = 2.2;
const SHARE_MIN: f64 = 0.97;
/// The median time from a load step to the first request on a moved node, to that of the edge.
const STEP_MAX: f64 = 1.25;
/// Servers that take no time: CPU time of a request, by choice, by choice in Lua and by weights, and requests/s behind nginx.
const CPU_MAX: f64 = 1.05;
const CPU_IN_LUA_MAX: f64 = 1.3;
const CPU_BY_WEIGHTS_MAX: f64 = 1.01;
const NGINX_MIN: f64 = 0.97;
/// One slow server behind [`PROXIES_MAX`] proxies: requests/s, and p99.
const SLOW_GAIN_MIN: f64 = 1.15;
const SLOW_P99_MAX: f64 = 0.85;
/// Equal servers behind one proxy, likewise.
const EQUAL_SHARE_MIN: f64 = 0.98;
const EQUAL_P99_MAX: f64 = 1.05;

pub(super) fn checks(rows: &[Row]) -> Vec<Check> {
    let mut checks: Vec<Check> =
        Proxy::OTHERS.into_iter().flat_map(|proxy| under_bursts(rows, proxy)).collect();
    let led_to_own = |load, proxies, proxy: Proxy, figure: fn(&Row) -> f64| {
        let of = |system| Some(figure(find(rows, load, proxies, system)?)).filter(|figure| *figure > 0.0);
        Some(of((proxy, By::Sidelong))? / of((proxy.program(), By::Own))?)
    };
    let rate = |row: &Row| row.requests_per_s;
    for proxy in Proxy::OTHERS {
        let most = match proxy {
            Proxy::Haproxy => CPU_BY_WEIGHTS_MAX,
            Proxy::HaproxyByChoice => CPU_IN_LUA_MAX,
            Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Edge => CPU_MAX,
        };
        let what = format!("CPU time of a request: {}, led / by itself", proxy.name());
        checks.push(Check::at_most(what, most, led_to_own(Load::Instant, 1, proxy, |row| row.cpu_us)));
    }
    checks.push(Check::at_least(
        "servers that take no time, requests/s: nginx, led / by itself",
        NGINX_MIN,
        led_to_own(Load::Instant, 1, Proxy::Nginx, rate),
    ));
    let loads = [
        (Load::Slow, PROXIES_MAX, "one slow server, 4 proxies", SLOW_GAIN_MIN, SLOW_P99_MAX),
        (Load::Equal, 1, "equal servers, 1 proxy", EQUAL_SHARE_MIN, EQUAL_P99_MAX),
    ];
    for (load, proxies, told, least, most) in loads {
        for proxy in Proxy::OTHERS {
            let what = |figure| format!("{told}, {figure}: {}, led / by itself", proxy.name());
            let p99 = led_to_own(load, proxies, proxy, |row| row.p99_ms);
            checks.extend([
                Check::at_least(what("requests/s"), least, led_to_own(load, proxies, proxy, rate)),
                Check::at_most(what("p99"), most, p99),
            ]);
        }
    }
    let sum = |of: fn(&Row) -> u64| Some(rows.iter().map(of).sum::<u64>() as f64);
    // Proxies that reject nobody cannot answer all of ten times the load.
    let errors = sum(|row| if row.case.load == Load::Overload { 0 } else { row.errors });
    checks.extend([
        Check::at_most("wrong-site requests, all runs", 0.0, sum(|row| row.misdirected.unwrap_or(0))),
        Check::at_most("requests without an answer, all runs but those of ten times the load", 0.0, errors),
    ]);
    checks
}

fn under_bursts(rows: &[Row], proxy: Proxy) -> [Check; 3] {
    let row = |proxy, by| find(rows, Load::Bursts, EDGES, (proxy, by));
    let rate = |proxy, by| Some(row(proxy, by)?.requests_per_s).filter(|rate| *rate > 0.0);
    let step = |proxy| Some(row(proxy, By::Sidelong)?.step_ms?.p50);
    let (led, name) = (rate(proxy, By::Sidelong), proxy.name());
    let over = |other: Option<f64>| Some(led? / other?);
    let most = LAYOUT.ideal_rate(Configuration::Reconfigured) / LAYOUT.ideal_rate(Configuration::Rigid);
    [
        Check::at_least(
            format!("bursts of {BURST}, requests/s: {name}, led / by itself"),
            GAIN_MIN,
            over(rate(proxy.program(), By::Own)),
        )
        .possible(0.0..=RATIO_SLACK * most),
        Check::at_least(
            format!("bursts of {BURST}, requests/s: {name}, led / Sidelong's edge"),
            SHARE_MIN,
            over(rate(Proxy::Edge, By::Sidelong)),
        ),
        Check::at_most(
            format!("load step to first request on a moved node, p50: {name}, led / Sidelong's edge"),
            STEP_MAX,
            step(proxy).zip(step(Proxy::Edge)).map(|(led, edge)| led / edge),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::*;
    use crate::check::Verdict;

    /// What is missed, without the verdicts.
    fn missed(rows: &[Row]) -> Vec<String> {
        let missed = checks(rows).into_iter().filter(|check| check.verdict != Verdict::Met);
        missed.map(|check| check.what).collect()
    }

    #[test]
    fn what_is_led_is_judged_beside_itself_and_beside_the_edge() {
        assert_eq!((checks(&rows()).len(), missed(&rows())), (5 * 3 + 5 + 1 + 2 * 5 * 2 + 2, vec![]));
        let mut worse = rows();
        for row in worse.iter_mut().filter(|row| row.proxy == Proxy::Haproxy && row.by == By::Sidelong) {
            (row.errors, row.misdirected, row.cpu_us) = (1, Some(1), row.cpu_us * 1.02);
            if row.case.load == Load::Slow {
                (row.requests_per_s, row.p99_ms) = (row.requests_per_s * 0.9, row.p99_ms * 1.5);
            }
            if let Some(step) = &mut row.step_ms {
                step.p50 *= 2.0;
                row.requests_per_s = 2200.0;
            }
        }
        let missed = missed(&worse);
        let (all, others): (Vec<_>, Vec<_>) = missed.iter().partition(|what| !what.contains("haproxy"));
        assert_eq!((all.len(), others.len()), (2, 3 + 1 + 2), "{missed:?}");
    }

    #[test]
    fn ten_times_the_load_may_go_without_answers() {
        let mut rows = rows();
        rows.iter_mut().filter(|row| row.case.load == Load::Overload).for_each(|row| row.errors = 1000);
        assert_eq!(missed(&rows), [""; 0]);
    }

    #[test]
    fn a_proxy_that_is_not_here_is_not_judged() {
        let rows: Vec<_> = rows().into_iter().filter(|row| row.proxy != Proxy::Httpd).collect();
        let (httpd, others): (Vec<_>, Vec<_>) =
            checks(&rows).into_iter().partition(|check| check.what.contains("httpd"));
        assert!(httpd.len() == 8 && httpd.iter().all(|check| check.verdict == Verdict::NotMeasured));
        assert!(others.iter().all(|check| check.verdict == Verdict::Met));
    }
}
