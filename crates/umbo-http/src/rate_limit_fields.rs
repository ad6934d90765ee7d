//! The fields of cost and quota in answers: `Umbo-RU`, `Umbo-Quota-State`, `RateLimit-Policy`, `RateLimit`.
//!
//! The one place that knows how these fields are written. `Umbo-Quota-State` gives a bucket exactly;
//! the fields of the IETF (draft-ietf-httpapi-ratelimit-headers-10; its drafts have changed the form
//! before) give it in whole units and seconds. Hot path: no `format!`, one allocation for each field
//! that changes with every answer.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use umbo_api::header;
use umbo_quota::{Advertised, Limit, Policy, Rejection, Unit, format_amount, limits};
use umbo_types::RequestUnits;
use umbo_types::decimal::{DECIMALS_MAX, MILLIONTHS};

use crate::digits;

const RATELIMIT: HeaderName = HeaderName::from_static(header::RATELIMIT);
const QUOTA_STATE: HeaderName = HeaderName::from_static(header::QUOTA_STATE);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(header::RATELIMIT_POLICY);

/// A field while it is written; the longest name of a policy fits in.
type FieldText = SmallVec<[u8; 128]>;
/// Integers of RFC 9651 have fifteen digits at most.
const INTEGER_MAX: u64 = 999_999_999_999_999;
/// Longest `RateLimit` field: a name in quotes, with a backslash before each byte, and two integers with
/// their keys.
const FIELD_LEN_MAX: usize = 2 * limits::POLICY_NAME_LEN_MAX + 2 + 2 * (3 + 15);

/// Longest state of a bucket: a name, the longest unit, and three amounts and a refill with their keys.
const STATE_LEN_MAX: usize =
    limits::POLICY_NAME_LEN_MAX + 6 + 11 + 3 * (9 + AMOUNT_LEN_MAX) + 4 + 20;
/// Longest amount: fourteen digits before the point and six after it, or the bytes of the highest burst.
const AMOUNT_LEN_MAX: usize = 21;

/// Returns request units as the exact decimal, without zeros at its end.
pub(crate) fn request_units(units: RequestUnits) -> HeaderValue {
    if units == RequestUnits::ZERO {
        return HeaderValue::from_static("0");
    }
    let mut text = [0; AMOUNT_LEN_MAX];
    let end = text.len();
    let first = put_millionths(&mut text, end, units.as_micros());
    HeaderValue::from_bytes(&text[first..]).expect("digits and a point are a header value")
}

/// Writes millionths before `end` as the exact decimal, without zeros at its end; returns its begin.
fn put_millionths(text: &mut [u8], end: usize, millionths: u64) -> usize {
    let mut first = end;
    let (whole, mut part) = (millionths / MILLIONTHS, millionths % MILLIONTHS);
    if part > 0 {
        let mut width = DECIMALS_MAX;
        while part.is_multiple_of(10) {
            (part, width) = (part / 10, width - 1);
        }
        for _ in 0..width {
            first -= 1;
            text[first] = b'0' + (part % 10) as u8;
            part /= 10;
        }
        first -= 1;
        text[first] = b'.';
    }
    digits::put(text, first, whole)
}

/// Writes atoms before `end` in units; returns their begin.
fn put_amount(text: &mut [u8], end: usize, unit: Unit, atoms: u64) -> usize {
    if unit.is_bytes() {
        digits::put(text, end, atoms)
    } else {
        put_millionths(text, end, atoms)
    }
}

/// Writes the balance of the limit that binds the caller most.
pub(crate) fn insert_left(headers: &mut HeaderMap, left: &Advertised<'_>) {
    insert_state(headers, left.policy, left.limit, left.balance);
    let units = left.balance.max(0).unsigned_abs() / left.policy.unit.atoms_per_unit();
    insert(headers, left.policy, left.limit, units, left.reset);
}

/// Writes that the limit that rejected the request is used up.
pub(crate) fn insert_spent(headers: &mut HeaderMap, rejection: &Rejection) {
    let limit = rejection.limit;
    insert_state(headers, &rejection.policy, limit, rejection.balance);
    let missing = i128::from(limit.burst) - i128::from(rejection.balance);
    let seconds = missing
        .max(0)
        .unsigned_abs()
        .div_ceil(limit.rate.max(1).into());
    let reset = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    insert(headers, &rejection.policy, limit, 0, reset);
}

/// Returns whether an answer already describes a limit.
pub(crate) fn is_told(headers: &HeaderMap) -> bool {
    headers.contains_key(RATELIMIT)
}

/// Writes the exact state of a bucket.
fn insert_state(headers: &mut HeaderMap, policy: &Arc<Policy>, limit: Limit, balance: i64) {
    let state = with_written(policy, limit, |written| written.state_field(balance));
    headers.insert(QUOTA_STATE, state);
}

