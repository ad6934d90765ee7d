//! Observations of the past: the history of series, the heat map, and events.

use umbo_api::observe::{EventList, HeatReport, HeatRowReport, HistoryReport};
use umbo_api::path::percent_encode;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Returns the values of series of the server that answers, over `range` (`5m`, `1h`, `24h` or `30d`); all series
    /// if `series` is empty. Leaves out steps before the step of `since_ms` (milliseconds since the Unix epoch). Needs
    /// the grant `observe` on every namespace.
    pub async fn history(
        &self,
        range: &str,
        series: &[&str],
        since_ms: u64,
    ) -> Result<HistoryReport, Error> {
        let range = percent_encode(range.as_bytes());
        let mut target = format!("/admin/v1/history?range={range}&since_ms={since_ms}");
        if !series.is_empty() {
            target = target + "&series=" + &percent_encode(series.join(",").as_bytes());
        }
        self.read(target).await
    }

    /// Returns the events after `since`: the `next` of an earlier answer of any server of the cluster, or `0`. Without
    /// such events it waits for one, up to `wait_seconds`, 25 at most. Needs the grant `admin` on every namespace.
    pub async fn events(&self, since: &str, wait_seconds: u64) -> Result<EventList, Error> {
        let target = format!("/admin/v1/events?since={since}&wait={wait_seconds}");
        self.read(target).await
    }

    /// Returns the heat map of the server that answers, over `range` (`5m`, `1h`, `24h` or `30d`). Needs the grant
    /// `admin` on every namespace.
    pub async fn heat(&self, range: &str) -> Result<HeatReport, Error> {
        let target = format!("/admin/v1/heat?range={}", percent_encode(range.as_bytes()));
        self.read(target).await
    }

    /// Returns the details of a row of the heat map now. Needs the grant `admin` on every namespace.
    pub async fn heat_row(&self, row: &str) -> Result<HeatRowReport, Error> {
        let target = format!("/admin/v1/heat/{}", percent_encode(row.as_bytes()));
        self.read(target).await
    }
}
