//! What an answer says of cost and quota: `Umbo-RU`, `RateLimit-Policy`, `RateLimit`.
//!
//! The one place that knows how these fields are written (draft-ietf-httpapi-ratelimit-headers-10;
//! its drafts have changed the form before). Hot path: no `format!`, one allocation for what
//! changes with every answer.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use umbo_api::header;
use umbo_quota::{Advertised, Limit, Policy, Rejection};
use umbo_types::RequestUnits;

const RATELIMIT: HeaderName = HeaderName::from_static(header::RATELIMIT);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(header::RATELIMIT_POLICY);

/// A field while it is written; the longest name of a policy fits in.
type Text = SmallVec<[u8; 128]>;

/// Digits after the point of a request unit.
const DECIMALS: usize = 6;
const MICROS: u64 = 1_000_000;

/// Returns request units as the exact decimal, without zeros at its end.
pub(crate) fn request_units(units: RequestUnits) -> HeaderValue {
    if units == RequestUnits::ZERO {
        return HeaderValue::from_static("0");
    }
    // Fourteen digits before the point at most, and six after it.
    let mut text = [b'.'; 21];
    let mut first = text.len();
    let (whole, mut part) = (units.as_micros() / MICROS, units.as_micros() % MICROS);
    if part > 0 {
        let mut width = DECIMALS;
        while part.is_multiple_of(10) {
            (part, width) = (part / 10, width - 1);
        }
        for _ in 0..width {
            first -= 1;
            text[first] = b'0' + (part % 10) as u8;
            part /= 10;
        }
        first -= 1;
    }
    let first = put_digits(&mut text, first, whole);
    HeaderValue::from_bytes(&text[first..]).expect("digits and a point are a header value")
}

/// Says how much is left of the limit that binds the caller most.
pub(crate) fn insert_left(headers: &mut HeaderMap, left: &Advertised) {
    let units = left.remaining / left.policy.unit.atoms_per_unit();
    insert(headers, &left.policy, left.limit, units, left.reset);
}

/// Says that nothing is left of the limit that rejected the request.
pub(crate) fn insert_spent(headers: &mut HeaderMap, rejection: &Rejection) {
    let limit = rejection.limit;
    let missing = i128::from(limit.burst) - i128::from(rejection.balance);
    let seconds = missing
        .max(0)
        .unsigned_abs()
        .div_ceil(limit.rate.max(1).into());
    let reset = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    insert(headers, &rejection.policy, limit, 0, reset);
}

/// Writes both fields: quota and window of the policy, units left and seconds until all are back.
fn insert(headers: &mut HeaderMap, policy: &Arc<Policy>, limit: Limit, left: u64, reset: Duration) {
    headers.insert(RATELIMIT_POLICY, policy_field(policy, limit));
    let mut text = Text::new();
    put_name(&mut text, policy);
    put_parameter(&mut text, b";r=", left);
    let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
    put_parameter(&mut text, b";t=", seconds);
    headers.insert(RATELIMIT, value(&text));
}

thread_local! {
    /// What the thread wrote last of a policy: most answers in a row say the same of it.
    static LAST: RefCell<Option<(Arc<Policy>, Limit, HeaderValue)>> = const { RefCell::new(None) };
}

/// Returns quota and window of a policy.
fn policy_field(policy: &Arc<Policy>, limit: Limit) -> HeaderValue {
    LAST.with_borrow_mut(|last| match last {
        Some((of, at, field)) if Arc::ptr_eq(of, policy) && *at == limit => field.clone(),
        _ => {
            let field = write_policy(policy, limit);
            *last = Some((Arc::clone(policy), limit, field.clone()));
            field
        }
    })
}

fn write_policy(policy: &Policy, limit: Limit) -> HeaderValue {
    let mut text = Text::new();
    put_name(&mut text, policy);
    let quota = limit.burst / policy.unit.atoms_per_unit();
    put_parameter(&mut text, b";q=", quota);
    let window = limit.burst.div_ceil(limit.rate.max(1)).max(1);
    put_parameter(&mut text, b";w=", window);
    text.extend_from_slice(b";qu=\"");
    text.extend_from_slice(policy.unit.as_str().as_bytes());
    text.push(b'"');
    value(&text)
}

/// Begins a field with the name of the policy, a string of RFC 9651.
fn put_name(text: &mut Text, policy: &Policy) {
    text.push(b'"');
    for &byte in policy.name.as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
}

fn put_parameter(text: &mut Text, key: &[u8], number: u64) {
    // Integers of RFC 9651 have fifteen digits at most.
    const INTEGER_MAX: u64 = 999_999_999_999_999;
    let mut digits = [0; 20];
    let first = digits.len();
    let first = put_digits(&mut digits, first, number.min(INTEGER_MAX));
    text.extend_from_slice(key);
    text.extend_from_slice(&digits[first..]);
}

/// Writes a number before `end`; returns where it begins.
fn put_digits(text: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut first = end;
    loop {
        first -= 1;
        text[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return first;
        }
    }
}

fn value(text: &[u8]) -> HeaderValue {
    // A policy's name that is no header value would be a defect of its check; the answer stands.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static("\"?\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_text_of_units_is_their_display(micros in prop_oneof![0..3_000_000_u64, any::<u64>()]) {
            let units = RequestUnits::from_micros(micros);
            prop_assert_eq!(request_units(units), units.to_string());
        }
    }
}
