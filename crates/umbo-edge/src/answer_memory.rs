//! Memory of answers that were made and that their connections have not taken yet.
//!
//! Owns one budget of bytes for all connections of a server, and the share of it that one connection
//! may hold: a part of what is free (the dynamic threshold of Choudhury and Hahne, 1998), so that
//! connections which read nothing leave room for the others. An [`AnswerPermit`] goes with the bytes of
//! an answer until the last of them is dropped, which is when the socket (or the frames of HTTP/2) took
//! them. Invariants: the budget is exceeded only by answers that must not be refused, as those to writes
//! that were applied, and by one that is alone; what is taken is given back exactly once. Answers up to
//! `FREE_LEN` take nothing: `requests_in_flight_max` bounds how many of them there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Answers up to this length, in bytes, take no part of the budget: the bound on requests in flight
/// (4,096 by default) bounds them to 16 MiB, and a get of a small row costs nothing here.
pub const FREE_LEN: usize = 4 << 10;
/// One connection alone may hold one of so many parts of the budget, the next one as much of the rest. A
/// share of the default budget (16 MiB) holds the longest multi-get.
const SHARES: usize = 16;
/// The first answer of a connection may take one of so many parts of what is free: one long answer is not
/// what a share is for, and still leaves room.
const FIRST_SHARES: usize = 2;

/// The memory of answers of one server.
#[derive(Debug)]
pub struct AnswerMemory {
    budget_bytes: usize,
    held_bytes: AtomicUsize,
    room: Notify,
}

/// What one connection holds of the memory of answers.
#[derive(Debug, Default)]
pub struct ConnectionAnswers {
    held_bytes: AtomicUsize,
    /// Length of the longest recent answer; decays with each that is shorter.
    expected_len: AtomicUsize,
    room: Notify,
}

/// A part of the memory of answers, until it is dropped.
#[derive(Debug)]
#[must_use = "the memory counts as held only while this lives"]
pub struct AnswerPermit {
    memory: Arc<AnswerMemory>,
    connection: Arc<ConnectionAnswers>,
    len: usize,
}

/// Which bound leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    Connection,
    Server,
}

impl AnswerMemory {
    /// Makes a budget of so many bytes.
    pub fn new(budget_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            held_bytes: AtomicUsize::new(0),
            room: Notify::new(),
        })
    }

    /// Returns how many bytes are held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// Takes `len` bytes; waits for room for up to `patience`, and returns none where there was none.
    ///
    /// Dropping the future takes nothing.
    pub async fn reserve(
        self: &Arc<Self>,
        connection: &Arc<ConnectionAnswers>,
        len: usize,
        patience: Duration,
    ) -> Option<AnswerPermit> {
        let mut permit = AnswerPermit::empty(self, connection);
        let mut until = None;
        loop {
            let room = match permit.grow(len) {
                Ok(()) => {
                    if until.is_some() {
                        // There may be room for the next one, too.
                        connection.room.notify_one();
                        self.room.notify_one();
                    }
                    return Some(permit);
                }
                Err(Full::Connection) => connection.room.notified(),
                Err(Full::Server) => self.room.notified(),
            };
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            timeout_at(until, room).await.ok()?;
        }
    }
}

impl ConnectionAnswers {
    /// Returns how long the next answer may be, going by the recent ones.
    pub fn expected_len(&self) -> usize {
        self.expected_len.load(Relaxed)
    }

    /// Learns the length of an answer.
    pub fn learn(&self, len: usize) {
        let expected = self.expected_len.load(Relaxed);
        let learned = len.max(expected - expected / 8);
        if learned != expected && (learned > FREE_LEN || expected > FREE_LEN) {
            self.expected_len.store(learned, Relaxed);
        }
    }

    /// Returns how many bytes are held now.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }
}

impl AnswerPermit {
    /// Makes a permit for nothing.
    pub fn empty(memory: &Arc<AnswerMemory>, connection: &Arc<ConnectionAnswers>) -> Self {
        Self {
            memory: Arc::clone(memory),
            connection: Arc::clone(connection),
            len: 0,
        }
    }

    /// Returns how many bytes it holds.
    pub const fn held_len(&self) -> usize {
        self.len
    }

    /// Makes it hold `len` bytes. Returns false, and changes nothing, where there is no room.
    pub fn try_resize(&mut self, len: usize) -> bool {
        if len <= self.len {
            self.shrink(len);
            return true;
        }
        self.grow(len).is_ok()
    }

    /// Makes it hold `len` bytes, whether or not there is room.
    pub fn resize(&mut self, len: usize) {
        if len <= self.len {
            self.shrink(len);
            return;
        }
        let more = len - self.len;
        self.connection.held_bytes.fetch_add(more, Relaxed);
        self.memory.held_bytes.fetch_add(more, Relaxed);
        self.len = len;
    }

    fn grow(&mut self, len: usize) -> Result<(), Full> {
        let (memory, connection) = (&self.memory, &self.connection);
        let more = len - self.len;
        let total = memory.held_bytes.load(Relaxed);
        let free = memory.budget_bytes.saturating_sub(total);
        let is_only = total <= self.len;
        let is_first = connection.held_bytes.load(Relaxed) <= self.len;
        if is_first && !is_only && more > free / FIRST_SHARES {
            return Err(Full::Server);
        }
        // Of what is free once this is taken: alone it comes to one share of the budget.
        let share = free.saturating_sub(more) / (SHARES - 1);
        let share = if is_first { usize::MAX } else { share };
        if !take(&connection.held_bytes, more, share) {
            return Err(Full::Connection);
        }
        let budget = if is_only {
            usize::MAX
        } else {
            memory.budget_bytes
        };
        if !take(&memory.held_bytes, more, budget) {
            connection.held_bytes.fetch_sub(more, Relaxed);
            connection.room.notify_one();
            return Err(Full::Server);
        }
        self.len = len;
        Ok(())
    }

