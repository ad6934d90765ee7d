//! Answers on their way out: encoded once, into the message that goes out next.
//!
//! A gRPC message is a flag, four bytes of length and the frame. Frames are messages of protobuf:
//! one after the other they are one, so that a welcome and the answers behind it go out together.

use bytes::{BufMut, Bytes, BytesMut};
use umbo_protocol::{Answer, AnswerFrame, FRAME_LEN_TARGET};

/// Length of what stands before each message.
pub(crate) const PREFIX_LEN: usize = 5;

/// The next message of a stream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    message: BytesMut,
    /// Room that the last message has taken: the next one is likely to be like it.
    len_usual: usize,
}

impl Outbox {
    /// Adds an answer.
    pub(crate) fn push(&mut self, answer: Answer) {
        self.begin();
        AnswerFrame::push(&mut self.message, answer);
    }

    /// Adds a whole frame.
    pub(crate) fn put(&mut self, frame: &[u8]) {
        self.begin();
        self.message.put_slice(frame);
    }

    fn begin(&mut self) {
        if self.message.is_empty() {
            self.message.reserve(self.len_usual);
            self.message.put_bytes(0, PREFIX_LEN);
        }
    }

    /// Returns the length of what is in it, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.message.len()
    }

    /// Takes the message, where there is anything in it.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        if self.message.is_empty() {
            return None;
        }
        self.len_usual = self.message.len().min(FRAME_LEN_TARGET);
        let mut message = self.message.split();
        let frame_len = (message.len() - PREFIX_LEN) as u32;
        message[1..PREFIX_LEN].copy_from_slice(&frame_len.to_be_bytes());
        Some(message.freeze())
    }
}

/// Returns a text as gRPC has it in a header: printable ASCII, everything else as `%XX`.
pub(crate) fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;

    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            other => write!(encoded, "%{other:02X}").expect("a text takes what is written"),
        }
    }
    encoded
}
