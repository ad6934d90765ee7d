//! An answer of a server.

use bytes::Bytes;

/// An answer: its status, and its body.
pub(super) type ServerAnswer = (u16, Bytes);
