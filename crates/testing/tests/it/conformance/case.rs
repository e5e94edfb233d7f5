//! A case: what the client sends, what the server answers, and what a strict proxy makes of both.

use crate::conformance::client::{Got, Step};
use crate::conformance::server::{Act, Seen};
use crate::conformance::wire::{Framing, Message};

/// In a case's texts this stands for its token, and [`HOST`] for the host of the site that it runs on.
pub(crate) const TOKEN: &str = "/@";
pub(crate) const HOST: &str = "alpha.test";
/// A request after the one that a case is about.
const NEXT: &str = "GET /@next HTTP/1.1\r\nHost: alpha.test\r\n\r\n";
/// Likewise after one that must be refused: whoever takes it for a request was smuggled one.
const SMUGGLED: &str = "GET /@smuggled HTTP/1.1\r\nHost: alpha.test\r\n\r\n";

pub(crate) const BAD: &[u16] = &[400];
pub(crate) const OK: &[u16] = &[200];

/// What the server sees of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reaches {
    /// Not one byte with the case's token.
    Nothing,
    /// No whole request, and at most one cut one.
    NoWhole,
    /// The request once, and each other one of the case at most once.
    Once,
    /// Anything that is well-formed, each request at most once.
    Maybe,
    /// Anything that is well-formed, also tries.
    Tries,
}

