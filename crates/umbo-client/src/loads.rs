//! Loads: datasets that are uploaded in parts and applied by the server.
//!
//! Owns the calls. A second send of any call but the creation has the same effect as one, so they are repeated like
//! reads. A part is sent whole, or continued after the bytes that the server has kept of it. The caller decides how a
//! file is cut.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Response};
use ring::digest::{SHA256, digest};
use umbo_api::loads::{
    CONTENT_DIGEST, LoadInfo, LoadList, LoadSpec, PartInfo, SealBody, UPLOAD_COMPLETE,
    UPLOAD_OFFSET,
};
use umbo_api::path::percent_encode;

use crate::admin::json;
use crate::answer::{number_header, text_header};
use crate::client::Client;
use crate::error::Error;
use crate::request::{RepeatableRequest, with_dry_run};
use crate::retry::Repeat;

/// A part to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadPart {
    /// Number of the part, from 0.
    pub number: u16,
    /// Media type of its rows.
    pub content_type: HeaderValue,
    /// Content coding; `None` for plain bytes.
    pub coding: Option<&'static str>,
    /// Bytes of the part as they are sent, 256 MiB at most.
    pub body: Bytes,
    /// SHA-256 of the bytes.
    sha256: [u8; 32],
}

impl LoadPart {
    /// Makes a part. A media type that no header can have is sent as application/octet-stream.
    pub fn new(number: u16, content_type: &str, coding: Option<&'static str>, body: Bytes) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, &body).as_ref());
        Self {
            number,
            content_type: HeaderValue::from_str(content_type)
                .unwrap_or(HeaderValue::from_static("application/octet-stream")),
            coding,
            body,
            sha256,
        }
    }

    /// Returns the SHA-256 in hexadecimal, as [`PartInfo`] has it.
    pub fn sha256(&self) -> String {
        let digits = self.sha256.iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    fn request(&self, method: Method, target: String) -> RepeatableRequest {
        let mut request = RepeatableRequest::new(method, target, Repeat::Always);
        // An upload of a part writes no rows: those are charged when they are applied.
        request.is_write = false;
        if let Some(coding) = self.coding {
            request = request.with_header("content-encoding", HeaderValue::from_static(coding));
        }
        request
    }
}

/// How much of a part the server has kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOffset {
    /// Bytes that are kept.
    pub kept: u64,
    /// Whether that is all of them.
    pub is_complete: bool,
}

impl PartOffset {
    fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let kept = number_header(headers, UPLOAD_OFFSET);
        let kept = kept.ok_or_else(|| Error::Malformed("it has no Upload-Offset".to_owned()))?;
        let complete = text_header(headers, UPLOAD_COMPLETE);
        Ok(Self {
            kept,
            is_complete: complete.as_deref() == Some("?1"),
        })
    }
}

/// The rejected rows of a load, read page by page.
#[derive(Debug)]
pub struct Rejects {
    client: Client,
    response: Response,
    /// Path and query of the next page.
    next: Option<String>,
}

impl Rejects {
    /// Returns the next bytes of the lines, or `None` at their end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let chunk = self.client.chunk(&mut self.response).await?;
            if chunk.is_some() {
                return Ok(chunk);
            }
            let Some(next) = self.next.take() else {
                return Ok(None);
            };
            *self = self.client.rejects_at(next).await?;
        }
    }
}

/// Reads the target of the next page.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let link = text_header(headers, "link")?;
    let (next, _) = link.strip_prefix('<')?.split_once(">; rel=\"next\"")?;
    Some(next.to_owned())
}

impl Client {
    /// Creates a load, or returns the load that this caller has created with the same key, without its parts. A key is
    /// 1 to 255 visible ASCII characters ([`Self::new_idempotency_key`] makes one). The server remembers it while the
    /// load exists.
    pub async fn create_load(
        &self,
        namespace: &str,
        spec: &LoadSpec,
        key: &str,
    ) -> Result<LoadInfo, Error> {
        let header = HeaderValue::try_from(key)
            .map_err(|_| Error::BadOption("the idempotency key cannot be a header value"))?;
        let request = RepeatableRequest::new(Method::POST, target(namespace, ""), Repeat::Always)
            .with_body("application/json", json(spec)?);
        self.send_for_json(&request.keyed(header)).await
    }

    /// Lists the loads of a namespace, without their parts.
    pub async fn loads(&self, namespace: &str) -> Result<LoadList, Error> {
        self.read(target(namespace, "")).await
    }

    /// Lists the loads of all namespaces, without their parts. Needs the grant `observe` on every namespace.
    pub async fn all_loads(&self) -> Result<LoadList, Error> {
        self.read("/admin/v1/loads").await
    }

