//! Decides whether the refused clients of a bucket are a crowd that waits for its turn, or a flood.
//!
//! A client that sends no ticket cannot be told from others. Each client of a patient crowd is refused once while it
//! waits for its turn, so that the refusals of a crowd about equal the refill. The bucket first takes refused clients
//! for a crowd, and each refused request reserves its turn. Clients that ask again at once, or never come back, are
//! refused far more often. When their reservations run further ahead of the axis than a crowd's would, they are a
//! flood, and only tickets that are brought count.
//!
//! From time to time the bucket looks whether a flood is over. A flood is over if no more was refused than a crowd
//! would be refused, or if no ticket was brought meanwhile, because then no client waits longer by mistake.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Longest wait of a crowd, in seconds of the rate. Few clients wait longer without a ticket.
const WAIT_SECONDS_MAX: u64 = 5;
/// Clients of a crowd at a small quota, which may wait longer than that.
const CLIENTS_MAX: u64 = 32;
/// Most refusals of a crowd, in thirds of the refill: three, and one for clients that others overtake.
const REFUSED_THIRDS_MAX: u64 = 4;
/// Clients bring no tickets if this part of the largest crowd has lapsed without one: a few requests of the smallest
/// quota.
const LAPSED_PART: u64 = 8;
/// Distance of the last ticket of a new bucket behind the axis, in atoms: more than the size of any crowd.
const LONG_AGO: u64 = 1 << 62;

/// A refused request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedCost {
    pub(crate) cost: u64,
    /// Refill of one second.
    pub(crate) rate: u64,
    /// Whether the request brought a ticket, so that its client comes back.
    pub(crate) is_renewed: bool,
}

/// The state of a bucket's crowd. Positions on the axis and volumes are in atoms.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Position where the refill ends that requests without a ticket would have reserved.
    reserved: AtomicU64,
    /// The most that a crowd reserves ahead of the axis.
    max: AtomicU64,
    is_flood: AtomicBool,
    /// Cost of the requests refused since the last look at a flood.
    refused: AtomicU64,
    /// Position of the axis at that look.
    looked_at: AtomicU64,
    /// Position of the axis when a ticket was brought last.
    brought_at: AtomicU64,
    /// Cost of the tickets that have lapsed since then.
    lapsed: AtomicU64,
    is_without_tickets: AtomicBool,
}

impl Crowd {
    /// Makes an empty crowd at a position of the axis.
    pub(crate) fn none(axis: u64) -> Self {
        Self {
            reserved: AtomicU64::new(axis),
            max: AtomicU64::new(0),
            is_flood: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            looked_at: AtomicU64::new(axis),
            brought_at: AtomicU64::new(axis.wrapping_sub(LONG_AGO)),
            lapsed: AtomicU64::new(0),
            is_without_tickets: AtomicBool::new(false),
        }
    }

    /// Returns whether the clients are a flood, so that only tickets that are brought count.
    pub(crate) fn is_flood(&self) -> bool {
        self.is_flood.load(Relaxed)
    }

    /// Returns whether clients bring no tickets, so that nothing has to be kept for tickets.
    pub(crate) fn is_without_tickets(&self) -> bool {
        self.is_without_tickets.load(Relaxed)
    }

    /// Returns the most that a crowd reserves; zero before the first refusal.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// Records that a ticket was brought.
    pub(crate) fn note_brought(&self, axis: u64) {
        self.brought_at.store(axis, Relaxed);
        self.lapsed.store(0, Relaxed);
        self.is_without_tickets.store(false, Relaxed);
    }

    /// Records that a request without a ticket was refused, which would reserve `stretch`. Returns whether the
    /// reservations now exceed the most that a crowd would reserve.
    pub(crate) fn is_too_large(&self, axis: u64, refused: RefusedCost, stretch: u64) -> bool {
        let RefusedCost { cost, rate, .. } = refused;
        let max = rate
            .saturating_mul(WAIT_SECONDS_MAX)
            .max(cost.saturating_mul(CLIENTS_MAX));
        self.max.store(max, Relaxed);
        self.refused.fetch_add(cost, Relaxed);
        let reserved = self.reserved.load(Relaxed);
        let ahead = reserved.wrapping_sub(axis).cast_signed().max(0);
        let ahead = ahead.cast_unsigned().saturating_add(stretch);
        let is_too_large = ahead > max;
        let ahead = if is_too_large { 0 } else { ahead };
        self.reserved.store(axis.wrapping_add(ahead), Relaxed);
        is_too_large
    }

    /// Takes the refused clients for a flood. Returns whether they were a crowd before.
    pub(crate) fn begin_flood(&self, axis: u64) -> bool {
        self.restart(axis);
        !self.is_flood.swap(true, Relaxed)
    }

    /// Updates whether a flood is over, and whether clients bring no tickets. `lapsed` is the cost of the tickets that
    /// have lapsed since the last look.
    pub(crate) fn look(&self, axis: u64, lapsed: u64) {
        let max = self.max();
        let is_without = axis.wrapping_sub(self.brought_at.load(Relaxed)) > max;
        let lapsed = lapsed.saturating_add(self.lapsed.fetch_add(lapsed, Relaxed));
        let is_enough = lapsed >= max / LAPSED_PART;
        self.is_without_tickets
            .store(is_without && is_enough, Relaxed);
        let passed = axis.wrapping_sub(self.looked_at.load(Relaxed));
        if passed < max {
            return;
        }
        let thirds = passed.saturating_mul(REFUSED_THIRDS_MAX);
        let is_calm = self.refused.load(Relaxed).saturating_mul(3) <= thirds;
        self.restart(axis);
        if self.is_flood() && (is_calm || is_without) {
            self.is_flood.store(false, Relaxed);
        }
    }

    /// Starts a new count of refused requests.
    fn restart(&self, axis: u64) {
        self.refused.store(0, Relaxed);
        self.looked_at.store(axis, Relaxed);
    }
}
