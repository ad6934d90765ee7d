//! The task behind each connection of a node: it dials, puts the connection to use, and dials again
//! when that is over.
//!
//! Owns the backoff. A connection that is not used any more is read to its end by a task of its
//! own, while the next one is made already.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use umbo_protocol::Hello;

use crate::connection::Connection;
use crate::counters::count;
use crate::dial::{DialError, dial};
use crate::node::{Lane, Node};
use crate::reader::Reader;

/// Keeps a lane of a node connected until the node is retired, and then waits for the last answers.
pub(crate) async fn keep(node: Arc<Node>, lane: Lane) {
    let settings = &node.common.settings;
    let mut readers = JoinSet::new();
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
    let (mut has_worked, mut told) = (false, String::new());
    while !node.is_retired() {
        match connect(&node, lane, &mut readers).await {
            Ok(connection) => {
                let begun = node.common.clock.monotonic();
                has_worked = true;
                told.clear();
                connection.left().await;
                part(&node, lane, &connection);
                // One that is lost at once again is not to be dialled in a loop.
                if node.common.clock.monotonic() - begun > settings.backoff_max {
                    backoff.reset();
                }
            }
            Err(error) => {
                count(&node.common.counters.connections_refused);
                let reason = error.to_string();
                node.refused(&reason, has_worked);
                if told != reason {
                    tracing::warn!(node = node.name(), address = node.place.address(), %reason,
                        "a shard node cannot be connected to; trying again");
                    told = reason;
                }
            }
        }
        while readers.try_join_next().is_some() {}
        node.retired_within(backoff.next()).await;
    }
    let all = async { while readers.join_next().await.is_some() {} };
    if timeout(settings.drain_timeout, all).await.is_err() {
        tracing::warn!(node = node.name(), "a shard node left requests unanswered");
    }
}

async fn connect(
    node: &Arc<Node>,
    lane: Lane,
    readers: &mut JoinSet<()>,
) -> Result<Arc<Connection>, DialError> {
    let common = &node.common;
    let settings = &common.settings;
    let map_version = common
        .map_version
        .load(std::sync::atomic::Ordering::Acquire);
    let hello = Hello::new(&common.cluster_id, node.name(), map_version);
    let connection = Connection::new(
        &hello,
        Arc::clone(&common.counters),
        settings.in_flight_max,
        settings.outbox_len_max,
    );
    let dialled = dial(
        node.place.host(),
        node.place.port(),
        &hello,
        settings,
        &connection,
    )
    .await?;
    count(&common.counters.connections);
    tracing::debug!(node = node.name(), ?lane, "connected to a shard node");
    node.goes_by(dialled.welcome.map_version);
    node.joined(lane, Arc::clone(&connection));
    if node.is_retired() {
        connection.drain();
    }
    let reader = Reader::new(Arc::clone(node), lane, Arc::clone(&connection));
    readers.spawn(reader.read(dialled));
    Ok(connection)
}

fn part(node: &Node, lane: Lane, connection: &Connection) {
    let Some(ending) = connection.ended() else {
        node.parted(lane, "it is restarting", true);
        return;
    };
    count(&node.common.counters.connections_lost);
    tracing::warn!(node = node.name(), reason = %ending.reason, ?lane,
        "the connection to a shard node was lost");
    node.parted(lane, &ending.reason, !ending.is_given_up);
}

/// How long to wait before the next attempt: doubled each time, and never the same for two.
#[derive(Debug)]
struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            next: min,
        }
    }

    fn reset(&mut self) {
        self.next = self.min;
    }

    /// Returns half to the whole of what it has come to.
    fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        // Without a source of chance all wait the same, which is no reason to stop.
        let share = getrandom::u32().unwrap_or(u32::MAX);
        wait / 2 + (wait / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(1));
        let mut backoff = Backoff::new(min, max);
        for doublings in 0..10 {
            let whole = (min * (1 << doublings)).min(max);
            let wait = backoff.next();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= min);
    }
}
