//! Counts of refusals by reason and minute, which outlive the records.

use std::mem;
use std::sync::Arc;

use umbo_api::ErrorCode;
use umbo_types::{ShardId, Timestamp};

use super::record::{RecordId, RequestRecord};

/// How long refusals are counted, in minutes.
pub(super) const MINUTES: usize = 60;
const MINUTE_MILLIS: u64 = 60_000;

/// Refusals of one caller for one reason.
#[derive(Debug, Clone)]
pub(super) struct RefusalCount {
    code: Option<ErrorCode>,
    policy: Option<Arc<str>>,
    shard: Option<ShardId>,
    /// A ring; the place of a minute is its number modulo [`MINUTES`].
    minutes: [u32; MINUTES],
    minute: u64,
    /// Refusals since the last take.
    fresh: u32,
    last_at: Timestamp,
    example: RecordId,
}

/// How often a caller was refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasonCount {
    /// The code, or `None` if the client left before the answer.
    pub code: Option<ErrorCode>,
    /// The policy that rejected.
    pub policy: Option<Arc<str>>,
    /// The shard concerned.
    pub shard: Option<ShardId>,
    /// How often.
    pub count: u64,
    /// When it last was.
    pub last_at: Timestamp,
    /// Id of the last request.
    pub example: RecordId,
}

impl RefusalCount {
    /// Begins the count of a record's reason; `is_whole` names policy and shard.
    pub(super) fn of(record: &RequestRecord, is_whole: bool) -> Self {
        let policy = record.rejected_by().filter(|_| is_whole);
        Self {
            code: record.code,
            policy: policy.map(|policy| Arc::clone(&policy.policy)),
            shard: record.shard.filter(|_| is_whole),
            minutes: [0; MINUTES],
            minute: 0,
            fresh: 0,
            last_at: record.at,
            example: RecordId::new(),
        }
    }

    /// Returns whether it is the reason of a record.
    pub(super) fn is_of(&self, record: &RequestRecord) -> bool {
        let policy = record.rejected_by().map(|policy| &*policy.policy);
        self.code == record.code && self.shard == record.shard && self.policy.as_deref() == policy
    }

    /// Returns whether it counts the code alone.
    pub(super) fn is_of_code(&self, code: Option<ErrorCode>) -> bool {
        self.code == code && self.policy.is_none() && self.shard.is_none()
    }

    /// Counts a record.
    pub(super) fn count(&mut self, record: &RequestRecord) {
        self.advance(record.at);
        // A clock that went back counts into the newest minute.
        let place = &mut self.minutes[(self.minute % MINUTES as u64) as usize];
        *place = place.saturating_add(1);
        self.fresh = self.fresh.saturating_add(1);
        self.last_at = self.last_at.max(record.at);
        self.example = RecordId::from_slice(&record.id);
    }

    /// Returns when it was last counted.
    pub(super) const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    fn advance(&mut self, now: Timestamp) {
        let minute = now.as_millis() / MINUTE_MILLIS;
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        for step in 1..=passed {
            self.minutes[((minute - passed + step) % MINUTES as u64) as usize] = 0;
        }
        self.minute = self.minute.max(minute);
    }

    /// Returns the count of the last `minutes` minutes, including the current one, or `None` if it is 0.
    pub(super) fn last(&self, now: Timestamp, minutes: usize) -> Option<ReasonCount> {
        let mut upto = self.clone();
        upto.advance(now);
        let newest = upto.minute;
        let counts = (0..minutes.min(MINUTES) as u64)
            .filter_map(|back| newest.checked_sub(back))
            .map(|minute| u64::from(upto.minutes[(minute % MINUTES as u64) as usize]));
        self.counted(counts.sum())
    }

    /// Takes the count since the last take, or returns `None` if it is 0.
    pub(super) fn take(&mut self) -> Option<ReasonCount> {
        let count = mem::take(&mut self.fresh);
        self.counted(count.into())
    }

    fn counted(&self, count: u64) -> Option<ReasonCount> {
        (count > 0).then(|| ReasonCount {
            code: self.code,
            policy: self.policy.clone(),
            shard: self.shard,
            count,
            last_at: self.last_at,
            example: self.example.clone(),
        })
    }
}
