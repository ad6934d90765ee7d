//! Usage: request units spent on a namespace through this dispatcher, by caller, operation and
//! shard.
//!
//! Without the grant `admin` a caller sees its own rows, which are one look-up. Nothing is charged
//! for the answer.

use std::cmp::Reverse;
use std::sync::Arc;

use http::Uri;
use umbo_api::quota::{ShardUsage, UsageAnswer, UsageRow};
use umbo_control::NamespaceEntry;
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::{self, Route};
use umbo_http::{Answer, Fields, RequestError};
use umbo_quota::{Limiter, Tally, UsageReport};
use umbo_types::{NamespaceId, RequestUnits};

use super::Operate;
use super::body::RequestBody;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::reply::Reply;

/// A request for the usage of a namespace.
#[derive(Debug)]
pub(crate) struct Usage;

impl Operate for Usage {
    type Fetched = UsageReport;

    fn decode(_route: &Route<'_>, uri: &Uri, _fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::bare(uri)?;
        Ok(Self)
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        _body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        Ok(admitted.locate_nowhere())
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<UsageReport, RequestError> {
        if !located.identified().is_by_observer() {
            return Ok(UsageReport {
                rows: located.charge.own_usage(),
                ..UsageReport::default()
            });
        }
        // All accounts are looked at: not on a thread that serves requests.
        let quota = Arc::clone(&located.dispatcher.quota);
        let namespace = located.namespace_id();
        let report = tokio::task::spawn_blocking(move || of_namespace(&quota, namespace)).await;
        report.map_err(|error| RequestError::Internal(error.to_string()))
    }

    fn settle(self, report: UsageReport, located: &mut Located<'_>) -> Result<Reply, RequestError> {
        let answer = answer(located.namespace(), report);
        Ok(Answer::Usage(Box::new(answer)).into())
    }
}

fn of_namespace(quota: &Limiter, namespace: NamespaceId) -> UsageReport {
    let mut report = quota.usage();
    report.rows.retain(|row| row.namespace_id == namespace);
    report
        .shards
        .retain(|shard| shard.namespace_id == namespace);
    report
}

fn answer(namespace: &NamespaceEntry, mut report: UsageReport) -> UsageAnswer {
    report.rows.sort_by_key(|row| Reverse(row.tally.charged));
    let sum = |part: fn(&Tally) -> RequestUnits| {
        let parts = report.rows.iter().map(|row| part(&row.tally));
        parts
            .fold(RequestUnits::ZERO, RequestUnits::saturating_add)
            .as_f64()
    };
    let (all, penalty) = (sum(|tally| tally.charged), sum(|tally| tally.penalty));
    let shard = |usage: umbo_quota::NamespaceShardUsage| ShardUsage {
        shard: usage.shard.0,
        requests: usage.requests,
        ru: usage.charged.as_f64(),
    };
    UsageAnswer {
        namespace: namespace.info.name.clone(),
        ru: all,
        penalty,
        rows: report.rows.iter().map(row).collect(),
        shards: report.shards.into_iter().map(shard).collect(),
    }
}

/// Returns a row of a report of usage as an answer has it.
pub fn row(row: &umbo_quota::UsageLine) -> UsageRow {
    UsageRow {
        caller: row.caller.to_string(),
        operation: row.operation.as_str().to_owned(),
        requests: row.tally.requests,
        rejected: row.tally.rejected,
        ru: row.tally.charged.as_f64(),
        penalty: row.tally.penalty.as_f64(),
        rows: row.tally.rows,
        read_bytes: row.tally.read_bytes,
        write_bytes: row.tally.write_bytes,
    }
}
