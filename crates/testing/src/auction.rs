//! The auction of `demo/auction` on gunicorn and a real database, and a visitor who knows of its pages what its PAGES.md says.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};

use sidelong_harness::programs;

use crate::foreign::foreign;
use crate::servers::{is_there, signal_all};
use crate::{Client, Cluster, Done, Reply, Running, eventually, skipped, try_get};

/// The interpreter of Debian's gunicorn.
const PYTHON: &str = "/usr/bin/python3";
/// Users of a database that [`Auction::new`] makes; `make-data --scale`.
pub const USERS: u64 = 500;
const SCALE: &str = "0.0005";
/// PostgreSQL refuses to run as root.
const NOBODY: &str = "65534";

/// Where the demo is.
pub fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/auction")
}

/// A database that an auction can stand on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Books {
    /// A file.
    Sqlite,
    /// A server of its own.
    PostgreSql,
}

/// An auction's data, not yet served.
pub struct Auction {
    // Ends before its directory is removed.
    postgresql: Option<Running>,
    /// A cluster with a site for its pages and one for its interface for programs.
    pub cluster: Cluster,
    /// What AUCTION_DATABASE has: a path or a URL.
    pub database: String,
}

impl Auction {
    /// One of [`USERS`] users. `None`, with a printed reason, if this machine lacks what it stands on.
    pub fn new(books: Books) -> Option<Self> {
        let auction = Self::without_data(books)?;
        auction.command(&["make-data", "--scale", SCALE]).succeeded();
        Some(auction)
    }

    /// One without data.
    pub fn without_data(books: Books) -> Option<Self> {
        if !is_there("gunicorn", "--version") {
            return None;
        }
        let cluster = foreign(&[("auction", 2), ("api", 1)]);
        let database = match books {
            Books::Sqlite => cluster.path("auction.db").to_str().unwrap().to_owned(),
            Books::PostgreSql => format!("postgres://auction@{}/postgres", cluster.at(5432)),
        };
        let mut auction = Auction { cluster, database, postgresql: None };
        if books == Books::PostgreSql {
            let imports = Command::new(PYTHON).args(["-c", "import psycopg, psycopg_pool"]).output();
            if !imports.is_ok_and(|output| output.status.success()) {
                skipped(
                    "auction: no psycopg here; Debian's packages python3-psycopg and python3-psycopg-pool have it",
                );
                return None;
            }
            auction.cluster_of_postgresql()?;
            auction.start_postgresql();
        }
        Some(auction)
    }

    /// A command of the demo, run to its end.
    pub fn command(&self, arguments: &[&str]) -> Done {
        self.commanding(arguments).finish()
    }

    /// A command of the demo, not awaited.
    pub fn commanding(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(PYTHON);
        command.arg(demo()).args(arguments).env("AUCTION_DATABASE", &self.database);
        Running::start_command(quiet(command))
    }

