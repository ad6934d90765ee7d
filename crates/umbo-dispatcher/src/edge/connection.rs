//! What is known of one connection: for the handler who is at the other end, for the edge what is
//! going on.
//!
//! [`Signals`] is how three parts of a connection that hyper keeps apart (socket, service, body)
//! tell the watch what they do. Everything in it is a hint for timers, with one exception: see
//! [`Signals::has_settled`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

/// HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1, or 1.0.
    Http1,
    /// HTTP/2, by ALPN or by prior knowledge.
    Http2,
}

/// One connection, as a handler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Address of the other end.
    pub peer: SocketAddr,
    /// Whether it came over TLS.
    pub is_tls: bool,
    /// HTTP version.
    pub protocol: Protocol,
    /// Subject of the client's certificate like `CN=shard-1,O=Umbo`, where one was asked for; it has
    /// been verified against the client authority.
    pub client_subject: Option<String>,
}

/// What a connection is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Serve.
    Serve,
    /// Finish what is in flight, take nothing new.
    Drain,
    /// End now.
    Abort,
}

/// What goes on in one connection, shared by its parts.
#[derive(Debug)]
pub(super) struct Signals {
    born: Instant,
    order: AtomicU8,
    waker: AtomicWaker,
    /// Requests handed to the handler, ever.
    calls: AtomicU64,
    /// Exchanges of which the answer has not been handed over in full.
    exchanges: AtomicU32,
    /// Of those, how many wait for us: the handler runs, or its body has nothing to send yet.
    waiting: AtomicU32,
    /// Body frames handed over, ever.
    frames: AtomicU64,
    /// Whether bytes of HTTP/1.1 came in since the last call or the end of the last exchange.
    has_unread: AtomicBool,
    /// When a write found no room, in microseconds since `born`, plus one; zero where none did.
    blocked_at: AtomicU64,
}

/// One look at the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) calls: u64,
    pub(super) frames: u64,
    pub(super) exchanges: u32,
    pub(super) waiting: u32,
    pub(super) has_unread: bool,
    pub(super) blocked_since: Option<Instant>,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self {
            born: Instant::now(),
            order: AtomicU8::new(Order::Serve as u8),
            waker: AtomicWaker::new(),
            calls: AtomicU64::new(0),
            exchanges: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            frames: AtomicU64::new(0),
            has_unread: AtomicBool::new(false),
            blocked_at: AtomicU64::new(0),
        }
    }

    /// Gives an order and wakes the connection to obey it.
    pub(super) fn give(&self, order: Order) {
        self.order.store(order as u8, Relaxed);
        self.waker.wake();
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Abort,
        }
    }

    /// Waits for any order but to serve. Only for the time before the connection's own loop, which
    /// listens by itself: there is one ear.
    pub(super) async fn ordered_to_stop(&self) {
        std::future::poll_fn(|cx| {
            self.waker.register(cx.waker());
            if self.order() == Order::Serve {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    pub(super) fn waker(&self) -> &AtomicWaker {
        &self.waker
    }

    pub(super) fn look(&self) -> Seen {
        let blocked_at = self.blocked_at.load(Relaxed);
        Seen {
            calls: self.calls.load(Relaxed),
            frames: self.frames.load(Relaxed),
            exchanges: self.exchanges.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            has_unread: self.has_unread.load(Relaxed),
            blocked_since: (blocked_at > 0)
                .then(|| self.born + Duration::from_micros(blocked_at - 1)),
        }
    }

    pub(super) fn note_read(&self) {
        self.has_unread.store(true, Relaxed);
    }

    pub(super) fn note_blocked(&self) {
        if self.blocked_at.load(Relaxed) == 0 {
            let micros = u64::try_from(self.born.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
            self.blocked_at.store(micros + 1, Relaxed);
        }
    }

    pub(super) fn note_progress(&self) {
        if self.blocked_at.load(Relaxed) != 0 {
            self.blocked_at.store(0, Relaxed);
        }
    }

    pub(super) fn note_frame(&self) {
        self.frames.fetch_add(1, Relaxed);
    }

    /// Counts a call and opens its exchange, which waits for the handler.
    pub(super) fn open_exchange(&self) {
        self.calls.fetch_add(1, Relaxed);
        self.exchanges.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, Relaxed);
        self.has_unread.store(false, Relaxed);
    }

    pub(super) fn close_exchange(&self) {
        self.has_unread.store(false, Relaxed);
        self.exchanges.fetch_sub(1, Relaxed);
    }

    pub(super) fn set_waiting(&self, is_waiting: bool) {
        if is_waiting {
            self.waiting.fetch_add(1, Relaxed);
        } else {
            self.waiting.fetch_sub(1, Relaxed);
        }
    }

    /// Returns the number of calls if every exchange has been handed over in full.
    ///
    /// On HTTP/1.1 all parts of a connection run in one task, and hyper flushes its socket only
    /// once all it has buffered is written. So a flush that sees this value knows that every
    /// answer up to that call has left.
    pub(super) fn settled_calls(&self) -> Option<u64> {
        (self.exchanges.load(Relaxed) == 0).then(|| self.calls.load(Relaxed))
    }

    /// Says whether nothing was called since `settled`: what hyper writes now is its own word.
    pub(super) fn has_settled(&self, settled: u64) -> bool {
        self.calls.load(Relaxed) == settled
    }
}
