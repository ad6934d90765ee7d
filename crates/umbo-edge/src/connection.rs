//! The state of one connection: for the handler, the client at the other end; for the edge, its activity.
//!
//! hyper keeps three parts of a connection apart (socket, service, body). Each of them reports its activity
//! to the watch through [`ConnectionActivity`]. Everything in it is a hint for timers, with one exception:
//! see [`ConnectionActivity::has_settled`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::memory::ConnectionAnswers;

/// HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1, or 1.0.
    Http1,
    /// HTTP/2, by ALPN or by prior knowledge.
    Http2,
}

/// One connection, as a handler sees it.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Address of the other end.
    pub peer: SocketAddr,
    /// Whether it came over TLS.
    pub is_tls: bool,
    /// HTTP version.
    pub protocol: Protocol,
    /// The certificate of the client, if one was asked for.
    pub client: Option<umbo_tls::ClientCertificate>,
    /// Its part of the memory of answers.
    pub answers: Arc<ConnectionAnswers>,
}

/// An order to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Serve.
    Serve,
    /// End if there is no request: its place is needed.
    GiveWay,
    /// Finish the requests in flight, take nothing new.
    Drain,
    /// End now.
    Abort,
}

/// The activity of one connection, shared by its parts.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    born: Instant,
    /// Tick of the listener at which the last request came, or the connection.
    used_at_tick: AtomicU32,
    order: AtomicU8,
    waker: AtomicWaker,
    /// Requests handed to the handler, ever.
    calls: AtomicU64,
    /// Exchanges whose answer has not been handed over in full.
    exchanges: AtomicU32,
    /// Number of those exchanges that do not wait for the client: the handler runs, or its body has nothing
    /// to send yet.
    waiting: AtomicU32,
    /// Body frames that HTTP/2 has and that the socket has not taken yet.
    unsent: AtomicU32,
    /// How often everything that was answered had been handed over.
    settled: AtomicU64,
    /// Bytes that the socket took, ever.
    written: AtomicU64,
    /// Whether bytes of HTTP/1.1 came in since the last call or the end of the last exchange.
    has_unread: AtomicBool,
    /// When a write found no room, in microseconds since `born`, plus one; zero without such a write.
    blocked_at: AtomicU64,
}

/// Ticks after which a connection that had no request yet is silent: one whole second at least.
const SILENT_TICKS: u32 = 2;

/// How long a connection has been without a request: the least gives way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdleSince {
    pub(super) usage: ConnectionUse,
    at_tick: u32,
}

/// The history of a connection without a request, in the order of giving way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionUse {
    /// The connection never had a request, though it had the time.
    Silent,
    /// The connection had a request.
    Used,
    /// The connection has just come: its first request may be on its way.
    New,
}

/// One look at the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenProgress {
    pub(super) calls: u64,
    pub(super) settled: u64,
    pub(super) written: u64,
    pub(super) exchanges: u32,
    pub(super) waiting: u32,
    pub(super) unsent: u32,
    pub(super) has_unread: bool,
    pub(super) blocked_since: Option<Instant>,
}

impl SeenProgress {
    /// Returns whether bytes of an answer wait for the client.
    pub(super) const fn has_pending_answer(&self) -> bool {
        self.exchanges > self.waiting || self.unsent > 0
    }
}

impl ConnectionActivity {
    pub(super) fn new(tick: u32) -> Self {
        Self {
            born: Instant::now(),
            used_at_tick: AtomicU32::new(tick),
            order: AtomicU8::new(Order::Serve as u8),
            waker: AtomicWaker::new(),
            calls: AtomicU64::new(0),
            exchanges: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            unsent: AtomicU32::new(0),
            settled: AtomicU64::new(0),
            written: AtomicU64::new(0),
            has_unread: AtomicBool::new(false),
            blocked_at: AtomicU64::new(0),
        }
    }

    /// Returns when the connection was accepted.
    pub(super) const fn born(&self) -> Instant {
        self.born
    }

    /// Gives an order, and wakes the connection.
    pub(super) fn give(&self, order: Order) {
        self.order.store(order as u8, Relaxed);
        self.waker.wake();
    }

