//! Requests about loads.
//!
//! Routes: `loads`, `loads/{id}`, `loads/{id}/rejects`, `loads/{id}/seal` (`pause`, `resume`, `abort`) and
//! `loads/{id}/parts/{n}`. Parts are uploaded whole (PUT) or piece by piece (HEAD, PATCH), after the draft of the IETF
//! on resumable uploads, with one difference: the name of a part is the client's, so no request makes it.

use http::{HeaderMap, HeaderValue, Method, Uri};
use umbo_api::loads::{
    CONTENT_DIGEST, PART_NUMBER_MAX, REJECTS_LISTED_MAX, UPLOAD_COMPLETE, UPLOAD_OFFSET,
};
use umbo_control::ControlError;
use umbo_http::RequestError;
use umbo_http::cursor::CursorError;
use umbo_http::fields::parse_number;
use umbo_http::query::Query;
use umbo_loads::LoadError;
use umbo_loads::digest::{Sha256, content_digest};
use umbo_types::Operation;

use super::versions::VersionAsk;

/// Media type of a PATCH that names no type of the part.
const PARTIAL_UPLOAD: &str = "application/partial-upload";

/// A request about loads; bodies follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadAsk {
    /// Creates a load.
    Create,
    /// Lists the loads of the namespace.
    List,
    /// Describes a load.
    Describe {
        /// The load.
        id: String,
    },
    /// Lists the rejected rows of a load, page by page.
    Rejects {
        /// The load.
        id: String,
        /// Part and line of the last row of the page before; `None` for the first page.
        after: Option<(u16, u64)>,
        /// Most rows of the page.
        limit: u32,
    },
    /// Ends the upload of parts.
    Seal {
        /// The load.
        id: String,
    },
    /// Pauses a load.
    Pause {
        /// The load.
        id: String,
    },
    /// Resumes a load.
    Resume {
        /// The load.
        id: String,
    },
    /// Ends a load.
    Abort {
        /// The load.
        id: String,
        /// Whether the load stays as it is, and the answer only shows the result.
        dry_run: bool,
    },
    /// Returns the number of stored bytes of a part.
    PartOffset {
        /// The load.
        id: String,
        /// The part.
        number: u16,
    },
    /// Uploads a part, or a piece of one.
    Upload(UploadAsk),
    /// About the versions that loads have built.
    Versions(VersionAsk),
}

impl LoadAsk {
    /// Returns the operation of the data plane that does the same work, and has the same price.
    pub(crate) const fn priced_as(&self) -> Operation {
        match self {
            Self::List
            | Self::Describe { .. }
            | Self::Rejects { .. }
            | Self::PartOffset { .. }
            | Self::Versions(VersionAsk::List) => Operation::Range,
            Self::Create
            | Self::Seal { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::Abort { .. }
            | Self::Upload(_)
            | Self::Versions(_) => Operation::BatchWrite,
        }
    }
}

/// The upload of a part, or of a piece of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadAsk {
    /// The load.
    pub id: String,
    /// The part.
    pub number: u16,
    /// Position of the body; `None` if it is the whole part.
    pub piece: Option<Piece>,
    /// Media type; `None` if a piece names no type.
    pub content_type: Option<String>,
    /// Content coding; empty for none.
    pub coding: String,
    /// SHA-256 of the body, if the request has it.
    pub digest: Option<Sha256>,
}

/// Position of a piece in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes before it.
    pub offset: u64,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// Splits the path after `loads/`: the id, the resource under it, and the number of a part.
fn split(rest: &str) -> Option<(&str, &str, Option<&str>)> {
    let (id, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let is_id = |id: &str| {
        let is_own = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=64).contains(&id.len()) && id.bytes().all(is_own)
    };
    match rest.split_once('/') {
        _ if !is_id(id) => None,
        None => Some((id, rest, None)),
        Some(("parts", number)) if !number.contains('/') => Some((id, "parts", Some(number))),
        Some(_) => None,
    }
}

/// Returns the methods of a route below `loads`, or `None` if there is no such route.
pub(crate) fn methods(rest: Option<&str>) -> Option<&'static str> {
    let Some(rest) = rest else {
        return Some("GET, POST");
    };
    match split(rest)? {
        (_, "" | "rejects", None) if !rest.ends_with('/') => Some("GET"),
        (_, "seal" | "pause" | "resume" | "abort", None) => Some("POST"),
        (_, "parts", Some(_)) => Some("HEAD, PUT, PATCH"),
        _ => None,
    }
}

