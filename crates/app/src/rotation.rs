//! How the secret of a cluster on several machines is changed, which each has as a file: all machines get a new one beside the old one,
//! then all lose the old one. People carry the file to the machines, since whoever has learned the old secret could read what parts send.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use sidelong_config::{self as config, Cluster};
use sidelong_fabric::Error;
use sidelong_fabric::control::{Cause, Sealed, SealedError, Secret, SecretId};
use sidelong_os::replace_file;

use crate::fabric;
use crate::failure::Failure;
use crate::roster::{Place, secrets_of_parts};

/// Random bytes of a new secret.
const NEW_BYTES: usize = 32;
/// Longest wait for a cache.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

/// The secret of a cluster on several machines, as the file of this machine has it.
pub struct Rotation {
    cluster: Cluster,
    path: PathBuf,
    secret: Secret,
}

/// The secrets that count for a part.
pub struct Known {
    /// The part.
    pub name: String,
    /// What it says.
    pub has: Has,
    /// Whether a person has given it up as lost: nobody waits for it.
    pub is_lost: bool,
}

/// What a part says of its secrets.
pub enum Has {
    /// These.
    All(Vec<SecretId>),
    /// It is a cache, which tells of each secret that it is asked for whether it has that. These are what it has of this machine's.
    These(Vec<SecretId>),
    /// Another one than this machine.
    Another,
    /// That is not known, for this reason, worded to follow the name of the part.
    Unknown(String),
}

