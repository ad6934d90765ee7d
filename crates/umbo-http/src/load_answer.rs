//! Answers to requests about loads.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use umbo_api::loads::{LoadInfo, LoadList, PartInfo, UPLOAD_COMPLETE, UPLOAD_OFFSET};
use umbo_api::versions::{VersionChange, VersionList};
use umbo_control::ControlError;
use umbo_edge::body::ReplyBody;
use umbo_loads::LoadError;

use crate::representation::confine;
use crate::request_error::RequestError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// What a request about loads came to.
#[derive(Debug)]
pub enum LoadAnswer {
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
        /// Whether it was not before.
        is_new: bool,
    },
    /// What is kept of a part.
    Offset {
        /// Bytes.
        offset: u64,
        /// Whether it is whole.
        is_complete: bool,
    },
    /// Rejected rows, a line each.
    Rejects(Bytes),
    /// The versions of a namespace.
    Versions(VersionList),
    /// What was changed of them.
    VersionChange(VersionChange),
}

impl LoadAnswer {
    /// Returns the bytes of the body that are held for it.
    pub const fn held_len(&self) -> usize {
        match self {
            Self::Rejects(lines) => lines.len(),
            Self::Created(_)
            | Self::Load(_)
            | Self::List(_)
            | Self::Versions(_)
            | Self::VersionChange(_)
            | Self::Part { .. }
            | Self::Offset { .. } => 0,
        }
    }
}

/// Writes an answer, and returns its status.
pub(crate) fn encode(response: &mut Response<ReplyBody>, answer: LoadAnswer) -> StatusCode {
    match answer {
        LoadAnswer::Created(info) => {
            let place = format!("/v1/ns/{}/loads/{}", info.namespace, info.id);
            if let Ok(place) = HeaderValue::try_from(place) {
                response.headers_mut().insert(LOCATION, place);
            }
            json(response, &*info);
            StatusCode::CREATED
        }
        LoadAnswer::Load(info) => json(response, &*info),
        LoadAnswer::List(list) => json(response, &list),
        LoadAnswer::Versions(list) => json(response, &list),
        LoadAnswer::VersionChange(change) => json(response, &change),
        LoadAnswer::Part { info, is_new } => {
            json(response, &info);
            if is_new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            }
        }
        LoadAnswer::Offset {
            offset,
            is_complete,
        } => {
            let headers = response.headers_mut();
            headers.insert(HeaderName::from_static(UPLOAD_OFFSET), offset.into());
            let complete = HeaderValue::from_static(if is_complete { "?1" } else { "?0" });
            headers.insert(HeaderName::from_static(UPLOAD_COMPLETE), complete);
            StatusCode::NO_CONTENT
        }
        LoadAnswer::Rejects(lines) => {
            full(response, NDJSON, lines);
            StatusCode::OK
        }
    }
}

/// Adds what a refusal says of an upload: where it is to continue.
pub(crate) fn add_offset(response: &mut Response<ReplyBody>, failure: &RequestError) {
    if let RequestError::Control(ControlError::Load(LoadError::Offset { kept, .. })) = failure {
        let name = HeaderName::from_static(UPLOAD_OFFSET);
        response.headers_mut().insert(name, (*kept).into());
    }
}

fn json(response: &mut Response<ReplyBody>, answer: &impl serde::Serialize) -> StatusCode {
    let mut text = serde_json::to_vec(answer).expect("an answer is numbers and texts");
    text.push(b'\n');
    full(response, JSON, text.into());
    StatusCode::OK
}

fn full(response: &mut Response<ReplyBody>, content_type: HeaderValue, bytes: Bytes) {
    confine(response.headers_mut());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    *response.body_mut() = ReplyBody::Full(bytes);
}
