//! Idempotency: how a repeated write is recognised. What a store records of the first one is
//! [`IdempotencyRecord`](crate::IdempotencyRecord).

use umbo_types::Timestamp;

/// Length of the digests, in bytes: as many as make two equal ones by chance out of the question.
pub const DIGEST_LEN: usize = 16;
/// Bytes that a record is charged beside its partition key and outcomes: its key, expiry and index entry.
const RECORD_LEN: u64 = 64;
/// Bytes that a record is charged for the outcome of one mutation.
const OUTCOME_LEN: u64 = 16;

/// What makes the repetition of a write recognisable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Digest of the caller and of the key that it chose.
    pub id: [u8; DIGEST_LEN],
    /// Digest of all that determines the outcome of the request.
    pub request: [u8; DIGEST_LEN],
    /// Instant from which the record is no longer in effect. The same rule as for the expiry of a row.
    pub keep_until: Timestamp,
    /// Whether a refusal (a condition that was false, for example) is recorded too. False where the sender makes
    /// up the conditions itself and tries again with others.
    pub keeps_refusals: bool,
    /// For each mutation its number in the client's request, by which a repetition finds its outcome: parts of
    /// the request may be left out the second time.
    pub lines: Vec<u32>,
}

impl Idempotency {
    /// Returns the same for some of the mutations, by their indexes.
    #[must_use]
    pub fn of_part(&self, indexes: impl IntoIterator<Item = usize>) -> Self {
        let line = |index: usize| self.lines.get(index).copied();
        Self {
            lines: indexes.into_iter().filter_map(line).collect(),
            ..*self
        }
    }

    /// Returns the line of a mutation.
    pub fn line(&self, index: usize) -> u32 {
        self.lines.get(index).copied().unwrap_or(u32::MAX)
    }

    /// Returns the bytes that are charged for more mutations in the same record.
    pub const fn charged_bytes_of_more(mutations: u64) -> u64 {
        OUTCOME_LEN * mutations
    }

    /// Returns the bytes that are charged for the record of a partition.
    pub const fn charged_bytes(partition_len: u64, mutations: u64) -> u64 {
        RECORD_LEN + partition_len + OUTCOME_LEN * mutations
    }
}
