//! The port of a dispatcher for the other dispatchers of its cluster, its connections to theirs, and its presence.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use umbo_admin::{
    Connecting, DISPATCHER_ROLE, FleetPlace, FleetView, PRESENCE_INTERVAL, PeerConnector, PeerIo,
};
use umbo_routing::ClusterNode;
use umbo_store_remote::PeerDialer;
use umbo_tls::{ALPN_HTTP2, TlsSource};

use super::open::BACKLOG;
use super::store::remote_settings;
use crate::cli_error::CliError;
use crate::parts;
use crate::settings::ClusterSection;
use crate::tasks::at_each;

/// Binds the port. Returns its certificate, and how others reach it and this dispatcher reaches them. `nodes` are the
/// nodes of the store, the home first.
pub(super) async fn bind(
    cluster: &ClusterSection,
    nodes: Vec<ClusterNode>,
) -> Result<(TcpListener, Option<Arc<TlsSource>>, FleetPlace), CliError> {
    let tls = parts::cluster_tls(cluster);
    let tls = tls.map(|files| TlsSource::load_for(files, &[ALPN_HTTP2]));
    let tls = tls.transpose().map_err(CliError::start)?.map(Arc::new);
    let dialer = PeerDialer::new(remote_settings(cluster));
    let own = match cluster.listen {
        // An address that others are told by the settings needs no other.
        Some(listen) if !listen.ip().is_unspecified() || cluster.advertise.is_some() => listen.ip(),
        listen => {
            let is_v4 = listen.is_some_and(|at| at.is_ipv4());
            dialer.own_address(nodes, is_v4).await
        }
    };
    let listen = cluster.listen.unwrap_or(SocketAddr::new(own, 0));
    let bind = |address| umbo_edge::bind(address, BACKLOG);
    let listener = parts::bind("cluster.listen", listen, bind)?;
    let mut reached = listener.local_addr().map_err(CliError::start)?;
    if reached.ip().is_unspecified() {
        reached.set_ip(own);
    }
    let address = cluster.advertise.clone();
    let place = FleetPlace {
        id: getrandom::u64().map_err(CliError::start)?.max(1),
        address: address.unwrap_or_else(|| reached.to_string()),
        connector: Arc::new(Dispatchers(dialer)),
    };
    let address = &place.address;
    tracing::info!(address, "other dispatchers reach this one");
    Ok((listener, tls, place))
}

/// The other dispatchers, reached as the shard nodes are.
#[derive(Debug)]
struct Dispatchers(PeerDialer);

impl PeerConnector for Dispatchers {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let peer =
                ClusterNode::new("dispatcher", address).map_err(|error| error.to_string())?;
            let io = self.0.dial(&peer, DISPATCHER_ROLE, ALPN_HTTP2).await?;
            Ok(Box::new(io) as Box<dyn PeerIo>)
        })
    }
}

/// Keeps the presence of a dispatcher until it is stopped, and then removes it.
pub(super) async fn keep_present(fleet: Arc<FleetView>, stop: CancellationToken) {
    let announcing = at_each(PRESENCE_INTERVAL, || fleet.announce());
    stop.run_until_cancelled(announcing).await;
    fleet.leave().await;
}
