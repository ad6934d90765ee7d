//! Credit: how many bytes each side may send before the other has processed them.
//!
//! The sender counts down a [`SendWindow`] and counts it up with each credit frame. The receiver counts
//! received and processed bytes with a [`ReceiveWindow`], and grants the processed ones back. The invariant:
//! a sender that respects its window never makes the receiver hold more than the window.

use crate::error::DecodeError;

/// Most bytes of frames that a side may have sent without credit, for each direction of a connection. Credit,
/// cancellations, pings and greetings are not counted.
pub const WINDOW_LEN: usize = 16 << 20;

/// The bytes that a side may still send.
#[derive(Debug)]
pub struct SendWindow {
    left: usize,
    max: usize,
}

impl SendWindow {
    /// Begins with the window that the peer offered.
    pub const fn new(window: u32) -> Self {
        Self {
            left: window as usize,
            max: window as usize,
        }
    }

    /// Takes a frame's bytes out of the window; returns false if they do not fit.
    pub(crate) const fn take(&mut self, len: usize) -> bool {
        if len > self.left {
            return false;
        }
        self.left -= len;
        true
    }

    /// Returns how many bytes may be sent now.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Adds credit from the peer. Granting more than was sent breaks the protocol.
    pub(crate) fn granted(&mut self, len: u32) -> Result<(), DecodeError> {
        let left = self.left + len as usize;
        if left > self.max {
            return Err(DecodeError::BadField {
                field: "credit",
                found: format!("{len} bytes, more than was sent"),
            });
        }
        self.left = left;
        Ok(())
    }
}

/// The bytes that the peer may still send.
#[derive(Debug)]
pub struct ReceiveWindow {
    left: usize,
    max: usize,
    taken_over: usize,
}

impl ReceiveWindow {
    /// Begins with the window in the hello or welcome of this side.
    pub const fn new(window: u32) -> Self {
        Self {
            left: window as usize,
            max: window as usize,
            taken_over: 0,
        }
    }

    /// Counts a received frame, by [`crate::Frame::counted`]. Fails if it exceeds the window.
    pub const fn received(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.left {
            let left = self.left;
            return Err(DecodeError::WindowExceeded { len, left });
        }
        self.left -= len;
        Ok(())
    }

    /// Counts freed bytes, by [`crate::Frame::counted`]. Returns the credit to grant to the peer now: none
    /// until it is a sixteenth of the window (1 MiB of 16), so that credit frames are rare.
    pub const fn taken_over(&mut self, len: usize) -> Option<u32> {
        self.taken_over += len;
        if self.taken_over == 0 || self.taken_over < self.max / 16 {
            return None;
        }
        let granted = self.taken_over;
        self.taken_over = 0;
        self.left += granted;
        Some(granted as u32)
    }
}
