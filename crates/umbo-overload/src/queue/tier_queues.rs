//! The waiting requests by tier and caller, and the order of serving them.
//!
//! Callers of a tier share it by request units: start-time fair queueing (Goyal, Vin, Cheng 1996). A caller that has
//! just had much begins later in virtual time; the caller that begins first is next. Callers are told apart by their
//! flow. Two callers of one flow share one part, but not for long: the flow changes every second.
//!
//! Within a flow the oldest request is next, or the newest if the tier is overloaded: the client of the newest is the
//! likeliest to wait still. The invariant: every node is in the list of its tier and in the list of its flow, and
//! counts and sums agree with the lists.

use std::time::Instant;

use umbo_types::Criticality;

use super::admission::{Entry, QueueTicket, last_instant, tier};
use super::slab::{QueuedRequest, Slab, SlabList, Which};
use crate::estimate::SLICE;
use crate::flow::{FLOWS, flow_of};

pub(crate) const TIERS: usize = Criticality::ALL.len();
/// Words with a bit for each flow.
const WORDS: usize = FLOWS / u64::BITS as usize;
/// Beyond this virtual instant, virtual time begins at zero again once no request waits.
const VIRTUAL_MAX: u64 = u64::MAX / 2;

/// The callers of one flow.
#[derive(Debug, Clone, Copy)]
struct CallerFlow {
    list: SlabList,
    len: usize,
    /// Virtual instant at which its next request begins, in micro-RU.
    begins: u64,
}

/// One tier.
#[derive(Debug)]
struct TierQueue {
    list: SlabList,
    len: usize,
    flows: Box<[CallerFlow; FLOWS]>,
    /// Flows with a waiting request, a bit each.
    waiting: [u64; WORDS],
    turned_at: Option<Instant>,
    /// Virtual instant at which the last served request began.
    virtual_now: u64,
    /// The latest virtual instant at which a flow begins.
    last: u64,
    /// Number of the turn, which changes the flows of callers.
    turn: u64,
}

impl TierQueue {
    fn new() -> Self {
        let flow = CallerFlow {
            list: SlabList::EMPTY,
            len: 0,
            begins: 0,
        };
        Self {
            list: SlabList::EMPTY,
            len: 0,
            flows: Box::new([flow; FLOWS]),
            waiting: [0; WORDS],
            turned_at: None,
            virtual_now: 0,
            last: 0,
            turn: 0,
        }
    }

