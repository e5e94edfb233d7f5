use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Far longer than any test takes, on a busy machine too.
const LONG: Duration = Duration::from_secs(60);
const ALPHA: SiteId = SiteId::new(0);
const BETA: SiteId = SiteId::new(1);
/// A site without commands.
const GAMMA: SiteId = SiteId::new(2);

/// Commands that each write what they are asked for to `ran` in a directory. Those whose name is that of a file there then fail.
fn commands(directory: &Path) -> Commands {
    let write = |what: &str| -> Vec<String> {
        let directory = directory.display();
        let said = format!("{what} $SIDELONG_NODE ${{SIDELONG_FROM?}}-$SIDELONG_SITE");
        let script = format!("cd {directory} && echo {said} >> ran && test ! -e {what}");
        ["sh", "-c", &script].map(str::to_owned).into()
    };
    let site = |name: &str| SiteCommands {
        name: name.to_owned(),
        on_enter: write(&format!("enter-{name}")),
        on_leave: write(&format!("leave-{name}")),
    };
    let gamma = SiteCommands { name: "gamma".into(), on_enter: Vec::new(), on_leave: Vec::new() };
    let sites = vec![site("alpha"), site("beta"), gamma];
    Commands { node: "n1".into(), sites, ready: None, command_max: LONG, runner: Vec::new() }
}

fn ran(directory: &Path) -> Vec<String> {
    let ran = fs::read_to_string(directory.join("ran")).unwrap_or_default();
    ran.lines().map(str::to_owned).collect()
}

/// Changes while these commands fail. Returns what became of it, and what ran.
fn change(from: Option<SiteId>, to: SiteId, failing: &[&str]) -> (Option<ChangeResult>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    for name in failing {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let result = commands(directory.path()).change(from, to, &|| false);
    (result, ran(directory.path()))
}

fn fault(step: ChangeStep) -> Fault {
    Fault { step, cause: FaultCause::Status(1) }
}

const LEAVES: &str = "leave-alpha n1 alpha-beta";
const ENTERS: &str = "enter-beta n1 alpha-beta";
const LEAVES_AGAIN: &str = "leave-beta n1 beta-alpha";
const ENTERS_AGAIN: &str = "enter-alpha n1 beta-alpha";

#[test]
fn a_node_leaves_one_site_and_enters_another() {
    let (result, ran) = change(Some(ALPHA), BETA, &[]);
    assert_eq!((result, &ran[..]), (Some(ChangeResult::Changed), &[LEAVES, ENTERS].map(String::from)[..]));
    let (result, ran) = change(None, BETA, &[]);
    assert_eq!(result, Some(ChangeResult::Changed));
    assert_eq!(ran, [LEAVES, "enter-beta n1 -beta"]);
    let (result, ran) = change(Some(GAMMA), ALPHA, &[]);
    assert_eq!(result, Some(ChangeResult::Changed));
    assert_eq!(ran, ["enter-alpha n1 gamma-alpha"], "gamma has no commands");
}

#[test]
fn a_step_that_fails_brings_the_old_site_back() {
    let undone = |step| Some(ChangeResult::Undone(fault(step)));
    let (result, ran) = change(Some(ALPHA), BETA, &["leave-alpha"]);
    assert_eq!(result, undone(ChangeStep::Leave));
    assert_eq!(ran, [LEAVES, ENTERS_AGAIN]);
    let (result, ran) = change(Some(ALPHA), BETA, &["enter-beta"]);
    assert_eq!(result, undone(ChangeStep::Enter));
    assert_eq!(ran, [LEAVES, ENTERS, LEAVES_AGAIN, ENTERS_AGAIN]);
    let (result, ran) = change(Some(ALPHA), BETA, &["enter-beta", "leave-beta"]);
    assert_eq!(result, undone(ChangeStep::Enter));
    assert_eq!(ran, [LEAVES, ENTERS, LEAVES_AGAIN, ENTERS_AGAIN], "alpha is back all the same");
}

#[test]
fn the_first_fault_is_told_where_there_is_no_way_back() {
    let (result, ran) = change(Some(ALPHA), BETA, &["leave-alpha", "enter-alpha"]);
    assert_eq!(result, Some(ChangeResult::Failed(fault(ChangeStep::Leave))));
    assert_eq!(ran, [LEAVES, ENTERS_AGAIN]);
    let (result, ran) = change(None, BETA, &["enter-beta"]);
    assert_eq!(result, Some(ChangeResult::Failed(fault(ChangeStep::Enter))));
    assert_eq!(ran, [LEAVES, "enter-beta n1 -beta"]);
}

#[test]
fn where_nobody_knows_what_runs_every_other_site_is_left() {
    // As a command may that finds nothing to stop.
    let (result, ran) = change(None, BETA, &["leave-alpha"]);
    assert_eq!(result, Some(ChangeResult::Changed));
    assert_eq!(ran, [LEAVES, "enter-beta n1 -beta"]);
    let (result, ran) = change(Some(ALPHA), ALPHA, &[]);
    assert_eq!(result, Some(ChangeResult::Changed));
    assert_eq!(ran, ["enter-alpha n1 alpha-alpha"], "known to run there");
}

#[test]
fn a_site_is_back_only_if_its_server_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut commands = commands(directory.path());
    commands.ready = Some(Ready {
        addresses: vec![address.into(); 3],
        path: "/".into(),
        status: 200,
        timeout: Duration::from_millis(100),
    });
    let fault = Fault { step: ChangeStep::Ready, cause: FaultCause::TimedOut };
    assert_eq!(commands.change(Some(ALPHA), BETA, &|| false), Some(ChangeResult::Failed(fault)));
    assert_eq!(ran(directory.path()), [LEAVES, ENTERS, LEAVES_AGAIN, ENTERS_AGAIN]);
    assert_eq!(
        commands.change(Some(GAMMA), GAMMA, &|| false),
        Some(ChangeResult::Failed(fault)),
        "gamma has no commands"
    );
}

