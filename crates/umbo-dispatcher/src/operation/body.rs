//! Request bodies: bounded in length, in time and, all together, in memory.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::sync::SemaphorePermit;
use umbo_api::batch::KeyFields;
use umbo_types::Key;

use crate::classify::Context;
use crate::edge::body::{BodyError, BodyLimits, read_bounded};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::pod::Dispatcher;

/// Bodies up to this length take no part of the shared memory: connections bound them.
const FREE_LEN: u64 = 64 << 10;

/// A body that has arrived, with its part of the shared memory until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBody<'a> {
    pub(crate) bytes: Bytes,
    _memory: Option<SemaphorePermit<'a>>,
}

/// Reads a body of at most `len_max` bytes.
pub(crate) async fn read<'a, B>(
    pod: &'a Dispatcher,
    body: B,
    len_max: usize,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<HeldBody<'a>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let len_max = len_max as u64;
    let hint = body.size_hint();
    if hint.lower() > len_max {
        return Err(BodyError::TooLarge { len_max }.into());
    }
    // A body of unknown length may turn out as long as any.
    let most = hint.upper().map_or(len_max, |upper| upper.min(len_max));
    let memory = if most > FREE_LEN {
        Some(take_memory(pod, most, context).await?)
    } else {
        None
    };
    let limits = BodyLimits {
        len_max,
        timeout: pod.limits.body_timeout,
    };
    let bytes = read_bounded(body, limits).await?;
    exchange.received(bytes.len());
    Ok(HeldBody {
        bytes,
        _memory: memory,
    })
}

/// Reads a JSON object. An array of the same values in their order is none, whatever serde says.
pub(crate) fn json_object<'a, T>(text: &'a [u8]) -> Result<T, Failure>
where
    T: serde::Deserialize<'a>,
{
    if text.trim_ascii_start().first() == Some(&b'[') {
        return Err(Failure::BadBody(
            "expected an object, not a list".to_owned(),
        ));
    }
    serde_json::from_slice(text).map_err(|error| Failure::BadBody(error.to_string()))
}

/// Reads a key of a list; `index` is its place.
pub(crate) fn key(index: usize, fields: &KeyFields) -> Result<Key, Failure> {
    let at = |problem: String| Failure::BadBody(format!("key {index}: {problem}"));
    let (partition, sort) = fields.key().map_err(|error| at(error.to_string()))?;
    Key::new(partition, sort).map_err(|error| at(error.to_string()))
}

async fn take_memory<'a>(
    pod: &'a Dispatcher,
    bytes: u64,
    context: &Context,
) -> Result<SemaphorePermit<'a>, Failure> {
    let permits = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
    let remaining = context.deadline.remaining(pod.clock.monotonic());
    let wait = remaining.min(Duration::from_secs(1));
    match tokio::time::timeout(wait, pod.body_memory.acquire_many(permits)).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(Failure::BodyMemoryFull),
    }
}
