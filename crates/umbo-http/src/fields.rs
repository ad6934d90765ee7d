//! The request's header fields that Umbo reads, found in one pass over them.
//!
//! Hot path.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use umbo_api::hot::REASON_LEN_MAX;
use umbo_api::row::{EXPIRES_AT_EXPECTED, EXPIRES_AT_MS};
use umbo_api::{header, time_to_live};
use umbo_edge::content_coding::weights;
use umbo_quota::nearest;
use umbo_rows::Expiry;
use umbo_store::{Condition, Durability};
use umbo_types::{Attribute, Criticality, Timestamp, Version};

use crate::representation::Representation;
use crate::request_error::RequestError;

/// Longest time a caller may ask for, in milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 600_000;

/// Standard field names, in lower case.
mod name {
    pub(super) const ACCEPT: &str = "accept";
    pub(super) const ACCEPT_ENCODING: &str = "accept-encoding";
    pub(super) const AUTHORIZATION: &str = "authorization";
    pub(super) const CACHE_CONTROL: &str = "cache-control";
    pub(super) const CONTENT_DIGEST: &str = crate::content_digest::NAME;
    pub(super) const CONTENT_ENCODING: &str = "content-encoding";
    pub(super) const CONTENT_TYPE: &str = "content-type";
    pub(super) const IF_MATCH: &str = "if-match";
    pub(super) const IF_NONE_MATCH: &str = "if-none-match";
    pub(super) const IF_RANGE: &str = "if-range";
    pub(super) const PREFER: &str = "prefer";
    pub(super) const RANGE: &str = "range";
    pub(super) const TRACEPARENT: &str = "traceparent";
}

macro_rules! known_fields {
    ($($field:ident $name:path;)+) => {
        /// Known header fields of a request, as sent.
        #[derive(Debug, Default)]
        pub struct Fields<'a> {
            $(
                /// The field as sent.
                pub $field: Option<&'a HeaderValue>,
            )+
            /// From `Cache-Control`, which may stand in several lines.
            pub freshness: Freshness,
            repeated: Option<&'static str>,
            unknown: Option<&'a str>,
        }

        const NAMES: &[&str] = &[$($name),+];

        impl<'a> Fields<'a> {
            /// Finds the known fields.
            pub fn read(headers: &'a HeaderMap) -> Self {
                let mut fields = Self::default();
                for (name, value) in headers {
                    match name.as_str() {
                        $($name => fields.repeated = fields.$field.replace(value).map_or(fields.repeated, |_| Some($name)),)+
                        name::CACHE_CONTROL => fields.freshness.restrict(value),
                        other if other.starts_with(header::PREFIX) => fields.unknown = Some(other),
                        _ => {}
                    }
                }
                fields
            }
        }
    };
}

known_fields! {
    accept name::ACCEPT;
    accept_encoding name::ACCEPT_ENCODING;
    authorization name::AUTHORIZATION;
    content_digest name::CONTENT_DIGEST;
    content_encoding name::CONTENT_ENCODING;
    content_type name::CONTENT_TYPE;
    if_match name::IF_MATCH;
    if_none_match name::IF_NONE_MATCH;
    if_range name::IF_RANGE;
    prefer name::PREFER;
    range name::RANGE;
    traceparent name::TRACEPARENT;
    attempt header::ATTEMPT;
    criticality header::CRITICALITY;
    durability header::DURABILITY;
    expires_at header::EXPIRES_AT;
    idempotency_key header::IDEMPOTENCY_KEY;
    idempotency_ttl header::IDEMPOTENCY_TTL;
    increment header::INCREMENT;
    org header::ORG;
    quota_user header::QUOTA_USER;
    reason header::REASON;
    request_id header::REQUEST_ID;
    retry_ticket header::RETRY_TICKET;
    session header::SESSION;
    timeout_ms header::TIMEOUT_MS;
    ttl header::TTL;
    user header::USER;
}

/// The accepted age of an answer, from `Cache-Control` (RFC 9111, section 5.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Whether the store is to be asked in any case: `no-cache` or `no-store`.
    pub is_bypassed: bool,
    /// Highest accepted age of an answer: `max-age`.
    pub age_max: Option<Duration>,
}

