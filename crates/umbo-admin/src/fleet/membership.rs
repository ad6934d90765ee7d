//! A dispatcher among others: its presence, the rows that the home told last, and its ways to the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blake3::Hash;
use bytes::Bytes;
use http::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use umbo_dispatcher::{Dispatcher, FleetQuotas};
use umbo_http::problem;
use umbo_quota::{FleetQuota, OwnerRow, RowWish};
use umbo_types::{Timestamp, Version};

use super::answer::{FleetRoom, ServerAnswer};
use super::peers::{Peers, Unanswered};
use super::presence::{FleetRows, PRESENCE_TIMEOUT, Presence, PresenceRows, known_backups};
use super::question::{OTHER_PROCESS, QuestionKey, WRONG_ROLE};

/// Longest wait for the home to say which dispatchers there are.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Most questions of other dispatchers that are answered at once.
const OPEN_MAX: usize = 256;
/// Longest refusal that is passed on, in bytes.
const REFUSAL_LEN_MAX: usize = 300;
/// How often a dispatcher that stops writes the ownership row without itself, if others change the row meanwhile.
const LEAVE_TRIES: usize = 3;
/// How long a dispatcher that has given up its counters answers with the new ownership row: each of the others sends
/// it a message every 100 ms.
const HAND_OVER_TIME: Duration = Duration::from_millis(250);

/// A dispatcher among others.
#[derive(Debug)]
pub(super) struct Membership {
    dispatcher: Arc<Dispatcher>,
    pub(super) id: u64,
    presence: Presence,
    rows: PresenceRows,
    /// Whether the last write of the row failed: the log has the changes only.
    is_unwritten: AtomicBool,
    /// Whether it has left the fleet: it owns no counters from then on.
    has_left: AtomicBool,
    pub(super) peers: Peers,
    pub(super) key: QuestionKey,
    /// Permits are questions that are being answered.
    pub(super) open: Arc<Semaphore>,
    /// The quotas that count over the whole fleet.
    pub(super) quotas: Arc<FleetQuotas>,
    /// Reads of the rows that have begun.
    reads: AtomicU64,
    last: Mutex<LastRows>,
}

/// The rows when the home last told them.
#[derive(Debug, Default)]
struct LastRows {
    /// Time of this process then.
    at_ms: u64,
    /// Number of the read.
    read: u64,
    rows: FleetRows,
}

impl LastRows {
    /// Returns the version of the ownership row.
    fn version(&self) -> Option<Version> {
        self.rows.owners.as_ref().map(|(version, _)| *version)
    }
}

impl Membership {
    /// Makes the membership of a dispatcher that others know by `id`.
    pub(super) fn new(
        dispatcher: &Arc<Dispatcher>,
        (id, presence): (u64, Presence),
        peers: Peers,
    ) -> Self {
        let (limiter, secret) = (Arc::clone(&dispatcher.quota), dispatcher.control.secret());
        let quotas = dispatcher.fleet_quotas.get_or_init(|| {
            Arc::new(FleetQuotas {
                core: FleetQuota::new(limiter, id, &secret),
                answered: AtomicU64::new(0),
                unanswered: AtomicU64::new(0),
            })
        });
        Self {
            dispatcher: Arc::clone(dispatcher),
            id,
            presence,
            rows: PresenceRows::new(dispatcher),
            is_unwritten: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            peers,
            key: QuestionKey::new(&secret),
            open: Arc::new(Semaphore::new(OPEN_MAX)),
            quotas: Arc::clone(quotas),
            reads: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Writes the presence row.
    pub(super) async fn announce(&self) {
        let writing = self.rows.write(self.id, Some(&self.presence));
        let failure = match timeout(PRESENCE_TIMEOUT, writing).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(problem::detail(&error)),
            Err(_) => Some(format!("no answer within {} s", PRESENCE_TIMEOUT.as_secs())),
        };
        let has_failed = self.is_unwritten.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(reason) if !has_failed => {
                tracing::warn!(reason, "the presence of this dispatcher cannot be written");
            }
            None if has_failed => {
                tracing::info!("the presence of this dispatcher is written again");
            }
            _ => {}
        }
    }

