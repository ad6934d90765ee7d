//! The record of a write with an idempotency, so that a store answers the repetition like the first write.
//!
//! Owns the record, its encoding and the decision whether a request is answered from it; the engines keep the records
//! and write each in the commit of its rows. A request has one record for each partition that it writes, because one
//! commit decides one partition. The invariant: an outcome is recorded exactly if the store decided the mutation. If a
//! mutation failed because time, room or a readable disk was missing, its repetition decides it.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::{Timestamp, Version};

use crate::error::WriteError;
use crate::idempotency::{DIGEST_LEN, Idempotency};
use crate::request::Written;

/// The recorded outcomes of a request in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Digest of the request.
    pub request: [u8; DIGEST_LEN],
    /// At this instant the record stops being in effect.
    pub keep_until: Timestamp,
    outcomes: BTreeMap<u32, Result<Written, WriteError>>,
}

impl IdempotencyRecord {
    /// Begins the record of a request.
    pub fn begin(idempotency: &Idempotency) -> Self {
        Self {
            request: idempotency.request,
            keep_until: idempotency.keep_until,
            outcomes: BTreeMap::new(),
        }
    }

    /// Returns whether no mutation is recorded; such a record is not kept.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Returns the recorded answer to a mutation, marked as replayed, or `None` if the mutation was not decided.
    pub fn replay(
        &self,
        idempotency: &Idempotency,
        index: usize,
    ) -> Option<Result<Written, WriteError>> {
        let outcome = self.outcomes.get(&idempotency.line(index))?;
        Some(match outcome {
            Ok(written) => Ok(Written {
                is_replayed: true,
                ..*written
            }),
            Err(error) => {
                let at = |line: usize| {
                    let is_it = |own: &u32| *own as usize == line;
                    idempotency.lines.iter().position(is_it).unwrap_or(index)
                };
                Err(WriteError::Replayed(Box::new(error.clone().with_index(at))))
            }
        })
    }

    /// Records the answer to a mutation if a repetition should get the same answer.
    pub fn note(
        &mut self,
        idempotency: &Idempotency,
        index: usize,
        answer: &Result<Written, WriteError>,
    ) {
        let outcome = match answer {
            Ok(written) => Ok(*written),
            Err(error) if idempotency.keeps_refusals && error.is_decision() => {
                let line = |index| idempotency.line(index) as usize;
                Err(error.clone().with_index(line))
            }
            Err(_) => return,
        };
        self.outcomes.insert(idempotency.line(index), outcome);
    }

    /// Encodes digest and outcomes. The engine stores the expiry. Integers are big endian.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(1 + DIGEST_LEN + 22 * self.outcomes.len());
        out.push(FORMAT);
        out.extend_from_slice(&self.request);
        for (line, outcome) in &self.outcomes {
            out.extend_from_slice(&line.to_be_bytes());
            match outcome {
                Ok(written) => {
                    out.push(match (written.number, written.existed) {
                        (None, false) => CREATED,
                        (None, true) => REPLACED,
                        (Some(_), false) => NUMBER_CREATED,
                        (Some(_), true) => NUMBER_REPLACED,
                    });
                    out.extend_from_slice(&written.version.0.to_be_bytes());
                    if let Some(number) = written.number {
                        out.extend_from_slice(&number.to_be_bytes());
                    }
                }
                Err(error) => encode_refusal(&mut out, error),
            }
        }
        out.into()
    }

    /// Decodes the bytes that [`Self::encode`] made. Returns `None` for any other bytes.
    pub fn decode(mut bytes: &[u8], keep_until: Timestamp) -> Option<Self> {
        let bytes = &mut bytes;
        if take::<1>(bytes)? != [FORMAT] {
            return None;
        }
        let request = take::<DIGEST_LEN>(bytes)?;
        let mut outcomes = BTreeMap::new();
        while !bytes.is_empty() {
            let line = u32::from_be_bytes(take(bytes)?);
            let [kind] = take(bytes)?;
            outcomes.insert(line, decode_outcome(kind, bytes)?);
        }
        Some(Self {
            request,
            keep_until,
            outcomes,
        })
    }
}

const FORMAT: u8 = 1;
/// Kinds of outcomes.
const CREATED: u8 = 0;
const REPLACED: u8 = 1;
const NUMBER_CREATED: u8 = 2;
const NUMBER_REPLACED: u8 = 3;
const CONDITION_FAILED_ABSENT: u8 = 4;
const CONDITION_FAILED: u8 = 5;
const GROUP_ABORTED: u8 = 6;
const NOT_A_NUMBER: u8 = 7;
const INCREMENT_OVERFLOW: u8 = 8;

fn encode_refusal(out: &mut Vec<u8>, error: &WriteError) {
    match error {
        WriteError::ConditionFailed { current: None } => out.push(CONDITION_FAILED_ABSENT),
        WriteError::ConditionFailed {
            current: Some(version),
        } => {
            out.push(CONDITION_FAILED);
            out.extend_from_slice(&version.0.to_be_bytes());
        }
        WriteError::GroupAborted { index } => {
            out.push(GROUP_ABORTED);
            out.extend_from_slice(&(*index as u64).to_be_bytes());
        }
        WriteError::IncrementOverflow { current } => {
            out.push(INCREMENT_OVERFLOW);
            out.extend_from_slice(&current.to_be_bytes());
        }
        // `note` records only decisions.
        WriteError::NotANumber
        | WriteError::IdempotencyMismatch
        | WriteError::IdempotencyFull { .. }
        | WriteError::Replayed(_)
        | WriteError::UploadGone
        | WriteError::NeedsExactWrites
        | WriteError::Store(_) => out.push(NOT_A_NUMBER),
    }
}

