//! The send queue of one side: batches of small messages, chunks of large ones, control frames.
//!
//! Small messages go first, with one chunk after each batch, so that a get never waits for more than a chunk. Large
//! messages take turns. Writes of a partition are sent in the order of their pushes: a write behind a large one waits
//! for the last chunk of the large one, and a large write waits for the small ones pushed before it. The queue itself
//! has no bound: its owner checks [`SendQueue::len`] before it pushes.

use std::collections::{HashMap, VecDeque};

use crate::batch::ENTRY_LENGTH_LEN;
use crate::codec::field::Field as _;
use crate::credit::SendWindow;
use crate::decoder::IS_LAST;
use crate::error::DecodeError;
use crate::frame::{
    ASSEMBLY_LEN_MAX, BATCH, CANCEL, CHUNK, CHUNK_AT, CHUNK_LEN_MAX, CREDIT, LENGTH_LEN, NodeStamp,
};
use crate::order::PartitionOrder;
use crate::wire::put_varint;

/// At this length, in bytes, a batch is closed.
const BATCH_LEN_MAX: usize = 64 << 10;
/// At this length, in bytes, no more frames are taken at once: taken frames cannot be overtaken.
const FILL_LEN: usize = 64 << 10;
/// Most large messages whose chunks take turns. The next one begins when one has ended.
const BEGUN_MAX: usize = 16;
/// Most bytes of a frame besides messages: its length, kind and stamp, a chunk's id and flags.
const OVERHEAD_LEN_MAX: usize = 64;
/// Most ids of one frame of cancellations.
const CANCELS_MAX: usize = 4_096;

/// The place where a message was queued, to find out whether it was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Into a batch, as the message of this position: it is handed out once this number of small messages is.
    Small(u64),
    /// Among the messages that are sent in chunks: it is handed out once its id is among the finished ones.
    Large,
}

#[derive(Debug)]
pub(crate) struct SendQueue {
    window: SendWindow,
    batches: VecDeque<Batch>,
    /// A batch that was handed out, reused for its memory.
    spare: Batch,
    /// Number of small messages that were pushed, and handed out.
    pushed: u64,
    handed: u64,
    /// Large messages, by an internal number: parts of an answer have the same id.
    large: HashMap<u64, Large>,
    large_next: u64,
    /// Large messages that may begin, in order, and those in progress, in turn.
    ready: VecDeque<u64>,
    begun: VecDeque<u64>,
    begun_len: usize,
    order: PartitionOrder,
    /// Large messages that were handed out.
    finished: Vec<u64>,
    len: usize,
    credit: u32,
    cancels: Vec<u64>,
    /// Control frames without a payload.
    controls: Vec<u8>,
}

#[derive(Debug, Default)]
struct Batch {
    entries: Vec<u8>,
    /// Requests that are cancelled once the batch is handed out.
    cancels: Vec<u64>,
    /// Position of its last message.
    last: u64,
}

#[derive(Debug)]
struct Large {
    id: u64,
    message: Vec<u8>,
    handed: usize,
    partitions: Vec<u64>,
    /// Number of other messages that must leave first.
    blocked: usize,
    /// Position of the last small message that must leave first.
    after: u64,
}

/// A large message. It is encoded before it is added, so that no other message waits for its encoding.
#[derive(Debug)]
pub struct Encoded {
    id: u64,
    message: Vec<u8>,
    /// Hashes of the partitions that it writes, each once.
    partitions: Vec<u64>,
}

impl Encoded {
    pub(crate) fn new(
        id: u64,
        len_hint: usize,
        partitions: impl Iterator<Item = u64>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let mut message = Vec::with_capacity(len_hint + OVERHEAD_LEN_MAX);
        write(&mut message);
        Self::of(id, message, partitions)
    }

    fn of(id: u64, message: Vec<u8>, partitions: impl Iterator<Item = u64>) -> Self {
        let mut partitions: Vec<u64> = partitions.collect();
        partitions.sort_unstable();
        partitions.dedup();
        Self {
            id,
            message,
            partitions,
        }
    }
}

impl SendQueue {
    pub(crate) fn new(window: SendWindow) -> Self {
        Self {
            window,
            batches: VecDeque::new(),
            spare: Batch::default(),
            pushed: 0,
            handed: 0,
            large: HashMap::new(),
            large_next: 0,
            ready: VecDeque::new(),
            begun: VecDeque::new(),
            begun_len: 0,
            order: PartitionOrder::default(),
            finished: Vec::new(),
            len: 0,
            credit: 0,
            cancels: Vec::new(),
            controls: Vec::new(),
        }
    }

