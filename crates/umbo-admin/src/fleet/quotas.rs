//! Messages between dispatchers about quotas of the scopes `fleet` and `shard`.
//!
//! Owns when messages go out and rows are read and written, and how long each may take. [`FleetQuota`] writes and reads
//! the messages. Their numbers are sums, so that a lost or repeated message does no harm. While no policy has the scope,
//! nothing is sent.
//!
//! [`FleetQuota`]: umbo_quota::FleetQuota

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use blake3::Hash;
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use umbo_quota::{FLEET_TICK, FleetMessage, RowWish};

use super::answer::FleetRoom;
use super::membership::Membership;
use super::question::{BUSY, QuestionRefusal, UNREADABLE, WRONG_SIGNATURE};

/// Longest message, and longest answer to one, in bytes: the core writes 704 KiB at most.
const MESSAGE_LEN_MAX: usize = 1 << 20;
/// Time that a message has, and the work on it at its owner. The next one is due after 100 ms, so a later answer is worth
/// nothing.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(250);
/// Time to make a connection, which may take several round trips.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Most messages that are read at once, each of [`MESSAGE_LEN_MAX`] at most; further ones wait.
const READING_MAX: usize = 32;
/// Bytes of the answers of owners that a process holds: one answer of each of eight owners.
const ROOM_BYTES: usize = 8 * MESSAGE_LEN_MAX;
/// How long a message is under way, the making of a connection included: longer than several round trips.
const SEND_TIMEOUT: Duration = Duration::from_secs(4);
/// Time between two looks while no policy has the scope.
const UNUSED_TICK: Duration = Duration::from_secs(1);
/// Messages in a row without an answer until an owner counts as silent, which is half a second.
const SILENT_AFTER: u32 = 5;
/// Most owners whose silence is known. There are eight at a time.
const OWNERS_MAX: usize = 64;
/// Pause after rows could not be read, or the ownership row not be changed.
const ROW_PAUSE: Duration = Duration::from_millis(500);

/// Room for messages that come in, and for answers.
#[derive(Debug)]
pub(super) struct QuotaRoom {
    reading: Semaphore,
    answers: FleetRoom,
}

impl Default for QuotaRoom {
    fn default() -> Self {
        Self {
            reading: Semaphore::new(READING_MAX),
            answers: FleetRoom::of(ROOM_BYTES),
        }
    }
}

impl QuotaRoom {
    /// Reads a message of another dispatcher, whose head is checked, and returns the answer.
    pub(super) async fn hear(
        &self,
        own: &Membership,
        body: Incoming,
        digest: Hash,
    ) -> Result<Bytes, QuestionRefusal> {
        let hearing = async {
            let _reading = self.reading.acquire().await.map_err(|_| BUSY)?;
            let body = read(body, digest).await?;
            let answer = own.quotas.core.hear(&body, own.now());
            answer.map(Bytes::from).map_err(|_| UNREADABLE)
        };
        timeout(MESSAGE_TIMEOUT, hearing).await.unwrap_or(Err(BUSY))
    }
}

/// Reads the body of a message, whose hash is known.
async fn read<B: Body>(body: B, digest: Hash) -> Result<Bytes, QuestionRefusal>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, MESSAGE_LEN_MAX).collect().await;
    let body = body.map_err(|_| UNREADABLE)?.to_bytes();
    if blake3::hash(&body) == digest {
        Ok(body)
    } else {
        Err(WRONG_SIGNATURE)
    }
}

/// An owner, as this dispatcher reaches it.
#[derive(Debug, Default)]
struct Owner {
    /// Messages to it that are open.
    open: u32,
    /// Messages without an answer since the last one with an answer.
    failures: u32,
}

/// Work that has ended.
enum Ended {
    /// A message to an owner: its answer, or the reason in words.
    Message(u64, Result<Bytes, String>),
    /// Work on rows: whether the home did it.
    Rows(bool),
}

/// Sends the messages of a dispatcher and does its work on the ownership row.
struct QuotaExchange {
    own: Arc<Membership>,
    room: Arc<QuotaRoom>,
    owners: BTreeMap<u64, Owner>,
    /// When rows may be read and written; `None` while they are.
    rows_due: Option<Instant>,
    open: JoinSet<Ended>,
}

/// Exchanges messages with the owners of counters, in an endless loop.
pub(super) async fn exchange(own: Arc<Membership>, room: Arc<QuotaRoom>) {
    let mut exchange = QuotaExchange {
        own,
        room,
        owners: BTreeMap::new(),
        rows_due: Some(Instant::now()),
        open: JoinSet::new(),
    };
    let mut due = Instant::now();
    loop {
        tokio::select! {
            biased;
            Some(ended) = exchange.open.join_next() => match ended {
                Ok(ended) => exchange.end(ended),
                // Its work ended badly: the messages that are still open end by themselves.
                Err(_) => exchange.rows_due = exchange.rows_due.or(Some(Instant::now() + ROW_PAUSE)),
            },
            () = sleep_until(due) => {
                exchange.tick();
                let is_used = exchange.own.quotas.core.is_used();
                due = Instant::now() + if is_used { FLEET_TICK } else { UNUSED_TICK };
            }
        }
    }
}

