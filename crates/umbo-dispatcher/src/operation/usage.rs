//! Usage: what was spent on a namespace through this pod, by caller, operation and shard.
//!
//! Without the grant `admin` a caller sees its own rows, which are one look-up. Nothing is charged
//! for the answer.

use std::cmp::Reverse;
use std::sync::Arc;

use umbo_api::quota::{ShardUsage, UsageAnswer, UsageRow};
use umbo_quota::{Limiter, UsageReport};
use umbo_types::{NamespaceId, RequestUnits};

use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;

pub(crate) async fn fetch(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    exchange: &Exchange,
) -> Result<Answer, Failure> {
    let report = if exchange.is_by_admin() {
        // All accounts are looked at: not on a thread that serves requests.
        let (quota, id) = (Arc::clone(&pod.quota), namespace.id);
        let report = tokio::task::spawn_blocking(move || of_namespace(&quota, id)).await;
        report.map_err(|error| Failure::Internal(error.to_string()))?
    } else {
        UsageReport {
            rows: exchange.own_usage()?,
            ..UsageReport::default()
        }
    };
    Ok(Answer::Usage(Box::new(answer(namespace, report))))
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
    let charged = report.rows.iter().map(|row| row.tally.charged);
    let all = charged.fold(RequestUnits::ZERO, RequestUnits::saturating_add);
    let row = |row: umbo_quota::UsageRow| UsageRow {
        caller: row.caller.to_string(),
        operation: row.operation.as_str().to_owned(),
        requests: row.tally.requests,
        rejected: row.tally.rejected,
        ru: row.tally.charged.as_f64(),
        rows: row.tally.rows,
        read_bytes: row.tally.read_bytes,
        write_bytes: row.tally.write_bytes,
    };
    let shard = |usage: umbo_quota::ShardUsage| ShardUsage {
        shard: usage.shard.0,
        requests: usage.requests,
        ru: usage.charged.as_f64(),
    };
    UsageAnswer {
        namespace: namespace.info.name.clone(),
        ru: all.as_f64(),
        rows: report.rows.into_iter().map(row).collect(),
        shards: report.shards.into_iter().map(shard).collect(),
    }
}
