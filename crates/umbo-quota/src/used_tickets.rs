//! The used tickets of a bucket, so that each ticket is good once.
//!
//! Bounded: if there are too many, the ticket with the earliest due time is forgotten, and every ticket that was due no
//! later is void. So a ticket is never good twice. A retry that comes very late to a busy bucket may find its ticket
//! void, and is then a new request.

use std::collections::BTreeSet;

use crate::retry_ticket::{GOOD_MS, RetryTicket};
use crate::schedule::Millis;

/// Used tickets that a bucket remembers; 16 bytes each.
const USED_MAX: usize = 4_096;

/// The used tickets of one bucket.
#[derive(Debug, Default)]
pub(crate) struct UsedTickets {
    /// Due time and nonce.
    used: BTreeSet<(Millis, u32)>,
    /// Tickets that were due no later are void.
    void_until: Option<Millis>,
}

impl UsedTickets {
    /// Uses a ticket; returns whether it was good.
    pub(crate) fn use_up(&mut self, ticket: &RetryTicket, now: Millis) -> bool {
        let is_void = self.void_until.is_some_and(|until| ticket.due <= until);
        if is_void || !ticket.is_due(now) || !self.used.insert((ticket.due, ticket.nonce)) {
            return false;
        }
        // A ticket that has run out is void by its due time.
        let has_run_out = |due: Millis| now.0.saturating_sub(due.0) > GOOD_MS;
        while let Some(&(due, _)) = self.used.first() {
            if self.used.len() > USED_MAX {
                self.void_until = self.void_until.max(Some(due));
            } else if !has_run_out(due) {
                break;
            }
            self.used.pop_first();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(due: u64, nonce: u32) -> RetryTicket {
        RetryTicket {
            due: Millis(due),
            nonce,
            ..RetryTicket::from_bytes(&[0; RetryTicket::LEN])
        }
    }

    #[test]
    fn a_ticket_is_good_once_and_from_its_due_time() {
        let mut used = UsedTickets::default();
        let now = Millis(100);
        assert!(!used.use_up(&ticket(101, 1), now));
        assert!(used.use_up(&ticket(100, 1), now));
        assert!(!used.use_up(&ticket(100, 1), now));
        assert!(used.use_up(&ticket(100, 2), now));
        assert!(!used.use_up(&ticket(100, 3), Millis(100 + GOOD_MS + 1)));
    }

    #[test]
    fn what_is_forgotten_makes_earlier_tickets_void() {
        let mut used = UsedTickets::default();
        let now = Millis(50_000);
        for nonce in 0..=USED_MAX as u32 {
            assert!(used.use_up(&ticket(u64::from(nonce), nonce), now));
        }
        assert_eq!(used.used.len(), USED_MAX);
        assert!(!used.use_up(&ticket(0, 0), now), "it was used");
        assert!(
            !used.use_up(&ticket(0, 1_000_000), now),
            "it might have been"
        );
        assert!(used.use_up(&ticket(1, 1_000_000), now));
    }
}
