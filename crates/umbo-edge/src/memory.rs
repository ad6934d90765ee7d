//! Memory that waits for clients: bytes of bodies that are still coming, and of answers that were not taken yet.
//!
//! Owns a budget of bytes for all clients of a server, and the share of one holder: a caller for bodies, a connection
//! for answers. A share is a part of the free memory (the dynamic threshold of Choudhury and Hahne, 1998), so that
//! greedy holders leave room for the others. A [`MemoryPermit`] goes with the bytes until the last of them is dropped:
//! written to a shard, or taken by the socket (or the frames of HTTP/2). Invariants: the budget is exceeded only by
//! answers that must not be refused, such as answers to applied writes, and by a body or answer that is alone; it is
//! given back exactly once. Bodies and answers up to `FREE_LEN` take nothing: `requests_in_flight_max` bounds their
//! number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::bounds::{FIRST_SHARES, FREE_LEN};

/// A budget of memory.
#[derive(Debug)]
pub struct Memory {
    budget_bytes: usize,
    /// A holder may have one of this many parts of the memory that it leaves free.
    parts: usize,
    held_bytes: AtomicUsize,
    /// Waits at the bound of all.
    waiting: AtomicUsize,
    /// Notified when memory is given back: each share of the budget grows then.
    given_back: Notify,
    /// Notified when a wait begins, at any bound.
    is_wanted: Notify,
}

/// The memory of one connection or caller, of a budget.
#[derive(Debug, Default)]
pub struct MemoryHolder {
    held_bytes: AtomicUsize,
    /// Waits at the share of the holder.
    waiting: AtomicUsize,
}

/// A wait for memory, until it is dropped.
struct MemoryWait<'a>(&'a AtomicUsize);

/// The memory of one connection, of the budget of answers.
#[derive(Debug, Default)]
pub struct ConnectionAnswers {
    /// Its share, once it has had a long answer.
    holder: OnceLock<Arc<MemoryHolder>>,
    /// Length of the longest recent answer; decays with each shorter one.
    expected_len: AtomicUsize,
}

/// A part of a budget, until it is dropped.
#[derive(Debug)]
#[must_use = "the memory counts as held only while this lives"]
pub struct MemoryPermit {
    memory: Arc<Memory>,
    holder: Arc<MemoryHolder>,
    len: usize,
}

/// Which bound leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The share of one connection or caller.
    Holder,
    /// The budget of all.
    Server,
    /// The number of requests in flight.
    Requests,
}

/// A budget whose holders are callers, by a hash of their names.
#[derive(Debug)]
pub struct CallerMemory {
    memory: Arc<Memory>,
    /// The holders of some memory; others are forgotten when their number has doubled.
    holders: Mutex<(HashMap<u64, Weak<MemoryHolder>>, usize)>,
}

/// This many callers are never forgotten: 8 KiB.
const HOLDERS_KEPT: usize = 256;

impl CallerMemory {
    /// Makes a budget of this many bytes. A caller may have one of `parts` of the bytes that it leaves free.
    pub fn new(budget_bytes: usize, parts: usize) -> Self {
        Self {
            memory: Memory::new(budget_bytes, parts),
            holders: Mutex::default(),
        }
    }

    /// Returns how many bytes are held now.
    pub fn held_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// Makes a permit of a caller, for nothing.
    pub fn permit(&self, caller: u64) -> MemoryPermit {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let (holders, kept) = &mut *holders;
        if holders.len() >= HOLDERS_KEPT.max(2 * *kept) {
            holders.retain(|_, holder| holder.strong_count() > 0);
            *kept = holders.len();
        }
        let known = holders.entry(caller).or_default();
        let holder = known.upgrade().unwrap_or_else(|| {
            let holder = Arc::<MemoryHolder>::default();
            *known = Arc::downgrade(&holder);
            holder
        });
        MemoryPermit::empty(&self.memory, &holder)
    }
}

impl Memory {
    /// Makes a budget of this many bytes. A holder may have one of `parts` of the bytes that it leaves free.
    pub fn new(budget_bytes: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            parts,
            held_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            given_back: Notify::new(),
            is_wanted: Notify::new(),
        })
    }

    /// Returns how many bytes are held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }
}

impl ConnectionAnswers {
    /// Returns its share of the budget.
    pub fn holder(&self) -> &Arc<MemoryHolder> {
        self.holder.get_or_init(Arc::default)
    }

    /// Returns how long the next answer may be, judged by the recent ones.
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
}

impl Drop for MemoryWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl MemoryPermit {
    /// Makes a permit for nothing.
    pub fn empty(memory: &Arc<Memory>, holder: &Arc<MemoryHolder>) -> Self {
        Self {
            memory: Arc::clone(memory),
            holder: Arc::clone(holder),
            len: 0,
        }
    }

    /// Returns how many bytes it holds.
    pub const fn held_len(&self) -> usize {
        self.len
    }

