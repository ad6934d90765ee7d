//! Answers to requests about loads.

use bytes::Bytes;
use http::header::{LINK, LOCATION};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use umbo_api::loads::{LoadInfo, LoadList, PartInfo, UPLOAD_COMPLETE, UPLOAD_OFFSET};
use umbo_api::versions::{VersionChange, VersionList};
use umbo_control::ControlError;
use umbo_edge::body::ReplyBody;
use umbo_http::{PlaneAnswer, RequestError};
use umbo_loads::LoadError;

/// The result of a request about loads.
#[derive(Debug)]
pub(crate) enum LoadAnswer {
    /// A load was created.
    Created(Box<LoadInfo>),
    /// A load as it is now.
    Load(Box<LoadInfo>),
    /// The loads of a namespace.
    List(LoadList),
    /// A part is whole.
    Part {
        /// The part.
        info: PartInfo,
        /// Whether this request made it whole.
        is_new: bool,
    },
    /// The stored bytes of a part.
    Offset {
        /// Bytes.
        offset: u64,
        /// Whether it is whole.
        is_complete: bool,
    },
    /// A page of rejected rows.
    Rejects {
        /// A line for each.
        lines: Bytes,
        /// Path and query of the next page. `None` for the last one.
        next: Option<String>,
    },
    /// The versions of a namespace.
    Versions(VersionList),
    /// A change of versions.
    VersionChange(VersionChange),
}

impl From<LoadAnswer> for PlaneAnswer {
    fn from(answer: LoadAnswer) -> Self {
        match answer {
            LoadAnswer::Created(info) => {
                let mut created = Self::json(&*info);
                let place = format!("/v1/ns/{}/loads/{}", info.namespace, info.id);
                if let Ok(place) = HeaderValue::try_from(place) {
                    created.headers.insert(LOCATION, place);
                }
                created.status = StatusCode::CREATED;
                created
            }
            LoadAnswer::Load(info) => Self::json(&*info),
            LoadAnswer::List(list) => Self::json(&list),
            LoadAnswer::Versions(list) => Self::json(&list),
            LoadAnswer::VersionChange(change) => Self::json(&change),
            LoadAnswer::Part { info, is_new } => {
                let mut part = Self::json(&info);
                if is_new {
                    part.status = StatusCode::CREATED;
                }
                part
            }
            LoadAnswer::Offset {
                offset,
                is_complete,
            } => {
                let mut empty = Self {
                    status: StatusCode::NO_CONTENT,
                    ..Self::default()
                };
                let complete = HeaderValue::from_static(if is_complete { "?1" } else { "?0" });
                let headers = &mut empty.headers;
                headers.insert(HeaderName::from_static(UPLOAD_OFFSET), offset.into());
                headers.insert(HeaderName::from_static(UPLOAD_COMPLETE), complete);
                empty
            }
            LoadAnswer::Rejects { lines, next } => {
                let mut page = Self::lines(lines);
                let link = next.map(|next| format!("<{next}>; rel=\"next\""));
                if let Some(Ok(link)) = link.map(HeaderValue::try_from) {
                    page.headers.insert(LINK, link);
                }
                page
            }
        }
    }
}

/// Adds the offset at which the upload is to continue to its refusal.
pub(crate) fn add_offset(response: &mut Response<ReplyBody>, kept: u64) {
    let name = HeaderName::from_static(UPLOAD_OFFSET);
    response.headers_mut().insert(name, kept.into());
}

/// Returns the offset at which an upload is to continue, if the upload was refused for its offset.
pub(crate) const fn kept_by(failure: &RequestError) -> Option<u64> {
    match failure {
        RequestError::Control(ControlError::Load(LoadError::Offset { kept, .. })) => Some(*kept),
        _ => None,
    }
}