fn decode_outcome(kind: u8, bytes: &mut &[u8]) -> Option<Result<Written, WriteError>> {
    Some(match kind {
        CREATED | REPLACED | NUMBER_CREATED | NUMBER_REPLACED => {
            let version = Version(u64::from_be_bytes(take(bytes)?));
            let has_number = matches!(kind, NUMBER_CREATED | NUMBER_REPLACED);
            let number = if has_number {
                Some(i64::from_be_bytes(take(bytes)?))
            } else {
                None
            };
            Ok(Written {
                version,
                existed: matches!(kind, REPLACED | NUMBER_REPLACED),
                number,
                is_replayed: false,
            })
        }
        CONDITION_FAILED_ABSENT => Err(WriteError::ConditionFailed { current: None }),
        CONDITION_FAILED => Err(WriteError::ConditionFailed {
            current: Some(Version(u64::from_be_bytes(take(bytes)?))),
        }),
        GROUP_ABORTED => Err(WriteError::GroupAborted {
            index: usize::try_from(u64::from_be_bytes(take(bytes)?)).ok()?,
        }),
        NOT_A_NUMBER => Err(WriteError::NotANumber),
        INCREMENT_OVERFLOW => Err(WriteError::IncrementOverflow {
            current: i64::from_be_bytes(take(bytes)?),
        }),
        _ => return None,
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome() -> impl Strategy<Value = Result<Written, WriteError>> {
        let written = (any::<u64>(), any::<bool>(), any::<Option<i64>>());
        prop_oneof![
            written.prop_map(|(version, existed, number)| Ok(Written {
                version: Version(version),
                existed,
                number,
                is_replayed: false,
            })),
            any::<Option<u64>>().prop_map(|current| Err(WriteError::ConditionFailed {
                current: current.map(Version)
            })),
            any::<u32>().prop_map(|index| Err(WriteError::GroupAborted {
                index: index as usize
            })),
            Just(Err(WriteError::NotANumber)),
            any::<i64>().prop_map(|current| Err(WriteError::IncrementOverflow { current })),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back(
            request: [u8; DIGEST_LEN],
            outcomes in prop::collection::btree_map(any::<u32>(), outcome(), 0..6),
        ) {
            let keep_until = Timestamp(7);
            let record = IdempotencyRecord { request, keep_until, outcomes };
            let bytes = record.encode();
            prop_assert_eq!(IdempotencyRecord::decode(&bytes, keep_until), Some(record));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..9, 0..64)) {
            let _ = IdempotencyRecord::decode(&bytes, Timestamp(0));
        }
    }

    /// A record that this version wrote: every later one must still read it.
    #[test]
    fn a_record_of_format_1_is_read() {
        let outcomes = [
            Ok(Written::new(Version(9), false)),
            Ok(Written::new(Version(10), true)),
            Ok(Written {
                number: Some(-2),
                ..Written::new(Version(11), true)
            }),
            Err(WriteError::ConditionFailed { current: None }),
            Err(WriteError::ConditionFailed {
                current: Some(Version(3)),
            }),
            Err(WriteError::GroupAborted { index: 1 }),
            Err(WriteError::NotANumber),
            Err(WriteError::IncrementOverflow { current: 7 }),
        ];
        let number = |number: u64| number.to_be_bytes();
        let mut bytes = vec![1];
        bytes.extend_from_slice(&[5; DIGEST_LEN]);
        let parts: [(u8, &[[u8; 8]]); 8] = [
            (0, &[number(9)]),
            (1, &[number(10)]),
            (3, &[number(11), number(u64::MAX - 1)]),
            (4, &[]),
            (5, &[number(3)]),
            (6, &[number(1)]),
            (7, &[]),
            (8, &[number(7)]),
        ];
        for (line, (kind, fields)) in (0_u32..).zip(parts) {
            bytes.extend_from_slice(&line.to_be_bytes());
            bytes.push(kind);
            for field in fields {
                bytes.extend_from_slice(field);
            }
        }
        let record = IdempotencyRecord {
            request: [5; DIGEST_LEN],
            keep_until: Timestamp(1),
            outcomes: (0..).zip(outcomes).collect(),
        };
        assert_eq!(record.encode()[..], bytes);
        assert_eq!(
            IdempotencyRecord::decode(&bytes, Timestamp(1)),
            Some(record)
        );
    }

    #[test]
    fn a_repetition_of_fewer_lines_finds_its_own() {
        let all = Idempotency {
            id: [1; DIGEST_LEN],
            request: [2; DIGEST_LEN],
            keep_until: Timestamp(9),
            keeps_refusals: true,
            lines: vec![3, 5, 8],
        };
        let mut record = IdempotencyRecord::begin(&all);
        for index in 0..3 {
            record.note(&all, index, &Err(WriteError::GroupAborted { index: 2 }));
        }
        let part = all.of_part([0, 2]);
        assert_eq!(part.lines, [3, 8]);
        let aborted = WriteError::GroupAborted { index: 1 };
        let replayed = Some(Err(WriteError::Replayed(Box::new(aborted))));
        assert_eq!(record.replay(&part, 0), replayed);
        assert_eq!(record.replay(&all.of_part([]), 0), None);
    }
}