    /// Describes a load.
    pub async fn load(&self, namespace: &str, id: &str) -> Result<LoadInfo, Error> {
        self.read(target(namespace, &load_path(id))).await
    }

    /// Sends a part whole. If the connection breaks, the server keeps the bytes that have arrived;
    /// [`Self::load_part_offset`] returns their number, and [`Self::continue_load_part`] sends the rest.
    pub async fn put_load_part(
        &self,
        namespace: &str,
        id: &str,
        part: &LoadPart,
    ) -> Result<PartInfo, Error> {
        let request = part.request(Method::PUT, part_target(namespace, id, part.number));
        let digest = format!("sha-256=:{}:", STANDARD.encode(part.sha256));
        let digest = HeaderValue::try_from(digest).expect("base64 is a header value");
        let request = request
            .with_body_of(part.content_type.clone(), part.body.clone())
            .with_header(CONTENT_DIGEST, digest);
        self.send_for_json(&request).await
    }

    /// Returns how much of a part is kept; `None` if nothing is kept, or the load does not exist.
    pub async fn load_part_offset(
        &self,
        namespace: &str,
        id: &str,
        number: u16,
    ) -> Result<Option<PartOffset>, Error> {
        let target = part_target(namespace, id, number);
        let request = RepeatableRequest::new(Method::HEAD, target, Repeat::Always);
        match self.send(&request).await {
            Ok(response) => PartOffset::of(response.headers()).map(Some),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends the rest of a part, from `offset` to its end. Refused with `offset-mismatch` if the server has kept
    /// another number of bytes.
    pub async fn continue_load_part(
        &self,
        namespace: &str,
        id: &str,
        part: &LoadPart,
        offset: u64,
    ) -> Result<PartOffset, Error> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        if from > part.body.len() {
            return Err(Error::BadOption("the offset is beyond the end of the part"));
        }
        let request = part
            .request(Method::PATCH, part_target(namespace, id, part.number))
            .with_body_of(part.content_type.clone(), part.body.slice(from..))
            .with_header(UPLOAD_OFFSET, HeaderValue::from(offset))
            .with_header(UPLOAD_COMPLETE, HeaderValue::from_static("?1"));
        PartOffset::of(self.send(&request).await?.headers())
    }

    /// Seals a load: its parts are those with numbers below `parts`, and it is to be applied.
    pub async fn seal_load(
        &self,
        namespace: &str,
        id: &str,
        parts: u32,
    ) -> Result<LoadInfo, Error> {
        let target = target(namespace, &format!("{}/seal", load_path(id)));
        let request = RepeatableRequest::new(Method::POST, target, Repeat::Always)
            .with_body("application/json", json(&SealBody { parts })?);
        self.send_for_json(&request).await
    }

    /// Stops the work of a load until it is resumed.
    pub async fn pause_load(&self, namespace: &str, id: &str) -> Result<LoadInfo, Error> {
        self.change_load(namespace, id, "pause").await
    }

    /// Resumes a paused load.
    pub async fn resume_load(&self, namespace: &str, id: &str) -> Result<LoadInfo, Error> {
        self.change_load(namespace, id, "resume").await
    }

    /// Ends a load; applied rows stay. A dry run changes nothing, and returns the load as it would be.
    pub async fn abort_load(
        &self,
        namespace: &str,
        id: &str,
        is_dry_run: bool,
    ) -> Result<LoadInfo, Error> {
        self.change_load(namespace, id, &with_dry_run("abort".to_owned(), is_dry_run))
            .await
    }

    /// Returns the rows of a load that were rejected: lines of `RejectLine`.
    pub async fn load_rejects(&self, namespace: &str, id: &str) -> Result<Rejects, Error> {
        let target = target(namespace, &format!("{}/rejects", load_path(id)));
        self.rejects_at(target).await
    }

    async fn rejects_at(&self, target: String) -> Result<Rejects, Error> {
        let response = self.send(&RepeatableRequest::read(target)).await?;
        Ok(Rejects {
            client: self.clone(),
            next: next_page(response.headers()),
            response,
        })
    }

    async fn change_load(
        &self,
        namespace: &str,
        id: &str,
        action: &str,
    ) -> Result<LoadInfo, Error> {
        let target = target(namespace, &format!("{}/{action}", load_path(id)));
        self.change(Method::POST, target, Repeat::Always).await
    }
}

fn target(namespace: &str, rest: &str) -> String {
    format!("/v1/ns/{namespace}/loads{rest}")
}

fn load_path(id: &str) -> String {
    format!("/{}", percent_encode(id.as_bytes()))
}

fn part_target(namespace: &str, id: &str, number: u16) -> String {
    target(namespace, &format!("{}/parts/{number}", load_path(id)))
}