/// A server that is ready for alpha only, as a file says that the commands write.
#[test]
fn a_server_that_does_not_become_ready_brings_the_old_site_back() {
    use std::io::{Read as _, Write as _};

    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    let serve = || {
        for stream in listener.incoming() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let is_alpha = ran(directory.path()).last().is_some_and(|last| last.ends_with("-alpha"));
            let status = if is_alpha { 200 } else { 503 };
            let _ = write!(stream, "HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
        }
    };
    let mut commands = commands(directory.path());
    // It answers at once, on a busy machine too, unless it is not ready.
    commands.ready = Some(Ready {
        addresses: vec![address.into(); 3],
        path: "/".into(),
        status: 200,
        timeout: Duration::from_secs(3),
    });
    let result = std::thread::scope(|scope| {
        scope.spawn(serve);
        let result = commands.change(Some(ALPHA), BETA, &|| false);
        stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(address);
        result
    });
    let fault = Fault { step: ChangeStep::Ready, cause: FaultCause::TimedOut };
    assert_eq!(result, Some(ChangeResult::Undone(fault)));
    assert_eq!(ran(directory.path()), [LEAVES, ENTERS, LEAVES_AGAIN, ENTERS_AGAIN]);
}

#[test]
fn a_void_change_ends_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut commands = commands(directory.path());
    let is_entering = || ran(directory.path()).iter().any(|what| what.starts_with("enter-beta"));
    let script = format!("cd {} && echo enter-beta >> ran && exec sleep 600", directory.path().display());
    commands.sites[BETA.index()].on_enter = ["sh", "-c", &script].map(str::to_owned).into();
    let begun = Instant::now();
    assert_eq!(commands.change(Some(ALPHA), BETA, &is_entering), None);
    assert!(begun.elapsed() < LONG);
    assert_eq!(ran(directory.path()), [LEAVES, "enter-beta"], "nobody enters alpha again");
}

#[test]
fn each_step_has_a_line_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let beta = &commands(directory.path()).sites[BETA.index()];
    let argv = ["systemctl", "start", "beta.service"].map(str::to_owned);
    let line = |step, result| {
        let took = Duration::from_micros(12_345);
        format!("{} {}", shown(step, beta, &argv), ending(step, &result, took))
    };
    let begin = "on_enter of beta (systemctl start beta.service)";
    assert_eq!(line(ChangeStep::Enter, Ok(())), format!("{begin} ended well after 12.3ms"));
    let failed = Broken::Failed(FaultCause::Status(1), "ended with status 1: no such unit".into());
    assert_eq!(line(ChangeStep::Enter, Err(failed)), format!("{begin} ended with status 1: no such unit"));
    let void = line(ChangeStep::Enter, Err(Broken::Void));
    assert_eq!(void, format!("{begin} was given up after 12.3ms, because the change is void"));
    assert!(line(ChangeStep::Ready, Ok(())).ends_with(" was ready after 12.3ms"));
    let long = shown(ChangeStep::Leave, beta, &["x".repeat(2 * COMMAND_CHARS_MAX)]);
    assert_eq!(long, format!("on_leave of beta ({})", "x".repeat(COMMAND_CHARS_MAX)));
}
