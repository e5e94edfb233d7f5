//! An API server of Kubernetes, as far as EndpointSlices go. By default it is none: a few hundred lines that list and watch as one does, since
//! the real one takes ten minutes to build. Where SIDELONG_KUBE_APISERVER names a real one, the same tests ask that (`cargo xtask ci kubernetes`).

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sidelong_kubernetes::Access;

use crate::etcd::Etcd;
use crate::{Cluster, Running, eventually};

/// Where it listens.
const PORT: u16 = 6_443;
/// The namespace of all services.
const NAMESPACE: &str = "shop";
/// What clients must show.
const TOKEN: &str = "only-for-tests";
/// The program of a real one.
const PROGRAM: &str = "SIDELONG_KUBE_APISERVER";

/// An API server, for as long as this value lives.
pub struct ApiServer {
    at: SocketAddr,
    token: PathBuf,
    kind: Kind,
}

enum Kind {
    Stand(Arc<Stand>),
    Real(Box<Real>),
}

/// One that is real, with an etcd of its own.
struct Real {
    program: PathBuf,
    at: SocketAddr,
    directory: PathBuf,
    etcd: Etcd,
    server: Option<Running>,
}

/// What stands for one.
#[derive(Default)]
struct Stand {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    version: u64,
    slices: BTreeMap<String, Value>,
    /// By the version that each has made.
    events: Vec<(u64, &'static str, Value)>,
    /// Changes up to this one are forgotten.
    forgotten: u64,
    /// How often all clients were cut off.
    cuts: u64,
    is_away: bool,
    asked: Vec<String>,
}

/// A pod's endpoint: its name, its address, and whether it is ready, or about to end.
pub type Pod<'a> = (&'a str, SocketAddr, Condition);

/// How a pod is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It serves.
    Ready,
    /// It is not to be asked.
    Unready,
    /// It is about to end.
    Terminating,
}

impl ApiServer {
    /// Whether the tests ask a real one.
    pub fn is_real() -> bool {
        std::env::var_os(PROGRAM).is_some()
    }

    /// At an address of the test's cluster.
    pub fn start(cluster: &Cluster) -> Self {
        let (at, token) = (cluster.at(PORT), cluster.path("token"));
        std::fs::write(&token, TOKEN).unwrap();
        let kind = match std::env::var_os(PROGRAM) {
            None => Kind::Stand(Stand::listen(at)),
            Some(program) => Kind::Real(Box::new(Real::start(program.into(), cluster, at))),
        };
        let server = ApiServer { at, token, kind };
        server.begin();
        server
    }