    /// Gives up the ownership of counters, and removes the presence row. If the latter fails, the row expires.
    pub(super) async fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        let _ = timeout(MEMBERS_TIMEOUT, self.leave_owners()).await;
        let _ = timeout(MEMBERS_TIMEOUT, self.rows.write(self.id, None)).await;
    }

    async fn leave_owners(&self) {
        for _ in 0..LEAVE_TRIES {
            let (left, since) = {
                let last = self.last();
                (self.quotas.core.leaving(), last.version())
            };
            let Some(row) = left else {
                return;
            };
            let written = self.rows.write_owners(&row, since).await;
            if matches!(written, Ok(true)) {
                self.quotas.core.set_row(&row);
                sleep(HAND_OVER_TIME).await;
            }
            if !matches!(written, Ok(false)) || !self.read().await {
                return;
            }
        }
    }

    /// Returns the wish for the ownership row, and the version that the row has to have for a change.
    pub(super) fn row_wish(&self) -> (RowWish, Option<Version>) {
        // The wish is about the row as it was found last.
        let last = self.last();
        if self.has_left.load(Ordering::Relaxed) {
            return (RowWish::Nothing, None);
        }
        (self.quotas.core.row_wish(self.now()), last.version())
    }

    /// Changes the ownership row unless another dispatcher has, and reads it again. Returns whether it was changed.
    pub(super) async fn change_owners(&self, row: &OwnerRow, since: Option<Version>) -> bool {
        let written = self.rows.write_owners(row, since).await;
        self.read().await && written.unwrap_or(false)
    }

    /// Reads the rows at the home. Returns whether the home told them.
    pub(super) async fn read(&self) -> bool {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(Ok(rows)) = timeout(MEMBERS_TIMEOUT, self.rows.read()).await else {
            return false;
        };
        let mut last = self.last();
        // Reads may overtake one another.
        if number > last.read {
            self.take(&rows);
            *last = LastRows {
                at_ms: self.now_ms(),
                read: number,
                rows,
            };
        }
        true
    }

    fn take(&self, rows: &FleetRows) {
        let ids: Vec<_> = rows.members.iter().map(|(id, _)| *id).collect();
        self.peers.keep(|id| id != self.id && ids.contains(&id));
        self.quotas.core.set_members(&ids);
        let others = rows.members.iter().filter(|(id, _)| *id != self.id);
        let versions = others.map(|(_, one)| one.about.version.clone()).collect();
        let known = self.dispatcher.fleet_versions.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = versions;
        known_backups(&self.dispatcher).clone_from(&rows.backups.1);
        let row = rows.owners.clone().map(|(_, row)| row);
        self.quotas.core.set_row(&row.unwrap_or_default());
    }

    /// Returns the members but for this dispatcher, as the home tells them now or told them last.
    pub(super) async fn members(&self) -> Vec<(u64, Presence)> {
        self.read().await;
        let mut members = self.last().rows.members.clone();
        members.retain(|(id, _)| *id != self.id);
        members
    }

    /// Returns the time of this process when the home last told the members.
    pub(super) fn told_ms(&self) -> u64 {
        self.last().at_ms
    }

    /// Returns the address of a member as the home told it last.
    pub(super) fn address_of(&self, id: u64) -> Option<String> {
        let last = self.last();
        let found = last.rows.members.iter().find(|(member, _)| *member == id);
        found.map(|(_, presence)| presence.address.clone())
    }

    /// Sends a signed request to a dispatcher, and returns its signed answer with its room.
    pub(super) async fn send(
        &self,
        (id, address): (u64, &str),
        (request, signature): (Request<Bytes>, Hash),
        room: &FleetRoom,
        time: Duration,
    ) -> Result<(ServerAnswer, OwnedSemaphorePermit), Unanswered> {
        let replied = timeout(time, self.peers.send(id, address, request, room)).await;
        let late = |_| Unanswered {
            reason: format!("{address}: no answer within {} s", time.as_secs_f32()),
            is_unreached: true,
        };
        let (head, body, room) = replied.map_err(late).flatten()?;
        let status = head.status.as_u16();
        if self.key.is_answer(&signature, &head, &body) {
            return Ok(((status, body), room));
        }
        // The connection was begun with another certificate, or its end is another process by now: the next request
        // makes a new one.
        let is_other = status == OTHER_PROCESS.0;
        if is_other || status == WRONG_ROLE.0 {
            self.peers.forget(id);
        }
        let told = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_LEN_MAX)]);
        let status = head.status;
        Err(Unanswered {
            reason: format!("{address} refused the question ({status}): {told}"),
            is_unreached: is_other,
        })
    }

    /// Returns the time of day of the home, which all dispatchers know about alike.
    pub(super) fn home_time(&self) -> Timestamp {
        self.dispatcher.home_time()
    }

    pub(super) fn now(&self) -> Instant {
        self.dispatcher.clock.monotonic()
    }

    fn now_ms(&self) -> u64 {
        self.dispatcher.clock.wall().as_millis()
    }

    fn last(&self) -> MutexGuard<'_, LastRows> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
