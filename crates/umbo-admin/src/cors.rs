//! Which pages of other origins may use the data plane from a browser (the CORS protocol of the Fetch standard).
//!
//! Credentials that a browser adds by itself are never allowed: a page shows its own token. The admin API
//! takes part in nothing of this, so that a page cannot change what operators change.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

/// Methods of the data plane.
const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, POST";
/// How long a browser may remember the answer, in seconds.
const MAX_AGE_SECONDS: &str = "600";

/// The origins that are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsPolicy {
    /// Any.
    Any,
    /// The listed origins.
    Listed(Vec<HeaderValue>),
}

/// Not an origin like `https://app.example.org`, with the port unless it is the usual one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOrigin(pub String);

impl CorsPolicy {
    /// Reads origins, separated by commas, or `*`. Returns `None` for an empty text.
    pub fn parse(text: &str) -> Result<Option<Self>, BadOrigin> {
        let texts = text.split(',').map(str::trim);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        match texts[..] {
            [] => Ok(None),
            ["*"] => Ok(Some(Self::Any)),
            _ => {
                let origins = texts.into_iter().map(origin);
                origins
                    .collect::<Result<_, _>>()
                    .map(|all| Some(Self::Listed(all)))
            }
        }
    }

    /// Returns the header fields for the answer to a request. The admin API gets none.
    pub fn fields(&self, head: &Parts) -> HeaderMap {
        let mut fields = HeaderMap::new();
        if head.uri.path().starts_with("/admin/") {
            return fields;
        }
        if matches!(self, Self::Listed(_)) {
            fields.insert(VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = head
            .headers
            .get(ORIGIN)
            .and_then(|origin| self.allowed(origin))
        else {
            return fields;
        };
        fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        if is_preflight(head) {
            fields.insert(
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static(METHODS),
            );
            fields.insert(
                ACCESS_CONTROL_MAX_AGE,
                HeaderValue::from_static(MAX_AGE_SECONDS),
            );
            // `*` would not stand for Authorization.
            if let Some(asked) = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
                fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
            }
        }
        fields
    }

    /// Returns whether the page of an origin may change something by a request: of the data plane, if it is listed.
    pub(crate) fn allows_change(&self, head: &Parts, origin: &HeaderValue) -> bool {
        head.uri.path().starts_with("/v1/") && self.allowed(origin).is_some()
    }

    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Listed(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }
}

/// Returns whether the fields allow what a preflight asks for.
pub(crate) fn is_allowed_preflight(head: &Parts, fields: &HeaderMap) -> bool {
    is_preflight(head) && fields.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN)
}

fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn origin(text: &str) -> Result<HeaderValue, BadOrigin> {
    let bad = || BadOrigin(text.to_owned());
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or_else(bad)?;
    let is_host = |byte: u8| {
        matches!(byte, b'.' | b'-' | b':' | b'[' | b']')
            || byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
    };
    if host.is_empty() || !host.bytes().all(is_host) {
        return Err(bad());
    }
    HeaderValue::from_str(text).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, path: &str, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn origins_are_listed_or_any_or_none() {
        assert_eq!(CorsPolicy::parse(" "), Ok(None));
        assert_eq!(CorsPolicy::parse("*"), Ok(Some(CorsPolicy::Any)));
        let two = CorsPolicy::parse("https://a.example, http://localhost:3000");
        assert!(matches!(two, Ok(Some(CorsPolicy::Listed(all))) if all.len() == 2));
        for bad in [
            "a.example",
            "https://a.example/",
            "https://",
            "*, https://a",
            "https://A",
        ] {
            assert!(CorsPolicy::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_listed_origins_are_allowed_and_nothing_of_the_admin_api() {
        let policy = CorsPolicy::parse("https://a.example").unwrap().unwrap();
        let asked = ("access-control-request-method", "PUT");
        let preflight = |origin, path| {
            let fields = [
                ("origin", origin),
                asked,
                ("access-control-request-headers", "authorization,umbo-ttl"),
            ];
            let head = head(Method::OPTIONS, path, &fields);
            let fields = policy.fields(&head);
            (is_allowed_preflight(&head, &fields), fields)
        };
        let (is_allowed, fields) = preflight("https://a.example", "/v1/ns/a/kv/b");
        assert!(is_allowed);
        assert_eq!(
            fields[ACCESS_CONTROL_ALLOW_HEADERS],
            "authorization,umbo-ttl"
        );
        assert_eq!(fields[ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example");
        assert!(!preflight("https://b.example", "/v1/ns/a/kv/b").0);
        let (is_allowed, fields) = preflight("https://a.example", "/admin/v1/tokens");
        assert!(!is_allowed && fields.is_empty());
        let get = head(
            Method::GET,
            "/v1/ns/a/kv/b",
            &[("origin", "https://a.example")],
        );
        assert!(
            !policy
                .fields(&get)
                .contains_key(ACCESS_CONTROL_ALLOW_METHODS)
        );
    }
}
