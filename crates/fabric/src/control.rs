//! The control endpoint: where a process tells other processes of its cluster how to reach its regions, and sets up what
//! needs both sides.
//!
//! Each process that exposes regions runs one, in a thread that serves TCP. Load and moves are one-sided and never pass
//! through it.
//!
//! | part | what it is |
//! |---|---|
//! | `secret` | the cluster's secret |
//! | `cause` | why one side refuses the other, counted |
//! | `noise` | the handshake and the encrypted channel that it opens |
//! | `wire` | frames to bytes and back |
//! | `dialogue` | the endpoint's half of one session, without I/O |
//! | `endpoint` | the thread: sockets, readiness, time |
//! | `session` | the asking side |
//! | `sealed` | both halves of a connection that carries any bytes, for processes that talk on their own sockets; without I/O |
//! | `directory` | [`Directory`](crate::Directory) that asks the process which exposes the region |
//!
//! A session is `Noise_NNpsk0_25519_AESGCM_BLAKE2s` of the [Noise protocol](https://noiseprotocol.org/noise.html),
//! revision 34, by the crates `snow` and `ring`; the pre-shared key is derived from the cluster's secret. Both sides prove that they
//! know the secret. Everything after the first two frames is encrypted, and a recorded session stays unreadable if the
//! secret leaks later. A frame is rejected when it is replayed, moved to another session, or sent back to its sender.
//!
//! Why AES-GCM: processors have instructions for it. A get of 1 KB through another cache took three quarters of the CPU time that
//! it took by ChaCha20-Poly1305.
//!
//! Why Noise and not TLS: a cluster has one secret and no certificates. rustls has no pre-shared keys, so TLS would add an
//! authority, a certificate for each machine and their expiry. Why `psk0`: a process without the secret is refused at its
//! first frame, before the endpoint computes a Diffie-Hellman for it, and learns nothing. The price is that an attacker
//! who recorded a first frame can test guesses of the secret offline, so a secret must be random.
//!
//! Traffic analysis still shows which machines talk, when, and the length of each message. The data path is not encrypted:
//! tcp sends a region's token to its target in the clear, and RoCE carries keys in each packet.

mod cause;
mod dialogue;
mod directory;
mod endpoint;
mod noise;
mod sealed;
mod secret;
mod session;
mod wire;

pub use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
pub use cause::{Cause, Refusals};
pub use dialogue::Answers;
#[cfg(fuzzing)]
pub use dialogue::fuzz_endpoint;
pub use directory::ControlDirectory;
pub use endpoint::Endpoint;
#[cfg(fuzzing)]
pub use sealed::fuzz_sealed;
pub use sealed::{SEALED_BYTES_MAX, Sealed, SealedError};
pub use secret::{Secret, SecretId};
pub use session::Session;
pub use wire::{BODY_BYTES_MAX, FIND};
