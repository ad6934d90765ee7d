//! The task behind the connection of a node: it connects, moves the bytes, and connects again after the end
//! of a connection.
//!
//! Owns the backoff. There is one connection to a node at a time: the next one is made after the last answers
//! of the one before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use umbo_protocol::Hello;

use crate::clock_offset::ClockOffset;
use crate::connection::NodeConnection;
use crate::counters::count;
use crate::dial::{NewConnection, dial};
use crate::dial_error::DialError;
use crate::node::Node;
use crate::seeded_random::SeededRandom;
use crate::transfer::ConnectionTransfer;

/// Keeps a node connected until it is retired, and then waits for the last answers.
pub(crate) async fn keep(node: Arc<Node>) {
    let common = Arc::clone(&node.common);
    let settings = &common.settings;
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
    let mut has_worked = false;
    // Start of the absence of the node. The log reports the absence once, and the return once. During an absence it
    // also reports once for each reason that something answers at the address but cannot be used.
    let mut away_since: Option<Instant> = None;
    let mut told = String::new();
    while !node.is_retired() {
        match connect(&node).await {
            Ok(dialled) => {
                let begun = common.clock.monotonic();
                if let Some(since) = away_since.take() {
                    let away_ms = begun.saturating_duration_since(since).as_millis();
                    tracing::info!(
                        node = node.name(),
                        away_ms,
                        "a shard node is connected again"
                    );
                }
                told.clear();
                has_worked = true;
                exchange(&node, dialled).await;
                let ended = common.clock.monotonic();
                away_since = Some(ended);
                // A connection that is lost at once must not be made again in a tight loop.
                if ended - begun > settings.backoff_max {
                    backoff.reset();
                }
            }
            Err(error) => {
                count(&common.counters.connections_refused);
                let reason = error.to_string();
                node.refused(&reason, has_worked);
                let is_unusable = error.is_unusable() && told != reason;
                if away_since.is_none() || is_unusable {
                    tracing::warn!(node = node.name(), address = node.place.address(), %reason,
                        "no connection to a shard node; trying again");
                    away_since = away_since.or_else(|| Some(common.clock.monotonic()));
                    told = reason;
                } else {
                    tracing::debug!(node = node.name(), %reason, "a shard node is still away");
                }
            }
        }
        node.retired_within(backoff.next(&common.chance)).await;
    }
}

async fn connect(node: &Node) -> Result<NewConnection, DialError> {
    let common = &node.common;
    let map_version = common.map_version.load(Ordering::Acquire);
    let mut hello = Hello::new(
        &common.cluster_id,
        node.name(),
        map_version,
        common.incarnation,
    );
    hello.records = common.records_revision();
    let (host, port) = (node.place.host(), node.place.port());
    let dialled = dial(host, port, &hello, &common.settings, &*common.clock).await?;
    count(&common.counters.connections);
    tracing::debug!(node = node.name(), "connected to a shard node");
    Ok(dialled)
}

/// Uses a connection until it ends.
async fn exchange(node: &Arc<Node>, dialled: NewConnection) {
    let settings = &node.common.settings;
    let connection = NodeConnection::new(
        dialled.welcome.window,
        ClockOffset::new(dialled.stamp.stamp_ns, dialled.received),
        settings.in_flight_max,
        settings.queued_len_max,
    );
    node.heard(&dialled.stamp);
    node.keep_time(dialled.welcome.wall, dialled.asked, dialled.received);
    let version = dialled.welcome.program_version.clone();
    node.program_version.store(version.map(Arc::new));
    node.joined(Arc::clone(&connection));
    if node.is_retired() {
        connection.drain();
    }
    let transfer = ConnectionTransfer::new(Arc::clone(node), Arc::clone(&connection), dialled);
    transfer.run().await;
    let Some(ending) = connection.ended() else {
        return;
    };
    if ending.was_draining {
        if ending.is_given_up {
            tracing::warn!(node = node.name(), "a shard node left requests unanswered");
        } else if !node.is_retired() {
            tracing::info!(node = node.name(), "a shard node is restarting");
        }
        return;
    }
    count(&node.common.counters.connections_lost);
    tracing::warn!(node = node.name(), reason = %ending.reason,
        "the connection to a shard node was lost; trying again");
    node.parted(&ending.reason, !ending.is_given_up);
}

/// The wait before the next attempt: doubled each time, and randomised.
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

    /// Returns a random wait between half of the current one and all of it.
    fn next(&mut self, chance: &SeededRandom) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait / 2 + (wait / 2).mul_f64(chance.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(1));
        let (mut backoff, chance) = (Backoff::new(min, max), SeededRandom::new(Some(1)));
        for doublings in 0..10 {
            let whole = (min * (1 << doublings)).min(max);
            let wait = backoff.next(&chance);
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next(&chance) <= min);
    }
}
