//! The payer of a request, if it is not the caller: a proxy calls for others.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use umbo_api::header;

use crate::error::Error;

/// The payer; absent fields are the caller's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Payer<'a> {
    /// Caller whose quotas count, 1 to 64 characters of `[A-Za-z0-9._-]`.
    pub quota_user: Option<&'a str>,
    /// User that the request is made for.
    pub user: Option<&'a str>,
    /// Session that the request belongs to.
    pub session: Option<&'a str>,
    /// Organisation that the request is made for.
    pub org: Option<&'a str>,
}

impl Payer<'_> {
    pub(crate) fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::QUOTA_USER, self.quota_user),
            (header::USER, self.user),
            (header::SESSION, self.session),
            (header::ORG, self.org),
        ] {
            if let Some(value) = value {
                let value = HeaderValue::from_str(value)
                    .map_err(|_| Error::BadOption("a payer is named in visible ASCII"))?;
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(headers)
    }
}
