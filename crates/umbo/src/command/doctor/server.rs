//! Checks that ask the server: whether it answers, its version, its clock, its shards and nodes, its files.

use std::time::{Duration, SystemTime};

use umbo_api::diagnosis::{Diagnosis, FindingSeverity};
use umbo_api::fleet::FleetAnswers;
use umbo_client::Client;

use super::finding::Finding;
use crate::connection::{ConnectionArgs, allowed, process_metric};

/// Largest difference of clocks that is ignored: `Date` has whole seconds, and the answer takes time.
const CLOCK_CLOSE: Duration = Duration::from_secs(3);
/// Difference of clocks at which times to live, tokens and certificates go wrong noticeably.
const CLOCK_FAR: Duration = Duration::from_secs(30);
/// Percentage of the permitted open files above which the limit is near.
const FILES_NEAR_PERCENT: f64 = 90.0;

/// Checks the server that the connection names.
pub(super) async fn check(connection: &ConnectionArgs) -> Vec<Finding> {
    let asked = async {
        let client = connection.client()?;
        let (service, time) = client.service_and_time().await?;
        Ok::<_, crate::cli_error::CliError>((client, service, time))
    };
    let (client, service, time) = match asked.await {
        Ok(answer) => answer,
        Err(error) => {
            let found = format!("{}: {error}", connection.server());
            let advice = "start it, or name another one with --server; --offline leaves it out";
            return vec![Finding::problem("server", found, advice)];
        }
    };
    let mut findings = vec![version(&connection.server(), &service.version), clock(time)];
    findings.extend(readiness(&client).await);
    findings.extend(inside(&client).await);
    findings
}

fn version(server: &str, version: &str) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let is_other = version != own;
    let found = if is_other {
        format!("{server} runs umbo {version}, this program is {own}")
    } else {
        format!("{server} runs umbo {version}")
    };
    let advice = "use the program of the server's version: newer commands may not be known to it";
    Finding::judged("server", found, [false, is_other], advice)
}

fn clock(time: Option<SystemTime>) -> Finding {
    const ADVICE: &str =
        "synchronise both clocks (chrony, systemd-timesyncd): times to live and tokens go by them";
    let Some(time) = time else {
        return Finding::skipped("clock", "the answer has no Date");
    };
    let now = SystemTime::now();
    let apart = now
        .duration_since(time)
        .unwrap_or_else(|error| error.duration());
    if apart <= CLOCK_CLOSE {
        let found = "as the server's, to the seconds that can be compared";
        return Finding::ok("clock", found);
    }
    let found = format!("{} s from the server's", apart.as_secs());
    Finding::judged("clock", found, [apart >= CLOCK_FAR, true], ADVICE)
}

async fn readiness(client: &Client) -> Vec<Finding> {
    const ADVICE: &str = "see 'umbo status', 'umbo shard ls' and the server's log";
    let health = match client.readiness().await {
        Ok(health) => health,
        Err(error) => return vec![Finding::problem("ready", error.to_string(), ADVICE)],
    };
    if health.status == "ok" {
        return vec![Finding::ok("ready", "it takes requests")];
    }
    let found = format!("{}: {}", health.status, health.problems.join("; "));
    vec![Finding::problem("ready", found, ADVICE)]
}

/// Checks the parts that only an administrator or observer may see.
async fn inside(client: &Client) -> Vec<Finding> {
    let skipped = |error: String| vec![Finding::skipped("inside", error)];
    let metrics = match allowed(client.metrics().await) {
        Ok(Some(metrics)) => metrics,
        Ok(None) => {
            let needed = "shards, nodes and files need a token that may observe every namespace";
            return skipped(needed.to_owned());
        }
        Err(error) => return skipped(error.to_string()),
    };
    let mut findings = vec![server_files(&metrics)];
    match client.diagnosis().await {
        Ok(diagnosis) => findings.extend(diagnosed(&diagnosis)),
        Err(error) => findings.push(Finding::skipped("diagnosis", error.to_string())),
    }
    // Any route shows which dispatchers answer. A server alone has no others to reach.
    if let Ok(fleet) = client.ask_fleet("requests").await
        && fleet.processes.len() > 1
    {
        findings.push(dispatchers(&fleet));
    }
    findings
}

/// Returns the findings of the server itself.
fn diagnosed(diagnosis: &Diagnosis) -> Vec<Finding> {
    const CHECK: &str = "diagnosis";
    if diagnosis.findings.is_empty() {
        return vec![Finding::ok(CHECK, "it finds nothing wrong or unusual")];
    }
    let made = diagnosis.findings.iter().map(|one| {
        let is_problem = one.severity == FindingSeverity::Problem;
        let found = one.sentence.clone();
        Finding::judged(CHECK, found, [is_problem, true], &one.advice)
    });
    made.collect()
}

fn dispatchers(fleet: &FleetAnswers) -> Finding {
    const CHECK: &str = "other dispatchers";
    const ADVICE: &str = "let dispatchers reach its cluster.listen: firewall, cluster.advertise, a certificate with the name umbo-dispatcher";
    let unreached = fleet.unreached();
    if unreached.is_empty() {
        return Finding::ok(CHECK, "each one in the list answers it, or is away");
    }
    Finding::problem(CHECK, unreached.join("; "), ADVICE)
}

fn server_files(metrics: &str) -> Finding {
    const CHECK: &str = "server's files";
    let files = ["process_open_fds", "process_max_fds"].map(|name| process_metric(metrics, name));
    let [Some(open), Some(most)] = files else {
        return Finding::skipped(CHECK, "it does not tell");
    };
    let found = format!("{open:.0} open of {most:.0}");
    let is_near = open * 100.0 > most * FILES_NEAR_PERCENT;
    let advice = "raise its limit (LimitNOFILE), or look for clients that open many connections";
    Finding::judged(CHECK, found, [is_near, false], advice)
}
