//! Keeps web pages of other sites away from a server without tokens.
//!
//! A browser sends requests of any page to any address, also to loopback. With tokens that is harmless: a browser
//! adds none. On a server without tokens, two checks replace them, before anything of a request is served:
//!
//! - *Host.* A page whose name is pointed at this server (DNS rebinding) reads with the rights of its origin. Its
//!   requests carry its name in `Host`, so only names that are not for sale are served, and those the operator lists.
//! - *Origin.* A page of another origin may send a change without asking (Fetch standard, CORS-safelisted requests).
//!   Its requests say so in `Origin` and `Sec-Fetch-Site` (Fetch Metadata), which no page can set.
//!
//! Clients that are no browsers send neither, and reach the server by the names that they always used.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use umbo_http::RequestError;

use crate::cors::CorsPolicy;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Values of `Sec-Fetch-Site` of requests by the server's own page, and of requests without a page.
const OWN_SITES: [&[u8]; 2] = [b"same-origin", b"none"];
/// Ends of the names of services in a Kubernetes cluster.
const CLUSTER_ENDS: [&str; 2] = [".svc", ".svc.cluster.local"];
/// Longest part of a value that a refusal repeats, in characters.
const SHOWN_LEN_MAX: usize = 100;

/// Names of a server for its operators, in addition to the names that are always served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    is_any: bool,
    /// In lower case; a name that begins with a dot stands for all names that end so.
    names: Vec<String>,
}

/// A text that is no host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHostName(pub String);

impl HostNames {
    /// Reads names, separated by commas, or `*` for any.
    pub fn parse(text: &str) -> Result<Self, BadHostName> {
        let texts = text.split(',').map(|name| name.trim().to_ascii_lowercase());
        let names: Vec<String> = texts.filter(|name| !name.is_empty()).collect();
        if names == ["*"] {
            return Ok(Self {
                is_any: true,
                names: Vec::new(),
            });
        }
        match names
            .iter()
            .find(|name| !is_name(name.trim_start_matches('.')))
        {
            Some(bad) => Err(BadHostName(bad.clone())),
            None => Ok(Self {
                is_any: false,
                names,
            }),
        }
    }

    /// Returns whether a `Host` is an address, a name that no page can have, or listed. Hot path.
    fn allow(&self, host: &str) -> bool {
        if self.is_any {
            return true;
        }
        let name = without_port(host);
        if is_address(name) {
            return true;
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        if !is_name(name) {
            return false;
        }
        let ends_so = |end: &str| {
            let rest = name.len().checked_sub(end.len());
            rest.is_some_and(|at| at > 0 && name[at..].eq_ignore_ascii_case(end))
        };
        let is_listed =
            |own: &String| name.eq_ignore_ascii_case(own) || own.starts_with('.') && ends_so(own);
        // `localhost` has no dot either.
        !name.contains('.')
            || CLUSTER_ENDS.into_iter().any(ends_so)
            || self.names.iter().any(is_listed)
    }
}

/// Refuses a request if its head says that the page of another site sent it.
pub(crate) fn check(
    head: &Parts,
    names: &HostNames,
    cors: Option<&CorsPolicy>,
) -> Result<(), RequestError> {
    check_host(head, names)?;
    if head.method.is_safe() {
        return Ok(());
    }
    check_origin(head, cors)
}

/// Returns whether the head of a request says that a browser sent it.
pub(crate) fn is_by_browser(headers: &http::HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

fn check_host(head: &Parts, names: &HostNames) -> Result<(), RequestError> {
    let foreign = |host: &[u8]| RequestError::ForeignHost { host: shown(host) };
    // `:authority` of HTTP/2, or a target with a host in it, which counts more than the field.
    if let Some(authority) = head.uri.authority()
        && !names.allow(authority.as_str())
    {
        return Err(foreign(authority.as_str().as_bytes()));
    }
    // HTTP/1.0 has no field: that is a probe of a load balancer, and no browser.
    for host in head.headers.get_all(HOST) {
        if !host.to_str().is_ok_and(|host| names.allow(host)) {
            return Err(foreign(host.as_bytes()));
        }
    }
    Ok(())
}

fn check_origin(head: &Parts, cors: Option<&CorsPolicy>) -> Result<(), RequestError> {
    let foreign = |field: &'static str, value: &[u8]| RequestError::ForeignOrigin {
        field,
        value: shown(value),
    };
    let mut is_listed = false;
    for origin in head.headers.get_all(ORIGIN) {
        if cors.is_some_and(|cors| cors.allows_change(head, origin)) {
            is_listed = true;
        } else if !is_own(head, origin.as_bytes()) {
            return Err(foreign("origin", origin.as_bytes()));
        }
    }
    for site in head.headers.get_all(SEC_FETCH_SITE) {
        if !is_listed && !OWN_SITES.contains(&site.as_bytes()) {
            return Err(foreign("sec-fetch-site", site.as_bytes()));
        }
    }
    Ok(())
}

/// Returns whether an origin is the server's own: it has the host and port of the request. A proxy may have ended TLS,
/// so the schemes may differ.
fn is_own(head: &Parts, origin: &[u8]) -> bool {
    let field = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = head.uri.authority().map(http::uri::Authority::as_str);
    let (Some(host), Ok(origin)) = (host.or(field), std::str::from_utf8(origin)) else {
        return false;
    };
    [("http://", ":80"), ("https://", ":443")]
        .into_iter()
        .any(|(scheme, port)| {
            let usual = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
            let authority = origin
                .get(..scheme.len())
                .filter(|begin| begin.eq_ignore_ascii_case(scheme));
            authority.is_some_and(|_| usual(&origin[scheme.len()..]) == usual(host))
        })
}

/// Returns a host without its port. An IPv6 address without brackets has none.
fn without_port(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    match name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    }
}

