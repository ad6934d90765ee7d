//! Retry tickets. A rejected request gets one, and its retry has priority over new requests.
//!
//! A ticket holds the bucket that rejected the request, the instant when it becomes good, and a cost: the retry has
//! priority up to that cost. It is plain content here. The dispatcher signs it, binds it to the caller and itself, and
//! checks both when it comes back.

use crate::schedule::Millis;

/// How long after its due time a ticket is good, in milliseconds.
pub(crate) const GOOD_MS: u64 = 60_000;

/// A ticket for one retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryTicket {
    /// The bucket that issued it, by its number in the limiter.
    pub(crate) bucket: u64,
    /// When it becomes good.
    pub(crate) due: Millis,
    /// The retry has priority up to this cost, in atoms.
    pub(crate) cost: u64,
    /// Distinguishes it from other tickets of the bucket.
    pub(crate) nonce: u32,
}

/// A ticket that a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroughtTicket {
    /// Issued to this caller by this limiter, or for a counter of the fleet: good once.
    Issued(RetryTicket),
    /// Issued elsewhere. It says only that the client comes back, so that a new ticket reserves its whole cost.
    Elsewhere,
}

impl BroughtTicket {
    /// Returns the ticket if this limiter issued it.
    pub(crate) const fn issued(&self) -> Option<&RetryTicket> {
        match self {
            Self::Issued(ticket) => Some(ticket),
            Self::Elsewhere => None,
        }
    }
}

/// Set in the number of a bucket that counts for the fleet: it is the same number at all dispatchers.
pub(crate) const OF_FLEET: u64 = 1 << 63;

impl RetryTicket {
    /// Returns whether every dispatcher has the bucket of the ticket.
    pub const fn is_of_fleet(&self) -> bool {
        self.bucket & OF_FLEET != 0
    }

    /// Returns the same ticket by another clock, which shows `there` when the clock of the ticket shows `here`.
    pub(crate) const fn by_clock(mut self, here: Millis, there: Millis) -> Self {
        let due = self.due.0.saturating_add(there.0);
        self.due = Millis(due.saturating_sub(here.0));
        self
    }

    /// Length of a ticket as bytes.
    pub const LEN: usize = 28;

    /// Writes the ticket as bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [self.bucket, self.due.0, self.cost];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[24..28].copy_from_slice(&self.nonce.to_be_bytes());
        bytes
    }

    /// Reads the bytes that [`Self::to_bytes`] has written. Any bytes are a ticket.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| {
            let bytes = &bytes[at..at + 8];
            bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let nonce = bytes[24..28].iter();
        Self {
            bucket: word(0),
            due: Millis(word(8)),
            cost: word(16),
            nonce: nonce.fold(0, |word, byte| word << 8 | u32::from(*byte)),
        }
    }

    /// Returns whether the ticket can be good at an instant.
    pub(crate) const fn is_due(&self, now: Millis) -> bool {
        self.due.0 <= now.0 && now.0 - self.due.0 <= GOOD_MS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_the_ticket(bucket: u64, due: u64, cost: u64, nonce: u32) {
            let due = Millis(due);
            let ticket = RetryTicket { bucket, due, cost, nonce };
            prop_assert_eq!(RetryTicket::from_bytes(&ticket.to_bytes()), ticket);
        }
    }

    #[test]
    fn a_ticket_is_due_at_the_same_instant_by_every_clock() {
        let ticket = RetryTicket {
            due: Millis(700),
            ..RetryTicket::from_bytes(&[0; RetryTicket::LEN])
        };
        let (here, there) = (Millis(500), Millis(1_800_000_000_000));
        let shared = ticket.by_clock(here, there);
        assert_eq!(shared.due, Millis(there.0 + 200));
        assert_eq!(shared.by_clock(there, here), ticket);
        // Another dispatcher began 100 ms ago; a ticket that was due before is due at its beginning.
        assert_eq!(shared.by_clock(there, Millis(100)).due, Millis(300));
        assert_eq!(ticket.by_clock(Millis(900), Millis(100)).due, Millis(0));
    }

    #[test]
    fn a_ticket_is_good_for_a_minute_from_its_due_time() {
        let ticket = RetryTicket::from_bytes(&[0; RetryTicket::LEN]);
        let ticket = RetryTicket {
            due: Millis(500),
            ..ticket
        };
        let good = [499, 500, 60_500, 60_501].map(|now| ticket.is_due(Millis(now)));
        assert_eq!(good, [false, true, true, false]);
    }
}
