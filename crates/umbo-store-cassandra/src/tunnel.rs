//! TLS to the nodes: the driver connects to a local port for each node, and its connections go on to the node over TLS.
//!
//! The TLS of the driver would bring a second implementation of cryptography into the binary. All users of the machine
//! can reach a local port. The invariant: a connection carries requests only if its STARTUP has the secret of this
//! process, and the node does not get to see the secret.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as PlainListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;
use umbo_tls::PeerTlsFiles;

use crate::engine::lock;
use crate::probe::{ContactError, OPTIONS, dial};

/// Most time until the node has the STARTUP of a connection. The driver waits for this time too.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections to a node at a time. The driver has two, and more only while it replaces them.
const CONNECTIONS_MAX: usize = 32;
/// Wait after a connection could not be accepted, as the process may have too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest frame of a connection before its STARTUP; such frames have a few hundred bytes.
const SETUP_LEN_MAX: usize = 64 << 10;
/// Bytes of the head of a frame, which ends with the length of the rest.
const HEAD_LEN: usize = OPTIONS.len();
/// The byte of the head that has the opcode.
const OPCODE: usize = 4;
/// Opcode of the frame that begins a session.
const STARTUP: u8 = 1;

/// Local ports of the nodes. Dropping it ends all connections.
pub(crate) struct Tunnels {
    carrier: Arc<Carrier>,
    /// The port of all nodes: a cluster tells their addresses only.
    port: u16,
    open: Mutex<OpenTunnels>,
}

/// The ports that are open. Nodes are few, and a node that leaves keeps its port.
#[derive(Default)]
struct OpenTunnels {
    local: HashMap<String, SocketAddr>,
    tasks: JoinSet<()>,
}

impl Tunnels {
    /// Makes tunnels to nodes of this port. The secret must stand in the STARTUP of each connection.
    pub(crate) fn new(tls: PeerTlsFiles, secret: String, port: u16) -> Self {
        Self {
            carrier: Arc::new(Carrier { tls, secret }),
            port,
            open: Mutex::default(),
        }
    }

    /// Opens a local port for a contact point. It has the number of the node's port if the system has more local addresses
    /// than one, because the driver takes it for the port of all nodes, and compares it with the events of the cluster.
    pub(crate) fn of_contact_point(&self, node: &str, random: i64) -> io::Result<SocketAddr> {
        let [a, b, c, ..] = random.to_be_bytes().map(|byte| byte.clamp(1, 254));
        self.open(node, (Ipv4Addr::new(127, a, b, c), self.port).into())
    }

    fn open(&self, node: &str, wanted: SocketAddr) -> io::Result<SocketAddr> {
        let mut open = lock(&self.open);
        if let Some(local) = open.local.get(node) {
            return Ok(*local);
        }
        let listener = PlainListener::bind(wanted)
            .or_else(|_| PlainListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        let (listener, carrier) = (TcpListener::from_std(listener)?, Arc::clone(&self.carrier));
        open.tasks.spawn(carrier.serve(listener, node.into()));
        open.local.insert(node.to_owned(), local);
        Ok(local)
    }
}

#[async_trait]
impl AddressTranslator for Tunnels {
    async fn translate_address(
        &self,
        peer: &UntranslatedPeer,
    ) -> Result<SocketAddr, TranslationError> {
        let node = SocketAddr::new(peer.untranslated_address().ip(), self.port);
        self.open(&node.to_string(), (Ipv4Addr::LOCALHOST, 0).into())
            .map_err(|error| TranslationError::IoError(Arc::new(error)))
    }
}

/// Carries the connections of this process to a node.
struct Carrier {
    tls: PeerTlsFiles,
    secret: String,
}

impl Carrier {
    async fn serve(self: Arc<Self>, listener: TcpListener, node: Arc<str>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                    let Ok((local, _)) = accepted else {
                        sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    connections.spawn(Arc::clone(&self).carry(local, Arc::clone(&node)));
                }
            }
        }
    }

    /// Carries a connection until one side ends it.
    async fn carry(self: Arc<Self>, mut local: TcpStream, node: Arc<str>) {
        let begun = timeout(SETUP_TIMEOUT, self.begin(&mut local, &node)).await;
        let remote = match begun.unwrap_or(Err(ContactError::Silent)) {
            Ok(Some(remote)) => remote,
            Err(ContactError::Tls { error }) => {
                return tracing::warn!(%node, %error, "there is no TLS with a node of Cassandra");
            }
            // The driver sees a node that is down as it does without TLS.
            Ok(None) | Err(_) => return,
        };
        let (mut from_local, mut to_local) = local.split();
        let (mut from_node, mut to_node) = split(remote);
        // The driver sees the end of the connection, and connects again.
        tokio::select! {
            biased;
            _ = copy(&mut from_node, &mut to_local) => {}
            _ = copy(&mut from_local, &mut to_node) => {}
        }
    }

    /// Connects to the node, and passes on the beginning of a connection: OPTIONS and their answers, and STARTUP. Returns
    /// `None` for a connection of another process.
    async fn begin(
        &self,
        local: &mut TcpStream,
        node: &str,
    ) -> Result<Option<TlsStream<TcpStream>>, ContactError> {
        local.set_nodelay(true)?;
        let mut remote = dial(node, &self.tls).await?;
        let mut asked = frame(local).await?;
        while asked[OPCODE] == OPTIONS[OPCODE] {
            remote.write_all(&asked).await?;
            remote.flush().await?;
            local.write_all(&frame(&mut remote).await?).await?;
            asked = frame(local).await?;
        }
        let secret = self.secret.as_bytes();
        let found = asked.windows(secret.len()).position(|word| word == secret);
        let Some(at) = found.filter(|_| asked[OPCODE] == STARTUP) else {
            return Ok(None);
        };
        asked[at..at + secret.len()].fill(b'-');
        remote.write_all(&asked).await?;
        remote.flush().await?;
        Ok(Some(remote))
    }
}

/// Reads a frame of CQL.
async fn frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEAD_LEN];
    from.read_exact(&mut frame).await?;
    let len = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]) as usize;
    if len > SETUP_LEN_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    frame.resize(HEAD_LEN + len, 0);
    from.read_exact(&mut frame[HEAD_LEN..]).await?;
    Ok(frame)
}
