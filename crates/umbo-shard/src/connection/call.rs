//! The fields that all kinds of requests have.

use std::time::Instant;

use umbo_protocol::NodeError;
use umbo_store::{CallContext, StoreError};
use umbo_types::ShardId;

use crate::kind::RequestKind;

/// The fields that all kinds of requests have.
pub(super) struct RequestCall {
    pub(super) id: u64,
    pub(super) kind: RequestKind,
    pub(super) context: CallContext,
    pub(super) begun: Instant,
}

pub(super) fn check_deadline(call: &RequestCall, shard: ShardId) -> Result<(), NodeError> {
    match call.context.deadline {
        Some(deadline) if deadline.has_passed(call.begun) => {
            Err(StoreError::DeadlinePassed { shard }.into())
        }
        _ => Ok(()),
    }
}