    /// Returns the number of bytes of queued messages.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of small messages that were handed out.
    pub(crate) const fn handed(&self) -> u64 {
        self.handed
    }

    /// Returns the large messages that were handed out since the last call.
    pub(crate) fn take_finished(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.finished.drain(..)
    }

    /// Adds a message of about `len_hint` bytes; `partitions` are the partitions that it writes.
    pub(crate) fn push<P: Iterator<Item = u64>>(
        &mut self,
        id: u64,
        len_hint: usize,
        partitions: impl Fn() -> P,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Placed {
        let is_blocked = self.order.is_blocked(partitions());
        if is_blocked || len_hint > CHUNK_AT {
            return self.push_large(Encoded::new(id, len_hint, partitions(), write));
        }
        let has_room = self
            .batches
            .back()
            .is_some_and(|batch| batch.entries.len() + len_hint < BATCH_LEN_MAX);
        if !has_room {
            self.batches.push_back(std::mem::take(&mut self.spare));
        }
        let last = self.batches.len() - 1;
        let batch = &mut self.batches[last];
        let begun = batch.entries.len();
        batch.entries.extend_from_slice(&[0; ENTRY_LENGTH_LEN]);
        write(&mut batch.entries);
        let len = batch.entries.len() - begun - ENTRY_LENGTH_LEN;
        if len > CHUNK_AT {
            let message = batch.entries.split_off(begun + ENTRY_LENGTH_LEN);
            batch.entries.truncate(begun);
            return self.push_large(Encoded::of(id, message, partitions()));
        }
        batch.entries[begun..begun + ENTRY_LENGTH_LEN].copy_from_slice(&(len as u16).to_le_bytes());
        self.len += ENTRY_LENGTH_LEN + len;
        self.pushed += 1;
        batch.last = self.pushed;
        Placed::Small(self.pushed)
    }

    /// Adds a message that is sent in chunks.
    pub(crate) fn push_large(&mut self, encoded: Encoded) -> Placed {
        let Encoded {
            id,
            message,
            partitions,
        } = encoded;
        let number = self.large_next;
        self.large_next += 1;
        let blocked = self.order.enter(number, &partitions);
        if blocked == 0 {
            self.ready.push_back(number);
        }
        self.len += message.len();
        let after = if partitions.is_empty() {
            0
        } else {
            self.pushed
        };
        let large = Large {
            id,
            message,
            handed: 0,
            partitions,
            blocked,
            after,
        };
        self.large.insert(number, large);
        Placed::Large
    }

    /// Withdraws the rest of the large messages of this id. Returns whether any part of them was handed out.
    pub(crate) fn withdraw(&mut self, id: u64) -> bool {
        let own = self.large.iter().filter(|(_, large)| large.id == id);
        let numbers: Vec<u64> = own.map(|(&number, _)| number).collect();
        let mut was_handed = numbers.is_empty();
        for number in numbers {
            if let Some(large) = self.end_large(number) {
                self.len -= large.message.len() - large.handed;
                was_handed |= large.handed > 0;
            }
        }
        was_handed
    }

    /// Cancels a request at the peer, after the request itself.
    pub(crate) fn cancel(&mut self, id: u64, placed: Placed) {
        match placed {
            Placed::Large if !self.withdraw(id) => {}
            Placed::Small(position) if position > self.handed => {
                if let Some(batch) = self.batches.back_mut() {
                    batch.cancels.push(id);
                }
            }
            Placed::Small(_) | Placed::Large => self.cancels.push(id),
        }
    }

    pub(crate) const fn grant(&mut self, len: u32) {
        self.credit += len;
    }

    pub(crate) fn control(&mut self, kind: u8) {
        if !self.controls.contains(&kind) {
            self.controls.push(kind);
        }
    }

    pub(crate) fn granted(&mut self, len: u32) -> Result<(), DecodeError> {
        self.window.granted(len)
    }

    /// Appends the next frames to `out`: nothing if the queue is empty, or the window allows none.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, stamp: impl FnOnce() -> Option<NodeStamp>) {
        let is_idle = self.controls.is_empty() && self.credit == 0 && self.cancels.is_empty();
        if is_idle && self.batches.is_empty() && self.large.is_empty() {
            return;
        }
        let stamp = stamp();
        let stamp = stamp.as_ref();
        for kind in self.controls.drain(..) {
            put_frame(out, kind, stamp, |_| {});
        }
        if self.credit > 0 {
            let credit = std::mem::take(&mut self.credit);
            put_frame(out, CREDIT, stamp, |out| put_varint(out, credit.into()));
        }
        put_cancels(out, &mut self.cancels);
        while out.len() < FILL_LEN {
            let has_batch = self.fill_batch(out, stamp);
            let has_chunk = self.fill_chunk(out, stamp);
            if !has_batch && !has_chunk {
                return;
            }
        }
    }

