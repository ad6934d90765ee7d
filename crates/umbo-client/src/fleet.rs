//! The dispatchers of a cluster, through any of them.

use serde::de::DeserializeOwned;
use umbo_api::fleet::{FleetAnswers, FleetList};
use umbo_api::path::percent_encode;
use umbo_api::why::RequestExplanation;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Lists the dispatchers of the server's cluster; a server with its store in its process is alone. Needs the
    /// grant `observe` on every namespace.
    pub async fn fleet(&self) -> Result<FleetList, Error> {
        self.read("/admin/v1/fleet").await
    }

    /// Asks every dispatcher of the server's cluster for a route of the admin API, without `/admin/v1/`. Each
    /// dispatcher refuses by itself if the caller may not see the route.
    pub async fn ask_fleet(&self, route: &str) -> Result<FleetAnswers, Error> {
        self.read(format!("/admin/v1/fleet/{route}")).await
    }

    /// Returns the newest record that any dispatcher has of a request id, or `None` if there is no record, and the
    /// dispatchers that did not answer, with the reasons. The dispatcher that answered the request recorded it.
    pub async fn why_anywhere(
        &self,
        request_id: &str,
    ) -> Result<(Option<RequestExplanation>, Vec<String>), Error> {
        let id = percent_encode(request_id.as_bytes());
        let answers = self.ask_fleet(&format!("why/{id}")).await?;
        let found = answers
            .processes
            .iter()
            .filter(|one| one.status == Some(200));
        let found =
            found.filter_map(|one| parsed::<RequestExplanation>(one.answer.as_deref()?.get()));
        Ok((found.max_by_key(|found| found.at_ms), answers.unreached()))
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
