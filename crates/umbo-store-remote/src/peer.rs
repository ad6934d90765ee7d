//! Connections to other dispatchers of the cluster, with the transport and the certificate of connections to nodes, and
//! the address at which they reach this one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::net::UdpSocket;
use tokio::time::timeout;
use umbo_routing::ClusterNode;

use crate::connector::Io;
use crate::dial_error::DialError;
use crate::store::RemoteStore;
use crate::tls;

impl RemoteStore {
    /// Connects to another dispatcher. With TLS the certificate of the dispatcher must carry `role` as a name, and
    /// `protocol` is the name of the protocol on the connection. The error says which step failed.
    pub async fn dial_peer(
        &self,
        peer: &ClusterNode,
        role: &str,
        protocol: &[u8],
    ) -> Result<Box<dyn Io>, String> {
        let settings = &self.common.settings;
        let within = settings.connect_timeout;
        let dialling = async {
            let connected = settings.transport.connect(peer.host(), peer.port()).await;
            let io = connected.map_err(DialError::Connect)?;
            let Some(files) = settings.tls.clone() else {
                return Ok(io);
            };
            let secured = tls::connect(files, role, Some(protocol), io).await?;
            Ok(Box::new(secured) as Box<dyn Io>)
        };
        let late = |_| DialError::Timeout {
            what: "connection",
            within,
        };
        let dialled = timeout(within, dialling).await.map_err(late);
        dialled
            .flatten()
            .map_err(|error: DialError| error.to_string())
    }

    /// Returns the address of this machine on the way to the home, or to another node if the home has no address now.
    /// It is an address of loopback if no node has one.
    pub async fn own_address(&self) -> IpAddr {
        let map = self.map();
        let home = map.node_of(map.home().shard);
        for node in home.into_iter().chain(map.nodes()) {
            let looking = timeout(self.common.settings.connect_timeout, address_towards(node));
            if let Ok(Ok(own)) = looking.await {
                return own;
            }
        }
        tracing::warn!("no node has an address: other dispatchers may not reach this one");
        Ipv4Addr::LOCALHOST.into()
    }
}

/// Returns the address of this machine on the way to a node. Sends nothing.
async fn address_towards(node: &ClusterNode) -> io::Result<IpAddr> {
    let to = (node.host(), node.port());
    let mut socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    if socket.connect(to).await.is_err() {
        socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await?;
        socket.connect(to).await?;
    }
    Ok(socket.local_addr()?.ip())
}
