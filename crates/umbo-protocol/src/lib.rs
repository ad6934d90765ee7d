//! The protocol between dispatchers and shard nodes ("the hop"): frames on a TCP or TLS connection.
//!
//! Owns the frames, their codec, the negotiation of versions, chunks of large messages, credit, and the order of writes
//! of a partition. Opens no socket, reads no clock and spawns nothing: it converts between bytes and frames. The
//! invariant: any received bytes decode to a frame or a [`DecodeError`], and take memory only in proportion to their
//! length.
//!
//! Both directions begin alike. A dispatcher sends [`PREFACE`] and a [`Hello`], the node answers with a
//! [`Welcome`]; nothing else is sent before that has arrived. Then each side pushes messages into its
//! [`RequestWriter`] or [`AnswerWriter`], takes frames out of it as fast as the socket accepts them, and
//! feeds received bytes to a [`Decoder`].

mod answer;
mod assembly;
mod batch;
mod codec;
mod credit;
mod decoder;
mod error;
mod frame;
mod order;
mod request;
mod send_queue;
mod version;
mod wire;
mod writer;

pub use answer::{Answer, AnswerPart, Outcome, ShardResult, StatusOfNode, WriteAnswer};
pub use assembly::Assembly;
pub use batch::{AnswerBatch, Refused, RequestBatch};
pub use credit::{ReceiveWindow, SendWindow, WINDOW_LEN};
pub use decoder::Decoder;
pub use error::{DecodeError, NodeError};
pub use frame::{
    ASSEMBLY_LEN_MAX, CHUNK_AT, CHUNK_LEN_MAX, Chunk, DispatcherFrame, FRAME_LEN_MAX, Frame,
    MESSAGE_LEN_MAX, NodeFrame, NodeStamp, PREFACE,
};
pub use request::{Ask, Request, RequestRef};
pub use send_queue::{Encoded, Placed};
pub use version::{Hello, ProtocolVersion, Refusal, Welcome};
pub use writer::{AnswerWriter, RequestWriter};
