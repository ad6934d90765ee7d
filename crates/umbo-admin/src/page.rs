//! The operators' page: its files, which are part of the binary, and the headers that keep it to itself.
//!
//! The page uses the admin API of the server that it came from, and nothing else: its policy lets it load no
//! script, style or data from elsewhere, and lets no other page frame it. Its files hold no data, so that they
//! need no token; the routes that it reads do.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use umbo_edge::content_coding::weights;
use umbo_http::RequestError;
use xxhash_rust::xxh3::xxh3_64;

use crate::admin::PathText;
use crate::admin_error::AdminError;

/// What the page may do in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A file of the page.
struct PageFile {
    path: &'static str,
    bytes: &'static [u8],
}

/// Names files of the page, which are taken into the binary.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(PageFile { path: $path, bytes: include_bytes!(concat!("page/", $path)) }),*]
    };
}

const DOCUMENT: PageFile = PageFile {
    path: "index.html",
    bytes: include_bytes!("page/index.html"),
};

const FILES: [PageFile; 21] = files![
    "api.js",
    "app.css",
    "app.js",
    "chart.js",
    "dom.js",
    "fleet.js",
    "format.js",
    "history.js",
    "icon.svg",
    "live.js",
    "views/callers.js",
    "views/events.js",
    "views/heat.js",
    "views/hot.js",
    "views/loads.js",
    "views/overload.js",
    "views/overview.js",
    "views/policy_form.js",
    "views/quotas.js",
    "views/storage.js",
    "views/why.js",
];

/// Returns whether a client prefers a page to JSON: browsers name `text/html`, before anything else of its weight.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).into_iter().flat_map(weights);
    let best = accepted.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.is_some_and(|(kind, weight)| weight > 0.0 && kind.eq_ignore_ascii_case(b"text/html"))
}

/// Answers the page itself.
pub(crate) fn document(headers: &HeaderMap) -> Response {
    let mut response = answer(&DOCUMENT, headers);
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    response
}

pub(crate) async fn show(headers: HeaderMap) -> Response {
    document(&headers)
}

/// Answers a file of the page.
pub(crate) async fn file(
    PathText(path): PathText,
    headers: HeaderMap,
) -> Result<Response, AdminError> {
    let file = FILES.iter().find(|file| file.path == path);
    let file = file.ok_or(RequestError::RouteNotFound)?;
    Ok(answer(file, &headers))
}

fn answer(file: &PageFile, asked: &HeaderMap) -> Response {
    // Weak, because a compressed answer has the same tag.
    let tag = format!("W/\"{:016x}\"", xxh3_64(file.bytes));
    let is_known = asked
        .get(IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    let (status, body) = if is_known {
        (StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        (StatusCode::OK, Body::from(file.bytes))
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut insert = |name, value| headers.insert(name, HeaderValue::from_static(value));
    insert(CONTENT_TYPE, content_type(file.path));
    insert(CONTENT_SECURITY_POLICY, POLICY);
    insert(X_CONTENT_TYPE_OPTIONS, "nosniff");
    insert(REFERRER_POLICY, "no-referrer");
    // Kept by the browser, and asked for again: the next version of the server has other files.
    insert(CACHE_CONTROL, "no-cache");
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest size of all files together, in bytes.
    const SIZE_MAX: usize = 300_000;

    fn accept(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))])
    }

    #[test]
    fn browsers_get_the_page_and_everything_else_json() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert!(is_wanted(&accept(browser)) && is_wanted(&accept("text/html")));
        assert!(is_wanted(&accept("application/json;q=0.9, text/html")));
        for other in [
            "*/*",
            "application/json",
            "application/json, text/html",
            "text/html;q=0",
            "text/html;q=0.8, application/json;q=0.9",
            "",
        ] {
            assert!(!is_wanted(&accept(other)), "{other}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_small_and_names_nothing_outside() {
        let all: Vec<_> = FILES.iter().chain([&DOCUMENT]).collect();
        let size: usize = all.iter().map(|file| file.bytes.len()).sum();
        assert!(size <= SIZE_MAX, "{size} bytes");
        for file in all {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
            ] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.path);
            }
        }
    }

    #[test]
    fn every_module_that_is_imported_is_served() {
        for file in FILES
            .iter()
            .filter(|file| content_type(file.path).starts_with("text/javascript"))
        {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for (_, rest) in text
                .match_indices("from \"")
                .map(|(at, _)| text[at..].split_at(6))
            {
                let path = rest.split('"').next().unwrap();
                let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let path = match path.strip_prefix("../") {
                    Some(path) => path.to_owned(),
                    None if folder.is_empty() => path.trim_start_matches("./").to_owned(),
                    None => format!("{folder}/{}", path.trim_start_matches("./")),
                };
                assert!(
                    FILES.iter().any(|file| file.path == path),
                    "{}: {path}",
                    file.path
                );
            }
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = answer(&DOCUMENT, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[CONTENT_SECURITY_POLICY], POLICY);
        let tag = first.headers()[ETAG].clone();
        let again = answer(&DOCUMENT, &HeaderMap::from_iter([(IF_NONE_MATCH, tag)]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.headers().contains_key(CONTENT_SECURITY_POLICY));
    }
}
