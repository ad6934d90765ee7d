//! The nodes behind a dispatcher.

use umbo_api::cluster::ClusterStatus;

use crate::client::Client;
use crate::error::Error;
use crate::request::RepeatableRequest;

impl Client {
    /// Returns which nodes the dispatcher that answers works with, and which of them it reaches. Needs
    /// the grant `admin` on every namespace.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, Error> {
        self.send_for_json(&RepeatableRequest::read("/admin/v1/cluster".to_owned()))
            .await
    }
}
