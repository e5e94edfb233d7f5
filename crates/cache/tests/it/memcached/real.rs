//! memcached itself, on a Unix socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Long enough for any answer.
const ANSWER: Duration = Duration::from_secs(60);

pub(crate) struct Memcached {
    process: Child,
    directory: tempfile::TempDir,
}

impl Memcached {
    /// None if it is not installed, which is then said.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("memcached");
        // Root must name the user to run as. Threads that look after items in the background hold on to them now and then, and
        // a number is then not changed in place.
        command.args(["-u", "root", "-U", "0", "-t", "1", "-m", "64"]);
        command.args(["-o", "no_lru_maintainer,no_lru_crawler,no_slab_reassign"]);
        command.arg("-s").arg(directory.path().join("socket"));
        let process = match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(process) => process,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: memcached: {error}");
                return None;
            }
        };
        let real = Memcached { process, directory };
        for _ in 0..2000 {
            if UnixStream::connect(real.directory.path().join("socket")).is_ok() {
                return Some(real);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("memcached does not listen after 20 s");
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Sends bytes and takes the answers until they end as `is_whole` says, or the connection does. True in the second case.
pub(crate) fn answer(
    stream: &mut UnixStream,
    bytes: &[u8],
    is_whole: impl Fn(&[u8]) -> bool,
) -> (Vec<u8>, bool) {
    // It may have closed before it has read everything.
    _ = stream.write_all(bytes);
    let mut answers = Vec::new();
    let mut buffer = [0; 1 << 16];
    loop {
        if is_whole(&answers) {
            return (answers, false);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return (answers, true),
            Ok(read) => answers.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return (answers, true),
            Err(error) => panic!(
                "{error} after {:?}, to {:?}",
                answers.escape_ascii().to_string(),
                bytes.escape_ascii().to_string()
            ),
        }
    }
}
