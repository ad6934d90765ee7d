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
use umbo_quota::{Advertised, Limit, Policy, Rejection, limits};
use umbo_types::RequestUnits;

use crate::digits::{self, Digits};

const RATELIMIT: HeaderName = HeaderName::from_static(header::RATELIMIT);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(header::RATELIMIT_POLICY);

/// A field while it is written; the longest name of a policy fits in.
type Text = SmallVec<[u8; 128]>;
/// Integers of RFC 9651 have fifteen digits at most.
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// Longest field of what is left: a name, of which each byte may need a backslash, in quotes, and two
/// integers with their keys.
const FIELD_LEN_MAX: usize = 2 * limits::POLICY_NAME_LEN_MAX + 2 + 2 * (3 + 15);

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
    let first = digits::put(&mut text, first, whole);
    HeaderValue::from_bytes(&text[first..]).expect("digits and a point are a header value")
}

/// Says how much is left of the limit that binds the caller most.
pub(crate) fn insert_left(headers: &mut HeaderMap, left: &Advertised<'_>) {
    let units = left.remaining / left.policy.unit.atoms_per_unit();
    insert(headers, left.policy, left.limit, units, left.reset);
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

/// Says that nothing is left of a limit that the node of a shard keeps. How much was spent beyond it is
/// the node's to know: from when there is enough again until all is back it takes a whole burst.
pub(crate) fn insert_spent_at_node(
    headers: &mut HeaderMap,
    policy: &Arc<Policy>,
    limit: Limit,
    wait: Duration,
) {
    let refill = Duration::from_secs(limit.burst.div_ceil(limit.rate.max(1)));
    insert(headers, policy, limit, 0, wait.saturating_add(refill));
}

/// Says whether an answer tells of a limit.
pub(crate) fn is_told(headers: &HeaderMap) -> bool {
    headers.contains_key(RATELIMIT)
}

/// Writes both fields: quota and window of the policy, units left and seconds until all are back.
fn insert(headers: &mut HeaderMap, policy: &Arc<Policy>, limit: Limit, left: u64, reset: Duration) {
    let part = u64::from(reset.subsec_nanos() > 0);
    let seconds = reset.as_secs().saturating_add(part);
    LAST.with_borrow_mut(|last| {
        let written = match last {
            Some(written) if written.is_of(policy, limit) => written,
            _ => last.insert(Written::new(policy, limit)),
        };
        headers.insert(RATELIMIT_POLICY, written.policy_field.clone());
        headers.insert(RATELIMIT, written.left_field(left, seconds));
    });
}

thread_local! {
    /// What the thread wrote last: most answers in a row are about the same policy.
    static LAST: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// What stays the same in answers about one policy.
struct Written {
    policy: Arc<Policy>,
    limit: Limit,
    policy_field: HeaderValue,
    /// How the other field begins: the name, and the key of the first number.
    begin: Text,
}

impl Written {
    fn new(policy: &Arc<Policy>, limit: Limit) -> Self {
        let mut begin = Text::new();
        put_name(&mut begin, policy);
        begin.extend_from_slice(b";r=");
        Self {
            policy: Arc::clone(policy),
            limit,
            policy_field: write_policy(policy, limit),
            begin,
        }
    }

    fn is_of(&self, policy: &Arc<Policy>, limit: Limit) -> bool {
        Arc::ptr_eq(&self.policy, policy) && self.limit == limit
    }

    /// Returns units left and seconds until all are back. Written from the end, where the numbers
    /// are: their digits need not be counted first.
    fn left_field(&self, left: u64, seconds: u64) -> HeaderValue {
        let mut text = [0; FIELD_LEN_MAX];
        let first = text.len();
        let first = digits::put(&mut text, first, seconds.min(INTEGER_MAX));
        let first = put_before(&mut text, first, b";t=");
        let first = digits::put(&mut text, first, left.min(INTEGER_MAX));
        let first = put_before(&mut text, first, &self.begin);
        value(&text[first..])
    }
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
    text.extend_from_slice(key);
    text.extend_from_slice(Digits::of(number.min(INTEGER_MAX)).as_bytes());
}

/// Writes bytes before `end`; returns where they begin.
fn put_before(text: &mut [u8], end: usize, bytes: &[u8]) -> usize {
    let first = end - bytes.len();
    text[first..end].copy_from_slice(bytes);
    first
}

fn value(text: &[u8]) -> HeaderValue {
    // A policy's name that is no header value would be a defect of its check; the answer stands.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static("\"?\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbo_quota::{PolicyDraft, Source};

    use super::*;

    fn policy(name: &str) -> Arc<Policy> {
        let draft = PolicyDraft {
            name: name.to_owned(),
            per: vec!["caller".to_owned()],
            unit: "ru".to_owned(),
            rate: "10".to_owned(),
            burst: Some("25".to_owned()),
            ..PolicyDraft::default()
        };
        Arc::new(Policy::parse(&draft, Source::File).unwrap())
    }

    fn written(policy: &Arc<Policy>, left: u64, reset: Duration) -> [String; 2] {
        let mut headers = HeaderMap::new();
        insert(&mut headers, policy, policy.limit, left, reset);
        [RATELIMIT_POLICY, RATELIMIT].map(|name| headers[name].to_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_kept_of_one_policy_is_not_said_of_another() {
        let (web, batch) = (policy("web"), policy("batch"));
        for (policy, name) in [
            (&web, "web"),
            (&web, "web"),
            (&batch, "batch"),
            (&web, "web"),
        ] {
            for (left, millis, seconds) in [(0, 0, 0), (7, 1, 1), (24, 2_000, 2), (10, 2_001, 3)] {
                let expected = [
                    format!("\"{name}\";q=25;w=3;qu=\"ru\""),
                    format!("\"{name}\";r={left};t={seconds}"),
                ];
                assert_eq!(
                    written(policy, left, Duration::from_millis(millis)),
                    expected
                );
            }
        }
    }

    #[test]
    fn the_longest_field_has_room() {
        let name = "n".repeat(limits::POLICY_NAME_LEN_MAX);
        let [_, left] = written(&policy(&name), u64::MAX, Duration::MAX);
        let most = "9".repeat(15);
        assert_eq!(left, format!("\"{name}\";r={most};t={most}"));
    }

    proptest! {
        #[test]
        fn the_text_of_units_is_their_display(micros in prop_oneof![0..3_000_000_u64, any::<u64>()]) {
            let units = RequestUnits::from_micros(micros);
            prop_assert_eq!(request_units(units), units.to_string());
        }
    }
}
