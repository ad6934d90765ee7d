//! The wait for an answer.

use std::future::poll_fn;
use std::sync::Arc;

use crate::connection::NodeConnection;
use crate::in_flight::ReplyEvent;

/// A queued request. Dropping it before it is answered cancels it: a read is not executed, and a write that
/// the node has not begun is withdrawn.
#[derive(Debug)]
pub(crate) struct PendingReply {
    connection: Arc<NodeConnection>,
    id: u64,
    is_over: bool,
}

impl PendingReply {
    pub(crate) const fn new(connection: Arc<NodeConnection>, id: u64) -> Self {
        Self {
            connection,
            id,
            is_over: false,
        }
    }

    /// Returns why the connection ended.
    pub(crate) fn loss(&self) -> String {
        let ending = self.connection.ended();
        ending.map_or_else(String::new, |ending| ending.reason.to_string())
    }

    /// Waits for the event of the request. To be called once.
    pub(crate) async fn event(&mut self) -> ReplyEvent {
        let event = poll_fn(|context| self.connection.poll(self.id, context)).await;
        self.is_over = true;
        event
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.cancel(self.id);
        }
    }
}