    fn flow_of(&self, caller: u64) -> usize {
        usize::from(flow_of(caller, self.turn))
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + use<> {
        let bits = |(word, mut bits): (usize, u64)| {
            std::iter::from_fn(move || {
                if bits == 0 {
                    return None;
                }
                let flow = word * u64::BITS as usize + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                Some(flow)
            })
        };
        self.waiting.into_iter().enumerate().flat_map(bits)
    }

    /// Changes the flows of callers if a second has passed. Requests that wait keep their flow.
    fn turn(&mut self, now: Instant) {
        let since = *self.turned_at.get_or_insert(now);
        if now.saturating_duration_since(since) >= SLICE {
            self.turn += 1;
            self.turned_at = Some(now);
        }
    }

    fn set_waiting(&mut self, flow: usize, is_waiting: bool) {
        let bits = u64::BITS as usize;
        let bit = 1 << (flow % bits);
        if is_waiting {
            self.waiting[flow / bits] |= bit;
        } else {
            self.waiting[flow / bits] &= !bit;
        }
    }

    /// Forgets how much each caller had, now that no request waits: all begin at the latest instant at which one would.
    fn forget(&mut self) {
        self.virtual_now = self.last;
        if self.last > VIRTUAL_MAX {
            (self.virtual_now, self.last) = (0, 0);
            for flow in self.flows.iter_mut() {
                flow.begins = 0;
            }
        }
    }
}

/// All tiers.
#[derive(Debug)]
pub(crate) struct TierQueues<W> {
    slab: Slab<W>,
    tiers: [TierQueue; TIERS],
    /// Sum of all prices, in micro-RU.
    work: u128,
}

impl<W> TierQueues<W> {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            tiers: std::array::from_fn(|_| TierQueue::new()),
            work: 0,
        }
    }

    /// Returns the number of waiting requests.
    pub(crate) const fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the number of waiting requests of a tier.
    pub(crate) const fn len_of(&self, tier: usize) -> usize {
        self.tiers[tier].len
    }

    /// Returns the sum of all prices, in micro-RU.
    pub(crate) fn work(&self) -> u64 {
        u64::try_from(self.work).unwrap_or(u64::MAX)
    }

    /// Returns since when the oldest request of a tier waits, and its deadline.
    pub(crate) fn oldest(&self, tier: usize) -> Option<(Instant, Instant)> {
        let oldest = self.tiers[tier].list.oldest()?;
        let node = self.slab.get(oldest);
        Some((node.entered, node.expires))
    }

    /// Returns the highest tier with a waiting request, or `None` if no request waits.
    pub(crate) fn highest(&self) -> Option<usize> {
        (0..TIERS).rev().find(|&tier| self.tiers[tier].len > 0)
    }

    /// Returns the lowest tier with a waiting request, or `None` if no request waits.
    pub(crate) fn lowest(&self) -> Option<usize> {
        (0..TIERS).find(|&tier| self.tiers[tier].len > 0)
    }

    /// Returns whether the flow of an entry, with the entry, has no more waiting requests than the flows of its tier
    /// have on average.
    pub(crate) fn is_modest(&self, entry: &Entry) -> bool {
        let tier_queue = &self.tiers[tier(entry.criticality)];
        let flow = tier_queue.flow_of(entry.caller);
        let its = tier_queue.flows[flow].len;
        let waiting: u32 = tier_queue
            .waiting
            .iter()
            .map(|word| word.count_ones())
            .sum();
        let flows = waiting as usize + usize::from(its == 0);
        (its + 1) * flows <= tier_queue.len
    }

    /// Adds a request that waits.
    pub(crate) fn push(&mut self, entry: &Entry, waiter: W, now: Instant) -> QueueTicket {
        let tier = tier(entry.criticality);
        let tier_queue = &mut self.tiers[tier];
        tier_queue.turn(now);
        let flow = tier_queue.flow_of(entry.caller);
        let price = entry.price.as_micros().max(1);
        let ticket = self.slab.insert(QueuedRequest {
            waiter,
            entered: now,
            expires: last_instant(entry),
            price,
            tier: tier as u8,
            flow: flow as u8,
        });
        self.slab
            .link(Which::Tier, &mut tier_queue.list, ticket.index);
        let its = &mut tier_queue.flows[flow];
        self.slab.link(Which::Caller, &mut its.list, ticket.index);
        if its.len == 0 {
            // A caller that was away saves nothing up.
            its.begins = its.begins.max(tier_queue.virtual_now);
        }
        its.len += 1;
        tier_queue.len += 1;
        tier_queue.set_waiting(flow, true);
        self.work += u128::from(price);
        ticket
    }

    /// Takes out the request of this ticket, if it still waits.
    pub(crate) fn cancel(&mut self, ticket: QueueTicket) -> Option<W> {
        let index = self.slab.find(ticket)?;
        Some(self.remove(index).waiter)
    }

    /// Takes out the next request of a tier.
    pub(crate) fn take_next(
        &mut self,
        tier: usize,
        newest_first: bool,
    ) -> Option<QueuedRequest<W>> {
        let tier_queue = &mut self.tiers[tier];
        let flow = tier_queue
            .waiting()
            .min_by_key(|&flow| tier_queue.flows[flow].begins)?;
        let its = &mut tier_queue.flows[flow];
        let index = if newest_first {
            its.list.newest()
        } else {
            its.list.oldest()
        }?;
        let price = self.slab.get(index).price;
        tier_queue.virtual_now = its.begins;
        its.begins = its.begins.saturating_add(price);
        tier_queue.last = tier_queue.last.max(its.begins);
        Some(self.remove(index))
    }

    /// Takes out the oldest request of a tier.
    pub(crate) fn take_oldest(&mut self, tier: usize) -> Option<QueuedRequest<W>> {
        let oldest = self.tiers[tier].list.oldest()?;
        Some(self.remove(oldest))
    }

    /// Takes out the newest request of a tier.
    pub(crate) fn take_newest(&mut self, tier: usize) -> Option<QueuedRequest<W>> {
        let newest = self.tiers[tier].list.newest()?;
        Some(self.remove(newest))
    }

    /// Takes out the newest request of the flow of a tier with the most requests.
    pub(crate) fn take_of_most(&mut self, tier: usize) -> Option<QueuedRequest<W>> {
        let tier_queue = &self.tiers[tier];
        let flow = tier_queue
            .waiting()
            .max_by_key(|&flow| tier_queue.flows[flow].len)?;
        let newest = tier_queue.flows[flow].list.newest()?;
        Some(self.remove(newest))
    }

    /// Gives memory back while no request waits.
    pub(crate) fn shrink(&mut self) {
        self.slab.shrink();
    }

    fn remove(&mut self, index: u32) -> QueuedRequest<W> {
        let (tier, flow) = {
            let node = self.slab.get(index);
            (usize::from(node.tier), usize::from(node.flow))
        };
        let tier_queue = &mut self.tiers[tier];
        self.slab.unlink(Which::Tier, &mut tier_queue.list, index);
        let its = &mut tier_queue.flows[flow];
        self.slab.unlink(Which::Caller, &mut its.list, index);
        its.len -= 1;
        if its.len == 0 {
            tier_queue.set_waiting(flow, false);
        }
        tier_queue.len -= 1;
        if tier_queue.len == 0 {
            tier_queue.forget();
        }
        let node = self.slab.take(index);
        self.work -= u128::from(node.price);
        node
    }
}

#[cfg(test)]
#[path = "tier_queues_tests.rs"]
mod tests;
