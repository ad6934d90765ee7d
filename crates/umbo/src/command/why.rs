//! `umbo why …`: why a request was refused, failed or slow, and why a caller was refused lately. Needs the `observe`
//! permission on every namespace, except for the caller's own requests. Asks all dispatchers of the cluster, because
//! one of them answered the request, and then for the record that one wrote down before it ended.

use std::time::Duration;

use clap::Args;
use umbo_api::time_to_live;
use umbo_api::why::{AskedPolicy, RefusalReason, RequestExplanation};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing, note};

/// Width of the names in a list of facts.
const NAME_WIDTH: usize = 12;

/// Arguments of `umbo why`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the request, from the header Umbo-Request-Id of its answer
    #[arg(
        value_name = "REQUEST-ID",
        allow_hyphen_values = true,
        required_unless_present = "caller"
    )]
    request_id: Option<String>,
    /// Count the refusals of this caller instead, by reason
    #[arg(long, value_name = "CALLER", conflicts_with = "request_id")]
    caller: Option<String>,
    /// How far back refusals are counted, at most 1h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15m",
        value_parser = time_to_live::span,
        requires = "caller"
    )]
    last: Duration,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match (self.request_id, self.caller) {
            (Some(id), _) => block_on(request(connection, &id)),
            (None, caller) => {
                block_on(refusals(connection, &caller.unwrap_or_default(), self.last))
            }
        }
    }
}

async fn request(connection: &ConnectionArgs, id: &str) -> Result<(), CliError> {
    let client = connection.client()?;
    let (found, unreached) = client.why_anywhere(id).await?;
    output::note_unreached(&unreached);
    let found = match found {
        Some(found) => found,
        // The refusal says how long records are kept.
        None => client.why(id).await?,
    };
    output::write_report(connection.listing_format(), &found, || {
        output::write_bytes(facts(&found).as_bytes())?;
        if found.policies.is_empty() {
            return Ok(());
        }
        output::write_bytes(b"\n")?;
        Listing::new("POLICY  SCOPE  RATE  LEFT  COST  VERDICT")
            .with("RATE", |policy: &AskedPolicy| {
                format!("{} {}/s", policy.rate, policy.unit)
            })
            .with("LEFT", |policy| policy.balance.to_string())
            .write(Format::Table, &found.policies)
    })
}

fn facts(found: &RequestExplanation) -> String {
    let with = |value: Option<String>, more: Option<String>| {
        value.map(|value| value + &more.unwrap_or_default())
    };
    let phases = found.phases.iter();
    let phases = phases.map(|phase| format!("{} {} ms", phase.phase, phase.ms));
    let phases = phases.collect::<Vec<_>>().join(", ");
    let cost = found.estimate_ru.zip(found.actual_ru);
    let queue = found.queue.map(|queue| {
        let (waiting, taken, limit) = (queue.waiting, queue.in_flight, queue.limit);
        format!("{waiting} waited, {taken} of {limit} permits taken")
    });
    let status = found.status.map(|status| status.to_string());
    let code = found.code.as_ref().map(|code| format!(" {code}"));
    let shard = found.shard.map(|shard| shard.to_string());
    let node = found.node.as_ref().map(|node| format!(" on {node}"));
    let facts = [
        ("ended", Some(output::instant(Some(found.at_ms)))),
        ("outcome", Some(found.outcome.clone())),
        ("status", with(status, code)),
        ("tier", found.criticality.clone()),
        ("time", Some(format!("{} ms: {phases}", found.total_ms))),
        (
            "cost",
            cost.map(|(estimate, actual)| format!("{actual} RU, estimated {estimate}")),
        ),
        ("cache", found.cache.clone()),
        ("shard", with(shard, node)),
        ("attempts", found.attempts.map(|times| times.to_string())),
        ("queue", queue),
        (
            "pressure",
            found.pressure.map(|pressure| format!("{pressure:.2}")),
        ),
        (
            "kept by",
            found.kept.as_ref().map(|kept| {
                let at = output::instant(Some(kept.at_ms));
                let left_out = kept.left_out;
                format!("{}, {at}; {left_out} others were left out", kept.server)
            }),
        ),
    ];
    let facts = facts.into_iter();
    let lines = facts.filter_map(|(name, value)| Some(format!("{name:NAME_WIDTH$} {}\n", value?)));
    format!("{}\n\n{}", found.text, lines.collect::<String>())
}

async fn refusals(
    connection: &ConnectionArgs,
    caller: &str,
    last: Duration,
) -> Result<(), CliError> {
    let found = connection.client()?.why_refused(caller, last).await?;
    let format = connection.listing_format();
    if format != Format::Table {
        return output::write_json(&found);
    }
    Listing::new("COUNT  CODE  POLICY  SHARD  LAST  EXAMPLE")
        .with("LAST", |reason: &RefusalReason| {
            output::instant(Some(reason.last_at_ms))
        })
        .write(format, &found.reasons)?;
    for reason in &found.reasons {
        note!("{}: {}", reason.code, reason.text);
    }
    if found.reasons.is_empty() {
        let minutes = found.window_ms / 60_000;
        note!("caller '{caller}' was not refused in the last {minutes} minutes");
    }
    if found.kept > 0 {
        let kept = found.kept;
        note!("{kept} of them were by other servers, or before the one that answers started");
    }
    for gap in &found.notes {
        note!("{gap}");
    }
    Ok(())
}