    fn shrink(&mut self, len: usize) {
        let less = self.len - len;
        if less > 0 {
            self.connection.held_bytes.fetch_sub(less, Relaxed);
            self.memory.held_bytes.fetch_sub(less, Relaxed);
            self.connection.room.notify_one();
            self.memory.room.notify_one();
            self.len = len;
        }
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Adds `more` bytes where the sum is not beyond `max`.
fn take(held: &AtomicUsize, more: usize, max: usize) -> bool {
    held.fetch_update(Relaxed, Relaxed, |held| {
        held.checked_add(more).filter(|&sum| sum <= max)
    })
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: usize = 16 << 20;
    const SHARE: usize = BUDGET / SHARES;

    fn permit(memory: &Arc<AnswerMemory>, connection: &Arc<ConnectionAnswers>) -> AnswerPermit {
        AnswerPermit::empty(memory, connection)
    }

    #[test]
    fn a_connection_holds_no_more_than_its_share() {
        let (memory, connection) = (AnswerMemory::new(BUDGET), Arc::default());
        let mut first = permit(&memory, &connection);
        assert!(first.try_resize(SHARE / 2));
        let mut second = permit(&memory, &connection);
        assert!(!second.try_resize(SHARE / 2 + 1));
        assert_eq!((second.held_len(), memory.held_bytes()), (0, SHARE / 2));
        assert!(second.try_resize(SHARE / 2));
        drop(first);
        assert!(second.try_resize(SHARE));
        assert_eq!(connection.held_bytes(), SHARE);
        drop(second);
        assert_eq!((connection.held_bytes(), memory.held_bytes()), (0, 0));
    }

    #[test]
    fn an_answer_longer_than_a_share_fits_where_it_is_the_only_one() {
        let (memory, connection) = (AnswerMemory::new(BUDGET), Arc::default());
        let mut only = permit(&memory, &connection);
        assert!(only.try_resize(SHARE * 3));
        assert!(only.try_resize(SHARE * 4));
        assert!(!permit(&memory, &connection).try_resize(1));
        assert!(permit(&memory, &Arc::default()).try_resize(SHARE));
    }

    #[test]
    fn the_budget_is_exceeded_only_by_what_must_be_answered() {
        let memory = AnswerMemory::new(BUDGET);
        let mut permits = vec![permit(&memory, &Arc::default())];
        assert!(permits[0].try_resize(BUDGET));
        let connection = Arc::default();
        let mut late = permit(&memory, &connection);
        assert!(!late.try_resize(1));
        assert_eq!((connection.held_bytes(), memory.held_bytes()), (0, BUDGET));
        late.resize(7);
        assert_eq!(memory.held_bytes(), BUDGET + 7);
        permits.clear();
        assert_eq!(memory.held_bytes(), 7);
    }

    #[test]
    fn connections_that_take_all_they_get_leave_room_for_others() {
        for (connections, answer, left) in [(20, 4 << 10, 4 << 20), (64, 1 << 20, 1 << 20)] {
            let memory = AnswerMemory::new(BUDGET);
            let mut held = Vec::new();
            for connection in (0..connections).map(|_| Arc::default()) {
                loop {
                    let mut next = permit(&memory, &connection);
                    if !next.try_resize(answer) {
                        break;
                    }
                    held.push(next);
                }
            }
            let free = BUDGET - memory.held_bytes();
            assert!(free >= left, "{connections} connections left {free} bytes");
            assert!(permit(&memory, &Arc::default()).try_resize(left / FIRST_SHARES));
        }
    }

    #[tokio::test]
    async fn who_waits_gets_room_as_soon_as_there_is_any() {
        let (memory, connection) = (AnswerMemory::new(BUDGET), Arc::default());
        let mut held = permit(&memory, &connection);
        assert!(held.try_resize(SHARE));
        let soon = Duration::from_millis(1);
        assert!(memory.reserve(&connection, 1, soon).await.is_none());
        let late = Duration::from_secs(20);
        let waiting = || {
            let (memory, connection) = (Arc::clone(&memory), Arc::clone(&connection));
            tokio::spawn(async move { memory.reserve(&connection, SHARE / 2, late).await })
        };
        let waiting = [waiting(), waiting()];
        tokio::task::yield_now().await;
        drop(held);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().unwrap().held_len(), SHARE / 2);
        }
    }

    #[test]
    fn the_expected_length_is_the_longest_of_late_and_only_of_long_answers() {
        let connection = ConnectionAnswers::default();
        connection.learn(FREE_LEN);
        assert_eq!(connection.expected_len(), 0);
        connection.learn(1 << 20);
        connection.learn(10);
        assert_eq!(connection.expected_len(), (1 << 20) - (1 << 17));
        for _ in 0..100 {
            connection.learn(10);
        }
        assert!(connection.expected_len() <= FREE_LEN);
    }
}
