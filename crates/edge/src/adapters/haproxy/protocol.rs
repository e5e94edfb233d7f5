//! The words of HAProxy's Runtime API (its management guide, chapter 9.3): what is asked, and what the replies say.
//!
//! A batch is one line of commands between semicolons. Each reply ends with an empty line, so a batch that was cut short has
//! fewer of them than commands. Only that to `del server` does not (in 2.6), so it is the last of its line. Columns are found by name, as HAProxy's versions differ in them.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Asks which process answers.
pub(super) const ASK_PROCESS: &str = "show info";

/// Asks for a session that does not exist. HAProxy stops all its threads between two tasks to look for it, so a request that
/// was between the choice of its server and its count there is in the counts that are asked for next.
pub(super) const ASK_ALL_THREADS: &str = "show sess 0x1";

/// Asks for the servers of a backend.
pub(super) fn ask_servers(backend: &str) -> String {
    format!("show stat {backend} 4 -1")
}

/// Adds a server of weight 0 to a backend (since 2.5), with these keywords besides. It gets no setting of `default-server`, it is in maintenance, and
/// its checks wait until they are enabled. With the keyword `enabled` HAProxy 2.6 counts it as one of weight 1, and the whole backend as down
/// once it is deleted.
pub(super) fn add_server(server: &str, address: SocketAddr, id: u32, keywords: &str) -> Vec<String> {
    let mut commands = vec![format!("add server {server} {address} weight 0 id {id} {keywords}")];
    let mut words = keywords.split(' ');
    commands.extend(words.clone().any(|word| word == "check").then(|| format!("enable health {server}")));
    commands.extend(words.any(|word| word == "agent-check").then(|| format!("enable agent {server}")));
    commands.push(enable_server(server));
    commands
}

/// Ends a server's maintenance.
pub(super) fn enable_server(server: &str) -> String {
    format!("enable server {server}")
}

/// Deletes a server, which must be in maintenance and have no connection.
pub(super) fn delete_server(server: &str) -> Vec<String> {
    vec![format!("disable server {server}"), format!("del server {server}")]
}

/// Whether nothing may follow a command in its line.
pub(super) fn is_last(command: &str) -> bool {
    command.starts_with("del server ")
}

/// What the reply to a command that changes something says is wrong; `None` if it is done.
pub(super) fn refusal<'a>(command: &str, reply: &'a str) -> Option<&'a str> {
    let is_done = match command.split(' ').next() {
        Some("add") => reply.starts_with("New server registered"),
        Some("del") => reply.starts_with("Server deleted"),
        _ => reply.is_empty(),
    };
    (!is_done).then_some(reply)
}

/// What is wrong with a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// Fewer or more replies than commands: the connection was closed in between.
    Cut {
        /// Replies that are whole.
        found: usize,
        /// Commands of the batch.
        expected: usize,
    },
    /// A reply that says something else than was asked, with its first line.
    Other(&'static str, String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Cut { found, expected } => write!(f, "it was cut short: {found} of {expected} replies"),
            Wrong::Other(command, line) => write!(f, "the reply to `{command}` is {line:?}"),
        }
    }
}

/// The replies to the commands of a line, all of them whole.
///
/// # Errors
/// If it was cut short.
pub(crate) fn replies(bytes: &[u8], commands: &[impl AsRef<str>]) -> Result<Vec<String>, Wrong> {
    let text = String::from_utf8_lossy(bytes);
    let mut replies = Vec::new();
    let mut reply = String::new();
    for line in text.split_inclusive('\n') {
        match line {
            "\n" => replies.push(std::mem::take(&mut reply)),
            _ => reply.push_str(line),
        }
    }
    if reply.ends_with('\n') && commands.last().is_some_and(|command| is_last(command.as_ref())) {
        replies.push(std::mem::take(&mut reply));
    }
    let (found, expected) = (replies.len(), commands.len());
    if found == expected && reply.is_empty() { Ok(replies) } else { Err(Wrong::Cut { found, expected }) }
}

/// The first line of a reply, as far as a message has room for it.
pub(super) fn excerpt(reply: &str) -> String {
    const MOST: usize = 120;
    reply.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(MOST).collect()
}

