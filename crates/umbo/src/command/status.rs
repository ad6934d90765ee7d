//! `umbo status`: the state of a server on one screen. Sends the requests of other commands, once, and keeps nothing.
//!
//! Shards, nodes, callers and counters need the permission `observe` on every namespace. Without it the screen
//! has the server and the namespaces of the token.

use std::time::Duration;

use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_api::admin::{NamespaceInfo, ShardInfo};
use umbo_api::cluster::NodeInfo;
use umbo_api::diagnosis::DiagnosisFinding;
use umbo_api::quota::{CallerList, CallerTotals};
use umbo_client::Client;
use umbo_quota::OTHERS;

use super::ns::uncounted;
use crate::cli_error::CliError;
use crate::clock::millis_ago;
use crate::connection::{ConnectionArgs, allowed, block_on};
use crate::history::RecentHistory;
use crate::output::{self, counted, rate, table};

/// Most namespaces and most callers of the screen; the largest are shown.
const LINES_MAX: usize = 8;
/// Interval whose requests are counted, and its words.
const RECENT: (Duration, &str) = (Duration::from_mins(5), "five minutes");
/// Words of a time that are shown, as in "3days 4h".
const TIME_WORDS: usize = 2;

/// The state of a server.
#[derive(Debug, Serialize)]
struct StatusReport {
    server: String,
    version: String,
    /// `ok`, `degraded`, `draining` or `unavailable`.
    status: String,
    /// Problems, one line each: the sentences of the findings, and what the namespaces wait for.
    problems: Vec<String>,
    /// The diagnosis of the server. Empty without the permission to see it.
    findings: Vec<DiagnosisFinding>,
    /// The largest first.
    namespaces: Vec<NamespaceInfo>,
    /// Absent without the permission to see it.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    inside: Option<Inside>,
}

/// The parts that only an administrator may see.
#[derive(Debug, Serialize)]
struct Inside {
    /// Seconds since the start of the process.
    uptime_s: u64,
    connections: u64,
    /// Whether requests without a token may do everything, because there is no token.
    is_open: bool,
    /// Requests of the last five minutes.
    requests: RequestCounts,
    shards: Vec<ShardInfo>,
    /// Empty if the shards are in the server's process.
    nodes: Vec<NodeInfo>,
    /// Totals since the start of the server, in descending order; [`LINES_MAX`] of them at most.
    callers: Vec<CallerTotals>,
    /// Number of all callers.
    callers_total: u64,
}

/// Requests of an interval.
#[derive(Debug, Serialize)]
struct RequestCounts {
    /// Length of the interval.
    seconds: u64,
    /// All of them.
    served: u64,
    rejected: u64,
    shed: u64,
    /// Mistakes of clients: bodies, keys, tokens or conditions that are not accepted.
    refused: u64,
    failed: u64,
}

/// Prints the status.
pub(crate) fn run(connection: &ConnectionArgs) -> Result<(), CliError> {
    let report = block_on(StatusReport::gather(connection))?;
    output::write_report(connection.listing_format(), &report, || {
        output::write_bytes(report.screen().as_bytes())
    })
}

impl StatusReport {
    async fn gather(connection: &ConnectionArgs) -> Result<Self, CliError> {
        let client = connection.client()?;
        let service = client.service().await?;
        let health = client.readiness().await?;
        let mut namespaces = client.namespaces().await?.namespaces;
        namespaces
            .sort_by_key(|info| std::cmp::Reverse(info.size.as_ref().map_or(0, |size| size.bytes)));
        let inside = Inside::gather(&client).await?;
        let (mut problems, mut findings) = (health.problems, Vec::new());
        if inside.is_some() {
            // The diagnosis has the reasons, the public readiness does not. Earlier versions have no such route.
            match client.diagnosis().await {
                Err(error) if error.code() == Some(ErrorCode::RouteNotFound) => {}
                diagnosis => {
                    findings = diagnosis?.findings;
                    problems = findings.iter().map(|one| one.sentence.clone()).collect();
                }
            }
        }
        problems.extend(uncounted(&namespaces));
        for info in &namespaces {
            let (name, shards) = (&info.name, output::joined(&info.waiting_for));
            if !shards.is_empty() {
                problems.push(format!("the removal of '{name}' waits for shards {shards}"));
            }
        }
        Ok(Self {
            server: connection.server(),
            version: service.version,
            status: health.status,
            problems,
            findings,
            namespaces,
            inside,
        })
    }

