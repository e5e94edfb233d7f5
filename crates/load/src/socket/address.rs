//! Where the responders of a run directory are: a file `NAME.responder` each, with its address.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// Longer than any address.
const FILE_BYTES_MAX: u64 = 128;

/// Lets others find the responder of the node `name`, in place of an earlier one.
///
/// # Errors
/// Where the file cannot be written.
pub fn publish_address(directory: &Path, name: &str, address: SocketAddr) -> Result<(), Error> {
    let path = file_of(directory, name);
    // Written aside and renamed: nobody reads half an address. The name ends as those that a sweep removes.
    let aside = directory.join(format!(".{name}.{}.responder.new", std::process::id()));
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        writeln!(file, "{address}")?;
        std::fs::rename(&aside, &path)
    })();
    written.map_err(|source| Error::AddressFile { path, source })
}

/// Where the responder of the node `name` is.
///
/// # Errors
/// Where nobody has published it, or what is there is no address.
pub fn find_address(directory: &Path, name: &str) -> Result<SocketAddr, Error> {
    let path = file_of(directory, name);
    let mut text = String::new();
    let read =
        std::fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => {
            let line = text.lines().next().unwrap_or_default();
            line.trim().parse().map_err(|_| Error::BadAddress { path, text: line.to_owned() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoAddress { name: name.to_owned(), place: directory.to_owned() })
        }
        Err(source) => Err(Error::AddressFile { path, source }),
    }
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.responder"))
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
