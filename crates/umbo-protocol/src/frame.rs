//! The frames on the wire, and their bounds.
//!
//! A frame is its length (u32, little endian, without these four bytes), its kind (one byte) and its payload. Every
//! frame of a node begins its payload with a [`NodeStamp`]. A peer skips unknown kinds from 0x80 up; an unknown kind
//! below ends the connection.

use umbo_store::RecordsRevision;
use umbo_types::limits;

use crate::batch::{AnswerBatch, RequestBatch};
use crate::version::{Hello, Welcome};

use bytes::Bytes;

/// First bytes of a connection, from the dispatcher.
pub const PREFACE: [u8; 8] = *b"UMBOHOP1";
/// Longest frame, in bytes, without the four of its length.
pub const FRAME_LEN_MAX: usize = 128 << 10;
/// Longest message in a batch with others, in bytes. A longer one is sent in chunks.
pub const CHUNK_AT: usize = 32 << 10;
/// Most bytes of a message in one chunk.
pub const CHUNK_LEN_MAX: usize = 32 << 10;
/// Longest message, in bytes: the largest batch write with its keys, and room for the rest.
pub const MESSAGE_LEN_MAX: usize = limits::BATCH_BODY_LEN_MAX + (8 << 20);
/// Most bytes of incomplete chunked messages at once, for each direction of a connection. A sender begins no
/// further message that could exceed it.
pub const ASSEMBLY_LEN_MAX: usize = 32 << 20;

const _: () = assert!(MESSAGE_LEN_MAX <= ASSEMBLY_LEN_MAX);
const _: () = assert!(CHUNK_AT <= u16::MAX as usize && CHUNK_AT < FRAME_LEN_MAX / 2);

/// Bytes of the length of a frame.
pub(crate) const LENGTH_LEN: usize = 4;

pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 1;
pub(crate) const BATCH: u8 = 2;
pub(crate) const CHUNK: u8 = 3;
pub(crate) const CANCEL: u8 = 4;
pub(crate) const CREDIT: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const PONG: u8 = 6;
pub(crate) const DRAINING: u8 = 7;
/// Unknown kinds from here up are skipped. A node of an earlier release sends 0x80 for mail.
pub(crate) const OPTIONAL: u8 = 0x80;

/// The beginning of every frame of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStamp {
    /// When the node sent the frame: nanoseconds on its monotonic clock since its process began.
    pub stamp_ns: u64,
    /// Version of the map that the node uses.
    pub map_version: u64,
    /// Revision of the node's copy of Umbo's own records.
    pub records: RecordsRevision,
}

/// A decoded frame.
#[derive(Debug)]
pub struct Frame<T> {
    /// Content of the frame.
    pub body: T,
    /// Bytes of the window that it uses until they are freed with [`crate::ReceiveWindow::taken_over`]; 0 for
    /// a frame that is not counted.
    pub counted: usize,
}

/// Frames of a dispatcher.
#[derive(Debug)]
pub enum DispatcherFrame {
    /// Identifies the dispatcher. Only as the first frame.
    Hello(Hello),
    /// Small requests, in the order of sending.
    Requests(RequestBatch),
    /// A chunk of a large request.
    Chunk(Chunk),
    /// Cancels these requests. Not answered.
    Cancel(Vec<u64>),
    /// Grants the node credit for this many more bytes.
    Credit(u32),
    /// Asks the node for a [`NodeFrame::Pong`].
    Ping,
    /// A frame of an unknown kind that may be ignored.
    Skipped,
}

/// Frames of a node.
#[derive(Debug)]
pub enum NodeFrame {
    /// Identifies the node, or contains a refusal. Only as the first frame.
    Welcome(Welcome),
    /// Small answers.
    Answers(AnswerBatch),
    /// A chunk of a large answer.
    Chunk(Chunk),
    /// Grants the dispatcher credit for this many more bytes.
    Credit(u32),
    /// The answer to a ping.
    Pong,
    /// The node stops: sent requests are answered, no more may be sent.
    Draining,
    /// A frame of an unknown kind that may be ignored.
    Skipped,
}

/// A chunk of a message that is too long for a batch. The chunks of a message come in order, between other
/// frames; an [`crate::Assembly`] assembles them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Id of the request.
    pub id: u64,
    /// Whether it is the last chunk of the message.
    pub is_last: bool,
    /// Bytes of the chunk.
    pub bytes: Bytes,
}
