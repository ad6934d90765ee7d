//! Between messages and what they stand for.

use bytes::Bytes;
use umbo_types::{Criticality, Key, Timestamp};

use crate::error::DecodeError;
use crate::message;
use crate::version::{Hello, ProtocolVersion, Refusal, Welcome};

pub(crate) mod answers;
mod errors;
pub(crate) mod requests;

pub(crate) fn hello(hello: &Hello) -> message::Hello {
    message::Hello {
        version_min: hello.version_min.0,
        version_max: hello.version_max.0,
        cluster_id: hello.cluster_id.clone(),
        node: hello.node.clone(),
        map_version: hello.map_version,
        software: hello.software.clone(),
    }
}

pub(crate) fn hello_of(hello: message::Hello) -> Hello {
    Hello {
        version_min: ProtocolVersion(hello.version_min),
        version_max: ProtocolVersion(hello.version_max),
        cluster_id: hello.cluster_id,
        node: hello.node,
        map_version: hello.map_version,
        software: hello.software,
    }
}

pub(crate) fn welcome(welcome: &Welcome) -> message::Welcome {
    let (refusal_kind, refusal) = match &welcome.refusal {
        None => (0, ""),
        Some(Refusal::Other(reason)) => (1, reason.as_str()),
        Some(Refusal::NoCommonVersion(reason)) => (2, reason.as_str()),
        Some(Refusal::OtherCluster(reason)) => (3, reason.as_str()),
        Some(Refusal::OtherNode(reason)) => (4, reason.as_str()),
    };
    message::Welcome {
        version: welcome.version.0,
        cluster_id: welcome.cluster_id.clone(),
        node: welcome.node.clone(),
        map_version: welcome.map_version,
        refusal: refusal.to_owned(),
        refusal_kind,
    }
}

pub(crate) fn welcome_of(welcome: message::Welcome) -> Welcome {
    let refusal = match welcome.refusal_kind {
        0 => None,
        2 => Some(Refusal::NoCommonVersion(welcome.refusal)),
        3 => Some(Refusal::OtherCluster(welcome.refusal)),
        4 => Some(Refusal::OtherNode(welcome.refusal)),
        _ => Some(Refusal::Other(welcome.refusal)),
    };
    Welcome {
        version: ProtocolVersion(welcome.version),
        cluster_id: welcome.cluster_id,
        node: welcome.node,
        map_version: welcome.map_version,
        refusal,
    }
}

fn key(key: Key) -> message::Key {
    message::Key {
        partition: key.partition.into_bytes(),
        sort: some(key.sort.into_bytes()),
    }
}

/// Leaves out what is empty.
fn some(bytes: Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then_some(bytes)
}

fn key_of(key: message::Key) -> Result<Key, DecodeError> {
    Key::new(key.partition, key.sort.unwrap_or_default()).map_err(|error| bad("key", &error))
}

fn instant(at: Option<Timestamp>) -> Option<u64> {
    at.map(|at| at.0)
}

pub(crate) const fn criticality(criticality: Criticality) -> u32 {
    match criticality {
        Criticality::Sheddable => 1,
        Criticality::SheddablePlus => 0,
        Criticality::Critical => 2,
        Criticality::CriticalPlus => 3,
    }
}

pub(crate) fn criticality_of(number: u32) -> Result<Criticality, DecodeError> {
    match number {
        0 => Ok(Criticality::SheddablePlus),
        1 => Ok(Criticality::Sheddable),
        2 => Ok(Criticality::Critical),
        3 => Ok(Criticality::CriticalPlus),
        other => Err(bad("criticality", &other)),
    }
}

fn bad(field: &'static str, found: &impl ToString) -> DecodeError {
    DecodeError::BadField {
        field,
        found: found.to_string(),
    }
}
