//! A relay of TCP to whichever server accepts, which counts what clients send.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use crate::failure::Failure;

/// Bytes that are passed on at a time.
const CHUNK_LEN: usize = 64 << 10;

/// A relay; it accepts no more connections once it is dropped.
pub(super) struct Relay {
    pub(super) port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    /// Ports of the servers.
    to: Vec<u16>,
    /// Bytes that came from clients.
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Relay {
    /// Begins to accept connections, which go to the first of these ports that accepts, by turns.
    pub(super) fn start(to: Vec<u16>) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(Failure::io("cannot listen"))?;
        let address = listener.local_addr().map_err(Failure::io("no address"))?;
        let shared = Arc::new(Shared {
            to,
            bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(&listener))
        };
        Ok(Self {
            port: address.port(),
            shared,
            accepting: Some(accepting),
        })
    }

    /// Returns the bytes that clients have sent.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        // The listener looks only when a connection comes.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for (turn, client) in listener.incoming().enumerate() {
            if self.is_over.load(Relaxed) {
                return;
            }
            let Ok(client) = client else { continue };
            let mut ports = self.to.iter().cycle().skip(turn % self.to.len());
            let server = ports.by_ref().take(self.to.len()).find_map(|&port| {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                TcpStream::connect(address).ok()
            });
            // Where no server accepts, the client finds its connection closed.
            let Some(server) = server else { continue };
            let both = client.try_clone().and_then(|one| {
                let other = server.try_clone()?;
                server.set_nodelay(true)?;
                client.set_nodelay(true)?;
                Ok((one, other))
            });
            let Ok((client_again, server_again)) = both else {
                continue;
            };
            let shared = Arc::clone(self);
            thread::spawn(move || pump(client, server, Some(&shared.bytes)));
            thread::spawn(move || pump(server_again, client_again, None));
        }
    }
}

/// Passes on what comes until one side ends, and ends both.
fn pump(mut from: TcpStream, mut to: TcpStream, bytes: Option<&AtomicU64>) {
    let mut chunk = vec![0; CHUNK_LEN];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        if let Some(bytes) = bytes {
            bytes.fetch_add(read as u64, Relaxed);
        }
        if to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    for side in [from, to] {
        // One that has ended already refuses, which is as well.
        let _ = side.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_is_counted_and_goes_round_a_server_that_is_away() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let away = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let echo = thread::spawn(move || {
            for _ in 0..2 {
                let (mut socket, _) = server.accept().unwrap();
                let mut bytes = [0; 5];
                socket.read_exact(&mut bytes).unwrap();
                socket.write_all(&bytes).unwrap();
            }
        });
        let relay = Relay::start(vec![away, port]).unwrap();
        for _ in 0..2 {
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).unwrap();
            client.write_all(b"bytes").unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"bytes");
        }
        echo.join().unwrap();
        assert_eq!(relay.bytes(), 10);
    }
}
