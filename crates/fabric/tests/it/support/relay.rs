//! A relay between tcp initiators and their target. It stalls, cuts and records connections as a network could.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// What the relay passes from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passing {
    Everything,
    /// Requests only; answers wait.
    Requests,
    /// Nothing: requests and answers wait.
    Nothing,
    /// Everything until that many more bytes of answers have passed; then the connections are cut.
    UntilAnswered(usize),
    /// Nothing: connections are cut, new ones too.
    Cut,
}

/// Stands in front of one target. Clones are the same relay.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug)]
struct State {
    passing: Passing,
    target: Option<SocketAddr>,
    /// What has passed since recording began: requests, and answers.
    overheard: Option<[Vec<u8>; 2]>,
}

impl Relay {
    pub(crate) fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { passing: Passing::Everything, target: None, overheard: None };
        let relay = Relay { address, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let accepting = relay.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let target = accepting.state().target;
                if accepting.state().passing == Passing::Cut {
                    continue;
                }
                if let Some(far) = target.and_then(|target| TcpStream::connect(target).ok()) {
                    accepting.join(near, far).unwrap();
                }
            }
        });
        relay
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_target(&self, target: SocketAddr) {
        self.state().target = Some(target);
    }

    pub(crate) fn pass(&self, passing: Passing) {
        self.state().passing = passing;
        self.state.1.notify_all();
    }

    /// Starts to record.
    pub(crate) fn overhear(&self) {
        self.state().overheard = Some(Default::default());
    }

    /// The recorded bytes of requests and of answers.
    pub(crate) fn overheard(&self) -> [Vec<u8>; 2] {
        self.state().overheard.clone().expect("it was told to listen")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    fn join(&self, near: TcpStream, far: TcpStream) -> io::Result<()> {
        for (from, to, answers) in
            [(near.try_clone()?, far.try_clone()?, false), (far.try_clone()?, near.try_clone()?, true)]
        {
            let relay = self.clone();
            from.set_nodelay(true)?;
            thread::spawn(move || {
                let _ = relay.copy(&from, &to, answers);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream, answers: bool) -> io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            let count = from.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            let mut state = self.state();
            while state.passing == Passing::Nothing || (answers && state.passing == Passing::Requests) {
                state = self.state.1.wait(state).unwrap();
            }
            match &mut state.passing {
                Passing::UntilAnswered(left) if answers => match left.checked_sub(count) {
                    Some(rest) => *left = rest,
                    None => {
                        let last = *left;
                        state.passing = Passing::Cut;
                        drop(state);
                        return to.write_all(&bytes[..last]);
                    }
                },
                Passing::Cut => return Ok(()),
                _ => {}
            }
            if let Some(overheard) = &mut state.overheard {
                overheard[usize::from(answers)].extend_from_slice(&bytes[..count]);
            }
            drop(state);
            to.write_all(&bytes[..count])?;
        }
    }
}