    /// Tells a connection without a request to end. A connection that has a request by now continues.
    pub(super) fn give_way(&self) {
        let (serve, give_way) = (Order::Serve as u8, Order::GiveWay as u8);
        let order = &self.order;
        if order
            .compare_exchange(serve, give_way, Relaxed, Relaxed)
            .is_ok()
        {
            self.waker.wake();
        }
    }

    /// Takes back the order to give way, of a connection that has a request.
    pub(super) fn stay(&self) {
        let (serve, give_way) = (Order::Serve as u8, Order::GiveWay as u8);
        let order = &self.order;
        // Any other order stands.
        let _ = order.compare_exchange(give_way, serve, Relaxed, Relaxed);
    }

    /// Returns since when there is no request, for comparison with others only. `None` if there is a
    /// request, or if the connection was already told to end.
    pub(super) fn idle_since(&self, tick: u32) -> Option<IdleSince> {
        let is_idle = self.exchanges.load(Relaxed) == 0
            && self.unsent.load(Relaxed) == 0
            && self.order() == Order::Serve;
        let at_tick = self.used_at_tick.load(Relaxed);
        let usage = if self.calls.load(Relaxed) > 0 {
            ConnectionUse::Used
        } else if tick.saturating_sub(at_tick) >= SILENT_TICKS {
            ConnectionUse::Silent
        } else {
            ConnectionUse::New
        };
        is_idle.then_some(IdleSince { usage, at_tick })
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::GiveWay,
            2 => Order::Drain,
            _ => Order::Abort,
        }
    }

    /// Waits for any order but to serve. Only for the time before the connection's own loop, which waits
    /// for orders by itself: only one task can be woken.
    pub(super) async fn ordered_to_stop(&self) {
        self.ordered(|order| order != Order::Serve).await;
    }

    /// Waits for the order to end at once. Only for the time after that loop.
    pub(super) async fn ordered_to_abort(&self) {
        self.ordered(|order| order == Order::Abort).await;
    }

    async fn ordered(&self, is_meant: impl Fn(Order) -> bool) {
        std::future::poll_fn(|cx| {
            self.waker.register(cx.waker());
            if is_meant(self.order()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    pub(super) fn waker(&self) -> &AtomicWaker {
        &self.waker
    }

    pub(super) fn look(&self) -> SeenProgress {
        let blocked_at = self.blocked_at.load(Relaxed);
        SeenProgress {
            calls: self.calls.load(Relaxed),
            settled: self.settled.load(Relaxed),
            written: self.written.load(Relaxed),
            exchanges: self.exchanges.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            unsent: self.unsent.load(Relaxed),
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

    /// Counts bytes that the socket took. Only the socket's own task calls it.
    pub(super) fn note_written(&self, len: usize) {
        let written = self.written.load(Relaxed);
        self.written.store(written + len as u64, Relaxed);
    }

    /// Counts a frame that HTTP/2 was given.
    pub(super) fn note_unsent(&self) {
        self.unsent.fetch_add(1, Relaxed);
    }

    /// Counts a frame that left HTTP/2, or that was given up.
    pub(super) fn note_sent(&self) {
        if self.unsent.fetch_sub(1, Relaxed) == 1 {
            self.note_settled();
        }
    }

    fn note_settled(&self) {
        let is_settled = self.unsent.load(Relaxed) == 0
            && self.exchanges.load(Relaxed) == self.waiting.load(Relaxed);
        if is_settled {
            self.settled.fetch_add(1, Relaxed);
        }
    }

    /// Counts a call and opens its exchange, which waits for the handler.
    pub(super) fn open_exchange(&self, tick: u32) {
        self.used_at_tick.store(tick, Relaxed);
        self.calls.fetch_add(1, Relaxed);
        self.exchanges.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, Relaxed);
        self.has_unread.store(false, Relaxed);
    }

    pub(super) fn close_exchange(&self) {
        self.has_unread.store(false, Relaxed);
        self.exchanges.fetch_sub(1, Relaxed);
        self.note_settled();
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

    /// Returns whether nothing was called since `settled`: bytes that hyper writes now are its own answer.
    pub(super) fn has_settled(&self, settled: u64) -> bool {
        self.calls.load(Relaxed) == settled
    }
}
