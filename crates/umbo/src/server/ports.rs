//! The two ports of a server, and who answers at them.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_dispatcher::edge::{self, DrainStats, EdgeLimits};
use umbo_dispatcher::{Dispatcher, Door, Service};

use super::open::Opened;
use super::watcher::Watcher;
use crate::settings::ServerSettings;

/// Bound sockets.
pub(super) struct Listeners {
    pub(super) data: TcpListener,
    pub(super) admin: TcpListener,
}

/// Who answers.
#[derive(Default)]
pub(super) struct Doors {
    data: Arc<Door>,
    admin: Arc<Door>,
}

impl Doors {
    /// Lets requests in to a dispatcher.
    pub(super) fn open(&self, pod: &Arc<Dispatcher>) {
        self.data.open(Service::data(pod));
        self.admin.open(Service::admin(pod));
    }
}

/// Listening ports.
pub(super) struct Ports {
    data: Port,
    admin: Port,
}

struct Port {
    stop: CancellationToken,
    task: JoinHandle<DrainStats>,
}

impl Ports {
    pub(super) fn begin(
        listeners: Listeners,
        opened: &Opened,
        doors: &Doors,
        settings: &ServerSettings,
    ) -> Self {
        let watcher = Arc::new(Watcher::new(Arc::clone(&opened.metrics)));
        let limits = edge_limits(settings);
        let serve = |listener, door: &Arc<Door>| {
            let stop = CancellationToken::new();
            let task = tokio::spawn(edge::serve(
                listener,
                opened.tls.clone(),
                Arc::clone(door),
                limits.clone(),
                stop.clone(),
                watcher.clone(),
            ));
            Port { stop, task }
        };
        Self {
            data: serve(listeners.data, &doors.data),
            admin: serve(listeners.admin, &doors.admin),
        }
    }

    /// Lets requests in flight finish. The admin port is the last, so that operators can watch.
    pub(super) async fn close(self) {
        self.data.close("data").await;
        self.admin.close("admin").await;
    }
}

impl Port {
    async fn close(self, name: &str) {
        self.stop.cancel();
        match self.task.await {
            Ok(DrainStats { open, aborted }) => {
                tracing::info!(open, aborted, "the {name} port is closed");
            }
            Err(error) => tracing::error!(%error, "the {name} port ended badly"),
        }
    }
}

fn edge_limits(server: &ServerSettings) -> EdgeLimits {
    EdgeLimits {
        connections_max: server.connections_max as usize,
        header_timeout: server.header_timeout.0,
        idle_timeout: server.idle_timeout.0,
        write_timeout: server.write_timeout.0,
        drain_timeout: server.drain_timeout.0,
        ..EdgeLimits::default()
    }
}
