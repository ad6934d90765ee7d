//! Tokens that a thread has recently verified, so that a repeated token is not hashed again.
//!
//! Verifying a token takes a tenth of the instructions of a get, and a service sends the same token
//! with every request. An entry is void once the tokens in effect have changed in any way. Until
//! then it is worth as much as the token itself. The comparison takes the same time for every input
//! of the same length.
//!
//! Hot path.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::{Arc, Weak};

use umbo_types::{Caller, Timestamp};

use super::snapshot::{Snapshot, TokenEntry};

/// Tokens remembered by each thread. One more service only costs its hashing.
const REMEMBERED: usize = 8;

/// An `Authorization` that was found genuine.
struct Verified {
    authorization: Box<[u8]>,
    /// The tokens in effect at that time. Weak, so that they can be dropped; the allocation stays,
    /// so that no newer snapshot gets their address.
    in_effect: Weak<Snapshot>,
    caller: Arc<Caller>,
    expires_at: Option<Timestamp>,
}

thread_local! {
    static RECENT: RefCell<[Option<Verified>; REMEMBERED]> = const { RefCell::new([const { None }; REMEMBERED]) };
}

/// Returns the caller of an `Authorization` that this thread has found genuine, with the same
/// tokens in effect, and that has not expired.
pub(super) fn recall(
    in_effect: &Arc<Snapshot>,
    authorization: &[u8],
    now: &impl Fn() -> Timestamp,
) -> Option<Arc<Caller>> {
    RECENT.with_borrow(|recent| {
        let verified = recent[place_of(authorization)].as_ref()?;
        let is_same = verified.in_effect.as_ptr() == Arc::as_ptr(in_effect)
            && verified.expires_at.is_none_or(|end| now() < end)
            && is_equal(&verified.authorization, authorization);
        is_same.then(|| Arc::clone(&verified.caller))
    })
}

/// Remembers an `Authorization` that was found genuine.
pub(super) fn remember(in_effect: &Arc<Snapshot>, authorization: &[u8], entry: &TokenEntry) {
    RECENT.with_borrow_mut(|recent| {
        recent[place_of(authorization)] = Some(Verified {
            authorization: authorization.into(),
            in_effect: Arc::downgrade(in_effect),
            caller: Arc::clone(&entry.caller),
            expires_at: entry.record.expires_at,
        });
    });
}

/// Spreads tokens by their last character, which is as random as any.
fn place_of(authorization: &[u8]) -> usize {
    usize::from(*authorization.last().unwrap_or(&0)) % REMEMBERED
}

fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && black_box(differences) == 0
}
