//! The sending halves of both sides.

use std::hash::{DefaultHasher, Hash, Hasher};

use umbo_types::{NamespaceId, PartitionKey};

use crate::answer::Answer;
use crate::codec::field::Field as _;
use crate::codec::{answers, greetings, requests};
use crate::credit::SendWindow;
use crate::error::DecodeError;
use crate::frame::{CHUNK_AT, DRAINING, HELLO, NodeStamp, PING, PONG, PREFACE, WELCOME};
use crate::request::{Ask, RequestRef};
use crate::send_queue::{Encoded, Placed, SendQueue, put_frame};
use crate::version::{Hello, Welcome};

/// The sending half of a dispatcher, from the welcome on.
#[derive(Debug)]
pub struct RequestWriter {
    queue: SendQueue,
}

impl RequestWriter {
    /// Writes the preface and the hello.
    pub fn hello(out: &mut Vec<u8>, hello: &Hello) {
        out.extend_from_slice(&PREFACE);
        put_frame(out, HELLO, None, |out| hello.put(out));
    }

    /// Begins with the window in the welcome.
    pub fn new(window: u32) -> Self {
        Self {
            queue: SendQueue::new(SendWindow::new(window)),
        }
    }

    /// Adds a request. Writes of a partition are handed out in the order of their addition.
    pub fn push(&mut self, request: &RequestRef<'_>) -> Placed {
        self.queue.push(
            request.id,
            requests::len_hint(request.ask),
            || partitions(request.ask),
            |out| requests::put_request(out, request),
        )
    }

    /// Returns whether a request is so large that it should be encoded outside the lock.
    pub fn is_large(ask: &Ask) -> bool {
        requests::len_hint(ask) > CHUNK_AT
    }

    /// Encodes a large request.
    pub fn encode(request: &RequestRef<'_>) -> Encoded {
        let len = requests::len_hint(request.ask);
        Encoded::new(request.id, len, partitions(request.ask), |out| {
            requests::put_request(out, request);
        })
    }

    /// Adds an encoded request.
    pub fn push_encoded(&mut self, encoded: Encoded) -> Placed {
        self.queue.push_large(encoded)
    }

    /// Cancels a request that is not answered. Its rest is withdrawn, or its cancellation is sent at once.
    pub fn cancel(&mut self, id: u64, placed: Placed) {
        self.queue.cancel(id, placed);
    }

    /// Sends a ping.
    pub fn ping(&mut self) {
        self.queue.control(PING);
    }

    /// Grants the node credit, as [`crate::ReceiveWindow::taken_over`] returned it.
    pub const fn grant(&mut self, len: u32) {
        self.queue.grant(len);
    }

    /// Counts a credit frame of the node.
    pub fn granted(&mut self, len: u32) -> Result<(), DecodeError> {
        self.queue.granted(len)
    }

    /// Appends the next frames to `out`: nothing if the queue is empty, or the window allows none. Takes
    /// little more than 128 KiB at once.
    pub fn fill(&mut self, out: &mut Vec<u8>) {
        self.queue.fill(out, || None);
    }

    /// Returns the number of small requests that were handed out: see [`Placed::Small`].
    pub const fn handed(&self) -> u64 {
        self.queue.handed()
    }

    /// Returns the large requests whose last chunk was handed out, each once: see [`Placed::Large`].
    pub fn take_finished(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.queue.take_finished()
    }

    /// Returns the number of bytes of requests in the queue. The owner bounds it.
    pub const fn queued_len(&self) -> usize {
        self.queue.len()
    }
}

/// The sending half of a node, from the welcome on.
#[derive(Debug)]
pub struct AnswerWriter {
    queue: SendQueue,
}

impl AnswerWriter {
    /// Writes the answer to a hello.
    pub fn welcome(out: &mut Vec<u8>, stamp: &NodeStamp, welcome: &Welcome) {
        put_frame(out, WELCOME, Some(stamp), |out| {
            greetings::put_welcome(out, welcome);
        });
    }

    /// Begins with the window in the hello.
    pub fn new(window: u32) -> Self {
        Self {
            queue: SendQueue::new(SendWindow::new(window)),
        }
    }

    /// Adds an answer, or a part of one. Parts are handed out in the order of their addition, regardless of their
    /// lengths.
    pub fn push(&mut self, answer: &Answer) {
        self.queue.push(
            answer.id,
            answers::len_hint(&answer.outcome),
            || std::iter::once(answer.id),
            |out| answers::put_answer(out, answer),
        );
    }

    /// Drops the rest of a large answer whose request was cancelled.
    pub fn withdraw(&mut self, id: u64) {
        self.queue.withdraw(id);
    }

    /// Answers a ping.
    pub fn pong(&mut self) {
        self.queue.control(PONG);
    }

    /// Announces that the node stops and accepts no more requests.
    pub fn draining(&mut self) {
        self.queue.control(DRAINING);
    }

    /// Grants the dispatcher credit, as [`crate::ReceiveWindow::taken_over`] returned it.
    pub const fn grant(&mut self, len: u32) {
        self.queue.grant(len);
    }

    /// Counts a credit frame of the dispatcher.
    pub fn granted(&mut self, len: u32) -> Result<(), DecodeError> {
        self.queue.granted(len)
    }

    /// Appends the next frames to `out`, each with this stamp: nothing if the queue is empty, or the window
    /// allows none. Takes little more than 128 KiB at once.
    pub fn fill(&mut self, out: &mut Vec<u8>, stamp: impl FnOnce() -> NodeStamp) {
        self.queue.fill(out, || Some(stamp()));
        // The list of sent answers is not needed.
        drop(self.queue.take_finished());
    }

    /// Returns the number of bytes of answers in the queue.
    pub const fn queued_len(&self) -> usize {
        self.queue.len()
    }
}

/// Returns the hashes of the partitions that a request writes.
fn partitions(ask: &Ask) -> impl Iterator<Item = u64> + '_ {
    let (namespace, mutations, one) = match ask {
        Ask::Write(request) => (request.namespace, request.mutations.as_slice(), None),
        Ask::DeleteRange(request) => (request.namespace, [].as_slice(), Some(&request.partition)),
        _ => (NamespaceId::SYSTEM, [].as_slice(), None),
    };
    let partitions = mutations.iter().map(|mutation| &mutation.key.partition);
    partitions
        .chain(one)
        .map(move |partition| hash(namespace, partition))
}

fn hash(namespace: NamespaceId, partition: &PartitionKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, partition.as_bytes()).hash(&mut hasher);
    hasher.finish()
}