/// Decodes a request about loads; `rest` is the path after `loads/`.
pub(crate) fn decode(
    rest: &str,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<LoadAsk, RequestError> {
    let known = match rest.rsplit_once('/') {
        Some((_, "abort")) => "dry_run",
        Some((_, "rejects")) => "limit, cursor",
        _ => "",
    };
    let query = Query::read(uri.query(), known)?;
    if rest.is_empty() {
        return Ok(match *method {
            Method::POST => LoadAsk::Create,
            _ => LoadAsk::List,
        });
    }
    let (id, resource, number) = split(rest).ok_or(RequestError::RouteNotFound)?;
    let id = id.to_owned();
    Ok(match (resource, number) {
        ("", _) => LoadAsk::Describe { id },
        ("rejects", _) => LoadAsk::Rejects {
            id,
            after: query.text("cursor").map(after).transpose()?,
            limit: query
                .number("limit", 1..=REJECTS_LISTED_MAX, "a number from 1 to 1000")?
                .unwrap_or(REJECTS_LISTED_MAX) as u32,
        },
        ("seal", _) => LoadAsk::Seal { id },
        ("pause", _) => LoadAsk::Pause { id },
        ("resume", _) => LoadAsk::Resume { id },
        ("abort", _) => LoadAsk::Abort {
            id,
            dry_run: query.flag("dry_run")?,
        },
        (_, Some(text)) => {
            let number = text.parse::<u16>().ok();
            // A part has one path.
            let number =
                number.filter(|number| *number <= PART_NUMBER_MAX && number.to_string() == text);
            let number = number.ok_or_else(|| {
                let text = text.chars().take(16).collect();
                ControlError::from(LoadError::PartNumber(text))
            })?;
            if *method == Method::HEAD {
                LoadAsk::PartOffset { id, number }
            } else {
                upload(id, number, method, headers).map(LoadAsk::Upload)?
            }
        }
        _ => return Err(RequestError::RouteNotFound),
    })
}

/// Reads the cursor of a page of rejects.
fn after(cursor: &[u8]) -> Result<(u16, u64), RequestError> {
    let text = std::str::from_utf8(cursor).ok();
    let row = text.and_then(|text| text.split_once('-'));
    let row = row.and_then(|(part, line)| {
        Some((
            u16::try_from(parse_number(part)?).ok()?,
            parse_number(line)?,
        ))
    });
    row.ok_or(RequestError::BadCursor(CursorError::Forged))
}

/// Returns the path and query of the page of rejects after this row.
pub(crate) fn rejects_after(
    namespace: &str,
    id: &str,
    (part, line): (u16, u64),
    limit: u32,
) -> String {
    format!("/v1/ns/{namespace}/loads/{id}/rejects?cursor={part}-{line}&limit={limit}")
}

fn upload(
    id: String,
    number: u16,
    method: &Method,
    headers: &HeaderMap,
) -> Result<UploadAsk, RequestError> {
    let piece = if *method == Method::PATCH {
        Some(Piece {
            offset: offset(headers)?,
            is_last: is_complete(headers)?.unwrap_or(false),
        })
    } else if once(headers, UPLOAD_OFFSET)?.is_some() || is_complete(headers)? == Some(false) {
        return Err(RequestError::BadHeader {
            name: UPLOAD_OFFSET,
            expected: "no such header on PUT, which uploads a whole part; use PATCH for a piece",
        });
    } else {
        None
    };
    let text = |name: &'static str| {
        let value = headers.get(name).map(HeaderValue::to_str).transpose();
        value.map_err(|_| RequestError::BadHeader {
            name,
            expected: "visible ASCII",
        })
    };
    let content_type = text("content-type")?
        .filter(|sent| !(piece.is_some() && sent.eq_ignore_ascii_case(PARTIAL_UPLOAD)));
    let digest = match headers.get(CONTENT_DIGEST) {
        None => None,
        Some(field) => content_digest(field.as_bytes()).map_err(|_| RequestError::BadHeader {
            name: CONTENT_DIGEST,
            expected: "a digest (RFC 9530): sha-256=:BASE64:",
        })?,
    };
    Ok(UploadAsk {
        id,
        number,
        piece,
        content_type: content_type.map(str::to_owned),
        coding: text("content-encoding")?.unwrap_or_default().to_owned(),
        digest,
    })
}

/// Returns a header that may stand once.
fn once<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a HeaderValue>, RequestError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(RequestError::BadHeader {
            name,
            expected: "this header only once",
        }),
        (value, None) => Ok(value),
    }
}

fn offset(headers: &HeaderMap) -> Result<u64, RequestError> {
    let value = once(headers, UPLOAD_OFFSET)?.and_then(|value| value.to_str().ok());
    value.and_then(parse_number).ok_or(RequestError::BadHeader {
        name: UPLOAD_OFFSET,
        expected: "the number of bytes of the part before this piece",
    })
}

