//! Overload of a server: its shards, pressure and shed requests.

use umbo_api::shed::ShedStatus;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Returns how overloaded the server that answers is. Needs the grant `admin` on every namespace.
    pub async fn shed_status(&self) -> Result<ShedStatus, Error> {
        self.read("/admin/v1/shed").await
    }
}
