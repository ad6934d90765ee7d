//! The nodes behind a dispatcher.

use umbo_api::cluster::ClusterStatus;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Returns which nodes the dispatcher that answers works with, and which of them it reaches. Needs
    /// the grant `admin` on every namespace.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, Error> {
        self.read("/admin/v1/cluster").await
    }
}
