//! Hello, welcome, and the stamp of a node's frames.

use super::field::{Field, OptionalFields as _, fields, optional_fields};
use crate::error::DecodeError;
use crate::frame::{FRAME_LEN_MAX, NodeStamp};
use crate::version::{Hello, Refusal, Welcome};
use crate::wire::{Reader, bad, put_bytes, put_optional};

/// Smallest window that a peer may offer, in bytes: credit is granted in sixteenths, and two of the longest
/// frames must fit in addition.
const WINDOW_LEN_MIN: u32 = 512 << 10;
const _: () = assert!(WINDOW_LEN_MIN as usize / 16 * 15 > 2 * FRAME_LEN_MAX);

fields!(NodeStamp {
    stamp_ns as fixed,
    map_version,
    records
});
fields!(Hello {
    version_min,
    version_max,
    cluster_id,
    node,
    map_version,
    records,
    incarnation as fixed,
    window,
    software
});
fields!(Welcome {
    version,
    cluster_id,
    node,
    map_version,
    window;
    wall: None,
    program_version: None,
    refusal: None
});
optional_fields!(Welcome {
    2 => wall as option,
    4 => program_version as option,
    1 => refusal as option,
});

/// Its kind, then the reason. A kind that this version does not know is still a refusal.
impl Field for Refusal {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, reason) = match self {
            Self::Other(reason) => (1, reason),
            Self::NoCommonVersion(reason) => (2, reason),
            Self::OtherCluster(reason) => (3, reason),
            Self::OtherNode(reason) => (4, reason),
        };
        out.push(kind);
        put_bytes(out, reason.as_bytes());
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let kind = reader.byte()?;
        let reason = String::read(reader, name)?;
        Ok(match kind {
            2 => Self::NoCommonVersion(reason),
            3 => Self::OtherCluster(reason),
            4 => Self::OtherNode(reason),
            _ => Self::Other(reason),
        })
    }

    fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
        let mut refusal = Vec::new();
        self.put(&mut refusal);
        put_optional(out, tag, &refusal);
    }
}

pub(crate) fn hello(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let hello = Hello::read(reader, "hello")?;
    check_window(hello.window)?;
    reader.clone().finish()?;
    Ok(hello)
}

pub(crate) fn put_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    welcome.put(out);
    welcome.put_optional_fields(out);
}

pub(crate) fn welcome(reader: &mut Reader<'_>) -> Result<Welcome, DecodeError> {
    let mut welcome = Welcome::read(reader, "welcome")?;
    check_window(welcome.window)?;
    welcome.read_optional_fields(reader)?;
    Ok(welcome)
}

/// Checks a window. With a window smaller than a frame, nothing could be sent.
fn check_window(window: u32) -> Result<(), DecodeError> {
    if window < WINDOW_LEN_MIN {
        return Err(bad("window", &window));
    }
    Ok(())
}
