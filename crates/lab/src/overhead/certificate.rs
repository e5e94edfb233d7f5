//! The certificate of all proxies with TLS: self-signed, with a key on the curve P-256, by the program openssl.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sidelong_config::Tls;
use sidelong_workload::client::Secure;

use crate::bench::Bench;
use crate::error::{Error, Result, file};

/// PEM files.
pub(super) struct Certificate {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    /// Both in one file, for HAProxy.
    pub(super) both: PathBuf,
}

impl Certificate {
    /// A new certificate for `host`.
    ///
    /// # Errors
    /// If there is no program to make it, or it fails.
    pub(super) fn make(bench: &Bench<'_>, host: &str) -> Result<Certificate> {
        let at = |name: &str| bench.path(&format!("configs/{name}.pem"));
        let made = Certificate { chain: at("certificate"), key: at("key"), both: at("both") };
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args(["-subj", &format!("/CN={host}"), "-addext", &format!("subjectAltName=DNS:{host}")]);
        // An authority's certificate is refused as that of a server.
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.arg("-out").arg(&made.chain).arg("-keyout").arg(&made.key);
        let (what, instead) =
            ("there is no openssl here, to make a certificate".into(), "install Debian's package openssl");
        match openssl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Err(_) => return Err(Error::Absent { what, instead }),
            Ok(status) if !status.success() => {
                let said = format!("no certificate, {status}");
                return Err(Error::Serve { what: "openssl".into(), said });
            }
            Ok(_) => {}
        }
        let [chain, key] = [&made.chain, &made.key].map(|path| file(path, fs::read_to_string(path)));
        file(&made.both, fs::write(&made.both, chain? + &key?))?;
        Ok(made)
    }

    /// What the cluster file says of it.
    pub(super) fn tls(&self) -> Tls {
        Tls { certificate: self.chain.clone(), key: self.key.clone() }
    }

    /// A client that trusts it alone.
    pub(super) fn client(&self, host: &str, is_http2: bool) -> Result<Secure> {
        Ok(Secure::new(&file(&self.chain, fs::read(&self.chain))?, host, is_http2)?)
    }
}