impl Rotation {
    /// Reads the file of this machine.
    ///
    /// # Errors
    /// If the secret is in no file of its own, or that cannot be read.
    pub fn new(cluster: Cluster) -> Result<Self, Failure> {
        let path = match &cluster.secret {
            Some(config::Secret::File(path)) if cluster.fabric != config::Fabric::Shm => {
                fs::canonicalize(path)
                    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?
            }
            Some(config::Secret::Text(_)) => {
                return Err(Failure::new(
                    "the secret stands in the cluster file, which parts read when they start: put it into a file of mode 0600, name \
                     that by secret_file, and restart the parts one after another",
                ));
            }
            _ => return Err(Failure::new("the parts are on one machine, and need no secret")),
        };
        let secret = Secret::read(&path)?;
        Ok(Rotation { cluster, path, secret })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its secret; and the new one, while it is changed.
    pub fn ids(&self) -> (SecretId, Option<SecretId>) {
        let ids = self.secret.ids();
        (ids[0], ids.get(1).copied())
    }

    /// Asks all parts.
    ///
    /// # Errors
    /// If they cannot be asked.
    pub fn ask(&self) -> Result<Vec<Known>, Failure> {
        let mut known = secrets_of_parts(&self.cluster)?;
        let mut add = |name: &String, has| known.push(Known { name: name.clone(), has, is_lost: false });
        for edge in self.cluster.fronts.values().filter(|front| front.fabric_listen.is_none()) {
            add(
                &edge.name,
                Has::Unknown("cannot be asked: give it fabric_listen, and restart it".to_owned()),
            );
        }
        for cache in self.cluster.caches.values() {
            let Some(address) = cache.fabric_listen else { continue };
            add(&cache.name, self.ask_cache(address));
        }
        for part in &mut known {
            part.is_lost = self.cluster.standing.lost.contains(&part.name);
        }
        Ok(known)
    }

    /// By which secrets of this machine a cache lets others in.
    fn ask_cache(&self, address: SocketAddr) -> Has {
        let mut has = Vec::new();
        for id in self.secret.ids() {
            let Some(secret) = self.secret.only(id) else { continue };
            match lets_in(address, &secret, fabric::identity(&self.cluster)) {
                Ok(true) => has.push(id),
                Ok(false) => {}
                Err(why) => return Has::Unknown(format!("does not answer: {why}")),
            }
        }
        if has.is_empty() { Has::Another } else { Has::These(has) }
    }

    /// Writes a new secret beside the one of this machine, which is the only one that parts have.
    ///
    /// # Errors
    /// If a part has another one, or the file cannot be written.
    pub fn begin(&self, known: &[Known]) -> Result<SecretId, Failure> {
        let (old, _) = self.ids();
        let differs = |part: &&Known| match &part.has {
            Has::All(ids) => *ids != [old],
            Has::Another => true,
            Has::These(_) | Has::Unknown(_) => false,
        };
        if let Some(part) = known.iter().find(differs) {
            return Err(Failure::new(format!(
                "{} {}, and {} has {old} alone: the secret is being changed already. Copy the file of the machine where that was begun to \
                 all others, this one too, and go on from there",
                part.name,
                part.has,
                self.path.display()
            )));
        }
        let mut bytes = [0; NEW_BYTES];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
        if filled != bytes.len() {
            return Err(Failure::new("the kernel gives no random bytes"));
        }
        let new: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.write(&[&*self.line(old)?, new.as_bytes()])?;
        Ok(Secret::new(new.as_bytes())?.ids()[0])
    }

    /// Has the new secret be the only one of this machine, and the one that seals what etcd has.
    ///
    /// # Errors
    /// If etcd does not answer, or the file cannot be written.
    pub fn end(&self) -> Result<(), Failure> {
        let (old, new) = self.ids();
        let new = new.unwrap_or(old);
        let line = self.line(new)?;
        let place = Place::new(&self.cluster)?;
        if place.is_far() {
            place.seal_anew(new)?;
        }
        self.write(&[&*line])
    }

    /// The secret of that name, as the file has it now.
    fn line(&self, id: SecretId) -> Result<Vec<u8>, Failure> {
        let text = fs::read(&self.path).map_err(|error| self.failed(&error))?;
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let is_it = |line: &&[u8]| Secret::new(line).is_ok_and(|secret| secret.ids() == [id]);
        let line = lines.find(is_it).map(<[u8]>::to_vec);
        line.ok_or_else(|| Failure::new(format!("{} has changed meanwhile: try again", self.path.display())))
    }

    /// Replaces the file. Parts of its owner, who may be another than root, read it from then on; its group does not matter.
    fn write(&self, lines: &[&[u8]]) -> Result<(), Failure> {
        let text: Vec<u8> = lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
        let is_own = fs::metadata(&self.path).is_ok_and(|file| file.uid() == geteuid().as_raw());
        let written = replace_file(&self.path, &text, |error| if is_own { Ok(()) } else { Err(error) });
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(format!("{}: {error}", self.path.display()))
    }
}

/// Whether a cache lets another one in that knows only this secret.
fn lets_in(address: SocketAddr, secret: &Secret, cluster: u64) -> Result<bool, String> {
    let told = |error: io::Error| error.to_string();
    let deadline = Instant::now() + ANSWER_MAX;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).map_err(told)?;
    let (mut out, mut input, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let mut sealed = Sealed::asking(secret, cluster, &mut out);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("it takes too long".to_owned());
        }
        stream
            .set_read_timeout(Some(left))
            .and_then(|()| stream.set_write_timeout(Some(left)))
            .map_err(told)?;
        stream.write_all(&out).map_err(told)?;
        out.clear();
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).map_err(told)?;
        input.extend_from_slice(&bytes[..count]);
        match sealed.receive(&input, &mut plain, &mut out) {
            Ok(_) if sealed.is_open() => return Ok(true),
            Ok(_) if count == 0 => return Err("it closes the connection".to_owned()),
            Ok(used) => drop(input.drain(..used)),
            // It has taken the secret, and has another file.
            Err(SealedError::Cluster) => return Ok(true),
            Err(SealedError::Refused(Cause::Secret)) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
    }
}

impl Known {
    pub(crate) fn new(name: String, told: Result<Vec<SecretId>, Error>) -> Self {
        let has = match told {
            Ok(ids) => Has::All(ids),
            Err(Error::Control { cause: Cause::Secret, .. }) => Has::Another,
            Err(Error::Declined { .. }) => {
                Has::Unknown("is of a release that does not tell its secrets".to_owned())
            }
            Err(error) => Has::Unknown(format!("does not answer: {error}")),
        };
        Known { name, has, is_lost: false }
    }

    /// Whether it is known to have that secret.
    pub fn knows(&self, id: SecretId) -> bool {
        matches!(&self.has, Has::All(ids) | Has::These(ids) if ids.contains(&id))
    }

    /// Whether another secret counts there, too.
    pub fn has_another_than(&self, id: SecretId) -> bool {
        match &self.has {
            Has::All(ids) | Has::These(ids) => ids.iter().any(|has| *has != id),
            Has::Another => true,
            Has::Unknown(_) => false,
        }
    }
}

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |ids: &[SecretId]| ids.iter().map(SecretId::to_string).collect::<Vec<_>>().join(" and ");
        match self {
            Has::All(ids) => write!(f, "has {}", names(ids)),
            Has::These(ids) => write!(f, "has {} (caches do not say what else)", names(ids)),
            Has::Another => f.write_str("has another one"),
            Has::Unknown(why) => f.write_str(why),
        }
    }
}
