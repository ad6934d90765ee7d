//! The messages between a dispatcher and an owner: fixed little-endian fields, so that 10,000 counters are read without
//! an allocation each.
//!
//! Counts are cumulative, so a message that is lost, repeated or late does no harm: the next one tells all.

use super::row::{OWNERS_MAX, OwnerRow};
use crate::fleet_share::{OwnerAnswer, Scale};
use crate::policy::Limit;

/// First byte of every message; another version is not read.
const VERSION: u8 = 1;
/// Most counters of one message: 704 KiB. Further ones are told by the next.
pub(super) const COUNTERS_MAX: usize = 8_192;
/// Stands for a balance that no owner has told yet.
const UNHEARD: i64 = i64::MIN;

/// A message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of quotas cannot be read: it is cut off, or of another version")]
pub struct FleetMessageError;

/// Counts of a dispatcher, told to an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FleetReport {
    pub(super) sender: u64,
    /// Grows with each message of the sender to this owner.
    pub(super) sequence: u64,
    /// Revision of the ownership row that the sender knows.
    pub(super) revision: u64,
    /// Owners that have given no answer for some periods.
    pub(super) silent: Vec<u64>,
    pub(super) counters: Vec<CounterReport>,
}

/// Counts of a dispatcher for one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CounterReport {
    pub(super) counter: u128,
    pub(super) limit: Limit,
    /// Distinguishes the bucket of the counter from earlier ones of the dispatcher.
    pub(super) bucket: u64,
    /// Atoms charged since the bucket was made.
    pub(super) spent: i64,
    /// The part of `spent` that the last answer covers.
    pub(super) acked: i64,
    /// Atoms refused since the bucket was made.
    pub(super) refused: u64,
    /// The share in effect.
    pub(super) scale: Scale,
    /// The balance that an owner told last, and its age.
    pub(super) heard: Option<HeardBalance>,
}

/// A balance that an owner told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeardBalance {
    pub(super) balance: i64,
    pub(super) age_ms: u64,
}

/// The answer of an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnerReply {
    pub(super) sequence: u64,
    /// The row of the owner, if the sender knew an older one: nothing was counted then.
    pub(super) row: Option<OwnerRow>,
    /// In the order of the report; empty if nothing was counted.
    pub(super) counters: Vec<OwnerAnswer>,
}

impl FleetReport {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(64 + 88 * self.counters.len());
        to.push(VERSION);
        put(&mut to, [self.sender, self.sequence, self.revision]);
        put_ids(&mut to, &self.silent);
        put(&mut to, [self.counters.len() as u64]);
        for one in &self.counters {
            to.extend_from_slice(&one.counter.to_le_bytes());
            let heard = one
                .heard
                .map_or((UNHEARD, 0), |heard| (heard.balance, heard.age_ms));
            let Limit { rate, burst } = one.limit;
            put(&mut to, [one.bucket]);
            let (spent, acked) = (one.spent.cast_unsigned(), one.acked.cast_unsigned());
            let scale = one.scale.to_bits();
            put(&mut to, [rate, burst, spent, acked, one.refused, scale]);
            put(&mut to, [heard.0.cast_unsigned(), heard.1]);
        }
        to
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, FleetMessageError> {
        let mut from = MessageReader::begin(bytes)?;
        let [sender, sequence, revision] = from.take()?;
        let silent = from.ids()?;
        let [len] = from.take()?;
        let counters = from.list(len, COUNTERS_MAX, |from| {
            let [low, high, bucket] = from.take()?;
            let [rate, burst, spent, acked, refused, scale] = from.take()?;
            let [balance, age_ms] = from.take()?;
            let balance = balance.cast_signed();
            Ok(CounterReport {
                counter: u128::from(high) << 64 | u128::from(low),
                limit: Limit { rate, burst },
                bucket,
                spent: spent.cast_signed(),
                acked: acked.cast_signed(),
                refused,
                scale: Scale::from_bits(scale),
                heard: (balance != UNHEARD).then_some(HeardBalance { balance, age_ms }),
            })
        })?;
        from.end()?;
        Ok(Self {
            sender,
            sequence,
            revision,
            silent,
            counters,
        })
    }
}

