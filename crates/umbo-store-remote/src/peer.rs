//! Connections to other dispatchers of the cluster, with the transport and the certificate of connections to nodes, and
//! the address at which they reach this one.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;
use umbo_routing::ClusterNode;

use crate::connector::Io;
use crate::dial_error::DialError;
use crate::settings::RemoteSettings;

/// Connects dispatchers with one another, whatever their store is.
#[derive(Debug, Clone)]
pub struct PeerDialer(RemoteSettings);

impl PeerDialer {
    /// Makes a dialer that uses transport, certificate and timeout of these settings.
    pub const fn new(settings: RemoteSettings) -> Self {
        Self(settings)
    }

    /// Connects to another dispatcher. With TLS the certificate of the dispatcher must carry `role` as a name, and
    /// `protocol` is the name of the protocol on the connection. The error says which step failed.
    pub async fn dial(
        &self,
        peer: &ClusterNode,
        role: &str,
        protocol: &[u8],
    ) -> Result<Box<dyn Io>, String> {
        let settings = &self.0;
        let within = settings.connect_timeout;
        let dialling = async {
            let connected = settings.transport.connect(peer.host(), peer.port()).await;
            let io = connected.map_err(DialError::Connect)?;
            let Some(files) = &settings.tls else {
                return Ok(io);
            };
            let secured = files.connect(io, role, Some(protocol)).await?;
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

    /// Returns the address of this machine on the way to one of the nodes, of version 4 if `is_v4` says so. Earlier
    /// nodes come first; an address of loopback is returned only if no way has another one.
    pub async fn own_address(&self, nodes: Vec<ClusterNode>, is_v4: bool) -> IpAddr {
        let within = self.0.connect_timeout;
        let mut looking = JoinSet::new();
        for (number, node) in nodes.into_iter().enumerate() {
            looking.spawn(async move {
                let found = timeout(within, address_towards(&node, is_v4)).await;
                (number, found.ok().and_then(Result::ok))
            });
        }
        let ways: BTreeMap<_, _> = looking.join_all().await.into_iter().collect();
        let (own, is_sure) = own_of(ways.into_values());
        if !is_sure {
            tracing::warn!(%own, "other dispatchers may not reach this one: set cluster.advertise");
        }
        own
    }
}

/// Chooses from the addresses of this machine on the ways to the nodes. Returns whether others may be expected to reach
/// it too: loopback is enough where all nodes are reached by it.
fn own_of(ways: impl Iterator<Item = Option<IpAddr>>) -> (IpAddr, bool) {
    let (mut loopback, mut is_sure) = (None, true);
    for way in ways {
        match way {
            Some(own) if !own.is_loopback() => return (own, true),
            Some(own) => loopback = loopback.or(Some(own)),
            None => is_sure = false,
        }
    }
    let own = loopback.unwrap_or(Ipv4Addr::LOCALHOST.into());
    (own, is_sure && loopback.is_some())
}

/// Returns the address of this machine on the way to a node. Sends nothing.
async fn address_towards(node: &ClusterNode, is_v4: bool) -> io::Result<IpAddr> {
    let to = (node.host(), node.port());
    let mut socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    match socket.connect(to).await {
        Err(error) if is_v4 => return Err(error),
        Err(_) => {
            socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await?;
            socket.connect(to).await?;
        }
        Ok(()) => {}
    }
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_own_address_only_where_no_node_is_elsewhere() {
        let ways = |texts: &[&str]| {
            let ways: Vec<_> = texts.iter().map(|text| text.parse().ok()).collect();
            let (own, is_sure) = own_of(ways.into_iter());
            (own.to_string(), is_sure)
        };
        for (texts, own, is_sure) in [
            (["127.0.0.1", "10.0.0.5"], "10.0.0.5", true),
            (["127.0.0.1", "127.0.0.1"], "127.0.0.1", true),
            (["::1", "none"], "::1", false),
            (["none", "fd00::5"], "fd00::5", true),
            (["none", "none"], "127.0.0.1", false),
        ] {
            assert_eq!(ways(&texts), (own.to_owned(), is_sure));
        }
    }

    #[tokio::test]
    async fn an_address_is_of_the_family_that_is_served() {
        let towards = |address: &'static str, is_v4| async move {
            let node = ClusterNode::new("a", address).unwrap();
            address_towards(&node, is_v4).await.ok()
        };
        let v4 = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_eq!(towards("127.0.0.1:9", true).await, v4);
        assert_eq!(towards("127.0.0.1:9", false).await, v4);
        assert_eq!(towards("[::1]:9", true).await, None);
    }
}