/// Which process answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    /// Its process ID.
    pub(super) pid: u32,
    /// How long it has run.
    pub(super) uptime: Duration,
}

/// The reply to [`ASK_PROCESS`].
///
/// # Errors
/// If it does not say which process answers.
pub(crate) fn process(reply: &str) -> Result<Process, Wrong> {
    let figure = |name: &str| -> Option<u64> {
        let line = reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        line.trim().parse().ok()
    };
    let pid = figure("Pid").and_then(|pid| pid.try_into().ok());
    match (pid, figure("Uptime_sec")) {
        (Some(pid), Some(seconds)) => Ok(Process { pid, uptime: Duration::from_secs(seconds) }),
        _ => Err(Wrong::Other(ASK_PROCESS, excerpt(reply))),
    }
}

/// A server of a backend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its number in its backend.
    pub id: u32,
    /// Where it answers, if that is an IP address and the socket's level lets it be seen.
    pub address: Option<SocketAddr>,
    /// Its weight as it was set, 0 to 256.
    pub weight: u16,
    /// What HAProxy says of it, such as `UP`, `MAINT` or `no check`.
    pub status: String,
    /// Requests that are sent to it or have been, and have not ended.
    pub current: u32,
    /// Requests that wait for it.
    pub queued: u32,
    /// Requests so far.
    pub sessions: u64,
    /// Answers so far that are none of its failures; `None` if HAProxy does not look into them.
    pub answers: Option<u64>,
    /// Failures so far: of connections, retried or not, and of answers.
    pub failures: u64,
    /// Failures of connections so far, which are among these.
    pub unconnected: u64,
    /// Connections so far that were tried again at the same server.
    pub retries: u64,
}

impl Server {
    /// Whether HAProxy's checks have found out that it does not answer.
    pub fn is_down(&self) -> bool {
        self.status.starts_with("DOWN")
    }

    /// Whether a person, or the file, keeps requests away from it: it is in maintenance or drains.
    pub fn is_held(&self) -> bool {
        self.status.starts_with("MAINT") || self.status.starts_with("DRAIN")
    }
}

/// The servers in the reply to [`ask_servers`].
///
/// # Errors
/// If the reply is none: there is no such backend.
pub(crate) fn servers(reply: &str) -> Result<Vec<Server>, Wrong> {
    let wrong = || Wrong::Other("show stat", excerpt(reply));
    let mut lines = reply.lines();
    let names = lines.next().and_then(|line| line.strip_prefix("# ")).ok_or_else(wrong)?;
    let names = fields(names);
    let column = |name: &str| names.iter().position(|known| known == name);
    let needed = |name: &str| column(name).ok_or_else(wrong);
    let [name, weight, status] = [needed("svname")?, needed("uweight")?, needed("status")?];
    let [current, queued, sessions] = [needed("scur")?, needed("qcur")?, needed("stot")?];
    let [kind, address, id] = [column("type"), column("addr"), column("sid")];
    let answers = ["hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx"].map(column);
    let failures = ["econ", "eresp", "wretr", "wredis"].map(column);
    let unconnected = ["econ", "wretr", "wredis"].map(column);
    let retries = column("wretr");
    let mut servers = Vec::new();
    for line in lines {
        let fields = fields(line);
        let text = |column: usize| fields.get(column).map_or("", String::as_str);
        if kind.is_some_and(|kind| text(kind) != "2") {
            continue;
        }
        let count = |column: Option<usize>| column.and_then(|column| text(column).parse::<u64>().ok());
        let needed = |column: usize| text(column).parse::<u32>().map_err(|_| wrong());
        let sum = |columns: &[Option<usize>]| {
            let known = columns.iter().copied().filter_map(count);
            known.reduce(u64::saturating_add)
        };
        servers.push(Server {
            name: text(name).to_owned(),
            id: id.and_then(|id| text(id).parse().ok()).unwrap_or(0),
            address: address.and_then(|address| text(address).parse().ok()),
            weight: needed(weight)?.try_into().map_err(|_| wrong())?,
            status: text(status).to_owned(),
            current: needed(current)?,
            queued: needed(queued)?,
            sessions: count(Some(sessions)).ok_or_else(wrong)?,
            answers: sum(&answers),
            failures: sum(&failures).unwrap_or(0),
            unconnected: sum(&unconnected).unwrap_or(0),
            retries: count(retries).unwrap_or(0),
        });
    }
    Ok(servers)
}