    /// Checks the books. Returns the number and the sum of each table of which the audit tells them.
    pub fn audit(&self) -> BTreeMap<String, (i64, i64)> {
        let done = self.command(&["audit"]);
        assert_eq!(done.code, Some(0), "{done:#?}");
        assert!(done.out.lines().filter(|line| line.starts_with("right: ")).count() > 8, "{done:#?}");
        let sum = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            [table, count, "sum", sum] => Some((table.to_owned(), (count.parse().ok()?, sum.parse().ok()?))),
            _ => None,
        };
        done.out.lines().filter_map(sum).collect()
    }

    /// Runs a program of Python with the demo's modules; `DATABASE` is where the data are.
    pub fn python(&self, text: &str) -> Running {
        let mut command = Command::new(PYTHON);
        let text = format!("import sqlite3, time, os\nDATABASE = {:?}\n{text}", self.database);
        command.arg("-c").arg(text).env("PYTHONPATH", demo());
        Running::start_command(quiet(command))
    }

    /// Changes the data behind the application's back.
    pub fn change(&self, sql: &str) {
        let text = format!(
            "import database\nwith database.connect(DATABASE).writing() as db:\n    db.execute({sql:?}, ())"
        );
        self.python(&text).finish().succeeded();
    }

    /// gunicorn with so many synchronous workers, once it serves.
    pub fn serve(&self, workers: usize) -> Running {
        self.serve_as(0, workers, &[])
    }

    /// gunicorn with so many synchronous workers at the address of a node, with further arguments.
    pub fn serve_as(&self, node: usize, workers: usize, arguments: &[&str]) -> Running {
        let address = self.cluster.node(node);
        let mut command = Command::new("gunicorn");
        command.args(arguments);
        command.args(programs::gunicorn(&demo(), &address.to_string(), workers as u16, "app:application"));
        command.env("AUCTION_DATABASE", &self.database).env("AUCTION_SERVER", format!("n{}", node + 1));
        let mut server = Running::start_command(quiet(command));
        eventually("the auction answers", || {
            assert!(server.is_running(), "{}", server.err());
            try_get(address, "auction.test", "/health").is_ok_and(|reply| reply.status == 200)
        });
        server
    }

    /// A visitor of the first node.
    pub fn visitor(&self) -> Visitor {
        Visitor::at(self.cluster.node(0))
    }

    /// Kills PostgreSQL as a loss of power would.
    pub fn kill_postgresql(&mut self) {
        let server = self.postgresql.take().unwrap();
        signal_all(&server, Signal::KILL);
        server.finish();
    }

    /// Starts PostgreSQL on what is there.
    pub fn start_postgresql(&mut self) {
        let address = self.cluster.at(5432);
        let mut command = self.of_postgresql("postgres").unwrap();
        command.arg("-D").arg(self.cluster.path("postgresql")).args(["-k", "", "-p"]);
        command.arg(address.port().to_string()).args(["-h", &address.ip().to_string()]);
        let mut server = Running::start_command(command);
        eventually("PostgreSQL answers", || {
            assert!(server.is_running(), "{}", server.err());
            let url = format!("host={} port={} user=auction dbname=postgres", address.ip(), address.port());
            let mut ready = self.of_postgresql("pg_isready").unwrap();
            ready.args(["-q", "-d", &url]).output().is_ok_and(|output| output.status.success())
        });
        self.postgresql = Some(server);
    }

    fn cluster_of_postgresql(&self) -> Option<()> {
        let Some(mut command) = self.of_postgresql("initdb") else {
            skipped("auction: no PostgreSQL here; Debian's package postgresql has it");
            return None;
        };
        let data = self.cluster.path("postgresql");
        std::fs::create_dir(&data).unwrap();
        if geteuid().is_root() {
            let nobody = NOBODY.parse().unwrap();
            std::os::unix::fs::chown(&data, Some(nobody), Some(nobody)).unwrap();
            // nobody may pass through, and sees nothing.
            std::fs::set_permissions(self.cluster.path(""), Permissions::from_mode(0o711)).unwrap();
        }
        command.arg("-D").arg(data).args([
            "-U",
            "auction",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        Running::start_command(command).finish().succeeded();
        Some(())
    }

    /// A program of the newest PostgreSQL here, as a user that it accepts.
    fn of_postgresql(&self, program: &str) -> Option<Command> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let found = versions.map(|entry| entry.path().join("bin").join(program)).filter(|path| path.exists());
        let path = found.max()?;
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir("/");
        Some(command)
    }
}

impl Drop for Auction {
    fn drop(&mut self) {
        if let Some(server) = &self.postgresql {
            // It waits for no client.
            server.signal(Signal::INT);
        }
    }
}

