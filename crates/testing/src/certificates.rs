//! Certificates for tests, made by openssl.

use std::process::{Command, Stdio};

use sidelong_config::Tls;

use crate::{Cluster, skipped};

/// Options of `openssl req` for a new RSA key.
pub const RSA: &[&str] = &["-newkey", "rsa:2048", "-nodes"];
/// Options of `openssl req` for a new ECDSA key.
pub const ECDSA: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// A self-signed certificate for alpha.test and its key, NAME.pem and NAME.key in the cluster's directory. `None`, with a printed
/// reason, without openssl.
pub fn certificate(cluster: &Cluster, name: &str) -> Option<Tls> {
    certificate_for(cluster, name, RSA, "DNS:alpha.test")
}

/// A certificate as of [`certificate`], with a key of these options, for these subjectAltNames. Its common name is `name`.
pub fn certificate_for(cluster: &Cluster, name: &str, key: &[&str], names: &str) -> Option<Tls> {
    let tls =
        Tls { certificate: cluster.path(&format!("{name}.pem")), key: cluster.path(&format!("{name}.key")) };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-days", "2", "-subj", &format!("/CN={name}")]).args(key);
    openssl.args(["-addext", &format!("subjectAltName={names}")]);
    openssl.arg("-out").arg(&tls.certificate).arg("-keyout").arg(&tls.key);
    match openssl.stderr(Stdio::null()).status() {
        Ok(status) => assert!(status.success(), "{openssl:?}"),
        Err(error) => {
            skipped(&format!("TLS: no openssl program to make a certificate: {error}"));
            return None;
        }
    }
    Some(tls)
}
