//! The connections between the dispatchers of a world: real ones of HTTP/2, over bytes in memory.
//!
//! Owns who is reached at which address. A process that is killed ends its connections, and a fault ends all of them and
//! refuses new ones for a while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::duplex;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use umbo_admin::{Connecting, FleetView, PeerConnector, PeerIo};

use crate::simulation::met;

/// Bytes under way in each direction of a connection.
const BUFFER_LEN: usize = 64 << 10;
/// Time to make a connection.
const CONNECT_TIME: Duration = Duration::from_millis(2);

/// A process that others reach.
#[derive(Debug)]
struct Door {
    fleet: Arc<FleetView>,
    connections: Vec<AbortHandle>,
}

impl Door {
    fn cut(&mut self) {
        for connection in self.connections.drain(..) {
            connection.abort();
        }
    }
}

/// The ways of a world.
#[derive(Debug, Default)]
pub(crate) struct PeerWays {
    doors: Mutex<BTreeMap<String, Door>>,
    is_cut: AtomicBool,
}

impl PeerWays {
    /// Opens the door of a process.
    pub(super) fn open(&self, address: String, fleet: &Arc<FleetView>) {
        let door = Door {
            fleet: Arc::clone(fleet),
            connections: Vec::new(),
        };
        self.doors().insert(address, door);
    }

    /// Closes the door of a process that is killed.
    pub(super) fn close(&self, address: &str) {
        if let Some(mut door) = self.doors().remove(address) {
            door.cut();
        }
    }

    /// Ends all connections and refuses new ones, or lets them be made again.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
        if is_cut {
            self.doors().values_mut().for_each(Door::cut);
        }
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<String, Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerConnector for PeerWays {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            sleep(CONNECT_TIME).await;
            let mut doors = self.doors();
            let door = doors.get_mut(address);
            let door = door.filter(|_| !self.is_cut.load(Ordering::Relaxed));
            let door = door.ok_or_else(|| format!("{address}: refused"))?;
            met("connection between dispatchers");
            let (own, other) = duplex(BUFFER_LEN);
            let serving = tokio::spawn(Arc::clone(&door.fleet).serve(other));
            door.connections.push(serving.abort_handle());
            Ok(Box::new(own) as Box<dyn PeerIo>)
        })
    }
}