    /// Makes it hold `len` bytes. Waits for room for up to `patience`; then fails with the bound that leaves none.
    ///
    /// Dropping the future changes nothing.
    pub async fn reserve(&mut self, len: usize, patience: Duration) -> Result<(), Full> {
        if self.try_resize(len).is_ok() {
            return Ok(());
        }
        let until = Instant::now() + patience;
        let (holder, memory) = (Arc::clone(&self.holder), Arc::clone(&self.memory));
        let mut wait: Option<MemoryWait<'_>> = None;
        loop {
            // Memory that is given back from here on is noticed.
            let given_back = memory.given_back.notified();
            let Err(full) = self.grow(len) else {
                return Ok(());
            };
            let waiting = match full {
                Full::Holder => &holder.waiting,
                Full::Server | Full::Requests => &memory.waiting,
            };
            // Holders that are slow to use their memory are told once of each wait at a bound.
            if wait
                .as_ref()
                .is_none_or(|wait| !std::ptr::eq(wait.0, waiting))
            {
                waiting.fetch_add(1, Relaxed);
                wait = Some(MemoryWait(waiting));
                memory.is_wanted.notify_waiters();
            }
            timeout_at(until, given_back).await.map_err(|_| full)?;
        }
    }

    /// Returns the bound at which others wait for memory that this permit holds.
    pub fn wanted(&self) -> Option<Full> {
        let bounds = [
            (Full::Holder, &self.holder.waiting),
            (Full::Server, &self.memory.waiting),
        ];
        let mut wanted = bounds.into_iter();
        let wanted = wanted.find(|(_, waiting)| waiting.load(Relaxed) > 0);
        wanted.map(|(full, _)| full)
    }

    /// Waits until [`Self::wanted`] returns a bound.
    pub async fn until_wanted(&self) {
        loop {
            let told = self.memory.is_wanted.notified();
            if self.wanted().is_some() {
                return;
            }
            told.await;
        }
    }

    /// Makes it hold at least `len` bytes, as [`Self::try_resize`] does.
    pub fn try_grow(&mut self, len: usize) -> Result<(), Full> {
        self.try_resize(len.max(self.len))
    }

    /// Makes it hold `len` bytes. Without room it changes nothing and returns the bound that leaves none.
    pub fn try_resize(&mut self, len: usize) -> Result<(), Full> {
        if len <= self.len {
            self.shrink(len);
            return Ok(());
        }
        self.grow(len)
    }

    /// Makes it hold `len` bytes, whether or not there is room.
    pub fn resize(&mut self, len: usize) {
        if len <= self.len {
            self.shrink(len);
            return;
        }
        let more = len - self.len;
        self.holder.held_bytes.fetch_add(more, Relaxed);
        self.memory.held_bytes.fetch_add(more, Relaxed);
        self.len = len;
    }

    fn grow(&mut self, len: usize) -> Result<(), Full> {
        let (memory, holder) = (&self.memory, &self.holder);
        let more = len - self.len;
        let total = memory.held_bytes.load(Relaxed);
        let free = memory.budget_bytes.saturating_sub(total);
        let is_only = total <= self.len;
        let is_first = holder.held_bytes.load(Relaxed) <= self.len;
        if is_first && !is_only && more > free / FIRST_SHARES {
            return Err(Full::Server);
        }
        let share = free.saturating_sub(more) / memory.parts;
        let share = if is_first { usize::MAX } else { share };
        if !take(&holder.held_bytes, more, share) {
            return Err(Full::Holder);
        }
        let budget = if is_only {
            usize::MAX
        } else {
            memory.budget_bytes
        };
        if !take(&memory.held_bytes, more, budget) {
            holder.held_bytes.fetch_sub(more, Relaxed);
            // Others of the holder may have met its share meanwhile, and not have counted their wait yet.
            memory.given_back.notify_waiters();
            return Err(Full::Server);
        }
        self.len = len;
        Ok(())
    }

