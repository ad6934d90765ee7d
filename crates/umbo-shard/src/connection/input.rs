//! The receive side of a connection: bytes to frames, frames to requests, in the order of sending.
//!
//! Frames are processed as they arrive, also while the peer reads no answers, because credit and cancellations are
//! among them. The memory for this has three bounds: the window of the peer, which gets no credit meanwhile; the
//! maximum of partial large requests; and the node's limit for requests that have arrived.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::BytesMut;
use umbo_protocol::{Assembly, Chunk, Decoder, DispatcherFrame, NodeError, ReceiveWindow};
use umbo_store::StoreError;
use umbo_types::ShardId;

use super::stream::{ReceivedRequests, Requests, ShardStream};
use crate::admission::ArrivalMemory;
use crate::connection_end::ConnectionEnd;
use crate::kind::RequestKind;
use crate::limits::REFUSED_MAX;
use crate::node::Node;

/// The receive side of a connection.
pub(super) struct Input {
    node: Arc<Node>,
    decoder: Decoder<DispatcherFrame>,
    window: ReceiveWindow,
    assembly: Assembly,
    /// Memory reservation of the partial requests.
    assembling: ArrivalMemory,
    /// Large requests that were refused for lack of memory, until their last chunk has arrived.
    refused: HashSet<u64>,
    frames: u64,
    chunks: u64,
}

impl Input {
    /// Begins behind the hello; `window` is the credit in the welcome.
    pub(super) fn new(node: &Arc<Node>, decoder: Decoder<DispatcherFrame>, window: u32) -> Self {
        Self {
            node: Arc::clone(node),
            decoder,
            window: ReceiveWindow::new(window),
            assembly: Assembly::default(),
            assembling: node.admission().arrived(),
            refused: HashSet::new(),
            frames: 0,
            chunks: 0,
        }
    }

    /// Returns the buffer that read bytes are appended to.
    pub(super) const fn buffer(&mut self) -> &mut BytesMut {
        self.decoder.buffer()
    }

    /// Returns whether a frame is incomplete.
    pub(super) fn is_within_frame(&mut self) -> bool {
        !self.decoder.buffer().is_empty()
    }

    /// Returns whether a large request is incomplete.
    pub(super) const fn is_within_message(&self) -> bool {
        self.assembly.held() > 0
    }

    /// Returns the number of frames, and of chunks, so far.
    pub(super) const fn progress(&self) -> (u64, u64) {
        (self.frames, self.chunks)
    }

    /// Counts bytes of the window that were freed. Returns the credit to grant to the peer, if it is due.
    pub(super) const fn taken_over(&mut self, len: usize) -> Option<u32> {
        self.window.taken_over(len)
    }

    /// Processes the complete frames.
    pub(super) fn take_frames(&mut self, stream: &mut ShardStream) -> Result<(), ConnectionEnd> {
        loop {
            let before = self.decoder.buffer().len();
            let Some(frame) = self.decoder.next_frame()? else {
                return Ok(());
            };
            let len = before - self.decoder.buffer().len();
            self.frames += 1;
            stream.tally.record_frame(len);
            self.window.received(frame.counted)?;
            match frame.body {
                DispatcherFrame::Hello(_) => return Err(ConnectionEnd::NotOneHello),
                DispatcherFrame::Requests(batch) => {
                    let counted = frame.counted;
                    self.push(stream, Requests::Batch(batch), counted, len)?;
                }
                DispatcherFrame::Chunk(chunk) => {
                    self.chunks += 1;
                    self.take_chunk(stream, chunk)?;
                    stream.free(frame.counted);
                }
                DispatcherFrame::Cancel(ids) => {
                    for id in ids {
                        self.cancel(stream, id);
                    }
                }
                DispatcherFrame::Credit(len) => stream.answers.granted(len)?,
                DispatcherFrame::Ping => stream.answers.pong(),
                DispatcherFrame::Skipped => {}
            }
        }
    }

    /// Passes small requests to the stream. They reserve memory only if they have to wait.
    fn push(
        &self,
        stream: &mut ShardStream,
        requests: Requests,
        counted: usize,
        len: usize,
    ) -> Result<(), ConnectionEnd> {
        let mut room = None;
        if stream.is_blocked() {
            let mut taken = self.node.admission().arrived();
            if !taken.grow(len) {
                return Err(ConnectionEnd::NoMemory);
            }
            room = Some(taken);
        }
        stream.push(ReceivedRequests {
            requests,
            counted,
            len,
            at: self.node.clock().monotonic(),
            room,
        });
        Ok(())
    }

    fn take_chunk(&mut self, stream: &mut ShardStream, chunk: Chunk) -> Result<(), ConnectionEnd> {
        let (id, is_last, len) = (chunk.id, chunk.is_last, chunk.bytes.len());
        if self.refused.contains(&id) {
            if is_last {
                self.refused.remove(&id);
            }
            return Ok(());
        }
        if !self.assembling.grow(len) {
            self.drop_message(id);
            let busy = StoreError::NodeBusy { shard: ShardId(0) };
            stream.answer_failed(RequestKind::Other, id, NodeError::Store(busy));
            if !is_last {
                self.refused.insert(id);
            }
            if self.refused.len() > REFUSED_MAX {
                return Err(ConnectionEnd::NoMemory);
            }
            return Ok(());
        }
        if let Some(message) = self.assembly.push(chunk)? {
            let len = message.len();
            stream.push(ReceivedRequests {
                requests: Requests::Large(Some(message)),
                counted: 0,
                len,
                at: self.node.clock().monotonic(),
                room: Some(self.assembling.split(len)),
            });
        }
        Ok(())
    }

    fn cancel(&mut self, stream: &mut ShardStream, id: u64) {
        self.refused.remove(&id);
        self.drop_message(id);
        stream.cancel(id);
    }

    /// Drops the chunks of a large request.
    fn drop_message(&mut self, id: u64) {
        let before = self.assembly.held();
        self.assembly.remove(id);
        drop(self.assembling.split(before - self.assembly.held()));
    }
}
