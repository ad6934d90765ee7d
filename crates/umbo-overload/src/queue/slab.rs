//! Requests that wait, in one piece of memory, and the lists that run through it.
//!
//! Every node is in two lists, the list of its tier and the list of its caller, both in the order
//! of arrival. Adding and removing a node take the same few steps at any place.

use std::time::Instant;

use super::admission::QueueTicket;

/// No node.
const NONE: u32 = u32::MAX;

/// Which of the two lists of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Tier,
    Caller,
}

#[derive(Debug, Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    const NOWHERE: Self = Self {
        older: NONE,
        newer: NONE,
    };
}

/// The ends of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabList {
    oldest: u32,
    newest: u32,
}

impl SlabList {
    pub(crate) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };

    pub(crate) const fn oldest(self) -> Option<u32> {
        if self.oldest == NONE {
            None
        } else {
            Some(self.oldest)
        }
    }

    pub(crate) const fn newest(self) -> Option<u32> {
        if self.newest == NONE {
            None
        } else {
            Some(self.newest)
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct QueuedRequest<W> {
    pub(crate) waiter: W,
    pub(crate) entered: Instant,
    /// When its client stops waiting for it.
    pub(crate) expires: Instant,
    /// In micro-RU.
    pub(crate) price: u64,
    pub(crate) tier: u8,
    pub(crate) flow: u8,
}

#[derive(Debug)]
struct SlabEntry<W> {
    node: Option<QueuedRequest<W>>,
    sequence: u64,
    links: [Links; 2],
}

/// Nodes, and which places are free.
#[derive(Debug)]
pub(crate) struct Slab<W> {
    cells: Vec<SlabEntry<W>>,
    /// First of the free cells; they are linked by `newer`.
    free: u32,
    sequence: u64,
    len: usize,
}

impl<W> Slab<W> {
    pub(crate) const fn new() -> Self {
        Self {
            cells: Vec::new(),
            free: NONE,
            sequence: 0,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Keeps a node, in no list yet.
    pub(crate) fn insert(&mut self, node: QueuedRequest<W>) -> QueueTicket {
        self.sequence += 1;
        self.len += 1;
        let cell = SlabEntry {
            node: Some(node),
            sequence: self.sequence,
            links: [Links::NOWHERE; 2],
        };
        let index = if self.free == NONE {
            self.cells.push(cell);
            // A queue is far shorter than its number allows: it is bounded by its settings.
            (self.cells.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.cells[index as usize].links[0].newer;
            self.cells[index as usize] = cell;
            index
        };
        QueueTicket {
            index,
            sequence: self.sequence,
        }
    }

    /// Takes a node out that is in no list any more.
    pub(crate) fn take(&mut self, index: u32) -> QueuedRequest<W> {
        let cell = &mut self.cells[index as usize];
        let node = cell.node.take().expect("a listed node is there");
        cell.links[0].newer = self.free;
        self.free = index;
        self.len -= 1;
        node
    }

    /// Gives half of the memory back while no request waits.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 {
            self.cells.clear();
            self.cells.shrink_to(self.cells.capacity() / 2);
            self.free = NONE;
        }
    }

    pub(crate) fn get(&self, index: u32) -> &QueuedRequest<W> {
        let node = self.cells[index as usize].node.as_ref();
        node.expect("a listed node is there")
    }

    /// Returns where a ticket's node is, unless it is gone.
    pub(crate) fn find(&self, ticket: QueueTicket) -> Option<u32> {
        let cell = self.cells.get(ticket.index as usize)?;
        let is_there = cell.sequence == ticket.sequence && cell.node.is_some();
        is_there.then_some(ticket.index)
    }

    /// Adds a node to a list, as its newest.
    pub(crate) fn link(&mut self, which: Which, list: &mut SlabList, index: u32) {
        let older = list.newest;
        self.cells[index as usize].links[which as usize] = Links { older, newer: NONE };
        if older == NONE {
            list.oldest = index;
        } else {
            self.cells[older as usize].links[which as usize].newer = index;
        }
        list.newest = index;
    }

    /// Removes a node from the list that it is in.
    pub(crate) fn unlink(&mut self, which: Which, list: &mut SlabList, index: u32) {
        let Links { older, newer } = self.cells[index as usize].links[which as usize];
        if older == NONE {
            list.oldest = newer;
        } else {
            self.cells[older as usize].links[which as usize].newer = newer;
        }
        if newer == NONE {
            list.newest = older;
        } else {
            self.cells[newer as usize].links[which as usize].older = older;
        }
    }
}
