//! What a client gets at a time.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use sidelong_os::monotonic_ns;
use sidelong_policy::cache::store::Eviction;

use super::*;
use crate::cache::Settings;

#[test]
fn a_client_that_takes_its_answers_at_once_lets_others_go_first() {
    const GETS: usize = 5_000;
    const GET: &[u8] = b"get k\r\n";
    let settings = Settings {
        memory_bytes: 8 << 20,
        item_bytes_max: 1 << 20,
        eviction: Eviction::Sieve,
        evicts: true,
        seed: [1, 2],
    };
    let (cache, mut connections) = (Cache::new(settings).unwrap(), Connections::default());
    connections.open = 1;
    let store = Mutex::new(Store { cache, counters: Counters::default(), connections });
    let options = Options { threads: 1, clients_max: 1, began_ns: monotonic_ns(), ..Options::default() };
    let mut server = Server::new(&[], &options, &store, (None, &[]), None).unwrap();
    let (served, mut client) = UnixStream::pair().unwrap();
    served.set_nonblocking(true).unwrap();
    server.admit(Stream::Unix(served), false).unwrap();

    let value = [b'x'; 1000];
    let answer = [b"VALUE k 0 1000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    client.write_all(&[b"set k 0 0 1000\r\n", &value[..], b"\r\n"].concat()).unwrap();
    server.on_client(0, EventFlags::IN);
    client.write_all(&GET.repeat(GETS)).unwrap();
    let expected = [b"STORED\r\n", &answer.repeat(GETS)[..]].concat();
    let reader = thread::spawn(move || {
        let mut answers = vec![0; expected.len()];
        client.read_exact(&mut answers).unwrap();
        assert!(answers == expected);
        client
    });
    let mut left = GETS;
    while !reader.is_finished() {
        let awaited = server.clients[0].as_ref().expect("it stays").awaited();
        server.on_client(0, awaited);
        let now_left = server.clients[0].as_ref().expect("it stays").input.len() / GET.len();
        let answered = left - now_left;
        assert!(answered <= OUT_BYTES_MAX / answer.len() + 1, "{answered} gets in one turn");
        left = now_left;
    }
    _ = reader.join().unwrap();
}