fn is_complete(headers: &HeaderMap) -> Result<Option<bool>, RequestError> {
    match once(headers, UPLOAD_COMPLETE)?.map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"?1") => Ok(Some(true)),
        Some(b"?0") => Ok(Some(false)),
        Some(_) => Err(RequestError::BadHeader {
            name: UPLOAD_COMPLETE,
            expected: "?1 or ?0",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(
        method: &Method,
        rest: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<LoadAsk, RequestError> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let uri: Uri = format!("/v1/ns/a/loads/{path}?{query}").parse().unwrap();
        decode(path, method, &uri, &headers)
    }

    #[test]
    fn routes_have_their_methods() {
        for (rest, allowed) in [
            (None, Some("GET, POST")),
            (Some("018b-1"), Some("GET")),
            (Some("018b-1/rejects"), Some("GET")),
            (Some("018b-1/seal"), Some("POST")),
            (Some("018b-1/parts/7"), Some("HEAD, PUT, PATCH")),
            (Some("018b-1/parts"), None),
            (Some("018b-1/parts/7/x"), None),
            (Some("018b-1/other"), None),
            (Some("018b-1/"), None),
            (Some("a%2Fb"), None),
            (Some(""), None),
        ] {
            assert_eq!(methods(rest), allowed, "{rest:?}");
        }
    }

    #[test]
    fn a_page_of_rejects_names_the_next_one() {
        let asked = |query: &str| decoded(&Method::GET, &format!("i-1/rejects{query}"), &[]);
        let page = |after, limit| {
            let id = "i-1".to_owned();
            LoadAsk::Rejects { id, after, limit }
        };
        assert_eq!(asked("").unwrap(), page(None, 1_000));
        let next = rejects_after("a", "i-1", (3, 70_000), 5);
        let (_, query) = next.split_at(next.find('?').unwrap());
        assert_eq!(asked(query).unwrap(), page(Some((3, 70_000)), 5));
        for bad in ["?limit=0", "?limit=1001", "?limit=x", "?other=1"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
        for bad in ["?cursor=x", "?cursor=1", "?cursor=70000-1", "?cursor="] {
            let code = asked(bad).unwrap_err().code();
            assert_eq!(code.as_str(), "invalid-cursor", "{bad}");
        }
    }

    #[test]
    fn numbers_of_parts_are_bounded() {
        for (number, is_good) in [
            ("0", true),
            ("9999", true),
            ("10000", false),
            ("-1", false),
            ("x", false),
            ("+7", false),
            ("07", false),
        ] {
            let asked = decoded(&Method::HEAD, &format!("i/parts/{number}"), &[]);
            assert_eq!(asked.is_ok(), is_good, "{number}: {asked:?}");
        }
    }

    #[test]
    fn a_piece_says_where_it_belongs() {
        let piece =
            |fields: &[(&'static str, &str)]| match decoded(&Method::PATCH, "i/parts/3", fields) {
                Ok(LoadAsk::Upload(ask)) => Ok((ask.piece, ask.content_type)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.code().as_str()),
            };
        let at = |offset, is_last| Some(Piece { offset, is_last });
        assert_eq!(piece(&[("upload-offset", "12")]), Ok((at(12, false), None)));
        let last = [
            ("upload-offset", "0"),
            ("upload-complete", "?1"),
            ("content-type", "text/csv"),
        ];
        assert_eq!(piece(&last), Ok((at(0, true), Some("text/csv".to_owned()))));
        let partial = [
            ("upload-offset", "0"),
            ("content-type", "application/partial-upload"),
        ];
        assert_eq!(piece(&partial), Ok((at(0, false), None)));
        for bad in ["", "-1", "+1", "1e3", "99999999999999999999"] {
            assert_eq!(
                piece(&[("upload-offset", bad)]),
                Err("invalid-header"),
                "{bad}"
            );
        }
        assert_eq!(piece(&[]), Err("invalid-header"));
        assert_eq!(
            piece(&[("upload-offset", "1"), ("upload-complete", "1")]),
            Err("invalid-header")
        );
        let uri = Uri::from_static("/v1/ns/a/loads/i/parts/3");
        for name in [UPLOAD_OFFSET, UPLOAD_COMPLETE] {
            let mut headers = HeaderMap::new();
            headers.insert(UPLOAD_OFFSET, HeaderValue::from_static("0"));
            headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static("?1"));
            headers.append(name, HeaderValue::from_static("5"));
            let twice = decode("i/parts/3", &Method::PATCH, &uri, &headers);
            let expected = format!("header '{name}'");
            assert!(twice.unwrap_err().to_string().starts_with(&expected));
        }
        let mut headers = HeaderMap::new();
        let coding = HeaderValue::from_bytes(b"\xff").unwrap();
        headers.insert("content-encoding", coding);
        let bad = decode("i/parts/3", &Method::PUT, &uri, &headers);
        let text = bad.unwrap_err().to_string();
        assert!(text.starts_with("header 'content-encoding'"), "{text}");
        let put = decoded(&Method::PUT, "i/parts/3", &[("upload-offset", "12")]);
        assert_eq!(put.unwrap_err().code().as_str(), "invalid-header");
        let put = decoded(
            &Method::PUT,
            "i/parts/3",
            &[("content-digest", "sha-256=x")],
        );
        assert_eq!(put.unwrap_err().code().as_str(), "invalid-header");
    }

    #[test]
    fn only_abort_has_a_dry_run() {
        let abort = decoded(&Method::POST, "i/abort?dry_run=true", &[]).unwrap();
        assert!(matches!(abort, LoadAsk::Abort { dry_run: true, .. }));
        let pause = decoded(&Method::POST, "i/pause?dry_run=true", &[]).unwrap_err();
        assert_eq!(pause.code().as_str(), "invalid-query");
    }
}
