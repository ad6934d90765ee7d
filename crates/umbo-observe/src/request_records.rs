//! Records of requests, for the question why one of them was refused or slow.
//!
//! Owns a ring of at most [`RECORDS_MAX`] records and [`RECORD_BYTES_MAX`] bytes, which grows with use. A new
//! record takes the place of the oldest one *of the caller that has the most*. So a record of a caller is lost
//! only while no other caller has more: of `n` callers, each keeps at least its last `RECORDS_MAX / n` records,
//! however many the others make. Refusals are also counted by caller and reason, by the minute and for an
//! hour, so that the ones without a record are still told.
//!
//! Each caller also counts the records and refusals since they were last taken, to be written down.
//!
//! Deliberately reads no clock and knows no HTTP. One lock: a refusal holds it for well under a microsecond,
//! and a request that is served takes it only if it is slow or sampled.

mod reasons;
mod record;
mod taken;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbo_types::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::reasons::{MINUTES, RefusalCount};

pub use self::reasons::ReasonCount;
pub use self::record::{
    ChargeRecord, DETAIL_LEN_MAX, KeptAs, PolicyRecord, PolicyVerdict, RecordId, RequestRecord,
    RequestTimes, ShardMoment, detail, micros,
};
pub use self::taken::TakenRecords;

/// Most records that are kept.
pub const RECORDS_MAX: usize = 120_000;
/// Most memory that they hold, in bytes; counts, indexes and callers add at most 18 MiB.
pub const RECORD_BYTES_MAX: usize = 46 << 20;
/// Most reasons that are counted, of all callers; each holds some 400 bytes.
const REASONS_MAX: usize = 16_384;
/// Most reasons of one caller with their policy and shard; beyond, only codes are told apart.
const REASONS_OF_CALLER_MAX: usize = 32;
/// Most callers whose records are kept apart; all others share one place.
const CALLERS_MAX: usize = 16_384;
/// How long refusals are counted, at most.
pub const COUNTED_FOR: Duration = Duration::from_secs(60 * MINUTES as u64);

/// Stands for requests whose caller was not known yet. It holds a space, so that no caller can be named so.
pub const UNIDENTIFIED: &str = "(not identified)";
/// Stands for the callers that are no longer kept one by one.
pub const OTHERS: &str = "(all others)";

/// No caller.
const NO_CALLER: u32 = u32::MAX;

/// Bounds of the records; tests have smaller ones.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    records: usize,
    bytes: usize,
    callers: usize,
    reasons: usize,
}

/// Records of requests.
#[derive(Debug)]
pub struct RequestRecords {
    ring: Mutex<Ring>,
}

/// A record that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundRecord {
    /// The newest of its id.
    pub record: Arc<RequestRecord>,
    /// How many earlier records had the same id.
    pub others: u16,
}

/// How long records are kept now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Records there are.
    pub records: usize,
    /// Age of the oldest record of all.
    pub oldest: Duration,
    /// Age of the oldest record of the caller that has the most, whose records go first.
    pub oldest_of_largest: Duration,
}

/// The records and counts of one caller.
#[derive(Debug)]
struct CallerRecords {
    name: Box<str>,
    /// Places of its records, oldest first.
    records: VecDeque<u32>,
    /// Records to be written down that came since the last take; the oldest of them may be gone.
    fresh: usize,
    /// Neighbours in the list of callers that have as many.
    previous: u32,
    next: u32,
    reasons: Vec<RefusalCount>,
}

/// Seed of the hashes of ids and names, which clients may choose.
#[derive(Debug, Clone, Copy)]
struct Seed(u64);

impl BuildHasher for Seed {
    type Hasher = SeededHash;

    fn build_hasher(&self) -> SeededHash {
        SeededHash(self.0)
    }
}

/// A hash. A key of 64 bits is a hash already.
#[derive(Debug)]
struct SeededHash(u64);

