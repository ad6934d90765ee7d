//! The protocol between dispatchers and shard nodes: one gRPC stream a connection, in both
//! directions of which frames carry whatever was waiting to be sent.
//!
//! Owns the messages, their limits, what a peer of another version is told, and the way between
//! messages and the requests of the store contract, and how the parts of a connection share a task.
//! Opens no socket. `shard.proto` of this crate is the same for other tools. The invariant: whatever
//! bytes arrive, decoding them answers a message or a [`DecodeError`], and takes memory only in
//! proportion to them.

mod answer;
mod bounds;
mod codec;
mod convert;
mod error;
mod frame;
mod message;
mod one_task;
mod point_read;
mod request;
mod rows;
mod version;

pub use answer::{Answer, AnswerPart, Outcome, WriteAnswer};
pub use codec::FrameCodec;
pub use error::{DecodeError, NodeError};
pub use frame::{AnswerFrame, FRAME_LEN_MAX, FRAME_LEN_TARGET, RequestFrame};
pub use one_task::{OneTask, Parts, Yield};
pub use request::{Ask, Request, RequestRef};
pub use version::{Hello, ProtocolVersion, Refusal, Welcome};

/// Path of the stream, as gRPC names it.
pub const EXCHANGE_PATH: &str = "/umbo.shard.v1.Shard/Exchange";
/// Name of the service, as gRPC names it.
pub const SERVICE_NAME: &str = "umbo.shard.v1.Shard";
