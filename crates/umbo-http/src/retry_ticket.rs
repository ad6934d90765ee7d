//! Retry tickets on the wire: signed with a MAC and bound to a caller and a dispatcher.
//!
//! A ticket goes out with a rejection in `Umbo-Retry-Ticket` and comes back with the retry. It is keyed
//! BLAKE3 over the name of the caller and the content, with a key that all dispatchers of a store share.
//! So no dispatcher accepts a ticket that was changed, and each recognises its own tickets and those for counters of the
//! fleet. Nothing is remembered here: an invalid ticket is ignored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use subtle::ConstantTimeEq as _;
use umbo_quota::{BroughtTicket, RetryTicket};

const MAC_LEN: usize = 16;
/// The number of the dispatcher, and the ticket.
const CONTENT_LEN: usize = 8 + RetryTicket::LEN;
const LEN: usize = CONTENT_LEN + MAC_LEN;
/// Length as base64url without padding.
const TEXT_LEN: usize = (LEN * 4).div_ceil(3);

/// Key that signs and checks tickets.
pub struct TicketKey {
    key: [u8; 32],
    /// A random number that stands for this dispatcher while it runs.
    dispatcher: [u8; 8],
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(hidden)")
    }
}

impl TicketKey {
    /// Derives the key from the secret that all dispatchers of a store share.
    pub fn new(secret: &[u8; 32]) -> Self {
        let dispatcher = getrandom::u64().unwrap_or_else(|_| fastrand::u64(..));
        Self {
            key: blake3::derive_key("umbo 2026 retry tickets", secret),
            dispatcher: dispatcher.to_be_bytes(),
        }
    }

    /// Writes a ticket of a caller as a header value.
    pub fn seal(&self, ticket: &RetryTicket, caller: &str) -> HeaderValue {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.issuer(ticket));
        bytes[8..CONTENT_LEN].copy_from_slice(&ticket.to_bytes());
        let mac = self.mac(&bytes[..CONTENT_LEN], caller);
        bytes[CONTENT_LEN..].copy_from_slice(&mac);
        let mut text = [0; TEXT_LEN];
        let written = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
        let written = written.expect("the text has room for all bytes");
        HeaderValue::from_bytes(&text[..written]).expect("base64url is a header value")
    }

    /// Reads a ticket that a caller brings, or returns `None` if it was changed or belongs to another
    /// caller.
    pub fn open(&self, value: &HeaderValue, caller: &str) -> Option<BroughtTicket> {
        let mut bytes = [0; LEN];
        if value.len() != TEXT_LEN {
            return None;
        }
        let read = URL_SAFE_NO_PAD.decode_slice(value.as_bytes(), &mut bytes);
        if read != Ok(LEN) {
            return None;
        }
        let (content, mac) = bytes.split_at(CONTENT_LEN);
        if !bool::from(self.mac(content, caller).ct_eq(mac)) {
            return None;
        }
        let (dispatcher, ticket) = content.split_first_chunk::<8>()?;
        let ticket = RetryTicket::from_bytes(ticket.try_into().ok()?);
        if *dispatcher != self.issuer(&ticket) {
            return Some(BroughtTicket::Elsewhere);
        }
        Some(BroughtTicket::Issued(ticket))
    }

    /// Returns the number of this dispatcher, or of all if the ticket is for a counter of the fleet.
    const fn issuer(&self, ticket: &RetryTicket) -> [u8; 8] {
        if ticket.is_of_fleet() {
            [0; 8]
        } else {
            self.dispatcher
        }
    }

    fn mac(&self, content: &[u8], caller: &str) -> [u8; MAC_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // The content has a fixed length, so the name needs no end.
        hasher.update(content).update(caller.as_bytes());
        let hash = hasher.finalize();
        std::array::from_fn(|at| hash.as_bytes()[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dispatcher: u8) -> TicketKey {
        TicketKey {
            dispatcher: [dispatcher; 8],
            ..TicketKey::new(&[7; 32])
        }
    }

    #[test]
    fn a_ticket_is_good_for_its_caller_where_it_was_issued() {
        let ticket = RetryTicket::from_bytes(&[9; RetryTicket::LEN]);
        let sealed = key(1).seal(&ticket, "search");
        let issued = Some(BroughtTicket::Issued(RetryTicket::from_bytes(
            &ticket.to_bytes(),
        )));
        assert_eq!(key(1).open(&sealed, "search"), issued);
        let elsewhere = Some(BroughtTicket::Elsewhere);
        assert_eq!(key(2).open(&sealed, "search"), elsewhere);
        assert_eq!(key(1).open(&sealed, "batch"), None);
        let other_store = TicketKey::new(&[8; 32]);
        assert_eq!(other_store.open(&sealed, "search"), None);
    }

    #[test]
    fn a_ticket_of_the_fleet_is_good_at_every_dispatcher_of_the_store() {
        let mut bytes = [9; RetryTicket::LEN];
        bytes[0] |= 0x80;
        let ticket = RetryTicket::from_bytes(&bytes);
        let sealed = key(1).seal(&ticket, "search");
        let issued = Some(BroughtTicket::Issued(ticket));
        assert_eq!(key(2).open(&sealed, "search"), issued);
        assert_eq!(key(2).open(&sealed, "batch"), None);
        let other_store = TicketKey::new(&[8; 32]);
        assert_eq!(other_store.open(&sealed, "search"), None);
    }

    #[test]
    fn a_ticket_that_was_changed_is_no_ticket() {
        let ticket = RetryTicket::from_bytes(&[9; RetryTicket::LEN]);
        let sealed = key(1).seal(&ticket, "search");
        for at in 0..sealed.len() {
            let mut text = sealed.as_bytes().to_vec();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            let changed = HeaderValue::from_bytes(&text).unwrap();
            assert_eq!(key(1).open(&changed, "search"), None, "{at}");
        }
        for text in ["", "x", &"A".repeat(TEXT_LEN), &"=".repeat(TEXT_LEN)] {
            let foreign = HeaderValue::from_str(text).unwrap();
            assert_eq!(key(1).open(&foreign, "search"), None, "{text}");
        }
    }
}
