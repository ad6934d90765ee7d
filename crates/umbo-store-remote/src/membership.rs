//! What this dispatcher is in the fleet.

use std::sync::Arc;

use bytes::Bytes;
use umbo_store::AnswerQuestion;

/// What this dispatcher is in the fleet.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) about: Bytes,
    pub(crate) answer: Arc<dyn AnswerQuestion>,
}
