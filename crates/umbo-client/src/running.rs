//! Requests that run now, and the end of one.

use reqwest::Method;
use umbo_api::path::percent_encode;
use umbo_api::running::{RunningList, RunningRequest};

use crate::client::Client;
use crate::error::Error;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

impl Client {
    /// Lists the requests that run on the dispatchers of the server's cluster. Needs the grant `observe` on every
    /// namespace.
    pub async fn running(&self) -> Result<Vec<RunningRequest>, Error> {
        let mut running = Vec::new();
        for one in self.ask_fleet("requests").await?.processes {
            let text = one.answer.filter(|_| one.status == Some(200));
            let list = text.map(|text| serde_json::from_str::<RunningList>(text.get()));
            let list = list.transpose().map_err(|error| Error::json(&error))?;
            running.extend(
                list.unwrap_or_default()
                    .requests
                    .into_iter()
                    .map(|request| {
                        let dispatcher = Some(one.process.about.name.clone());
                        RunningRequest {
                            dispatcher,
                            ..request
                        }
                    }),
            );
        }
        Ok(running)
    }

    /// Ends the requests of an id on the server that answers. Needs the grant `admin` on every namespace.
    pub async fn kill(&self, request_id: &str) -> Result<(), Error> {
        let id = percent_encode(request_id.as_bytes());
        let target = format!("/admin/v1/requests/{id}");
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::IfNotApplied);
        self.send(&request).await.map(drop)
    }
}