/// Returns whether a text is labels with dots between them. Nothing else is taken apart.
fn is_name(text: &str) -> bool {
    let is_label = |label: &[u8]| {
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.iter().all(is_of_name)
    };
    text.as_bytes().split(|&byte| byte == b'.').all(is_label)
}

fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.chars().take(SHOWN_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};

    fn head(method: Method, target: &str, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn refusal(
        method: Method,
        target: &str,
        fields: &[(&'static str, &'static str)],
    ) -> Option<&'static str> {
        let cors = CorsPolicy::parse("https://app.example").unwrap();
        let checked = check(
            &head(method, target, fields),
            &HostNames::default(),
            cors.as_ref(),
        );
        checked.err().map(|error| error.code().as_str())
    }

    #[test]
    fn addresses_and_names_that_no_page_can_have_are_served() {
        let names = HostNames::parse("kv.example.org, .Corp.Example").unwrap();
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:",
            "[::1]",
            "[::1]:8080",
            "[FE80::1]:80",
            "::1",
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "dispatcher-1:8081",
            "umbo_dispatcher_1",
            "umbo.data.svc:80",
            "umbo.data.SVC.cluster.local",
            "kv.example.org",
            "KV.Example.org.:8080",
            "a.corp.example",
            "a.b.corp.example:1",
        ] {
            assert!(names.allow(host), "{host}");
        }
        for host in [
            "",
            ":8080",
            ".",
            "evil.example",
            "evil.example.",
            "EVIL.EXAMPLE:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.localhost",
            "x.svc.evil.example",
            ".svc",
            "evilsvc.example",
            "a.kv.example.org",
            "xkv.example.org",
            "corp.example",
            "xcorp.example",
            "127.0.0.1@evil.example",
            "localhost@127.0.0.1",
            "evil.example:80:80",
            "evil.example,localhost",
            "[evil.example]",
            "[::1].evil.example",
            "[127.0.0.1]",
            "local host",
            "evil.example\\localhost",
        ] {
            assert!(!names.allow(host), "{host}");
        }
        assert!(HostNames::parse("*").unwrap().allow("evil.example"));
        for bad in ["http://a", "a:80", "a b", "*, a", "*.a", "a..b"] {
            assert!(HostNames::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(HostNames::parse(" , "), Ok(HostNames::default()));
    }

    #[test]
    fn every_host_of_a_request_counts() {
        let get = |target, fields| refusal(Method::GET, target, fields);
        assert_eq!(get("/metrics", &[]), None);
        assert_eq!(
            get("/metrics", &[("host", "a.example")]),
            Some("foreign-host")
        );
        assert_eq!(
            get("http://a.example/", &[("host", "a")]),
            Some("foreign-host")
        );
        assert_eq!(
            get("http://a/", &[("host", "a.example")]),
            Some("foreign-host")
        );
        assert_eq!(
            get("http://a/", &[("host", "a"), ("host", "a.example")]),
            Some("foreign-host")
        );
        assert_eq!(get("http://[::1]:80/", &[]), None);
    }

    #[test]
    fn changes_by_foreign_pages_are_refused_and_reads_are_not() {
        let host = ("host", "127.0.0.1:8080");
        let post =
            |fields: &[_]| refusal(Method::POST, "/v1/ns/a/scan", &[&[host], fields].concat());
        for own in [
            &[][..],
            &[("origin", "http://127.0.0.1:8080")],
            &[
                ("origin", "https://127.0.0.1:8080"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[("sec-fetch-site", "none")],
            &[
                ("origin", "https://app.example"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            assert_eq!(post(own), None, "{own:?}");
        }
        for foreign in [
            &[("origin", "null")][..],
            &[("origin", "")],
            &[("origin", "http://127.0.0.1")],
            &[("origin", "http://127.0.0.1:8081")],
            &[("origin", "http://localhost:8080")],
            &[("origin", "127.0.0.1:8080")],
            &[
                ("origin", "https://evil.example"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[
                ("origin", "http://127.0.0.1:8080"),
                ("sec-fetch-site", "same-site"),
            ],
            &[("origin", "http://127.0.0.1:8080"), ("origin", "null")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "")],
        ] {
            assert_eq!(post(foreign), Some("foreign-origin"), "{foreign:?}");
        }
        let evil = [host, ("origin", "https://evil.example")];
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(refusal(method, "/v1/ns/a/kv/x", &evil), None);
        }
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(
                refusal(method, "/admin/v1/tokens", &evil),
                Some("foreign-origin")
            );
        }
        // The admin API takes no part in what is listed for the data plane.
        let listed = [host, ("origin", "https://app.example")];
        assert_eq!(
            refusal(Method::POST, "/admin/v1/tokens", &listed),
            Some("foreign-origin")
        );
        assert_eq!(refusal(Method::POST, "/v1/ns/a/scan", &listed), None);
    }

    #[test]
    fn the_usual_port_may_be_said_or_left_out() {
        let own = |host, origin: &str| {
            is_own(
                &head(Method::PUT, "/", &[("host", host)]),
                origin.as_bytes(),
            )
        };
        assert!(
            own("kv.example", "https://KV.example") && own("kv.example:443", "https://kv.example")
        );
        assert!(
            own("kv.example", "http://kv.example:80")
                && !own("kv.example:443", "http://kv.example")
        );
        assert!(
            !own("kv.example", "https://kv.example.org") && !own("kv.example", "ftp://kv.example")
        );
        assert!(!own("kv.example", "é"));
    }
}