    /// How a program is told to ask it.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--api-server".to_owned(), self.url()];
        arguments.extend(["--api-token".to_owned(), self.token.display().to_string()]);
        if let Some(authority) = self.authority() {
            arguments.extend(["--api-ca".to_owned(), authority.display().to_string()]);
        }
        arguments
    }

    /// How a client of this process asks it.
    pub fn access(&self) -> Access {
        Access::new(self.url().parse().unwrap(), self.authority(), Some(self.token.clone()))
    }

    /// The file of the token that it asks for.
    pub fn token(&self) -> &Path {
        &self.token
    }

    fn url(&self) -> String {
        let scheme = if self.authority().is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.at)
    }

    fn authority(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Stand(_) => None,
            Kind::Real(real) => Some(real.directory.join("apiserver.crt")),
        }
    }

    /// Stores a slice of a service with these pods, at port `http`.
    pub fn put(&self, service: &str, slice: &str, pods: &[Pod<'_>]) {
        let endpoint = |(name, at, condition): &Pod<'_>| {
            json!({
                "addresses": [at.ip()],
                "conditions": {
                    "ready": *condition == Condition::Ready,
                    "serving": *condition != Condition::Unready,
                    "terminating": *condition == Condition::Terminating,
                },
                "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": name },
            })
        };
        let ports =
            pods.first().map(|(_, at, _)| json!({ "name": "http", "port": at.port(), "protocol": "TCP" }));
        let slice_of = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": slice, "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": ports.into_iter().collect::<Vec<_>>(),
        });
        match &self.kind {
            Kind::Stand(stand) => stand.put(slice, slice_of),
            Kind::Real(real) => {
                real.kubectl(
                    &["apply", "--server-side", "--force-conflicts", "-f", "-"],
                    &slice_of.to_string(),
                );
            }
        }
    }

    /// Removes a slice.
    pub fn delete(&self, slice: &str) {
        match &self.kind {
            Kind::Stand(stand) => stand.delete(slice),
            Kind::Real(real) => _ = real.kubectl(&["delete", "endpointslice", slice, "-n", NAMESPACE], ""),
        }
    }

    /// Has it refuse all connections, and ends those that it has.
    pub fn stop(&mut self) {
        match &mut self.kind {
            Kind::Stand(stand) => stand.change(|state| (state.cuts, state.is_away) = (state.cuts + 1, true)),
            Kind::Real(real) => drop(real.server.take().map(Running::kill)),
        }
    }

    /// Has it answer again. It has forgotten what has changed before.
    pub fn resume(&mut self) {
        match &mut self.kind {
            Kind::Stand(stand) => {
                stand.change(|state| (state.forgotten, state.is_away) = (state.version, false))
            }
            Kind::Real(real) => real.begin(),
        }
        self.begin();
    }

    /// What it was asked; nothing is known of a real one.
    pub fn asked(&self) -> Vec<String> {
        match &self.kind {
            Kind::Stand(stand) => stand.state().asked.clone(),
            Kind::Real(_) => Vec::new(),
        }
    }

    /// Ends what clients hear, and forgets all that was.
    pub fn compact(&self) {
        if let Kind::Stand(stand) = &self.kind {
            stand.change(|state| {
                state.version += 1;
                (state.cuts, state.forgotten) = (state.cuts + 1, state.version);
            });
        }
    }

    /// Waits until it answers. The clients of a real one may do what the manifests grant to agents, and nothing else.
    fn begin(&self) {
        let Kind::Real(real) = &self.kind else { return };
        let namespace = |name: &str| {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            real.kubectl(&["apply", "-f", "-"], &object.to_string());
        };
        [NAMESPACE, "sidelong"].into_iter().for_each(namespace);
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
        for manifest in ["sidelong.yaml", "init.yaml", "web.yaml"] {
            real.kubectl(&["apply", "-f", "-"], &std::fs::read_to_string(manifests.join(manifest)).unwrap());
        }
        let token = real.kubectl(&["create", "token", "agents", "-n", "sidelong"], "");
        std::fs::write(&self.token, token).unwrap();
    }
}

impl Real {
    fn start(program: PathBuf, cluster: &Cluster, at: SocketAddr) -> Self {
        let directory = cluster.path("kube-apiserver");
        std::fs::create_dir_all(&directory).unwrap();
        let other = Cluster::new(&[("none", 1)]);
        let etcd = Etcd::start(&other, 1, &[]).expect("the step that names an API server has etcd");
        std::fs::write(directory.join("tokens.csv"), format!("{TOKEN},test,test,system:masters\n")).unwrap();
        let made = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(directory.join("accounts.key"))
            .stderr(Stdio::null())
            .status();
        assert!(made.is_ok_and(|made| made.success()), "openssl makes a key");
        let mut real = Real { program, at, directory, etcd, server: None };
        real.begin();
        real
    }

    fn begin(&mut self) {
        let (at, key) = (self.at, self.directory.join("accounts.key"));
        let mut command = Command::new(&self.program);
        command.arg(format!("--etcd-servers={}", self.etcd.endpoints().join(",")));
        command.arg(format!("--bind-address={}", at.ip())).arg(format!("--secure-port={}", at.port()));
        command.arg(format!("--cert-dir={}", self.directory.display()));
        command.arg(format!("--token-auth-file={}", self.directory.join("tokens.csv").display()));
        command.arg(format!("--service-account-key-file={}", key.display()));
        command.arg(format!("--service-account-signing-key-file={}", key.display()));
        command.args(["--service-account-issuer=https://test", "--authorization-mode=RBAC"]);
        command.args(["--service-cluster-ip-range=10.96.0.0/16", "--advertise-address=192.0.2.1"]);
        self.server = Some(Running::start_command(command));
    }

    /// What kubectl prints once it succeeds.
    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let config = self.directory.join("kubeconfig");
        let server = json!({ "server": format!("https://{}", self.at), "insecure-skip-tls-verify": true });
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": server }],
            "users": [{ "name": "it", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        });
        std::fs::write(&config, text.to_string()).unwrap();
        let mut printed = String::new();
        eventually(&format!("kubectl {arguments:?} succeeds"), || {
            let mut command = Command::new("kubectl");
            command.arg("--kubeconfig").arg(&config).args(arguments);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut running = command.spawn().expect("kubectl");
            running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let done = running.wait_with_output().unwrap();
            printed = String::from_utf8(done.stdout).unwrap();
            done.status.success()
        });
        printed
    }
}

