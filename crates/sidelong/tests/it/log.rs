//! The log of every part: one line an event, in words or as JSON, by the wall clock.

use std::process::Command;
use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::{Cluster, Running, eventually, try_get};

/// The program with a log in `format` of all levels down to debug.
fn logging(format: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new("env");
    command.arg("SIDELONG_LOG=debug").arg(format!("SIDELONG_LOG_FORMAT={format}"));
    command.arg(env!("CARGO_BIN_EXE_sidelong")).args(arguments);
    Running::start_command(command)
}

/// The logs of two nodes and an edge from their start on, while a node is killed and comes back; and of a
/// part that cannot start.
fn logs(format: &str) -> Vec<String> {
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    cluster.file.edges.truncate(1);
    let config = cluster.config();
    let config = config.to_str().unwrap();
    let part = |kind, name| logging(format, &[kind, name, "--config", config]);
    let (first, second) = (part("node", "n1"), part("node", "n2"));
    let edge = part("edge", "edge1");
    let serves = || try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200);
    eventually("it serves", serves);
    eventually("the edge is ready", || edge.err().contains("ready"));
    edge.signal(Signal::HUP);
    eventually("the signal is logged", || edge.err().contains("SIGHUP: all parts that run go by"));
    let killed = second.kill();
    eventually("requests find out", || serves() && edge.err().contains("n2 failed"));
    let second = part("node", "n2");
    eventually("it is back", || serves() && edge.err().contains("n2 takes requests again"));
    let absent = part("node", "n9").finish();
    assert_eq!(absent.code, Some(2), "{absent:?}");
    let ended = [edge, first, second].map(Running::end);
    ended.into_iter().chain([killed, absent]).map(|done| done.err).collect()
}

/// Whether it looks like a Rust value's Debug output.
fn is_debug(text: &str) -> bool {
    ["{", "}", "Some(", "None", "Ok(", "Err(", "::"].iter().any(|sign| text.contains(sign))
}

/// An event's time, which is wall-clock time in UTC.
fn check_time(text: &str, began: SystemTime) {
    assert!(text.ends_with('Z'), "{text}");
    let time = OffsetDateTime::parse(text, &Rfc3339).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(time >= began && time <= SystemTime::now(), "{text}");
}

#[test]
fn every_line_is_an_event_in_words() {
    let began = SystemTime::now();
    for line in logs("text").iter().flat_map(|log| log.lines()) {
        if line.starts_with("sidelong: ") {
            continue;
        }
        let [time, level, words] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        check_time(time, began);
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level), "{line}");
        assert!(!words.is_empty() && !is_debug(words), "{line}");
    }
}

#[test]
fn every_line_is_an_object_for_machines() {
    let began = SystemTime::now();
    let logs = logs("json");
    for line in logs.iter().flat_map(|log| log.lines()) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        check_time(event["timestamp"].as_str().unwrap(), began);
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&event["level"].as_str().unwrap()), "{line}");
        assert!(event["message"].as_str().is_some_and(|words| !words.is_empty()), "{line}");
        for (name, value) in event.as_object().unwrap() {
            assert!(name == "target" || value.as_str().is_none_or(|value| !is_debug(value)), "{line}");
        }
    }
    let why = logs.last().unwrap();
    assert!(why.contains("has no node \\\"n9\\\""), "why a part did not start is an event, too: {why}");
}

#[test]
fn a_format_or_a_filter_that_there_is_none_of_is_refused() {
    let line = logging("xml", &["config", "demo"]).finish().refused();
    assert!(line.contains("SIDELONG_LOG_FORMAT") && line.contains("text or json"), "{line}");
    let mut command = Command::new("env");
    command.args(["SIDELONG_LOG=sidelong=loud", env!("CARGO_BIN_EXE_sidelong"), "config", "demo"]);
    let line = Running::start_command(command).finish().refused();
    assert!(line.contains("SIDELONG_LOG is") && line.contains("CRATE=LEVEL"), "{line}");
}