/// Writes both fields of the IETF: quota and window of the policy, units left and seconds until all are back.
fn insert(headers: &mut HeaderMap, policy: &Arc<Policy>, limit: Limit, left: u64, reset: Duration) {
    let part = u64::from(reset.subsec_nanos() > 0);
    let seconds = reset.as_secs().saturating_add(part);
    with_written(policy, limit, |written| {
        headers.insert(RATELIMIT_POLICY, written.policy_field.clone());
        headers.insert(RATELIMIT, written.left_field(left, seconds));
    });
}

/// Calls `write` with the constant parts of answers about a policy.
fn with_written<R>(
    policy: &Arc<Policy>,
    limit: Limit,
    write: impl FnOnce(&PolicyFields) -> R,
) -> R {
    LAST.with_borrow_mut(|last| {
        let written = match last {
            Some(written) if written.is_of(policy, limit) => written,
            _ => last.insert(PolicyFields::new(policy, limit)),
        };
        write(written)
    })
}

thread_local! {
    /// The constant parts that the thread used last: most answers in a row are about the same policy.
    static LAST: RefCell<Option<PolicyFields>> = const { RefCell::new(None) };
}

/// The constant parts of answers about one policy.
struct PolicyFields {
    policy: Arc<Policy>,
    limit: Limit,
    policy_field: HeaderValue,
    /// Begin of the other field: the name, and the key of the first number.
    begin: FieldText,
    /// Text before the balance of the exact state.
    state_begin: FieldText,
    /// Text after the balance.
    state_end: FieldText,
}

impl PolicyFields {
    fn new(policy: &Arc<Policy>, limit: Limit) -> Self {
        let mut begin = FieldText::new();
        put_name(&mut begin, policy);
        begin.extend_from_slice(b";r=");
        Self {
            policy: Arc::clone(policy),
            limit,
            policy_field: write_policy(policy, limit),
            begin,
            state_begin: format!(
                "{};unit={};rate={};burst={};balance=",
                policy.name,
                policy.unit,
                format_amount(policy.unit, limit.rate),
                format_amount(policy.unit, limit.burst),
            )
            .into_bytes()
            .into(),
            state_end: format!(";ms={}", policy.refill.as_millis())
                .into_bytes()
                .into(),
        }
    }

    fn is_of(&self, policy: &Arc<Policy>, limit: Limit) -> bool {
        Arc::ptr_eq(&self.policy, policy) && self.limit == limit
    }

    /// Returns the exact state with a balance. Written from the end, like the other field.
    fn state_field(&self, balance: i64) -> HeaderValue {
        let mut text = [0; STATE_LEN_MAX];
        let end = text.len();
        let end = put_before(&mut text, end, &self.state_end);
        let first = put_amount(&mut text, end, self.policy.unit, balance.unsigned_abs());
        let sign: &[u8] = if balance < 0 { b"-" } else { b"" };
        let first = put_before(&mut text, first, sign);
        let first = put_before(&mut text, first, &self.state_begin);
        value(&text[first..])
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
    let mut text = FieldText::new();
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
fn put_name(text: &mut FieldText, policy: &Policy) {
    text.push(b'"');
    for &byte in policy.name.as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
}

fn put_parameter(text: &mut FieldText, key: &[u8], number: u64) {
    text.extend_from_slice(key);
    text.extend_from_slice(
        itoa::Buffer::new()
            .format(number.min(INTEGER_MAX))
            .as_bytes(),
    );
}

/// Writes bytes before `end`; returns their begin.
fn put_before(text: &mut [u8], end: usize, bytes: &[u8]) -> usize {
    let first = end - bytes.len();
    text[first..end].copy_from_slice(bytes);
    first
}

fn value(text: &[u8]) -> HeaderValue {
    // A policy's name that is no header value would be a defect of its check; the answer is sent in any case.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static("\"?\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbo_api::quota::{PolicySource, PolicySpec};

    use super::*;

    fn policy(name: &str) -> Arc<Policy> {
        let spec = PolicySpec {
            per: vec!["caller".to_owned()],
            burst: Some("25".into()),
            ..PolicySpec::new(name, "ru", "10")
        };
        Arc::new(Policy::parse(&spec, PolicySource::File).unwrap())
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
    fn the_state_is_exact() {
        let state = |policy: &Arc<Policy>, balance| {
            let mut headers = HeaderMap::new();
            insert_state(&mut headers, policy, policy.limit, balance);
            headers[QUOTA_STATE].to_str().unwrap().to_owned()
        };
        for (balance, text) in [(24_062_744, "24.062744"), (0, "0"), (-1_500_000, "-1.5")] {
            let expected = format!("web;unit=ru;rate=10;burst=25;balance={text};ms=50");
            assert_eq!(state(&policy("web"), balance), expected);
        }
        let longest = Policy {
            unit: Unit::WriteBytes,
            limit: Limit {
                rate: Unit::WriteBytes.rate_max(),
                burst: Unit::WriteBytes.burst_max(),
            },
            refill: limits::REFILL_MAX,
            ..Policy::clone(&policy(&"n".repeat(limits::POLICY_NAME_LEN_MAX)))
        };
        let text = state(&Arc::new(longest), i64::MIN);
        assert!(
            text.ends_with(&format!(";balance={};ms=10000", i64::MIN)),
            "{text}"
        );
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
