//! Hot keys: which they are, and the lists that operators keep of them. Needs the `admin` grant on
//! the namespace of the key.

use reqwest::{Method, StatusCode};
use umbo_api::hot::{
    BusyReport, HotList, HotListed, HotListingSpec, HotReport, id_target, row_target,
};

use crate::admin::json;
use crate::client::Client;
use crate::error::Error;
use crate::kv::Condition;
use crate::request::{RepeatableRequest, with_dry_run};
use crate::retry::Repeat;

/// A key to be put on a list or taken off it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotKeyRef<'a> {
    /// A row, by namespace, partition key and sort key.
    Row(&'a str, &'a [u8], &'a [u8]),
    /// Any key, by the id in [`Client::hot`].
    Id(&'a str),
}

impl HotKeyRef<'_> {
    fn target(self, list: HotList) -> String {
        match self {
            Self::Row(namespace, partition, sort) => row_target(list, namespace, partition, sort),
            Self::Id(id) => id_target(list, id),
        }
    }
}

impl Client {
    /// Lists the keys that are hot, pinned or blocked on the server that answers, and the state of its hot key shield.
    pub async fn hot(&self) -> Result<HotReport, Error> {
        self.read("/admin/v1/hot").await
    }

    /// Returns the sources that keep the shards of the server that answers busy, of one shard or all; now, or at a time
    /// in milliseconds since the Unix epoch. Needs the grant `observe` on every namespace.
    pub async fn busy(&self, shard: Option<u16>, at: Option<u64>) -> Result<BusyReport, Error> {
        let shard = shard.map(|shard| format!("shard={shard}"));
        let at = at.map(|at| format!("at={at}"));
        let query: Vec<String> = shard.into_iter().chain(at).collect();
        let target = format!("/admin/v1/hot/busy?{}", query.join("&"));
        self.read(target).await
    }

    /// Puts a key on a list if the condition holds for its entry there; the version of an entry is the time of its
    /// making (`at`). Without a condition, a key that has another entry is an error. A dry run changes nothing. The
    /// flag says whether the entry is new; a dry run does not tell that.
    pub async fn list_hot(
        &self,
        list: HotList,
        key: HotKeyRef<'_>,
        spec: &HotListingSpec,
        condition: Condition,
        dry_run: bool,
    ) -> Result<(HotListed, bool), Error> {
        let target = with_dry_run(key.target(list), dry_run);
        let request = RepeatableRequest::new(Method::PUT, target, Repeat::Always)
            .with_body("application/json", json(spec)?);
        let mut response = self.send(&condition.on(request)?).await?;
        let is_new = response.status() == StatusCode::CREATED;
        let body = self.body(&mut response).await?;
        let listed = serde_json::from_slice(&body).map_err(|error| Error::json(&error))?;
        Ok((listed, is_new))
    }

    /// Takes a key off a list; a key that is not on it is an error.
    pub async fn unlist_hot(&self, list: HotList, key: HotKeyRef<'_>) -> Result<(), Error> {
        let request =
            RepeatableRequest::new(Method::DELETE, key.target(list), Repeat::IfNotApplied);
        self.send(&request).await.map(drop)
    }

    /// Returns the metrics of the server that answers, as Prometheus reads them. Needs the grant
    /// `admin` on every namespace.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.read_text("/admin/v1/metrics").await
    }
}
