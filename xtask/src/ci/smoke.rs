//! What the built program must have said. Loose on purpose: that it works at all is proved here, how well in the lab.

use serde_json::Value;

/// Requests that ten seconds must answer on the slowest machine: eight nodes could do several hundred a second each.
const REQUESTS_MIN: u64 = 1_000;

/// Of so many requests of X1 one may fail without a reason. A site that is down fails more.
const LATE_PARTS: u64 = 20;
/// What X1 notes of a cluster that has not come to rest.
const NEVER_MS: u64 = 60_000;

/// The columns of R10's rows.csv.
const COLUMNS: &str = "repetition,sites,burst,configuration,requests_per_s,p50_ms,p99_ms,errors,moves,\
                       step_ms,nodes_busy,nodes_busy_max";
const CONFIGURATIONS: &[&str] = &["rigid", "reconfigured", "over-provisioned"];

/// The summary of `sidelong up --json`: requests were served, none failed, and nodes moved.
pub(super) fn summary(printed: &str) -> Result<(), String> {
    let summary: Value =
        serde_json::from_str(printed).map_err(|e| format!("the summary is not JSON: {e}"))?;
    let count = |key| summary[key].as_u64().ok_or_else(|| format!("the summary has no count of {key}"));
    let (requests, errors, moves) = (count("requests")?, count("errors")?, count("moves")?);
    if errors > 0 {
        return Err(format!("{errors} of {requests} requests failed, none may"));
    }
    if requests <= REQUESTS_MIN {
        return Err(format!("{requests} requests, more than {REQUESTS_MIN} expected"));
    }
    if moves == 0 {
        return Err("no node moved".into());
    }
    Ok(())
}

/// The rows.csv of R10: the columns in their order, and a full row for each configuration.
pub(super) fn rows(csv: &str) -> Result<(), String> {
    let (header, rows) = csv.split_once('\n').ok_or("rows.csv has no rows")?;
    if header != COLUMNS {
        return Err(format!("rows.csv has the columns {header}, expected {COLUMNS}"));
    }
    let at = COLUMNS.split(',').position(|column| column == "configuration").unwrap_or_default();
    let rows: Vec<Vec<_>> = rows.lines().map(|row| row.split(',').collect()).collect();
    if let Some(odd) = rows.iter().find(|row| row.len() != COLUMNS.split(',').count()) {
        return Err(format!("rows.csv has the row {}, which does not fit its columns", odd.join(",")));
    }
    match CONFIGURATIONS.iter().find(|wanted| !rows.iter().any(|row| row[at] == **wanted)) {
        Some(missing) => Err(format!("rows.csv has no row of the configuration {missing}")),
        None => Ok(()),
    }
}

/// The rows.csv of X1: no seed broke what must hold on any machine.
pub(super) fn chaos(csv: &str) -> Result<(), String> {
    let mut rows = csv.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let columns = rows.next().ok_or("rows.csv is empty")?;
    let mut seeds = 0;
    for row in rows {
        let figure = |name: &str| {
            let at = columns.iter().position(|column| *column == name);
            let value = at.and_then(|at| row.get(at)).copied();
            value.ok_or_else(|| format!("a row has no {name}"))
        };
        if figure("fault")? != "all" {
            continue;
        }
        seeds += 1;
        let number = |name: &str| {
            let value = figure(name)?;
            value.parse::<u64>().map_err(|_| format!("{name} is {value:?}"))
        };
        let requests = number("requests")?;
        for (name, expected) in [
            ("requests", REQUESTS_MIN..=u64::MAX),
            ("faults", 1..=u64::MAX),
            ("wrong", 0..=0),
            ("misdirected", 0..=0),
            ("below_floor_ms", 0..=0),
            ("stuck", 0..=0),
            ("ended", 0..=0),
            // A busy machine delays what is done against a fault.
            ("late", 0..=requests / LATE_PARTS),
            ("settled_ms", 0..=NEVER_MS - 1),
        ] {
            let found = number(name)?;
            if !expected.contains(&found) {
                return Err(format!(
                    "seed {}: {name} is {found}, {expected:?} expected",
                    figure("repetition")?
                ));
            }
        }
    }
    if seeds == 0 { Err("no seed was run".into()) } else { Ok(()) }
}

/// What ibv_devinfo says of the guest's device.
pub(super) fn device(printed: &str) -> Result<(), String> {
    match printed.lines().find_map(|line| line.trim().strip_prefix("state:")).map(str::trim) {
        Some(state) if state.starts_with("PORT_ACTIVE") => Ok(()),
        Some(state) => Err(format!("the device's port is {state}, PORT_ACTIVE expected")),
        None => Err("ibv_devinfo names no port".into()),
    }
}