impl QuotaExchange {
    fn tick(&mut self) {
        for message in self.own.quotas.core.tick(self.own.now()) {
            let owner = self.owners.entry(message.to).or_default();
            owner.open += 1;
            let is_first = owner.failures == 0;
            let (own, room) = (Arc::clone(&self.own), Arc::clone(&self.room));
            self.open.spawn(async move {
                let to = message.to;
                if is_first && own.address_of(to).is_none() {
                    // It has joined since the members were read.
                    own.read().await;
                }
                let sending = send(&own, &room.answers, message);
                let sent = timeout(SEND_TIMEOUT, sending).await;
                let late = |_| Err("no connection in time".to_owned());
                Ended::Message(to, sent.unwrap_or_else(late))
            });
        }
        if self.rows_due.is_some_and(|due| due <= Instant::now()) {
            let own = Arc::clone(&self.own);
            let (wish, since) = own.row_wish();
            if wish != RowWish::Nothing {
                self.rows_due = None;
                self.open.spawn(async move {
                    Ended::Rows(match wish {
                        RowWish::Change(row) => own.change_owners(&row, since).await,
                        _ => own.read().await,
                    })
                });
            }
        }
    }

    fn end(&mut self, ended: Ended) {
        let (id, answer) = match ended {
            Ended::Rows(is_done) => {
                let pause = if is_done { Duration::ZERO } else { ROW_PAUSE };
                self.rows_due = Some(Instant::now() + pause);
                return;
            }
            Ended::Message(id, answer) => (id, answer),
        };
        let owner = self.owners.entry(id).or_default();
        owner.open = owner.open.saturating_sub(1);
        match answer {
            Ok(body) => {
                self.own.quotas.answered.fetch_add(1, Ordering::Relaxed);
                self.own.quotas.core.answered(id, &body, self.own.now());
                if std::mem::take(&mut owner.failures) >= SILENT_AFTER {
                    tracing::info!("dispatcher {id:016x} answers about quotas again");
                }
            }
            Err(reason) => {
                self.own.quotas.unanswered.fetch_add(1, Ordering::Relaxed);
                owner.failures = owner.failures.saturating_add(1);
                if owner.failures == SILENT_AFTER {
                    tracing::warn!(reason, "dispatcher {id:016x} owns quotas and is silent");
                }
                // The connection may be cut.
                if owner.failures.is_multiple_of(SILENT_AFTER) {
                    self.own.peers.forget(id);
                }
            }
        }
        if self.owners.len() > OWNERS_MAX {
            self.owners.retain(|_, owner| owner.open > 0);
        }
    }
}

/// Sends a message to an owner. Returns its answer, or the reason in words.
async fn send(own: &Membership, room: &FleetRoom, message: FleetMessage) -> Result<Bytes, String> {
    let FleetMessage { to, body } = message;
    let address = own.address_of(to).ok_or("it has left the fleet")?;
    let reached = timeout(CONNECT_TIMEOUT, own.peers.reach(to, &address)).await;
    let reached = reached.map_err(|_| format!("{address}: no connection"))?;
    reached.map_err(|failure| failure.reason)?;
    let request = own.key.write(body.into(), to, own.home_time());
    let request = request.ok_or("the message cannot be written")?;
    let answer = own.send((to, &address), request, room, MESSAGE_TIMEOUT);
    let ((status, body), _) = answer.await.map_err(|failure| failure.reason)?;
    if status == 200 {
        Ok(body)
    } else {
        Err(format!("{address} answered with status {status}"))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn a_body_is_bounded_and_has_the_hash_that_was_signed() {
        let read = async |len: usize, signed: usize| {
            let digest = blake3::hash(&vec![7; signed]);
            read(Full::new(Bytes::from(vec![7; len])), digest).await
        };
        assert_eq!(read(3, 3).await, Ok(Bytes::from_static(&[7; 3])));
        assert_eq!(read(3, 4).await, Err(WRONG_SIGNATURE));
        let longest = read(MESSAGE_LEN_MAX, MESSAGE_LEN_MAX).await;
        assert!(longest.is_ok_and(|body| body.len() == MESSAGE_LEN_MAX));
        let longer = MESSAGE_LEN_MAX + 1;
        assert_eq!(read(longer, longer).await, Err(UNREADABLE));
    }
}
