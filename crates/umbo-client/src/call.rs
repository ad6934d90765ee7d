//! The state that the attempts of a call share. It is the request id, which joins their lines in the
//! log of a server; the number of attempts so far; whether the server has named the time of the next
//! attempt; and the retry ticket that gives it priority.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::HeaderValue;

use crate::error::Error;

/// Longest request id that a server takes.
const ID_LEN_MAX: usize = 64;
/// Highest number of an attempt that is sent; later attempts send it too.
const ATTEMPT_MAX: u32 = 100;

/// A call under way. Clones are the same call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    id: HeaderValue,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    attempts: AtomicU32,
    is_due: AtomicBool,
    ticket: Mutex<Option<HeaderValue>>,
}

impl Call {
    /// Makes a call with an id that the user gives, 1 to 64 characters of `[A-Za-z0-9._-]`.
    pub(crate) fn with_id(id: &str) -> Result<Self, Error> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_id = (1..=ID_LEN_MAX).contains(&id.len()) && id.bytes().all(is_part);
        HeaderValue::from_str(id)
            .ok()
            .filter(|_| is_id)
            .map(Self::new)
            .ok_or(Error::BadOption(
                "a request id is 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'",
            ))
    }

    fn new(id: HeaderValue) -> Self {
        Self {
            id,
            state: Arc::default(),
        }
    }

    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Returns whether nothing of it was sent yet.
    pub(crate) fn is_new(&self) -> bool {
        self.state.attempts.load(Ordering::Relaxed) == 0
    }

    /// Records whether the server has named the time of the next attempt.
    pub(crate) fn set_due(&self, is_due: bool) {
        self.state.is_due.store(is_due, Ordering::Relaxed);
    }

    /// Returns whether the server has named the time of this attempt: it has kept room for it, and
    /// nothing else holds it back.
    pub(crate) fn is_due(&self) -> bool {
        self.state.is_due.load(Ordering::Relaxed)
    }

    /// Keeps the retry ticket of an answer for the next attempt, or forgets the last one if the
    /// answer has no ticket.
    pub(crate) fn keep_ticket(&self, ticket: Option<&HeaderValue>) {
        *self.ticket() = ticket.cloned();
    }

    /// Takes the retry ticket for an attempt; it is good once.
    pub(crate) fn take_ticket(&self) -> Option<HeaderValue> {
        self.ticket().take()
    }

    fn ticket(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        let ticket = self.state.ticket.lock();
        ticket.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt. Returns its number, or `None` for the first one, which has no number in
    /// its header.
    pub(crate) fn next_attempt(&self) -> Option<HeaderValue> {
        let before = self.state.attempts.fetch_add(1, Ordering::Relaxed);
        let number = before.saturating_add(1).min(ATTEMPT_MAX);
        (number > 1).then(|| HeaderValue::from(number))
    }
}

/// Makes calls with ids that no other client makes.
#[derive(Debug)]
pub(crate) struct Calls {
    client: u64,
    next: AtomicU64,
}

impl Calls {
    /// Begins with a random number that stands for the client.
    pub(crate) fn new(client: u64) -> Self {
        Self {
            client,
            next: AtomicU64::new(1),
        }
    }

    pub(crate) fn begin(&self) -> Call {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}{number:010x}", self.client);
        let id = HeaderValue::try_from(id);
        Call::new(id.expect("hexadecimal digits are a header value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_a_server_takes_them() {
        let calls = Calls::new(u64::MAX);
        let ids = [calls.begin(), calls.begin()].map(|call| call.id().clone());
        assert_eq!(ids[0], "ffffffffffffffff0000000001");
        assert_eq!(ids[1], "ffffffffffffffff0000000002");
        assert!(Call::with_id(ids[0].to_str().unwrap()).is_ok());
        assert_ne!(Calls::new(1).begin().id(), Calls::new(2).begin().id());
    }

    #[test]
    fn attempts_are_numbered_from_the_second_and_up_to_a_hundred() {
        let call = Call::with_id("a").unwrap();
        assert!(call.is_new());
        assert_eq!(call.next_attempt(), None);
        assert_eq!(call.clone().next_attempt().unwrap(), "2");
        assert!(!call.is_new());
        let last = (0..200).filter_map(|_| call.next_attempt()).last();
        assert_eq!(last.unwrap(), "100");
    }

    #[test]
    fn an_id_that_no_server_takes_is_refused() {
        let long = "x".repeat(65);
        for id in ["", "a b", "é", "a\n", "a/b", long.as_str()] {
            assert!(Call::with_id(id).is_err(), "{id}");
        }
        assert!(Call::with_id("A-z_0.9").is_ok());
    }
}