impl Stand {
    fn listen(at: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind(at).unwrap();
        let stand = Arc::new(Stand::default());
        stand.state().version = 1;
        let serving = Arc::clone(&stand);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stand = Arc::clone(&serving);
                // The client sees why it ends.
                thread::spawn(move || drop(stand.serve(stream)));
            }
        });
        stand
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn put(&self, name: &str, mut slice: Value) {
        self.change(|state| {
            state.version += 1;
            slice["metadata"]["resourceVersion"] = state.version.to_string().into();
            let before = state.slices.insert(name.to_owned(), slice.clone());
            let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
            state.events.push((state.version, kind, slice));
        });
    }

    fn delete(&self, name: &str) {
        self.change(|state| {
            state.version += 1;
            if let Some(mut slice) = state.slices.remove(name) {
                slice["metadata"]["resourceVersion"] = state.version.to_string().into();
                state.events.push((state.version, "DELETED", slice));
            }
        });
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut head = BufReader::new(stream.try_clone()?);
        let (mut first, mut line, mut token) = (String::new(), String::new(), String::new());
        head.read_line(&mut first)?;
        while head.read_line(&mut line)? > 2 {
            if let Some(shown) = line.to_ascii_lowercase().strip_prefix("authorization: bearer ") {
                token = shown.trim().to_owned();
            }
            line.clear();
        }
        let path = first.split(' ').nth(1).unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query: BTreeMap<_, _> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        {
            let mut state = self.state();
            state.asked.push(first.trim().to_owned());
            if state.is_away {
                return Ok(());
            }
        }
        if token != TOKEN {
            return refuse(stream, 401, "Unauthorized");
        }
        if path != format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices") {
            return refuse(stream, 403, &format!("endpointslices is forbidden: cannot list {path}"));
        }
        let service = query
            .get("labelSelector")
            .and_then(|label| label.strip_prefix("kubernetes.io%2Fservice-name%3D"));
        let is_of =
            |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str() == service;
        if query.get("watch") == Some(&"1") {
            return self.watch(stream, &query, is_of);
        }
        // A page has one slice, so that there are several.
        let state = self.state();
        let all: Vec<_> = state.slices.values().filter(|slice| is_of(slice)).cloned().collect();
        let at: usize = query.get("continue").map_or(0, |at| at.parse().unwrap());
        let mut metadata = json!({ "resourceVersion": state.version.to_string() });
        if at + 1 < all.len() {
            metadata["continue"] = (at + 1).to_string().into();
        }
        let page = all.get(at).map_or_else(|| json!(null), |slice| json!([slice]));
        answer(stream, 200, &json!({ "kind": "EndpointSliceList", "metadata": metadata, "items": page }))
    }

    fn watch(
        &self,
        mut stream: TcpStream,
        query: &BTreeMap<&str, &str>,
        is_of: impl Fn(&Value) -> bool,
    ) -> io::Result<()> {
        let number = |key: &str| query.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        let (mut from, end) =
            (number("resourceVersion"), Instant::now() + Duration::from_secs(number("timeoutSeconds")));
        let mut state = self.state();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n"
        )?;
        let line = |stream: &mut TcpStream, kind: &str, object: &Value| {
            let line = format!("{}\n", json!({ "type": kind, "object": object }));
            write!(stream, "{:x}\r\n{line}\r\n", line.len())
        };
        if from < state.forgotten {
            let gone = json!({ "kind": "Status", "code": 410, "message": "too old resource version" });
            line(&mut stream, "ERROR", &gone)?;
            return stream.write_all(b"0\r\n\r\n");
        }
        let cuts = state.cuts;
        while state.cuts == cuts && Instant::now() < end {
            let news: Vec<_> = state.events.iter().filter(|(version, ..)| *version > from).cloned().collect();
            for (_, kind, slice) in news.iter().filter(|(.., slice)| is_of(slice)) {
                line(&mut stream, kind, slice)?;
            }
            if let Some((version, ..)) = news.last() {
                from = *version;
                let mark =
                    json!({ "kind": "EndpointSlice", "metadata": { "resourceVersion": from.to_string() } });
                line(&mut stream, "BOOKMARK", &mark)?;
            }
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
        stream.write_all(b"0\r\n\r\n")
    }
}

fn refuse(stream: TcpStream, code: u16, message: &str) -> io::Result<()> {
    answer(stream, code, &json!({ "kind": "Status", "status": "Failure", "code": code, "message": message }))
}

fn answer(mut stream: TcpStream, code: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