impl Freshness {
    /// Takes up one line of the field. Directives without a meaning for a cache like this one are ignored, as the
    /// standard requires; a `max-age` that cannot be read is zero.
    fn restrict(&mut self, value: &HeaderValue) {
        for directive in value.as_bytes().split(|&byte| byte == b',') {
            let directive = directive.trim_ascii();
            let (name, argument) = match directive.iter().position(|&byte| byte == b'=') {
                Some(at) => (directive[..at].trim_ascii(), &directive[at + 1..]),
                None => (directive, &b""[..]),
            };
            if name.eq_ignore_ascii_case(b"no-cache") || name.eq_ignore_ascii_case(b"no-store") {
                self.is_bypassed = true;
            } else if name.eq_ignore_ascii_case(b"max-age") {
                let text = std::str::from_utf8(argument).unwrap_or_default();
                let text = text.trim().trim_matches('"');
                let age = Duration::from_secs(parse_number(text).unwrap_or(0));
                self.age_max = Some(self.age_max.map_or(age, |held| held.min(age)));
            }
        }
    }
}

/// Tags of `If-Match` or `If-None-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// `*`
    Any,
    /// Versions of the strong and weak tags that this server could have given.
    Versions {
        /// From strong tags.
        strong: Vec<Version>,
        /// From weak tags; they never match a strong comparison.
        weak: Vec<Version>,
    },
}

impl<'a> Fields<'a> {
    /// Refuses a request that repeats a field which may stand only once, or that has an unknown field of Umbo: a
    /// misspelt field would have no effect.
    pub fn check(&self) -> Result<(), RequestError> {
        if let Some(name) = self.unknown {
            return Err(unknown(name));
        }
        match self.repeated {
            Some(name) => Err(RequestError::BadHeader {
                name,
                expected: "this header only once",
            }),
            None => Ok(()),
        }
    }