    fn screen(&self) -> String {
        let mut lines = vec![format!(
            "umbo {} at {}: {}{}",
            self.version,
            self.server,
            self.status,
            self.inside.as_ref().map_or_else(String::new, |inside| {
                let up = duration_words(inside.uptime_s);
                format!(", up {up}, {}", counted(inside.connections, "connection"))
            }),
        )];
        if self.problems.is_empty() {
            lines.push("nothing is wrong".to_owned());
        }
        for (number, problem) in self.problems.iter().enumerate() {
            lines.push(format!("! {problem}"));
            // The findings come first.
            lines.extend(self.findings.get(number).map(finding_line));
        }
        if let Some(inside) = &self.inside {
            lines.extend(inside.lines());
        }
        lines.push(String::new());
        lines.extend(table::first(
            "NAMESPACE  ROWS  BYTES",
            &self.namespaces,
            LINES_MAX,
            |info| {
                let size = info.size.as_ref();
                vec![
                    info.name.clone(),
                    output::or_empty(size.map(|size| size.rows)),
                    output::or_empty(size.map(|size| output::bytes(size.bytes))),
                ]
            },
        ));
        match &self.inside {
            Some(inside) => {
                lines.push(String::new());
                lines.extend(table::first(
                    "CALLER  RU",
                    &inside.callers,
                    LINES_MAX,
                    |one| vec![one.caller.clone(), rate(one.ru)],
                ));
                let more = inside
                    .callers_total
                    .saturating_sub(inside.callers.len() as u64);
                if more > 0 {
                    lines.push(format!("and {more} more"));
                }
            }
            None => lines.push(
                "shards, callers and counters need the permission observe on every namespace"
                    .to_owned(),
            ),
        }
        lines.join("\n") + "\n"
    }
}

impl Inside {
    /// Gathers the parts for an administrator. Returns `None` without the permission.
    async fn gather(client: &Client) -> Result<Option<Self>, CliError> {
        let Some(shards) = allowed(client.shards().await)? else {
            return Ok(None);
        };
        let shards = shards.shards;
        let nodes = client.cluster_status().await?.nodes;
        let tokens = client.tokens().await?.tokens;
        let fleet = client.fleet().await?.processes;
        let (callers, callers_total) = callers(client).await?;
        let series = "served rejected shed refused failed connections";
        let history = RecentHistory::ask(client, RECENT.0, series, 0).await?;
        let own = fleet.iter().find(|process| process.is_self);
        let started = Duration::from_millis(own.map_or(0, |own| own.about.started_ms));
        Ok(Some(Self {
            uptime_s: millis_ago(started) / 1_000,
            is_open: tokens.is_empty(),
            connections: whole(history.last("connections")),
            requests: RequestCounts::of(&history),
            shards,
            nodes,
            callers,
            callers_total,
        }))
    }

    fn lines(&self) -> Vec<String> {
        let of = &self.requests;
        let available = |shard: &&ShardInfo| shard.state == "available";
        let sum = |part: fn(&ShardInfo) -> u64| self.shards.iter().map(part).sum();
        let queued: u64 = sum(|shard| shard.queued);
        let mut lines = vec![
            format!(
                "{} in the last {}; {} rejected (quota), {} shed (overload), {} refused (invalid), {} failed",
                counted(of.served, "request"),
                RECENT.1,
                of.rejected,
                of.shed,
                of.refused,
                of.failed,
            ),
            format!(
                "{}, {} available: {} in {} of files; {} queued",
                counted(self.shards.len() as u64, "shard"),
                self.shards.iter().filter(available).count(),
                counted(sum(|shard| shard.rows), "row"),
                output::bytes(sum(|shard| shard.file_bytes)),
                counted(queued, "write"),
            ),
        ];
        if self.is_open {
            lines.push(
                "no token yet: every client that reaches the server may do everything".to_owned(),
            );
        }
        if !self.nodes.is_empty() {
            let reachable = self.nodes.iter().filter(|node| node.reachable).count();
            let nodes = counted(self.nodes.len() as u64, "shard node");
            lines.push(format!("{nodes}, {reachable} reachable"));
        }
        lines
    }
}

impl RequestCounts {
    fn of(history: &RecentHistory) -> Self {
        let total = |name| whole(history.sum(name) * history.seconds());
        let [rejected, shed, refused, failed] =
            ["rejected", "shed", "refused", "failed"].map(total);
        Self {
            seconds: whole(history.seconds()),
            served: total("served") + rejected + shed + refused + failed,
            rejected,
            shed,
            refused,
            failed,
        }
    }
}

/// Returns the callers that have used most, and the number of all of them.
async fn callers(client: &Client) -> Result<(Vec<CallerTotals>, u64), CliError> {
    // One more, because the sum of idle callers may be among them.
    let CallerList { mut callers, total } = client.callers(LINES_MAX as u64 + 1).await?;
    let asked = callers.len();
    callers.retain(|one| one.caller != OTHERS);
    let total = total.saturating_sub((asked - callers.len()) as u64);
    callers.truncate(LINES_MAX);
    Ok((callers, total))
}

/// Returns since when a finding stands, and what to do about it.
fn finding_line(finding: &DiagnosisFinding) -> String {
    // The two machines' clocks may differ.
    let since = millis_ago(Duration::from_millis(finding.since_ms)) / 1_000;
    format!("  for {}; {}", duration_words(since), finding.advice)
}

fn duration_words(seconds: u64) -> String {
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    let words: Vec<_> = text.split(' ').take(TIME_WORDS).collect();
    words.join(" ")
}

#[expect(
    clippy::cast_sign_loss,
    reason = "counts of requests and connections are not negative"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_has_two_words() {
        let words = [5, 3_700, 90_061].map(duration_words);
        assert_eq!(words, ["5s", "1h 1m", "1day 1h"]);
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        let lines = table::first("N", &[0; 11], LINES_MAX, |n| vec![n.to_string()]);
        assert_eq!((lines.len(), lines[9].as_str()), (10, "and 3 more"));
    }
}
