//! Hello, welcome, and the stamp of a node's frames.

use umbo_types::Timestamp;

use super::records::{put_revision, revision};
use crate::error::DecodeError;
use crate::frame::{FRAME_LEN_MAX, NodeStamp};
use crate::version::{Hello, ProtocolVersion, Refusal, Welcome};
use crate::wire::{
    Reader, bad, ignored, put_bytes, put_fixed, put_optional, put_optional_varint, put_varint,
};

/// Smallest window that a peer may offer, in bytes: credit is granted in sixteenths, and two of the longest
/// frames must fit in addition.
const WINDOW_LEN_MIN: u32 = 512 << 10;
const _: () = assert!(WINDOW_LEN_MIN as usize / 16 * 15 > 2 * FRAME_LEN_MAX);

/// Tag of the refusal in a welcome: its kind, then the reason.
const REFUSAL: u8 = 1;
/// Tag of the node's time of day in a welcome.
const WALL: u8 = 2;

pub(crate) fn put_stamp(out: &mut Vec<u8>, stamp: &NodeStamp) {
    put_fixed(out, stamp.stamp_ns);
    put_varint(out, stamp.map_version);
    put_revision(out, stamp.records);
}

pub(crate) fn stamp(reader: &mut Reader<'_>) -> Result<NodeStamp, DecodeError> {
    Ok(NodeStamp {
        stamp_ns: reader.fixed()?,
        map_version: reader.varint()?,
        records: revision(reader)?,
    })
}

/// Decodes a window. With a window smaller than a frame, nothing could be sent.
fn window(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let window = reader.u32("window")?;
    if window < WINDOW_LEN_MIN {
        return Err(bad("window", &window));
    }
    Ok(window)
}

pub(crate) fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    put_varint(out, hello.version_min.0.into());
    put_varint(out, hello.version_max.0.into());
    put_bytes(out, hello.cluster_id.as_bytes());
    put_bytes(out, hello.node.as_bytes());
    put_varint(out, hello.map_version);
    put_revision(out, hello.records);
    put_fixed(out, hello.incarnation);
    put_varint(out, hello.window.into());
    put_bytes(out, hello.software.as_bytes());
}

pub(crate) fn hello(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let hello = Hello {
        version_min: ProtocolVersion(reader.u32("version_min")?),
        version_max: ProtocolVersion(reader.u32("version_max")?),
        cluster_id: reader.text("cluster_id")?,
        node: reader.text("node")?,
        map_version: reader.varint()?,
        records: revision(reader)?,
        incarnation: reader.fixed()?,
        window: window(reader)?,
        software: reader.text("software")?,
    };
    reader.clone().finish(0)?;
    Ok(hello)
}

pub(crate) fn put_welcome(out: &mut Vec<u8>, welcome: &Welcome) {
    put_varint(out, welcome.version.0.into());
    put_bytes(out, welcome.cluster_id.as_bytes());
    put_bytes(out, welcome.node.as_bytes());
    put_varint(out, welcome.map_version);
    put_varint(out, welcome.window.into());
    if let Some(wall) = welcome.wall {
        put_optional_varint(out, WALL, wall.0);
    }
    let (kind, reason) = match &welcome.refusal {
        None => return,
        Some(Refusal::Other(reason)) => (1, reason),
        Some(Refusal::NoCommonVersion(reason)) => (2, reason),
        Some(Refusal::OtherCluster(reason)) => (3, reason),
        Some(Refusal::OtherNode(reason)) => (4, reason),
    };
    let mut refusal = vec![kind];
    put_bytes(&mut refusal, reason.as_bytes());
    put_optional(out, REFUSAL, &refusal);
}

pub(crate) fn welcome(reader: &mut Reader<'_>) -> Result<Welcome, DecodeError> {
    let mut welcome = Welcome {
        version: ProtocolVersion(reader.u32("version")?),
        cluster_id: reader.text("cluster_id")?,
        node: reader.text("node")?,
        map_version: reader.varint()?,
        window: window(reader)?,
        wall: None,
        refusal: None,
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match tag {
            REFUSAL => {
                let kind = field.byte()?;
                let reason = field.text("refusal")?;
                // A reason that this version does not know is still a refusal.
                welcome.refusal = Some(match kind {
                    2 => Refusal::NoCommonVersion(reason),
                    3 => Refusal::OtherCluster(reason),
                    4 => Refusal::OtherNode(reason),
                    _ => Refusal::Other(reason),
                });
            }
            WALL => welcome.wall = Some(Timestamp(field.varint()?)),
            tag => ignored(tag, 0)?,
        }
    }
    Ok(welcome)
}
