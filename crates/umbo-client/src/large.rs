//! Large values: sent and read in pieces, with constant memory.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::Response;
use reqwest::header::HeaderValue;
use ring::digest;
use umbo_api::ErrorCode;
use umbo_api::path::kv_target;

use crate::answer::text_header;
use crate::client::Client;
use crate::error::Error;
use crate::kv::{PutOptions, StoredValue, Written, put_request, stored, written};
use crate::request::RepeatableRequest;
use crate::value_source::ValueSource;

/// The bytes of a value as they come.
#[derive(Debug)]
pub struct ValueStream {
    client: Client,
    response: Response,
    value: StoredValue,
    /// SHA-256 of the bytes; the server sends it with large values.
    expected: Option<Vec<u8>>,
    sum: Option<ValueDigest>,
}

struct ValueDigest(digest::Context);

impl fmt::Debug for ValueDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestSum")
    }
}

impl ValueStream {
    /// Returns the value without its bytes.
    pub const fn value(&self) -> &StoredValue {
        &self.value
    }

    /// Returns the next bytes, or `None` at their end. The end is an error if the bytes of a large value do not match
    /// its digest.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let piece = self.client.chunk(&mut self.response).await?;
        match (&piece, &mut self.sum) {
            (Some(piece), Some(sum)) => sum.0.update(piece),
            (None, _) => {
                let sum = self.sum.take().map(|sum| sum.0.finish());
                if let (Some(sum), Some(expected)) = (sum, self.expected.take())
                    && sum.as_ref() != expected
                {
                    let reason = "its bytes do not match its digest";
                    return Err(Error::Malformed(reason.to_owned()));
                }
            }
            (Some(_), None) => {}
        }
        Ok(piece)
    }
}

impl Client {
    /// Stores a value that is sent in pieces, of up to 64 MiB. Otherwise like [`Client::put`]; but a failure makes no
    /// dead letter, because the sender has the bytes.
    pub async fn put_stream(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        source: &ValueSource,
        options: &PutOptions,
    ) -> Result<Written, Error> {
        let target = kv_target(namespace, partition, sort);
        let request = put_request(self, target, options)?;
        let mut request = request.with_header("content-length", HeaderValue::from(source.len()));
        request.source = Some(source.clone());
        written(&self.send(&request).await?)
    }

    /// Reads a row of any length in pieces; `None` if there is no row. A value is not requested again once its bytes
    /// come.
    pub async fn get_stream(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Option<ValueStream>, Error> {
        let request = RepeatableRequest::read(kv_target(namespace, partition, sort));
        let response = match self.send(&request).await {
            Ok(response) => response,
            Err(error) if error.code() == Some(ErrorCode::KeyNotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let headers = response.headers();
        let expected = text_header(headers, "content-digest").and_then(|field| {
            let encoded = field.strip_prefix("sha-256=:")?.strip_suffix(':')?;
            STANDARD.decode(encoded).ok()
        });
        let value = stored(headers, Bytes::new())?;
        Ok(Some(ValueStream {
            client: self.clone(),
            response,
            value,
            sum: expected
                .is_some()
                .then(|| ValueDigest(digest::Context::new(&digest::SHA256))),
            expected,
        }))
    }
}