/// The row of perftest's ib_*_lat: message size, iterations, then times in microseconds. Of two guests, the other one
/// may print its lines between the header and the row.
pub(super) fn latency(printed: &str) -> Result<(), String> {
    let mut lines = printed.lines().skip_while(|line| !line.contains("t_typical[usec]"));
    lines.next().ok_or("perftest printed no table of latencies")?;
    let typical = |line: &str| {
        let row = line.rsplit("| ").next()?;
        let numbers: Option<Vec<f64>> = row.split_whitespace().map(|number| number.parse().ok()).collect();
        numbers?.get(4).copied()
    };
    match lines.find_map(typical) {
        Some(microseconds) if microseconds > 0.0 => Ok(()),
        Some(microseconds) => Err(format!("perftest printed a typical latency of {microseconds} us")),
        None => Err("perftest printed no row below the header of its table".into()),
    }
}

/// The rows of the lab's perftest: three rounds of four operations, ours and theirs.
pub(super) fn beside_perftest(printed: &str) -> Result<(), String> {
    let rows = printed.lines().skip_while(|line| *line != "repetition,operation,program,p50_us");
    let whole = |row: &&str| {
        let us = row.split(',').nth(3).and_then(|us| us.parse::<f64>().ok());
        row.split(',').count() == 4 && us.is_some_and(|us| us > 0.0)
    };
    match rows.skip(1).take_while(whole).count() {
        24 => Ok(()),
        other => Err(format!("perftest has {other} whole rows, 24 expected")),
    }
}

/// Latencies over verbs, told by the edge of two guests, with a row each.
pub(super) fn measured(printed: &str) -> Result<(), String> {
    for what in
        ["edge| read of 64 bytes over verbs", "edge| half of a ping-pong, write of 64 bytes over verbs"]
    {
        let mut lines = printed.lines().skip_while(|line| !line.starts_with(what));
        lines.next().ok_or_else(|| format!("nothing was measured: no line {what:?}"))?;
        let row = lines.find_map(|line| line.strip_prefix("edge|").filter(|row| row.contains(" 64 ")));
        let p50 = row.and_then(|row| row.split_whitespace().nth(1)?.parse::<f64>().ok());
        if !p50.is_some_and(|ns| ns > 0.0) {
            return Err(format!("no p50 below {what:?}"));
        }
    }
    Ok(())
}

/// What the edge of two guests tells when a node of the other one has moved, and another one after each fault: no request failed,
/// none was refused.
pub(super) fn moved(printed: &str, faults: &[&str]) -> Result<(), String> {
    let has = |what: &str| printed.lines().any(|line| line.contains(what));
    if has("a request failed") {
        return Err("requests failed between two guests, none may".into());
    }
    if !has("sidelong_edge_moves_total{from=\"beta\",to=\"alpha\",") {
        return Err("the edge counts no move from beta to alpha".into());
    }
    match faults.iter().find(|fault| !has(&format!("after {fault} "))) {
        Some(fault) => Err(format!("no node moved between two guests after {fault}")),
        None => Ok(()),
    }
}