impl Hasher for SeededHash {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Ring {
    bounds: Bounds,
    records: Vec<Option<FoundRecord>>,
    free: Vec<u32>,
    bytes: usize,
    seed: Seed,
    /// Place of the newest record by the hash of its id.
    by_id: HashMap<u64, u32, Seed>,
    callers: Vec<CallerRecords>,
    by_name: HashMap<Box<str>, u32, Seed>,
    /// The first of the callers that have so many records, linked with the others. What a change costs does not
    /// depend on how many callers there are.
    by_count: Vec<u32>,
    /// The most records of a caller.
    most: usize,
    reasons: usize,
    /// When callers without records were last forgotten.
    swept_at: Timestamp,
}

impl Default for RequestRecords {
    fn default() -> Self {
        Self::with_bounds(Bounds {
            records: RECORDS_MAX,
            bytes: RECORD_BYTES_MAX,
            callers: CALLERS_MAX,
            reasons: REASONS_MAX,
        })
    }
}

impl RequestRecords {
    fn with_bounds(bounds: Bounds) -> Self {
        let seed = Seed(RandomState::new().hash_one(()));
        Self {
            ring: Mutex::new(Ring {
                bounds,
                records: Vec::new(),
                free: Vec::new(),
                bytes: 0,
                seed,
                by_id: HashMap::with_hasher(seed),
                callers: Vec::new(),
                by_name: HashMap::with_hasher(seed),
                by_count: vec![NO_CALLER],
                most: 0,
                reasons: 0,
                swept_at: Timestamp::default(),
            }),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a record, and counts its reason if it has a code or its client left. With `is_answer` it is not counted: the
    /// answer that a row does not exist is no refusal.
    pub fn keep(&self, record: Arc<RequestRecord>, is_answer: bool) {
        let mut ring = self.ring();
        let caller = ring.caller(record.filed_under(), record.at);
        if record.kept_as == KeptAs::Refused && !is_answer {
            ring.count(caller, &record);
        }
        ring.callers[caller as usize].fresh += usize::from(record.is_to_be_written());
        let dropped = ring.push(caller, record);
        drop(ring);
        // Memory is freed without the lock.
        drop(dropped);
    }

    /// Returns the newest record of an id.
    pub fn find(&self, id: &[u8]) -> Option<FoundRecord> {
        let ring = self.ring();
        let place = *ring.by_id.get(&ring.hash(id))?;
        let found = ring.records[place as usize].as_ref()?;
        (found.record.id.as_slice() == id).then(|| found.clone())
    }

    /// Returns why a caller was refused in the last `minutes` minutes, the one under way included, most often
    /// first. Returns `None` for an unknown caller.
    pub fn reasons(
        &self,
        caller: &str,
        now: Timestamp,
        minutes: usize,
    ) -> Option<Vec<ReasonCount>> {
        let ring = self.ring();
        let caller = &ring.callers[*ring.by_name.get(caller)? as usize];
        let counted = caller.reasons.iter();
        let mut counts: Vec<_> = counted
            .filter_map(|reason| reason.last(now, minutes))
            .collect();
        drop(ring);
        counts.sort_by_key(|one| (std::cmp::Reverse(one.count), one.code));
        Some(counts)
    }

    /// Returns the reasons of all callers that were counted last, the newest first, with their callers: at most `max`, and
    /// none that was last counted more than `minutes` minutes ago.
    pub fn newest_reasons(
        &self,
        now: Timestamp,
        minutes: usize,
        max: usize,
    ) -> Vec<(String, ReasonCount)> {
        let ring = self.ring();
        let mut newest = Vec::new();
        for caller in &ring.callers {
            newest.extend(caller.reasons.iter().map(|reason| (&*caller.name, reason)));
        }
        let age = |(_, reason): &(&str, &RefusalCount)| std::cmp::Reverse(reason.last_at());
        // Refusals wait for the lock.
        if newest.len() > max {
            newest.select_nth_unstable_by_key(max, age);
            newest.truncate(max);
        }
        newest.sort_unstable_by_key(age);
        let newest = newest.into_iter();
        newest
            .filter_map(|(caller, reason)| Some((caller.to_owned(), reason.last(now, minutes)?)))
            .collect()
    }

    /// Returns how long records are kept now.
    pub fn retention(&self, now: Timestamp) -> Retention {
        let ring = self.ring();
        let age = |place: &u32| {
            let found = ring.records[*place as usize].as_ref();
            let at = found.map_or(now, |found| found.record.at);
            Duration::from_millis(now.as_millis().saturating_sub(at.as_millis()))
        };
        let oldest = |caller: &CallerRecords| caller.records.front().map(age);
        Retention {
            records: ring.len(),
            oldest: ring
                .callers
                .iter()
                .filter_map(oldest)
                .max()
                .unwrap_or_default(),
            oldest_of_largest: ring
                .largest()
                .and_then(|caller| oldest(&ring.callers[caller as usize]))
                .unwrap_or_default(),
        }
    }
}

impl Ring {
    const fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    fn hash(&self, id: &[u8]) -> u64 {
        xxh3_64_with_seed(id, self.seed.0)
    }

    /// Returns the place of a caller, and makes it if there is room. Without room, returns the shared place of all others.
    fn caller(&mut self, name: &str, now: Timestamp) -> u32 {
        if let Some(place) = self.by_name.get(name) {
            return *place;
        }
        if self.callers.len() >= self.bounds.callers {
            self.forget_idle(now);
        }
        let is_full = self.callers.len() >= self.bounds.callers;
        if is_full && name != OTHERS {
            return self.caller(OTHERS, now);
        }
        let place = self.callers.len() as u32;
        self.callers.push(CallerRecords {
            name: name.into(),
            records: VecDeque::new(),
            fresh: 0,
            previous: NO_CALLER,
            next: NO_CALLER,
            reasons: Vec::new(),
        });
        self.rank(place);
        self.by_name.insert(name.into(), place);
        place
    }

    /// Forgets the callers that have no records and no counts any more; at most once a second, because it
    /// looks at all.
    fn forget_idle(&mut self, now: Timestamp) {
        let since = now.as_millis().saturating_sub(self.swept_at.as_millis());
        if since < 1_000 {
            return;
        }
        self.swept_at = now;
        let counted_for = COUNTED_FOR.as_millis() as u64;
        let is_over = |reason: &RefusalCount| {
            now.as_millis().saturating_sub(reason.last_at().as_millis()) > counted_for
        };
        let mut at = 0;
        while at < self.callers.len() {
            let caller = &mut self.callers[at];
            let before = caller.reasons.len();
            caller.reasons.retain(|reason| !is_over(reason));
            self.reasons -= before - caller.reasons.len();
            if caller.records.is_empty() && caller.reasons.is_empty() {
                self.forget(at);
            } else {
                at += 1;
            }
        }
    }

    /// Forgets a caller without records; the last one takes its place.
    fn forget(&mut self, at: usize) {
        let last = self.callers.len() - 1;
        self.unrank(at as u32);
        if last != at {
            self.unrank(last as u32);
        }
        let forgotten = self.callers.swap_remove(at);
        self.by_name.remove(&forgotten.name);
        if last != at {
            self.rank(at as u32);
            let moved = self.callers[at].name.clone();
            self.by_name.insert(moved, at as u32);
        }
    }

    fn count(&mut self, caller: u32, record: &RequestRecord) {
        let has_room = self.reasons < self.bounds.reasons;
        let reasons = &mut self.callers[caller as usize].reasons;
        let found = reasons.iter_mut().find(|reason| reason.is_of(record));
        if let Some(reason) = found {
            reason.count(record);
            return;
        }
        let is_whole = has_room && reasons.len() < REASONS_OF_CALLER_MAX;
        let of_code = |reason: &&mut RefusalCount| reason.is_of_code(record.code);
        if !is_whole && let Some(reason) = reasons.iter_mut().find(of_code) {
            reason.count(record);
            return;
        }
        // Codes are a closed list, so these are few; but not of every caller.
        if !has_room && &*self.callers[caller as usize].name != OTHERS {
            let others = self.caller(OTHERS, record.at);
            if others != caller {
                self.count(others, record);
            }
            return;
        }
        let mut reason = RefusalCount::of(record, is_whole);
        reason.count(record);
        self.callers[caller as usize].reasons.push(reason);
        self.reasons += 1;
    }

    /// Keeps a record of a caller, and returns the records that had to go.
    fn push(&mut self, caller: u32, record: Arc<RequestRecord>) -> Vec<Arc<RequestRecord>> {
        let mut dropped = Vec::new();
        self.bytes += record.bytes();
        let id = self.hash(record.id.as_slice());
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            (self.records.len() - 1) as u32
        });
        let before = self.by_id.insert(id, place);
        let same = before.and_then(|before| self.records[before as usize].as_ref());
        let others = same
            .filter(|same| same.record.id == record.id)
            .map_or(0, |same| same.others.saturating_add(1));
        self.records[place as usize] = Some(FoundRecord { record, others });
        self.unrank(caller);
        self.callers[caller as usize].records.push_back(place);
        self.rank(caller);
        while self.len() > self.bounds.records || self.bytes > self.bounds.bytes {
            match self.drop_oldest() {
                Some(record) => dropped.push(record),
                None => break,
            }
        }
        dropped
    }

