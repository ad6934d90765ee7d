//! Idempotency: how a repeated write is recognised. A store keeps an [`IdempotencyRecord`](crate::IdempotencyRecord) of
//! the first write.

use umbo_types::Timestamp;

/// Length of the digests, in bytes. Two requests with equal digests by chance are out of the question.
pub const DIGEST_LEN: usize = 16;
/// Bytes that a record is charged in addition to its partition key and outcomes: its key, expiry and index entry.
const RECORD_LEN: u64 = 64;
/// Bytes that a record is charged for the outcome of one mutation.
const OUTCOME_LEN: u64 = 16;

/// Identifies a write, so that its repetition is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Digest of the caller and of the key that it chose.
    pub id: [u8; DIGEST_LEN],
    /// Digest of everything that determines the outcome of the request.
    pub request: [u8; DIGEST_LEN],
    /// At this instant the record stops being in effect. The same rule as for the expiry of a row.
    pub keep_until: Timestamp,
    /// Whether a refusal (a condition that was false, for example) is recorded too. False if the sender makes up the
    /// conditions itself and tries again with others.
    pub keeps_refusals: bool,
    /// For each mutation its number in the client's request. A repetition finds the outcome by this number, because it
    /// may leave out parts of the request.
    pub lines: Vec<u32>,
}

impl Idempotency {
    /// Returns the same for some of the mutations, given by their indexes.
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
