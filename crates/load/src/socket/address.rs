//! Addresses of the responders of a run directory: a file `NAME.responder` for each.

use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::path::Path;

use sidelong_fabric::RunDirectory;

use crate::Error;

/// Longer than any address.
const FILE_BYTES_MAX: u64 = 128;

/// Publishes the address of the responder of the node `name`, in place of an earlier one.
///
/// # Errors
/// If the file cannot be written.
pub fn publish_address(directory: &Path, name: &str, address: SocketAddr) -> Result<(), Error> {
    let file = file_of(name);
    let written = RunDirectory::at(directory).replace(&file, format!("{address}\n").as_bytes());
    written.map_err(|source| Error::AddressFile { path: directory.join(file), source })
}

/// Finds the address of the responder of the node `name`.
///
/// # Errors
/// If none is published, or the file holds no address.
pub fn find_address(directory: &Path, name: &str) -> Result<SocketAddr, Error> {
    let path = directory.join(file_of(name));
    let mut text = String::new();
    let opened = RunDirectory::at(directory).read(&file_of(name));
    match opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => {
            let line = text.lines().next().unwrap_or_default();
            line.trim().parse().map_err(|_| Error::BadAddress { path, text: line.to_owned() })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::NoAddress { name: name.to_owned(), place: directory.to_owned() })
        }
        Err(source) => Err(Error::AddressFile { path, source }),
    }
}

fn file_of(name: &str) -> String {
    format!("{name}.responder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for address in ["127.0.0.1:80", "[::1]:65535"] {
            let address = address.parse().unwrap();
            publish_address(directory, "n1", address).unwrap();
            assert_eq!(find_address(directory, "n1").unwrap(), address);
        }
        let error = find_address(directory, "n2").unwrap_err();
        assert!(matches!(&error, Error::NoAddress { name, .. } if name == "n2"), "{error}");
        for text in ["", "nonsense\n", "\u{fffd}", "127.0.0.1"] {
            std::fs::write(directory.join("n3.responder"), text).unwrap();
            assert!(matches!(find_address(directory, "n3"), Err(Error::BadAddress { .. })), "{text}");
        }
        let missing = publish_address(&directory.join("missing"), "n1", "127.0.0.1:80".parse().unwrap());
        assert!(missing.unwrap_err().to_string().contains("n1.responder"));
    }
}
