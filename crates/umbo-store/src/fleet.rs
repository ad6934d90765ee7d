//! The other dispatchers of a cluster, reached through its shard nodes.
//!
//! A question and its reply are opaque here. Nothing on the path of a request uses this.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// A connected dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    /// Identifies its process; random.
    pub incarnation: u64,
    /// Its description of itself; opaque here.
    pub about: Bytes,
    /// Whether it is this process.
    pub is_self: bool,
}

/// Answers questions of other dispatchers.
#[async_trait]
pub trait AnswerQuestion: Send + Sync + fmt::Debug {
    /// Answers a question, whose sender waits for some seconds.
    async fn answer(&self, question: Bytes) -> Bytes;
}

/// The dispatchers of a cluster.
#[async_trait]
pub trait Fleet: Send + Sync + fmt::Debug {
    /// Introduces this dispatcher to the others, and answers their questions from now on. Only the first call
    /// counts.
    fn join(&self, about: Bytes, answer: Arc<dyn AnswerQuestion>);

    /// Returns the dispatchers that are connected to a node which answers, in the order of their incarnations.
    async fn members(&self) -> Vec<FleetMember>;

    /// Asks the other dispatchers. Returns all dispatchers that are connected to a node which answers, in the order of
    /// their incarnations, each with its reply. The reply of this dispatcher is `None`, and so is a reply that does not
    /// arrive `within` the time.
    async fn ask(&self, question: Bytes, within: Duration) -> Vec<(FleetMember, Option<Bytes>)>;
}