/// What else must hold. Names of fields are compared without case. `seen` is what the server saw of the case's request,
/// `got` the first client's first final answer.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    SeenLine(&'static str),
    SeenField(&'static str, &'static str),
    SeenNo(&'static str),
    SeenBody(String),
    SeenTrailer(&'static str, &'static str),
    SeenNoTrailer(&'static str),
    /// Another rule for what was seen.
    Seen(fn(&Message) -> Result<(), String>),
    Got(&'static str, &'static str),
    GotNo(&'static str),
    GotBody(String),
    GotTrailer(&'static str, &'static str),
    GotNoTrailer(&'static str),
    GotFraming(Framing),
    /// The statuses of the interim answers before it.
    Interims(&'static [u16]),
    /// An interim answer has this field.
    InterimHas(&'static str, &'static str),
    /// The statuses of all answers on the first connection.
    Statuses(&'static [u16]),
    /// The second answer on the first connection has one of these statuses.
    SecondStatus(&'static [u16]),
    /// The bodies of all answers on the first connection.
    Bodies(&'static [&'static str]),
    /// The body of the last answer on the last connection.
    LastBody(&'static str),
    /// No answer has this text in its body.
    Never(&'static str),
    /// There is no whole answer of 200.
    Cut,
    /// The answer may be cut, or whole.
    MayBeCut,
    /// The server's connection gets no other request.
    Parted,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Begins with the section: `9112-6.3: `.
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) script: Vec<Act>,
    /// The statuses that the first answer may have.
    pub(crate) statuses: &'static [u16],
    /// Whether the connection serves a further request. `None`: the proxy may choose.
    pub(crate) is_kept: Option<bool>,
    pub(crate) reaches: Reaches,
    pub(crate) checks: Vec<Check>,
    /// It runs on an edge whose patience with servers is short, and not on the peers.
    pub(crate) needs_short: bool,
}

impl Case {
    fn new(name: impl Into<String>, statuses: &'static [u16], reaches: Reaches) -> Self {
        Case {
            name: name.into(),
            steps: Vec::new(),
            script: Vec::new(),
            statuses,
            is_kept: None,
            reaches,
            checks: Vec::new(),
            needs_short: false,
        }
    }

    /// The server's script.
    pub(crate) fn script(mut self, script: Vec<Act>) -> Self {
        self.script = script;
        self
    }

    /// The statuses that the first answer may have.
    pub(crate) fn statuses(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    pub(crate) fn check(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.checks.extend(checks);
        self
    }

    pub(crate) fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps = steps.into_iter().collect();
        self
    }

    /// After the answer the connection serves a further request, or none.
    pub(crate) fn kept(mut self, is_kept: bool) -> Self {
        self.is_kept = Some(is_kept);
        self.steps.extend([Step::Send(NEXT.to_owned()), Step::Answers(2)]);
        self
    }

    pub(crate) fn needs_short(mut self) -> Self {
        self.needs_short = true;
        self
    }

    /// With its token and host in place.
    pub(crate) fn placed(mut self, token: &str, host: &str) -> Self {
        for step in &mut self.steps {
            if let Step::Send(text) | Step::Dribble(text) = step {
                *text = place(text, token, host);
            }
        }
        self
    }
}

pub(crate) fn place(text: &str, token: &str, host: &str) -> String {
    text.replace(TOKEN, token).replace(HOST, host)
}

/// A request that is refused: answered with one of the statuses, the connection closed, and nothing of it passed on.
pub(crate) fn refused(name: impl Into<String>, request: &str, statuses: &'static [u16]) -> Case {
    let steps = [Step::Send(format!("{request}{SMUGGLED}")), Step::Answers(2)];
    let mut case = Case::new(name, statuses, Reaches::Nothing).steps(steps);
    case.is_kept = Some(false);
    case
}

/// A request that is refused, and whose end is beyond doubt, so that the connection may be kept.
pub(crate) fn answered(name: impl Into<String>, request: &str, statuses: &'static [u16]) -> Case {
    let steps = [Step::Send(request.to_owned()), Step::Answers(1)];
    Case::new(name, statuses, Reaches::Nothing).steps(steps)
}

/// A request whose body is wrong: it may have been passed on in part by then, but never whole.
pub(crate) fn broken(name: impl Into<String>, request: &str) -> Case {
    const STATUSES: &[u16] = &[400, 413, 431];
    Case { reaches: Reaches::NoWhole, ..refused(name, request, STATUSES) }
}

/// A request that is passed on, and answered with 200 on a connection that is kept.
pub(crate) fn passed(
    name: impl Into<String>,
    request: &str,
    checks: impl IntoIterator<Item = Check>,
) -> Case {
    exchange(name, request, checks).kept(true)
}

/// A request that is passed on, and answered; nothing follows.
pub(crate) fn exchange(
    name: impl Into<String>,
    request: &str,
    checks: impl IntoIterator<Item = Check>,
) -> Case {
    let steps = [Step::Send(request.to_owned()), Step::Answers(1)];
    Case::new(name, OK, Reaches::Once).steps(steps).check(checks)
}

/// An answer that must not be passed on.
pub(crate) fn hostile(name: impl Into<String>, script: Vec<Act>) -> Case {
    const BAD_GATEWAY: &[u16] = &[502];
    let get = "GET /@ HTTP/1.1\r\nHost: alpha.test\r\n\r\n";
    let case = exchange(name, get, [Check::Parted, Check::Never("evil")]).script(script);
    Case { reaches: Reaches::Tries, statuses: BAD_GATEWAY, ..case }
}

/// What a proxy made of a case, before what the server saw is known.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) token: String,
    pub(crate) host: String,
    pub(crate) got: Vec<Got>,
}

/// A table's cell: what happened, in a few words.
pub(crate) fn summary(outcome: &Outcome, seen: &[Seen]) -> String {
    let first = &outcome.got[0];
    let mut words: Vec<String> =
        first.interims.iter().map(|(_, answer)| format!("({})", answer.status())).collect();
    words.extend(first.answers.iter().map(|answer| {
        let cut = if answer.is_whole { "" } else { " cut" };
        format!("{}{cut}", answer.status())
    }));
    if words.is_empty() {
        words.push("no answer".to_owned());
    }
    let mine = seen.iter().filter(|seen| seen.is_of(&outcome.token));
    let passed = mine.filter(|seen| seen.request.as_ref().is_ok_and(|request| request.is_whole)).count();
    format!("{}; {passed} passed on", words.join(" "))
}

/// Where the outcome differs from what the case expects.
pub(crate) fn complaints(case: &Case, outcome: &Outcome, all: &[Seen]) -> Vec<String> {
    let mut found = Vec::new();
    let seen: Vec<_> = all.iter().filter(|seen| seen.is_of(&outcome.token)).collect();
    let first = &outcome.got[0];
    let cut = case.checks.iter().any(|check| matches!(check, Check::Cut));
    let may_be_cut = case.checks.iter().any(|check| matches!(check, Check::MayBeCut));
    for got in &outcome.got {
        if let Some(wrong) = &got.wrong
            && !(cut && got.answers.is_empty())
        {
            found.push(wrong.clone());
        }
    }
    match first.answers.first() {
        _ if cut => {}
        None => found.push("no answer".to_owned()),
        Some(answer) if !case.statuses.contains(&answer.status()) => {
            found.push(format!("status {}, not {:?}", answer.status(), case.statuses));
        }
        Some(answer) if !answer.is_whole && !may_be_cut => found.push("the answer is cut".to_owned()),
        Some(_) => {}
    }
    if case.is_kept.is_some_and(|is_kept| is_kept != (first.answers.len() > 1)) {
        found.push(format!(
            "the connection is {}",
            if case.is_kept == Some(true) { "closed" } else { "kept" }
        ));
    }
    reaches(case.reaches, outcome, &seen, &mut found);
    let request = seen.iter().find(|seen| seen.request.as_ref().is_ok_and(|of| is_about(of, &outcome.token)));
    for check in &case.checks {
        if let Err(why) = check.holds(outcome, request.copied(), all) {
            found.push(why);
        }
    }
    found
}

/// Whether it is the request that the case is about, and not one after it.
fn is_about(request: &Message, token: &str) -> bool {
    let path = request.target().split('?').next().unwrap_or("");
    path.ends_with(token) || request.field("x-case").as_deref() == Some(token)
}

fn reaches(reaches: Reaches, outcome: &Outcome, seen: &[&Seen], found: &mut Vec<String>) {
    let requests = || seen.iter().filter_map(|seen| seen.request.as_ref().ok());
    let whole: Vec<_> = requests().filter(|request| request.is_whole).map(|of| of.start.as_str()).collect();
    for why in seen.iter().filter_map(|seen| seen.request.as_ref().err()) {
        let is_cut = reaches == Reaches::NoWhole || why == "cut in the head";
        if !is_cut || reaches == Reaches::Nothing {
            found.push(format!("passed on malformed: {why}"));
        }
    }
    match reaches {
        Reaches::Nothing if !seen.is_empty() => {
            found
                .push(format!("passed on: {:?}", requests().map(|of| of.start.as_str()).collect::<Vec<_>>()));
        }
        Reaches::NoWhole if !whole.is_empty() => found.push(format!("passed on: {whole:?}")),
        Reaches::NoWhole if requests().count() > 1 => found.push("passed on more than once".to_owned()),
        Reaches::Once if !requests().any(|request| request.is_whole && is_about(request, &outcome.token)) => {
            found.push("not passed on".to_owned());
        }
        Reaches::Once | Reaches::Maybe => {
            let smuggled = format!("{}smuggled", outcome.token);
            for (k, line) in whole.iter().enumerate() {
                if whole[..k].contains(line) || line.contains(&smuggled) {
                    found.push(format!("passed on, too: {line}"));
                }
            }
        }
        _ => {}
    }
}

impl Check {
    fn holds(&self, outcome: &Outcome, seen: Option<&Seen>, all: &[Seen]) -> Result<(), String> {
        let placed = |text: &str| place(text, &outcome.token, &outcome.host);
        let equal = |what: &str, found: Option<String>, wanted: Option<String>| {
            if found == wanted {
                return Ok(());
            }
            let said =
                |text: Option<String>| text.map_or("none".to_owned(), |text| format!("{:?}", short(&text)));
            Err(format!("{what}: {}, not {}", said(found), said(wanted)))
        };
        // That nothing was seen, or got, is said elsewhere.
        let request = seen.and_then(|seen| seen.request.as_ref().ok());
        let first = &outcome.got[0];
        let answer = first.answers.first();
        let see = |what: &str, of: &dyn Fn(&Message) -> Option<String>, wanted: Option<&str>| {
            request.map_or(Ok(()), |request| equal(what, of(request), wanted.map(placed)))
        };
        let get = |what: &str, of: &dyn Fn(&Message) -> Option<String>, wanted: Option<&str>| {
            answer.map_or(Ok(()), |answer| equal(what, of(answer), wanted.map(placed)))
        };
        let text = |message: &Message| Some(String::from_utf8_lossy(&message.body).into_owned());
        match self {
            Check::SeenLine(line) => see("request line", &|of| Some(of.start.clone()), Some(line)),
            Check::SeenField(name, value) => see(name, &|of| of.field(name), Some(value)),
            Check::SeenNo(name) => see(name, &|of| of.field(name), None),
            Check::SeenBody(body) => see("body", &text, Some(body)),
            Check::SeenTrailer(name, value) => see("trailer", &|of| of.trailer(name), Some(value)),
            Check::SeenNoTrailer(name) => see("trailer", &|of| of.trailer(name), None),
            Check::Seen(rule) => request.map_or(Ok(()), rule),
            Check::Got(name, value) => get(name, &|of| of.field(name), Some(value)),
            Check::GotNo(name) => get(name, &|of| of.field(name), None),
            Check::GotBody(body) => get("the answer's body", &text, Some(body)),
            Check::GotTrailer(name, value) => {
                get("the answer's trailer", &|of| of.trailer(name), Some(value))
            }
            Check::GotNoTrailer(name) => get("the answer's trailer", &|of| of.trailer(name), None),
            Check::GotFraming(framing) => {
                get("framing", &|of| Some(format!("{:?}", of.framing)), Some(&format!("{framing:?}")))
            }
            Check::Interims(statuses) => {
                let before = first.interims.iter().filter(|(answers, _)| *answers == 0);
                let found: Vec<_> = before.map(|(_, answer)| answer.status()).collect();
                equal("interim answers", Some(format!("{found:?}")), Some(format!("{statuses:?}")))
            }
            Check::InterimHas(name, value) => {
                let has =
                    first.interims.iter().any(|(_, answer)| answer.field(name).as_deref() == Some(value));
                has.then_some(()).ok_or_else(|| format!("no interim answer has {name}"))
            }
            Check::Statuses(wanted) => {
                let found: Vec<_> = first.answers.iter().map(Message::status).collect();
                equal("statuses", Some(format!("{found:?}")), Some(format!("{wanted:?}")))
            }
            Check::SecondStatus(wanted) => {
                let second = first.answers.get(1).map(Message::status);
                let is_one = second.is_some_and(|status| wanted.contains(&status));
                is_one.then_some(()).ok_or_else(|| format!("second status: {second:?}, not {wanted:?}"))
            }
            Check::Bodies(wanted) => {
                let found: Vec<_> = first.answers.iter().filter_map(text).map(|body| short(&body)).collect();
                let wanted: Vec<_> = wanted.iter().map(|body| short(&placed(body))).collect();
                equal("bodies", Some(format!("{found:?}")), Some(format!("{wanted:?}")))
            }
            Check::LastBody(wanted) => {
                let found = outcome.got.last().and_then(|got| text(got.answers.last()?));
                equal("last body", found, Some(placed(wanted)))
            }
            Check::Never(bad) => {
                let mut answers = outcome.got.iter().flat_map(|got| &got.answers);
                let has = answers.any(|answer| String::from_utf8_lossy(&answer.body).contains(bad));
                (!has).then_some(()).ok_or_else(|| format!("the client got {bad:?}"))
            }
            Check::Cut => {
                let whole = answer.filter(|answer| answer.is_whole && answer.status() == 200);
                whole.map_or(Ok(()), |_| Err("the client takes the answer for whole".to_owned()))
            }
            Check::MayBeCut => Ok(()),
            Check::Parted => {
                let Some(seen) = seen else { return Ok(()) };
                let mut later = all.iter().skip_while(|other| !std::ptr::eq(*other, seen)).skip(1);
                let again = later.any(|other| other.connection == seen.connection);
                (!again).then_some(()).ok_or_else(|| "the server's connection is used again".to_owned())
            }
        }
    }
}

/// A text that fits into a line.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    format!("{}... ({} bytes)", text.chars().take(CHARS_MAX).collect::<String>(), text.len())
}