    fn shrink(&mut self, len: usize) {
        let less = self.len - len;
        if less > 0 {
            self.holder.held_bytes.fetch_sub(less, Relaxed);
            self.memory.held_bytes.fetch_sub(less, Relaxed);
            self.memory.given_back.notify_waiters();
            self.len = len;
        }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Adds `more` bytes if the sum is not beyond `max`.
fn take(held: &AtomicUsize, more: usize, max: usize) -> bool {
    held.fetch_update(Relaxed, Relaxed, |held| {
        held.checked_add(more).filter(|&sum| sum <= max)
    })
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{ANSWER_PARTS, BODY_PARTS};

    const BUDGET: usize = 16 << 20;
    const SHARE: usize = BUDGET / (ANSWER_PARTS + 1);

    fn answers() -> Arc<Memory> {
        Memory::new(BUDGET, ANSWER_PARTS)
    }

    fn permit(memory: &Arc<Memory>, holder: &Arc<MemoryHolder>) -> MemoryPermit {
        MemoryPermit::empty(memory, holder)
    }

    fn held_of(holder: &MemoryHolder) -> usize {
        holder.held_bytes.load(Relaxed)
    }

    #[test]
    fn a_connection_holds_no_more_than_its_share() {
        let (memory, connection) = (answers(), Arc::default());
        let mut first = permit(&memory, &connection);
        assert!(first.try_resize(SHARE / 2).is_ok());
        let mut second = permit(&memory, &connection);
        assert!(second.try_resize(SHARE / 2 + 1).is_err());
        assert_eq!((second.held_len(), memory.held_bytes()), (0, SHARE / 2));
        assert!(second.try_resize(SHARE / 2).is_ok());
        drop(first);
        assert!(second.try_resize(SHARE).is_ok());
        assert_eq!(held_of(&connection), SHARE);
        drop(second);
        assert_eq!((held_of(&connection), memory.held_bytes()), (0, 0));
    }

    #[test]
    fn an_answer_longer_than_a_share_fits_where_it_is_the_only_one() {
        let (memory, connection) = (answers(), Arc::default());
        let mut only = permit(&memory, &connection);
        assert!(only.try_resize(SHARE * 3).is_ok());
        assert!(only.try_resize(SHARE * 4).is_ok());
        assert!(permit(&memory, &connection).try_resize(1).is_err());
        assert!(permit(&memory, &Arc::default()).try_resize(SHARE).is_ok());
    }

    #[test]
    fn the_budget_is_exceeded_only_by_what_must_be_answered() {
        let memory = answers();
        let mut permits = vec![permit(&memory, &Arc::default())];
        assert!(permits[0].try_resize(BUDGET).is_ok());
        let connection = Arc::default();
        let mut late = permit(&memory, &connection);
        assert!(late.try_resize(1).is_err());
        assert_eq!((held_of(&connection), memory.held_bytes()), (0, BUDGET));
        late.resize(7);
        assert_eq!(memory.held_bytes(), BUDGET + 7);
        permits.clear();
        assert_eq!(memory.held_bytes(), 7);
    }

    #[test]
    fn connections_that_take_all_they_get_leave_room_for_others() {
        for (connections, answer, left) in [(20, 4 << 10, 4 << 20), (64, 1 << 20, 1 << 20)] {
            let memory = answers();
            let mut held = Vec::new();
            for connection in (0..connections).map(|_| Arc::default()) {
                loop {
                    let mut next = permit(&memory, &connection);
                    if next.try_resize(answer).is_err() {
                        break;
                    }
                    held.push(next);
                }
            }
            let free = BUDGET - memory.held_bytes();
            assert!(free >= left, "{connections} connections left {free} bytes");
            assert!(
                permit(&memory, &Arc::default())
                    .try_resize(left / FIRST_SHARES)
                    .is_ok()
            );
        }
    }

    #[tokio::test]
    async fn who_waits_gets_room_as_soon_as_there_is_any() {
        let (memory, connection) = (answers(), Arc::default());
        let mut held = permit(&memory, &connection);
        assert!(held.try_resize(SHARE).is_ok());
        let soon = Duration::from_millis(1);
        let full = permit(&memory, &connection).reserve(1, soon).await;
        assert_eq!(full, Err(Full::Holder));
        let late = Duration::from_secs(20);
        let waiting = |len| {
            let mut permit = permit(&memory, &connection);
            tokio::spawn(async move { permit.reserve(len, late).await.map(|()| permit.held_len()) })
        };
        // The first one has no room by the time that the others have.
        let waiting = [SHARE, SHARE / 2, SHARE / 2].map(waiting);
        tokio::task::yield_now().await;
        held.until_wanted().await;
        assert_eq!(held.wanted(), Some(Full::Holder));
        assert!(held.try_resize(SHARE / 2).is_ok());
        drop(held);
        let mut lens = Vec::new();
        for waiting in waiting {
            lens.push(waiting.await.unwrap().unwrap());
        }
        assert_eq!(lens, [SHARE, SHARE / 2, SHARE / 2]);
        assert_eq!((held_of(&connection), memory.held_bytes()), (0, 0));
    }

    #[test]
    fn a_caller_leaves_as_much_as_it_holds_and_is_forgotten_when_it_holds_nothing() {
        let memory = CallerMemory::new(BUDGET, BODY_PARTS);
        let take_all = |caller| {
            let mut all: Vec<MemoryPermit> = Vec::new();
            loop {
                let mut next = memory.permit(caller);
                if next.try_resize(64 << 10).is_err() {
                    return all;
                }
                all.push(next);
            }
        };
        let first = take_all(1);
        assert_eq!(first.len() * (64 << 10), BUDGET / 2);
        let second = take_all(2);
        assert_eq!(second.len() * (64 << 10), BUDGET / 4);
        // As many connections as the first one likes: it has no more.
        assert!(memory.permit(1).try_resize(64 << 10).is_err());
        let mut long = memory.permit(3);
        assert!(long.try_resize(BUDGET / 8).is_ok());
        drop((first, second, long));
        assert_eq!(memory.held_bytes(), 0);
        for caller in 0..10 * HOLDERS_KEPT as u64 {
            let _ = memory.permit(caller);
        }
        assert!(memory.holders.lock().unwrap().0.len() <= 2 * HOLDERS_KEPT);
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
