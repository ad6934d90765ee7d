//! The wait for an answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::connection::Connection;
use crate::waiting::Event;

/// A request that was queued. Dropped before it is answered, a read is cancelled and a write left
/// to its end.
#[derive(Debug)]
pub(crate) struct Asked {
    connection: Arc<Connection>,
    pub(crate) id: u64,
    is_over: bool,
}

impl Asked {
    pub(crate) fn new(connection: Arc<Connection>, id: u64) -> Self {
        Self {
            connection,
            id,
            is_over: false,
        }
    }

    /// Returns what becomes of the request next. After an answer or a loss there is nothing more.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let event = self.connection.poll(self.id, context);
        match event {
            Some(Event::Slow) => Poll::Ready(Event::Slow),
            Some(event) => {
                self.is_over = true;
                Poll::Ready(event)
            }
            None => Poll::Pending,
        }
    }

    /// Returns why the connection ended.
    pub(crate) fn loss(&self) -> String {
        let ending = self.connection.ended();
        ending.map_or_else(String::new, |ending| ending.reason.to_string())
    }

    /// Waits for what becomes of the request next.
    pub(crate) async fn event(&mut self) -> Event {
        poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.connection.leave(self.id);
    }
}