    /// Returns the reason that an operator gives for a change.
    pub fn change_reason(&self) -> Result<Option<String>, RequestError> {
        let Some(value) = self.reason else {
            return Ok(None);
        };
        let text = std::str::from_utf8(value.as_bytes()).ok();
        let is_line = |text: &&str| {
            (1..=REASON_LEN_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        let bad = RequestError::BadHeader {
            name: header::REASON,
            expected: "1 to 256 bytes of UTF-8 on one line",
        };
        text.filter(is_line)
            .map(|text| Some(text.to_owned()))
            .ok_or(bad)
    }

    /// Returns the time the caller still has.
    pub fn timeout(&self) -> Result<Option<Duration>, RequestError> {
        let bounds = 1..=TIMEOUT_MS_MAX;
        let number = number(
            self.timeout_ms,
            header::TIMEOUT_MS,
            bounds,
            "1 to 600000 milliseconds",
        );
        Ok(number?.map(Duration::from_millis))
    }

    /// Returns whether the client marks the request as sent again.
    pub fn is_repeated(&self) -> Result<bool, RequestError> {
        let attempt = number(self.attempt, header::ATTEMPT, 1..=100, "1 to 100")?;
        Ok(attempt.is_some_and(|attempt| attempt > 1))
    }

    /// Returns the name and the value of the field of an attribute.
    pub const fn attribute(&self, attribute: Attribute) -> (&'static str, Option<&'a HeaderValue>) {
        match attribute {
            Attribute::User => (header::USER, self.user),
            Attribute::Session => (header::SESSION, self.session),
            Attribute::Org => (header::ORG, self.org),
        }
    }

    /// Returns whether the request names a payer or an attribute.
    pub fn names_payer(&self) -> bool {
        let is_named = |one| self.attribute(one).1.is_some();
        self.quota_user.is_some() || Attribute::ALL.into_iter().any(is_named)
    }

    /// Returns the criticality the caller claims.
    pub fn claimed_criticality(&self) -> Result<Option<Criticality>, RequestError> {
        let Some(value) = self.criticality else {
            return Ok(None);
        };
        let tier = value.to_str().ok().and_then(|text| text.parse().ok());
        tier.map(Some).ok_or(RequestError::BadHeader {
            name: header::CRITICALITY,
            expected: "critical-plus, critical, sheddable-plus or sheddable",
        })
    }

    /// Returns when the write is to be acknowledged.
    pub fn durability(&self) -> Result<Option<Durability>, RequestError> {
        match self.durability.map(HeaderValue::as_bytes) {
            None => Ok(None),
            Some(b"sync") => Ok(Some(Durability::Sync)),
            Some(b"async") => Ok(Some(Durability::Async)),
            Some(_) => Err(RequestError::BadHeader {
                name: header::DURABILITY,
                expected: "sync or async",
            }),
        }
    }

    /// Returns when the row to be written expires.
    pub fn expiry(&self) -> Result<Option<Expiry>, RequestError> {
        let ttl = match self.ttl {
            None => None,
            Some(value) => {
                let seconds = value.to_str().ok().and_then(time_to_live::parse);
                Some(seconds.ok_or(RequestError::BadHeader {
                    name: header::TTL,
                    expected: time_to_live::EXPECTED,
                })?)
            }
        };
        let at = number(
            self.expires_at,
            header::EXPIRES_AT,
            EXPIRES_AT_MS,
            EXPIRES_AT_EXPECTED,
        )?;
        match (ttl, at) {
            (Some(_), Some(_)) => Err(RequestError::Contradiction {
                one: header::TTL,
                other: header::EXPIRES_AT,
            }),
            (Some(seconds), None) => Ok(Some(Expiry::After(Duration::from_secs(seconds)))),
            (None, at) => Ok(at.map(|millis| Expiry::At(Timestamp::from_millis(millis)))),
        }
    }

    /// Returns the number that an increment adds.
    pub fn increment(&self) -> Result<Option<i64>, RequestError> {
        let Some(value) = self.increment else {
            return Ok(None);
        };
        let by = umbo_store::number_of(value.as_bytes(), b"");
        by.map(Some).ok_or(RequestError::BadHeader {
            name: header::INCREMENT,
            expected: "a number from -9223372036854775808 to 9223372036854775807, without a plus sign",
        })
    }

    /// Refuses the fields of an increment on a route without increments.
    pub fn refuse_increment(&self) -> Result<(), RequestError> {
        match self.increment {
            None => Ok(()),
            Some(_) => Err(RequestError::BadHeader {
                name: header::INCREMENT,
                expected: "no such header except on PATCH of a row",
            }),
        }
    }

    /// Returns the condition of a write.
    pub fn write_condition(&self) -> Result<Condition, RequestError> {
        match (self.if_match, self.if_none_match) {
            (None, None) => Ok(Condition::Always),
            (Some(_), Some(_)) => Err(RequestError::Contradiction {
                one: "if-match",
                other: "if-none-match",
            }),
            (None, Some(value)) if value.as_bytes().trim_ascii() == b"*" => Ok(Condition::Absent),
            (None, Some(_)) => Err(RequestError::BadHeader {
                name: "if-none-match",
                expected: "* on a write",
            }),
            (Some(value), None) => Ok(match tags(value, "if-match")? {
                Tags::Any => Condition::Present,
                Tags::Versions { strong, .. } => Condition::VersionIn(strong),
            }),
        }
    }

    /// Returns the tags of `If-Match`.
    pub fn if_match_tags(&self) -> Result<Option<Tags>, RequestError> {
        self.if_match
            .map(|value| tags(value, "if-match"))
            .transpose()
    }

    /// Returns the tags of `If-None-Match`.
    pub fn if_none_match_tags(&self) -> Result<Option<Tags>, RequestError> {
        self.if_none_match
            .map(|value| tags(value, "if-none-match"))
            .transpose()
    }

    /// Returns whether `Prefer` names a preference.
    pub fn is_preferred(&self, preference: &str) -> bool {
        let text = self
            .prefer
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        // The text after a semicolon holds parameters (RFC 7240), and no preference has any here.
        let names = text.split(',').filter_map(|part| part.split(';').next());
        names
            .into_iter()
            .any(|name| name.trim().eq_ignore_ascii_case(preference))
    }

    /// Returns whether the client prefers a JSON array to lines (RFC 9110, section 12.5.1). The type with the
    /// greater weight is preferred. At the same weight, a named type is preferred to one that only a wildcard
    /// accepts, and of two named types the first.
    pub fn wants_json_array(&self) -> bool {
        let accepted = self.accept.into_iter().flat_map(weights);
        let (mut array, mut lines) = (AcceptedType::default(), AcceptedType::default());
        for (at, (range, weight)) in accepted.enumerate() {
            let is = |kind: &[u8]| range.eq_ignore_ascii_case(kind);
            let is_array = is(b"application/json");
            let precision = if is(b"*/*") {
                1
            } else if is(b"application/*") {
                2
            } else if is_array || is(b"application/x-ndjson") || is(b"application/ndjson") {
                AcceptedType::NAMED
            } else {
                continue;
            };
            for (kind, is_meant) in [(&mut array, is_array), (&mut lines, !is_array)] {
                if (is_meant || precision < AcceptedType::NAMED) && precision > kind.precision {
                    *kind = AcceptedType {
                        precision,
                        weight,
                        at,
                    };
                }
            }
        }
        let is_named = |kind: &AcceptedType| kind.precision == AcceptedType::NAMED;
        let is_first = is_named(&array) && (!is_named(&lines) || array.at < lines.at);
        array.weight > lines.weight
            || (is_first && array.weight > 0.0 && array.weight >= lines.weight)
    }
}

/// How `Accept` accepts a media type: by the most precise of its ranges.
#[derive(Default)]
struct AcceptedType {
    /// [`Self::NAMED`], 2 by its main type, 1 with all others, 0 if it is not accepted.
    precision: u8,
    weight: f32,
    /// Place of the range in the list.
    at: usize,
}

impl AcceptedType {
    const NAMED: u8 = 3;
}

fn unknown(name: &str) -> RequestError {
    let own = NAMES.iter().copied();
    let own: Vec<&'static str> = own
        .filter(|known| known.starts_with(header::PREFIX))
        .collect();
    let begins_alike = |known: &&str| {
        name.len() > header::PREFIX.len() && (known.starts_with(name) || name.starts_with(*known))
    };
    RequestError::UnknownHeader {
        name: name.chars().take(64).collect(),
        nearest: nearest(name, &own).or_else(|| own.iter().copied().find(begins_alike)),
    }
}

fn number(
    value: Option<&HeaderValue>,
    name: &'static str,
    bounds: RangeInclusive<u64>,
    expected: &'static str,
) -> Result<Option<u64>, RequestError> {
    let Some(value) = value else { return Ok(None) };
    match parse_number(value) {
        Some(number) if bounds.contains(&number) => Ok(Some(number)),
        _ => Err(RequestError::BadHeader { name, expected }),
    }
}

/// Reads a decimal number without sign, space or leading plus.
pub fn parse_number(text: impl AsRef<[u8]>) -> Option<u64> {
    let (first, rest) = text.as_ref().split_first()?;
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    rest.iter().try_fold(digit(first)?, |number, byte| {
        number.checked_mul(10)?.checked_add(digit(byte)?)
    })
}

/// Returns the version of a tag that this server gives. A tag of another representation than the stored one names it
/// after a semicolon.
pub(crate) fn version_of(tag: &str) -> Option<Version> {
    let (version, representation) = tag.split_once(';').unwrap_or((tag, ""));
    let is_known = Representation::ALL
        .into_iter()
        .any(|known| known.tag_suffix().trim_start_matches(';') == representation);
    parse_number(version).filter(|_| is_known).map(Version)
}

/// Reads a list of entity tags (RFC 9110, section 8.8.3).
pub fn tags(value: &HeaderValue, name: &'static str) -> Result<Tags, RequestError> {
    let bad = || RequestError::BadHeader {
        name,
        expected: "* or a list of entity tags in quotes",
    };
    let mut rest = value.to_str().map_err(|_| bad())?;
    rest = rest.trim().trim_start_matches([',', ' ', '\t']);
    if rest == "*" {
        return Ok(Tags::Any);
    }
    let (mut strong, mut weak) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (list, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (&mut weak, quoted),
            None => (&mut strong, rest),
        };
        let inner = quoted.strip_prefix('"').ok_or_else(bad)?;
        let (tag, after) = inner.split_once('"').ok_or_else(bad)?;
        // A tag this server never gave matches nothing, so it is left out.
        list.extend(version_of(tag));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            // Empty members count for nothing (RFC 9110, section 5.6.1).
            Some(more) => more.trim_start_matches([',', ' ', '\t']),
            None if after.is_empty() => after,
            None => return Err(bad()),
        };
    }
    Ok(Tags::Versions { strong, weak })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_tags(text: &str) -> Result<Tags, RequestError> {
        tags(&HeaderValue::from_str(text).unwrap(), "if-match")
    }

