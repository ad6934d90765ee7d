//! Ranges of one partition: read in order, or removed.

use reqwest::Method;
use umbo_api::batch::DeleteRangeAnswer;
use umbo_api::path::{base64url, percent_encode};

use crate::client::Client;
use crate::error::Error;
use crate::page::PageReader;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

/// Which rows of a partition, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeOptions {
    /// First sort key, included.
    pub start: Option<Vec<u8>>,
    /// End of the sort keys, excluded.
    pub end: Option<Vec<u8>>,
    /// Common beginning of the sort keys.
    pub prefix: Option<Vec<u8>>,
    /// Highest sort key first.
    pub is_reverse: bool,
    /// Most rows, over all pages.
    pub limit: Option<u64>,
    /// Bytes at which the server ends a page; `None` is the default of the server.
    pub page_bytes: Option<u64>,
    /// Leave the values out.
    pub keys_only: bool,
}

/// Which rows of a partition to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteSelection {
    /// First sort key, included.
    pub start: Option<Vec<u8>>,
    /// End of the sort keys, excluded.
    pub end: Option<Vec<u8>>,
    /// Common beginning of the sort keys.
    pub prefix: Option<Vec<u8>>,
    /// The whole partition; the server refuses a removal without any bound otherwise.
    pub is_all: bool,
    /// Only return the rows and bytes that would be removed.
    pub dry_run: bool,
}

impl Client {
    /// Reads the rows of a partition in order. Nothing is sent before the first row is asked for.
    pub fn range(&self, namespace: &str, partition: &[u8], options: &RangeOptions) -> PageReader {
        let mut target = RangeTarget::new(namespace, partition);
        target.keys([
            ("start", &options.start),
            ("end", &options.end),
            ("prefix", &options.prefix),
        ]);
        target.flag("reverse", options.is_reverse);
        target.flag("keys_only", options.keys_only);
        if let Some(bytes) = options.page_bytes {
            target.parameter("max_bytes", &bytes.to_string());
        }
        let request = move |cursor: Option<&str>, limit: Option<u64>| {
            let mut target = target.clone();
            if let Some(limit) = limit {
                target.parameter("limit", &limit.to_string());
            }
            if let Some(cursor) = cursor {
                target.parameter("cursor", &percent_encode(cursor.as_bytes()));
            }
            Ok(RepeatableRequest::read(target.text))
        };
        PageReader::new(self.clone(), options.limit, Box::new(request))
    }

    /// Removes rows of a partition.
    pub async fn delete_range(
        &self,
        namespace: &str,
        partition: &[u8],
        selection: &DeleteSelection,
    ) -> Result<DeleteRangeAnswer, Error> {
        let mut target = RangeTarget::new(namespace, partition);
        target.keys([
            ("start", &selection.start),
            ("end", &selection.end),
            ("prefix", &selection.prefix),
        ]);
        target.flag("all", selection.is_all);
        target.flag("dry_run", selection.dry_run);
        let repeat = Repeat::always_if(selection.dry_run);
        self.change(Method::DELETE, target.text, repeat).await
    }
}

/// A path with its query, every key as base64url: any bytes pass through any proxy.
#[derive(Debug, Clone)]
struct RangeTarget {
    text: String,
}

impl RangeTarget {
    fn new(namespace: &str, partition: &[u8]) -> Self {
        let partition = base64url(partition);
        Self {
            text: format!("/v1/ns/{namespace}/range/{partition}?enc=b64u"),
        }
    }

    fn keys(&mut self, bounds: [(&str, &Option<Vec<u8>>); 3]) {
        for (name, key) in bounds {
            if let Some(key) = key {
                self.parameter(name, &base64url(key));
            }
        }
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.parameter(name, "true");
        }
    }

    fn parameter(&mut self, name: &str, value: &str) {
        for part in ["&", name, "=", value] {
            self.text.push_str(part);
        }
    }
}