impl OwnerReply {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(96 + 32 * self.counters.len());
        to.push(VERSION);
        let (revision, owners) = self
            .row
            .as_ref()
            .map_or((0, &[][..]), |row| (row.revision, &row.owners));
        put(&mut to, [self.sequence, revision]);
        put_ids(&mut to, owners);
        put(&mut to, [self.counters.len() as u64]);
        for one in &self.counters {
            put(&mut to, [one.scale.to_bits(), one.demand]);
            let balances = [one.balance, one.target];
            put(&mut to, balances.map(i64::cast_unsigned));
        }
        to
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, FleetMessageError> {
        let mut from = MessageReader::begin(bytes)?;
        let [sequence, revision] = from.take()?;
        let owners = from.ids()?;
        let [len] = from.take()?;
        let counters = from.list(len, COUNTERS_MAX, |from| {
            let [scale, demand, balance, target] = from.take()?;
            Ok(OwnerAnswer {
                scale: Scale::from_bits(scale),
                balance: balance.cast_signed(),
                target: target.cast_signed(),
                demand,
            })
        })?;
        from.end()?;
        Ok(Self {
            sequence,
            row: (revision > 0).then_some(OwnerRow { revision, owners }),
            counters,
        })
    }
}

fn put<const N: usize>(to: &mut Vec<u8>, words: [u64; N]) {
    for word in words {
        to.extend_from_slice(&word.to_le_bytes());
    }
}

fn put_ids(to: &mut Vec<u8>, ids: &[u64]) {
    put(to, [ids.len() as u64]);
    for id in ids {
        put(to, [*id]);
    }
}

/// Takes words from the front of a message.
struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn begin(bytes: &'a [u8]) -> Result<Self, FleetMessageError> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            _ => Err(FleetMessageError),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u64; N], FleetMessageError> {
        let mut words = [0; N];
        for word in &mut words {
            let (bytes, rest) = self.0.split_first_chunk().ok_or(FleetMessageError)?;
            (*word, self.0) = (u64::from_le_bytes(*bytes), rest);
        }
        Ok(words)
    }

    /// Takes the items of a list. A list that is longer than the message has no memory reserved for it.
    fn list<T>(
        &mut self,
        len: u64,
        max: usize,
        item: impl Fn(&mut Self) -> Result<T, FleetMessageError>,
    ) -> Result<Vec<T>, FleetMessageError> {
        if len > max as u64 {
            return Err(FleetMessageError);
        }
        (0..len).map(|_| item(self)).collect()
    }

    fn ids(&mut self) -> Result<Vec<u64>, FleetMessageError> {
        let [len] = self.take()?;
        self.list(len, OWNERS_MAX, |from| from.take::<1>().map(|[id]| id))
    }

    fn end(self) -> Result<(), FleetMessageError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(FleetMessageError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> FleetReport {
        let counter = |counter: u128| CounterReport {
            counter: counter << 70 | 5,
            limit: Limit {
                rate: 100,
                burst: 200,
            },
            bucket: 8,
            spent: -3,
            acked: 7,
            refused: 9,
            scale: Scale::of(1, 3),
            heard: (counter > 1).then_some(HeardBalance {
                balance: -5,
                age_ms: 40,
            }),
        };
        FleetReport {
            sender: 1,
            sequence: 2,
            revision: 3,
            silent: vec![4, 5],
            counters: vec![counter(1), counter(2)],
        }
    }

    fn reply() -> OwnerReply {
        let owners = vec![1, 2];
        OwnerReply {
            sequence: 4,
            row: Some(OwnerRow {
                revision: 5,
                owners,
            }),
            counters: vec![OwnerAnswer {
                scale: Scale::ONE,
                balance: -1,
                target: -2,
                demand: 6,
            }],
        }
    }

    fn check(whole: &[u8], reads: &dyn Fn(&[u8]) -> bool) {
        assert!(reads(whole));
        assert!((0..whole.len()).all(|len| !reads(&whole[..len])));
        assert!(!reads(&[whole, &[0]].concat()));
        let other_version = [&[VERSION + 1], &whole[1..]].concat();
        assert!(!reads(&other_version));
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        assert_eq!(FleetReport::read(&report().write()), Ok(report()));
        assert_eq!(OwnerReply::read(&reply().write()), Ok(reply()));
        assert_eq!(
            OwnerReply::read(&OwnerReply::default().write()),
            Ok(OwnerReply::default())
        );
    }

    #[test]
    fn a_message_that_is_cut_off_longer_or_of_another_version_is_refused() {
        let reads_report = |bytes: &[u8]| FleetReport::read(bytes).is_ok();
        let reads_reply = |bytes: &[u8]| OwnerReply::read(bytes).is_ok();
        check(&report().write(), &reads_report);
        check(&reply().write(), &reads_reply);
        let mut endless = report();
        endless.counters.clear();
        let mut bytes = endless.write();
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(FleetReport::read(&bytes), Err(FleetMessageError));
    }
}
