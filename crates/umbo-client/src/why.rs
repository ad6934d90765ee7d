//! Why requests were refused or slow: the records of the server that answers.

use std::time::Duration;

use umbo_api::path::percent_encode;
use umbo_api::why::{CallerRefusals, RequestExplanation};

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Returns what the server recorded of a request, by its id. Needs the grant `admin` on every namespace.
    pub async fn why(&self, request_id: &str) -> Result<RequestExplanation, Error> {
        let id = percent_encode(request_id.as_bytes());
        self.read(format!("/admin/v1/why/{id}")).await
    }

    /// Returns why a caller was refused in the last time, at most an hour, in whole seconds. Needs the grant
    /// `admin` on every namespace.
    pub async fn why_refused(&self, caller: &str, last: Duration) -> Result<CallerRefusals, Error> {
        let caller = percent_encode(caller.as_bytes());
        let last = last.as_secs();
        self.read(format!("/admin/v1/why?caller={caller}&last={last}s"))
            .await
    }
}