/// The fields of a line of comma-separated values. A field with a comma or a quote in it is quoted, and quotes in it are doubled.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted, fields.last_mut()) {
            ('"', true, Some(field)) if chars.next_if_eq(&'"').is_some() => field.push('"'),
            ('"', _, _) => quoted = !quoted,
            (',', false, _) => fields.push(String::new()),
            (c, _, Some(field)) => field.push(c),
            (_, _, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# pxname,svname,qcur,scur,stot,econ,eresp,wretr,wredis,status,type,hrsp_1xx,hrsp_2xx,hrsp_3xx,\
                        hrsp_4xx,hrsp_5xx,check_desc,addr,uweight,-,\n";

    #[test]
    fn a_batch_is_whole_if_each_command_has_a_reply_with_its_end() {
        let batch = b"\nNo such server.\n\n# a\nb\n\n";
        assert_eq!(replies(batch, &["a"; 3]).unwrap(), ["", "No such server.\n", "# a\nb\n"]);
        for cut in 0..batch.len() {
            assert!(replies(&batch[..cut], &["a"; 3]).is_err(), "cut after {cut}");
        }
        assert_eq!(replies(b"\n\n", &["a"; 3]), Err(Wrong::Cut { found: 2, expected: 3 }));
        assert!(replies(b"\n\n\n", &["a"; 2]).is_err());
        assert!(replies(b"\xff\xfe\n\n\n", &["a"]).is_err());
        // 2.6 ends this reply by one line, and others may end it by two.
        let delete = ["a", "del server be/one"];
        assert_eq!(replies(b"\nServer deleted.\n", &delete).unwrap(), ["", "Server deleted.\n"]);
        assert_eq!(replies(b"\nServer deleted.\n\n", &delete).unwrap(), ["", "Server deleted.\n"]);
        assert!(replies(b"\nServer dele", &delete).is_err() && replies(b"\n", &delete).is_err());
    }

    #[test]
    fn a_server_is_read_by_the_names_of_the_columns() {
        let reply = format!(
            "{HEAD}be,n1,2,3,40,1,1,2,0,UP,2,0,30,4,1,9,\"a \"\"strange\"\", long answer\",10.0.0.1:80,7,-,\n\
             be,n2,0,0,0,0,0,0,0,MAINT (via a/b),2,,,,,,,[::1]:80,0,-,\nbe,BACKEND,0,0,0,0,0,0,0,UP,1,,,,,,,,9,-,\n"
        );
        let found = servers(&reply).unwrap();
        let expected = Server {
            name: "n1".into(),
            id: 0,
            address: Some("10.0.0.1:80".parse().unwrap()),
            weight: 7,
            status: "UP".into(),
            current: 3,
            queued: 2,
            sessions: 40,
            answers: Some(35),
            failures: 4,
            unconnected: 3,
            retries: 2,
        };
        assert_eq!(found[0], expected);
        assert_eq!((found[1].address, found[1].answers), (Some("[::1]:80".parse().unwrap()), None));
        assert!(found[1].is_held() && !found[0].is_held() && found.len() == 2);
    }

    #[test]
    fn what_is_no_list_of_servers_is_refused() {
        assert_eq!(
            servers("No such proxy.\n").unwrap_err().to_string(),
            r#"the reply to `show stat` is "No such proxy.""#
        );
        assert!(servers("").is_err());
        assert!(servers("# pxname,svname\nbe,n1\n").is_err());
        assert!(servers(&format!("{HEAD}be,n1,x,0,0,0,0,0,0,UP,2\n")).is_err());
        assert_eq!(servers(HEAD).unwrap(), []);
    }

    #[test]
    fn the_process_is_named() {
        let reply = "Name: HAProxy\nPid: 641\nUptime: 0d\nUptime_sec: 9\n";
        assert_eq!(process(reply).unwrap(), Process { pid: 641, uptime: Duration::from_secs(9) });
        assert!(process("Pid: many\nUptime_sec: 9\n").is_err());
        assert!(process("Permission denied\n").is_err());
    }
}