    fn fill_batch(&mut self, out: &mut Vec<u8>, stamp: Option<&NodeStamp>) -> bool {
        let Some(batch) = self.batches.front() else {
            return false;
        };
        let has_entries = !batch.entries.is_empty();
        if has_entries && self.window.left() < batch.entries.len() + OVERHEAD_LEN_MAX {
            return false;
        }
        let Some(mut batch) = self.batches.pop_front() else {
            return false;
        };
        if has_entries {
            let len = put_frame(out, BATCH, stamp, |out| {
                out.extend_from_slice(&batch.entries);
            });
            self.window.take(len);
            self.len -= batch.entries.len();
            self.handed = batch.last;
        }
        put_cancels(out, &mut batch.cancels);
        batch.entries.clear();
        self.spare = batch;
        true
    }

    fn fill_chunk(&mut self, out: &mut Vec<u8>, stamp: Option<&NodeStamp>) -> bool {
        while let Some(next) = self.ready.front().and_then(|number| self.large.get(number)) {
            let len = next.message.len();
            let fits = self.begun.is_empty()
                || (self.begun.len() < BEGUN_MAX && self.begun_len + len <= ASSEMBLY_LEN_MAX);
            if !fits || next.after > self.handed {
                break;
            }
            self.begun_len += len;
            self.begun.extend(self.ready.pop_front());
        }
        let Some(&number) = self.begun.front() else {
            return false;
        };
        let Some(large) = self.large.get_mut(&number) else {
            return false;
        };
        let id = large.id;
        let end = large.message.len().min(large.handed + CHUNK_LEN_MAX);
        let bytes = &large.message[large.handed..end];
        if self.window.left() < bytes.len() + OVERHEAD_LEN_MAX {
            return false;
        }
        let is_last = end == large.message.len();
        let len = put_frame(out, CHUNK, stamp, |out| {
            put_varint(out, id);
            out.push(if is_last { IS_LAST } else { 0 });
            out.extend_from_slice(bytes);
        });
        self.len -= bytes.len();
        self.window.take(len);
        large.handed = end;
        self.begun.rotate_left(1);
        if is_last {
            self.end_large(number);
            self.finished.push(id);
        }
        true
    }

    fn end_large(&mut self, number: u64) -> Option<Large> {
        let ended = self.large.remove(&number)?;
        let begun = self.begun.len();
        self.begun.retain(|&other| other != number);
        if self.begun.len() < begun {
            self.begun_len -= ended.message.len();
        } else {
            self.ready.retain(|&other| other != number);
        }
        let (large, ready) = (&mut self.large, &mut self.ready);
        self.order.leave(number, &ended.partitions, |unblocked| {
            if let Some(next) = large.get_mut(&unblocked) {
                next.blocked -= 1;
                if next.blocked == 0 {
                    ready.push_back(unblocked);
                }
            }
        });
        Some(ended)
    }
}

fn put_cancels(out: &mut Vec<u8>, cancels: &mut Vec<u64>) {
    for ids in cancels.chunks(CANCELS_MAX) {
        put_frame(out, CANCEL, None, |out| {
            for &id in ids {
                put_varint(out, id);
            }
        });
    }
    cancels.clear();
}

/// Writes a frame. Returns its length, including the length field.
pub(crate) fn put_frame(
    out: &mut Vec<u8>,
    kind: u8,
    stamp: Option<&NodeStamp>,
    write: impl FnOnce(&mut Vec<u8>),
) -> usize {
    let begun = out.len();
    out.extend_from_slice(&[0; LENGTH_LEN]);
    out.push(kind);
    if let Some(stamp) = stamp {
        stamp.put(out);
    }
    write(out);
    let len = out.len() - begun;
    let length = (len - LENGTH_LEN) as u32;
    out[begun..begun + LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
    len
}