/// What the second cache of two guests tells when it has found all items, and asked the first one for none.
pub(super) fn read(printed: &str) -> Result<(), String> {
    let found = printed.lines().find_map(|line| line.split_once("asked for 0; of the other machine: "));
    match found.map(|(_, count)| count.trim().parse::<u64>()) {
        Some(Ok(1..)) => Ok(()),
        _ => Err("a cache read no item in the memory of another guest".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_broken_seed_is_enough() {
        let rows = |second: &str| {
            let columns = "repetition,fault,faults,requests,moves,late,wrong,misdirected,below_floor_ms,settled_ms,stuck,ended";
            format!(
                "{columns}\n1,kill,2,,,,,,,,,\n1,all,9,12000,3,600,0,0,0,800,0,0\n2,all,9,12000,3,{second}\n"
            )
        };
        assert_eq!(chaos(&rows("0,0,0,0,59999,0,0")), Ok(()));
        for broken in [
            "601,0,0,0,8,0,0",
            "0,1,0,0,8,0,0",
            "0,0,1,0,8,0,0",
            "0,0,0,7,8,0,0",
            "0,0,0,0,60000,0,0",
            "0,0,0,0,8,1,0",
            "0,0,0,0,8,0,1",
        ] {
            assert!(chaos(&rows(broken)).is_err(), "{broken}");
        }
        assert!(chaos("").is_err() && chaos("fault,late\n").is_err());
    }

    #[test]
    fn items_of_another_guest_are_read() {
        let told =
            |count: u32| read(&format!("edge| found 20 items, asked for 0; of the other machine: {count}\n"));
        assert_eq!(told(11), Ok(()));
        assert!(told(0).unwrap_err().contains("no item") && read("").is_err());
    }

    #[test]
    fn a_move_between_guests_is_counted_and_costs_no_request() {
        let counted = "edge| sidelong_edge_moves_total{from=\"beta\",to=\"alpha\",reason=\"high\"} 1\n";
        let after = format!("{counted}edge| after link_is_down alpha has another node\n");
        assert_eq!(moved(counted, &[]), Ok(()));
        assert_eq!(moved(&after, &["link_is_down"]), Ok(()));
        assert!(moved(&after, &["link_is_down", "clock_is_set"]).unwrap_err().contains("after clock_is_set"));
        assert!(moved("", &[]).unwrap_err().contains("no move"));
        assert!(moved(&format!("edge| a request failed\n{counted}"), &[]).unwrap_err().contains("failed"));
    }

    #[test]
    fn a_good_summary_passes() {
        assert_eq!(summary("{\"requests\": 20000, \"errors\": 0, \"moves\": 3, \"sites\": []}\n"), Ok(()));
    }

    #[test]
    fn any_other_says_why_not() {
        let said = |requests: u64, errors: u64, moves: u64| {
            let json = serde_json::json!({ "requests": requests, "errors": errors, "moves": moves });
            summary(&json.to_string()).unwrap_err()
        };
        assert!(said(20_000, 1, 3).contains("1 of 20000 requests failed"));
        assert!(said(1_000, 0, 3).contains("more than 1000 expected"));
        assert!(said(20_000, 0, 0).contains("no node moved"));
        assert!(summary("{\"requests\": 1}").unwrap_err().contains("no count of errors"));
        assert!(summary("").unwrap_err().contains("not JSON"));
    }

    #[test]
    fn rows_have_their_columns_and_configurations() {
        let row = |configuration: &str| format!("1,3:3:2,512,{configuration},1000,1.5,9.0,0,4,,2.5,3\n");
        let good: String = CONFIGURATIONS.iter().map(|configuration| row(configuration)).collect();
        assert_eq!(rows(&format!("{COLUMNS}\n{good}")), Ok(()));
        let said = rows(&format!("{COLUMNS}\n{}", row("rigid"))).unwrap_err();
        assert!(said.contains("configuration reconfigured"), "{said}");
        assert!(rows(&format!("{COLUMNS}\n{good}1,2\n")).unwrap_err().contains("the row 1,2"));
        assert!(rows(&format!("{COLUMNS},more\n{good}")).unwrap_err().contains("has the columns"));
        assert!(rows("").is_err());
    }

    #[test]
    fn all_rows_beside_perftest_are_whole() {
        let head = "repetition,operation,program,p50_us\n";
        let rows = "1,read,ours,40.76\n".repeat(24);
        assert_eq!(beside_perftest(&format!("met\n{head}{rows}")), Ok(()));
        assert!(beside_perftest(&format!("{head}{}", &rows[18..])).unwrap_err().contains("23 whole"));
        let bad = rows.replacen("40.76", "0.00", 1);
        assert!(beside_perftest(&format!("{head}{bad}")).is_err());
        assert!(beside_perftest("").is_err());
    }

    #[test]
    fn both_latencies_between_guests_have_a_row() {
        let table = |what: &str| {
            format!("edge| {what} of 64 bytes over verbs, 1 in\nedge|  bytes  p50 ns\nedge|   64   17.5\n")
        };
        let both = table("read") + &table("half of a ping-pong, write");
        assert_eq!(measured(&both), Ok(()));
        assert!(measured(&table("read")).unwrap_err().contains("ping-pong"));
        assert!(measured(&both.replace("17.5", "-")).unwrap_err().contains("no p50"));
    }

    #[test]
    fn a_device_is_active() {
        let said = |state: &str| device(&format!("hca_id:\trxe0\n\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n"));
        assert_eq!(said("PORT_ACTIVE (4)"), Ok(()));
        assert!(said("PORT_DOWN (1)").unwrap_err().contains("PORT_DOWN"));
        assert!(device("Failed to get IB devices list").is_err());
    }

    #[test]
    fn a_latency_is_in_its_row() {
        let table =
            |row: &str| format!("n| #bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n{row}\n");
        assert_eq!(latency(&table(" 2       1000          17.16          335.97       35.55    \t")), Ok(()));
        assert_eq!(latency(&table("edge|  2 1000 17.16 335.97 35.55")), Ok(()));
        assert_eq!(
            latency(&table("node| ******\nnode|  1 2 done\nedge|  2 1000 17.16 335.97 35.55")),
            Ok(())
        );
        assert!(latency(&table("2 1000 0 0 0")).is_err());
        assert!(latency(&table("---")).is_err());
        assert!(latency("Couldn't connect to localhost:18515").is_err());
    }
}