    #[test]
    fn tag_lists_follow_the_grammar() {
        let versions = |strong: &[u64], weak: &[u64]| Tags::Versions {
            strong: strong.iter().copied().map(Version).collect(),
            weak: weak.iter().copied().map(Version).collect(),
        };
        assert_eq!(read_tags("*").unwrap(), Tags::Any);
        assert_eq!(read_tags("\"1\"").unwrap(), versions(&[1], &[]));
        assert_eq!(
            read_tags("\"1\", W/\"2\" ,\"x\"").unwrap(),
            versions(&[1], &[2])
        );
        assert_eq!(
            read_tags("\"1;zstd\", W/\"2;identity\", \"3;gzip\", \"4;\"").unwrap(),
            versions(&[1, 4], &[2])
        );
        assert_eq!(
            read_tags(", \"1\",, ,\"2\" , ").unwrap(),
            versions(&[1, 2], &[])
        );
        for bad in ["1", "\"1", "\"1\" \"2\"", "W/1"] {
            assert!(read_tags(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_header_value_is_read_or_refused(bytes in prop::collection::vec(32_u8..=255, 0..40)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = tags(&value, "if-match");
            }
        }
    }

    #[test]
    fn of_lines_and_an_array_the_first_that_is_accepted_counts() {
        for (accept, is_array) in [
            ("", false),
            ("*/*", false),
            ("application/json", true),
            ("application/json, application/x-ndjson", true),
            ("application/x-ndjson, application/json", false),
            ("application/json;q=0, application/x-ndjson", false),
            ("application/json;q=0", false),
            ("application/json; q=0.0, */*", false),
            ("application/json;q=0.5, application/x-ndjson;q=0.4", true),
            ("application/json;q=0.4, application/x-ndjson;q=0.5", false),
            ("application/x-ndjson;q=0, */*", true),
            ("application/x-ndjson, APPLICATION/JSON;q=0.9", false),
            ("application/json, text/plain, */*", true),
            ("*/*, application/json", true),
            ("application/json;q=0.9, */*", false),
            ("text/html, application/*;q=0.9", false),
            ("application/jsonx, text/json", false),
            ("application/json;q=x", false),
        ] {
            let value = HeaderValue::from_static(accept);
            let fields = Fields {
                accept: Some(&value),
                ..Fields::default()
            };
            assert_eq!(fields.wants_json_array(), is_array, "{accept}");
        }
    }

    #[test]
    fn cache_control_is_the_strictest_of_its_lines() {
        let read = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("cache-control", HeaderValue::from_static(line));
            }
            let fields = Fields::read(&headers);
            assert!(fields.check().is_ok());
            let age_max = fields.freshness.age_max.map(|age| age.as_secs());
            (fields.freshness.is_bypassed, age_max)
        };
        assert_eq!(read(&[]), (false, None));
        assert_eq!(read(&["max-age=2"]), (false, Some(2)));
        assert_eq!(
            read(&["Max-Age = \"7\" , x", "max-age=3"]),
            (false, Some(3))
        );
        assert_eq!(read(&["max-age=-1"]), (false, Some(0)));
        assert_eq!(read(&["max-age=99999999999999999999"]), (false, Some(0)));
        assert_eq!(read(&["only-if-cached, NO-CACHE"]), (true, None));
        assert_eq!(read(&["no-store", "max-age=5"]), (true, Some(5)));
    }

