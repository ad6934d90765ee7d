//! Scans: all rows of a namespace, in segments for parallel readers.

use reqwest::Method;
use umbo_api::batch::ScanBody;

use crate::client::Client;
use crate::error::Error;
use crate::page::PageReader;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

/// The part of a namespace to read, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Number of a segment, and the number of segments; `None` is the whole namespace.
    pub segment: Option<(u32, u32)>,
    /// Most rows, over all pages.
    pub limit: Option<u64>,
    /// Bytes at which the server ends a page; `None` is the default of the server.
    pub page_bytes: Option<u64>,
    /// Leave the values out.
    pub keys_only: bool,
    /// Number of the version to read; `None` is the live one.
    pub version: Option<u32>,
}

impl Client {
    /// Reads a namespace, or a segment of it. Nothing is sent before the first row is asked for.
    pub fn scan(&self, namespace: &str, options: ScanOptions) -> PageReader {
        let target = format!("/v1/ns/{namespace}/scan");
        let request = move |cursor: Option<&str>, limit: Option<u64>| {
            let body = ScanBody {
                segments: options.segment.map(|(_, segments)| segments),
                segment: options.segment.map(|(segment, _)| segment),
                limit,
                max_bytes: options.page_bytes,
                cursor: cursor.map(str::to_owned),
                keys_only: options.keys_only.then_some(true),
                version: options.version,
            };
            let body = serde_json::to_vec(&body).map_err(|error| Error::json(&error))?;
            Ok(
                RepeatableRequest::new(Method::POST, target.clone(), Repeat::Always)
                    .with_body("application/json", body),
            )
        };
        PageReader::new(self.clone(), options.limit, Box::new(request))
    }
}