/// Without files beside the sources.
fn quiet(mut command: Command) -> Command {
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Someone with a browser: a cookie, and the token of the last page.
pub struct Visitor {
    address: SocketAddr,
    /// The host that is asked.
    pub host: String,
    /// The cookie.
    pub cookie: String,
    /// The token.
    pub token: String,
}

impl Visitor {
    /// One that has not seen a page yet.
    pub fn at(address: SocketAddr) -> Self {
        Visitor { address, host: "auction.test".to_owned(), cookie: String::new(), token: String::new() }
    }

    /// Asks for a page.
    pub fn get(&mut self, path: &str) -> Reply {
        self.try_send("GET", path, "").unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// Sends a form, with the token.
    pub fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.try_post(path, fields).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Sends a form, with the token, if there is a connection.
    ///
    /// # Errors
    /// If there is none, or no whole reply.
    pub fn try_post(&mut self, path: &str, fields: &[(&str, &str)]) -> io::Result<Reply> {
        let token = self.token.clone();
        let fields = fields.iter().copied().chain([("csrf", token.as_str())]);
        let form =
            fields.map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&");
        self.try_send("POST", path, &form)
    }

    /// Sends a request with the cookie; takes the new one, and the token.
    ///
    /// # Errors
    /// If there is no connection, or no whole reply.
    pub fn try_send(&mut self, method: &str, path: &str, form: &str) -> io::Result<Reply> {
        let Visitor { host, cookie, .. } = self;
        let mut client = Client::try_connect(self.address)?;
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
            form.len()
        ))?;
        let reply = client.reply(method != "HEAD")?;
        if let Some(set) = reply.header("set-cookie") {
            self.cookie = set.split(';').next().unwrap().to_owned();
        }
        if let Some(token) = between(&reply.body, "<meta name=\"csrf-token\" content=\"", "\"") {
            self.token = token.to_owned();
        }
        Ok(reply)
    }

    /// Signs in as a user that `make-data` made.
    pub fn sign_in(&mut self, user: u64) -> &mut Self {
        if self.token.is_empty() {
            self.get("/");
        }
        let (nickname, password) = (format!("user{user}"), format!("password{user}"));
        let reply = self.post("/me", &[("nickname", &nickname), ("password", &password)]);
        assert_eq!((reply.status, interaction(&reply)), (200, "AboutMe"), "{reply:?}");
        self
    }

    /// Bids a sum on one of an item.
    ///
    /// # Errors
    /// If there is no connection, or no whole reply.
    pub fn bid(&mut self, item: u64, bid: u64, once: &str) -> io::Result<Reply> {
        self.try_post(
            &format!("/items/{item}/bids"),
            &[("bid", &bid.to_string()), ("qty", "1"), ("once", once)],
        )
    }

    /// Buys some of an item.
    ///
    /// # Errors
    /// If there is no connection, or no whole reply.
    pub fn buy(&mut self, item: u64, qty: u64, once: &str) -> io::Result<Reply> {
        self.try_post(&format!("/items/{item}/purchases"), &[("qty", &qty.to_string()), ("once", once)])
    }

    /// Opens an auction of so many, and returns the item's number.
    pub fn sell(&mut self, name: &str, quantity: u64, buy_now: u64) -> u64 {
        let (quantity, buy_now) = (quantity.to_string(), buy_now.to_string());
        let fields = [
            ("name", name),
            ("description", name),
            ("category", "2"),
            ("initial_price", "1"),
            ("reserve_price", "0"),
            ("buy_now", &buy_now),
            ("quantity", &quantity),
            ("duration", "7"),
            ("once", &once()),
        ];
        let reply = self.post("/items", &fields);
        assert_eq!((reply.status, interaction(&reply)), (200, "RegisterItem"), "{reply:?}");
        between(&reply.body, "href=\"/items/", "\"").unwrap().parse().unwrap()
    }
}

/// The interaction whose page this is.
pub fn interaction(reply: &Reply) -> &str {
    between(&reply.body, "<body data-interaction=\"", "\"").unwrap_or("")
}

/// What stands after `before` and ahead of `after`.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

/// A mark that no other form has.
pub fn once() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{:08}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// application/x-www-form-urlencoded.
pub fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