    #[test]
    fn an_expiry_is_no_number_of_seconds_and_a_ttl_has_units() {
        let expiry = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            Fields::read(&headers).expiry().map(Option::unwrap)
        };
        for seconds in ["1", "1799999999", "999999999999"] {
            let refused = expiry(header::EXPIRES_AT, seconds).unwrap_err();
            assert!(refused.to_string().contains("milliseconds"), "{refused}");
        }
        assert_eq!(
            expiry(header::EXPIRES_AT, "1800000000001").unwrap(),
            Expiry::At(Timestamp::from_millis(1_800_000_000_001))
        );
        for ttl in ["300", "300s", "5m"] {
            let after = Expiry::After(Duration::from_mins(5));
            assert_eq!(expiry(header::TTL, ttl).unwrap(), after);
        }
        assert!(expiry(header::TTL, "0").is_err() && expiry(header::TTL, "soon").is_err());
        assert_eq!(
            umbo_types::limits::TTL_SECONDS_MAX,
            time_to_live::SECONDS_MAX
        );
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        let mut headers = HeaderMap::new();
        headers.append("umbo-ttl", HeaderValue::from_static("1"));
        assert!(Fields::read(&headers).check().is_ok());
        headers.append("umbo-ttl", HeaderValue::from_static("2"));
        assert!(Fields::read(&headers).check().is_err());
    }

    #[test]
    fn a_field_of_umbo_that_there_is_not_is_refused_with_the_nearest() {
        let refused = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("1"));
            let checked = Fields::read(&headers).check();
            checked.err().map(|refusal| refusal.to_string())
        };
        for (name, nearest) in [
            ("umbo-tll", "'umbo-ttl'"),
            ("umbo-timeout", "'umbo-timeout-ms'"),
            ("umbo-expire-at", "'umbo-expires-at'"),
            ("umbo-request-i", "'umbo-request-id'"),
        ] {
            let refusal = refused(name).unwrap();
            assert!(refusal.contains(nearest), "{refusal}");
        }
        assert!(refused("umbo-nothing-like-it").is_some());
        for name in NAMES {
            assert_eq!(refused(name), None);
        }
        assert_eq!(refused("umbotic"), None);
    }
}
