//! nginx and HAProxy as the proxies that the edge is compared with.
//!
//! Both do what the edge does: they keep connections to clients and to the server, add x-forwarded-for, and use one thread.
//! Whatever ends a kept connection after some requests is off. nginx's buffers are set in its favour. Beyond that they are as they
//! come.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use sidelong_harness::programs;

use super::certificate::Certificate;
use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::nginx;
use crate::peers::{self, Peer};

/// Where a proxy stands, and what it does besides.
pub(super) struct Place<'a> {
    pub(super) listen: SocketAddr,
    pub(super) node: SocketAddr,
    /// Where it keeps its files, with a name of its own.
    pub(super) directory: PathBuf,
    /// The access log, if it writes one. HAProxy writes its own to standard output.
    pub(super) access_log: Option<&'a Path>,
    /// With it, clients speak TLS 1.3, and HTTP/2 if they ask for it.
    pub(super) certificate: Option<&'a Certificate>,
}

/// nginx's own 4 KB make it write a body of 1 MB in small parts, which takes a third more CPU time. With these no case takes more.
const BUFFERS: &str = "proxy_buffers 8 64k;\n      proxy_busy_buffers_size 128k;";
/// Idle connections to the server, as many as there can be requests under way.
const KEPT: u32 = 4096;

pub(super) fn nginx(place: &Place<'_>) -> Result<Command> {
    nginx::command(&place.directory, &nginx_http(place))
}

fn nginx_http(place: &Place<'_>) -> String {
    let Place { listen, node, access_log, certificate, .. } = place;
    let [tls, keys] = match certificate {
        Some(Certificate { chain, key, .. }) => [
            " ssl http2".to_owned(),
            format!(
                "    ssl_certificate {};\n    ssl_certificate_key {};\n    ssl_protocols TLSv1.3;\n",
                chain.display(),
                key.display()
            ),
        ],
        None => Default::default(),
    };
    let log = access_log.map_or_else(|| "off".to_owned(), |path| format!("{} combined", path.display()));
    // A response that the client takes slowly is never put on disk: neither of the others does that.
    format!(
        "  access_log {log};\n  keepalive_requests 1000000000;\n  \
         upstream node {{\n    server {node};\n    keepalive {KEPT};\n    keepalive_requests 1000000000;\n  }}\n  \
         server {{\n    listen {listen}{tls};\n{keys}    \
         location / {{\n      proxy_pass http://node;\n      proxy_http_version 1.1;\n      \
         proxy_set_header Connection \"\";\n      proxy_set_header Host $host;\n      \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n      \
         proxy_max_temp_file_size 0;\n      {BUFFERS}\n    }}\n  }}\n"
    )
}

/// The program of HAProxy.
///
/// # Errors
/// If there is none.
pub(super) fn find_haproxy(bench: &Bench<'_>) -> Result<PathBuf> {
    let found = peers::find(bench, &[Peer::Haproxy])?.here.into_iter().next();
    let (what, instead) = ("there is no haproxy here".into(), "install Debian's package haproxy");
    found.map(|(_, found)| found.program).ok_or(Error::Absent { what, instead })
}

pub(super) fn haproxy(program: &Path, place: &Place<'_>) -> Result<Command> {
    let mut command = Command::new(program);
    command.args(programs::haproxy(&place.directory, &haproxy_config(place))?);
    Ok(command)
}

fn haproxy_config(place: &Place<'_>) -> String {
    let Place { listen, node, access_log, certificate, .. } = place;
    let tls = certificate.map_or_else(String::new, |certificate| {
        format!(" ssl crt {} alpn h2,http/1.1 ssl-min-ver TLSv1.3", certificate.both.display())
    });
    let [log, use_log] = match access_log {
        Some(_) => ["    log stdout format raw local0\n", "    log global\n    option httplog\n"],
        None => ["", ""],
    };
    format!(
        "global\n    nbthread 1\n    maxconn 8000\n{log}\n\
         defaults\n    mode http\n    timeout connect 1s\n    timeout client 60s\n    timeout server 15s\n    \
         timeout http-keep-alive 60s\n    option forwardfor\n    http-reuse always\n{use_log}\n\
         frontend front\n    bind {listen}{tls}\n    default_backend node\n\n\
         backend node\n    server n1 {node}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The programs that are installed accept their configurations.
    #[test]
    fn real_ones_take_what_they_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        for (name, access_log) in [("plain", None), ("logged", Some(&*log))] {
            let place = Place {
                listen: "127.0.0.1:20000".parse().unwrap(),
                node: "127.0.0.1:20001".parse().unwrap(),
                directory: directory.path().join(name),
                access_log,
                certificate: None,
            };
            let commands = [(nginx(&place), "-t"), (haproxy(Path::new("/usr/sbin/haproxy"), &place), "-c")];
            for (command, only_check) in commands {
                let said = command.map(|mut command| command.arg(only_check).output());
                match said {
                    Ok(Ok(done)) => assert!(done.status.success(), "{name}: {done:?}"),
                    missing => _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {missing:?}"),
                }
            }
        }
    }

    #[test]
    fn tls_and_logs_are_where_they_are_asked_for() {
        let certificate = Certificate { chain: "/c.pem".into(), key: "/k.pem".into(), both: "/b.pem".into() };
        let place = Place {
            listen: "127.0.0.1:1".parse().unwrap(),
            node: "127.0.0.1:2".parse().unwrap(),
            directory: "/d".into(),
            access_log: None,
            certificate: Some(&certificate),
        };
        let (nginx, haproxy) = (nginx_http(&place), haproxy_config(&place));
        for part in ["access_log off;", "listen 127.0.0.1:1 ssl http2;", "ssl_certificate /c.pem;"] {
            assert!(nginx.contains(part), "{part} is not in\n{nginx}");
        }
        let bind = "bind 127.0.0.1:1 ssl crt /b.pem alpn h2,http/1.1 ssl-min-ver TLSv1.3\n";
        assert!(haproxy.contains(bind) && !haproxy.contains("httplog"), "{haproxy}");
        let plain = Place { access_log: Some(Path::new("/a.log")), certificate: None, ..place };
        let (nginx, haproxy) = (nginx_http(&plain), haproxy_config(&plain));
        assert!(
            nginx.contains("access_log /a.log combined;") && nginx.contains("listen 127.0.0.1:1;"),
            "{nginx}"
        );
        assert!(haproxy.contains("bind 127.0.0.1:1\n") && haproxy.contains("option httplog"), "{haproxy}");
    }
}