    /// Takes out the oldest record of the caller that has the most.
    fn drop_oldest(&mut self) -> Option<Arc<RequestRecord>> {
        let caller = self.largest()?;
        self.unrank(caller);
        let place = self.callers[caller as usize].records.pop_front();
        self.rank(caller);
        if self.by_count[self.most] == NO_CALLER {
            // The caller has one record less now, and no caller has more.
            self.most -= 1;
        }
        let place = place?;
        let FoundRecord { record, .. } = self.records[place as usize].take()?;
        self.free.push(place);
        self.bytes -= record.bytes();
        let id = self.hash(record.id.as_slice());
        if self.by_id.get(&id) == Some(&place) {
            self.by_id.remove(&id);
        }
        Some(record)
    }

    /// Returns the caller that has the most records, or `None` without records.
    fn largest(&self) -> Option<u32> {
        let first = self.by_count.get(self.most)?;
        (self.most > 0 && *first != NO_CALLER).then_some(*first)
    }

    /// Puts a caller into the list of callers with its number of records.
    fn rank(&mut self, caller: u32) {
        let count = self.callers[caller as usize].records.len();
        if self.by_count.len() <= count {
            self.by_count.resize(count + 1, NO_CALLER);
        }
        let next = mem::replace(&mut self.by_count[count], caller);
        if next != NO_CALLER {
            self.callers[next as usize].previous = caller;
        }
        let ranked = &mut self.callers[caller as usize];
        (ranked.previous, ranked.next) = (NO_CALLER, next);
        self.most = self.most.max(count);
    }

    /// Takes a caller out of its list. To be ranked again, or forgotten.
    fn unrank(&mut self, caller: u32) {
        let CallerRecords {
            records,
            previous,
            next,
            ..
        } = &self.callers[caller as usize];
        let (count, previous, next) = (records.len(), *previous, *next);
        if next != NO_CALLER {
            self.callers[next as usize].previous = previous;
        }
        if previous == NO_CALLER {
            self.by_count[count] = next;
        } else {
            self.callers[previous as usize].next = next;
        }
    }
}
