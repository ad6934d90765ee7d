//! A larger file as a load: its parts are sent over several connections and applied by the server while others are
//! sent, and the command waits for the end.
//!
//! The load keeps the progress of the import. If the command is run again after an interruption, it finds the load by
//! the file next to the input, and sends the parts that the server lacks. If the input is another file or has changed,
//! the old load is aborted. Rows that the server rejects are written to the file of failed rows.

use std::time::Instant;

use umbo_api::loads::{LoadInfo, LoadState, RejectLine};

use super::failed::{FailedFile, LineFailure};
use super::summary::Totals;
use crate::cli_error::CliError;
use crate::command::load::job::{LoadJob, Uploaded};
use crate::command::load::{report, watch};
use crate::connection::ConnectionArgs;
use crate::output::{Format, note};

/// Imports the file of a job. Rows that were rejected are in the file of failed rows then.
pub(super) async fn run(
    job: LoadJob<'_>,
    connection: &ConnectionArgs,
    failed: &mut FailedFile,
    started: Instant,
) -> Result<(String, Totals), CliError> {
    job.abort_other().await?;
    let load = job.begin().await?;
    let uploaded = if load.state.takes_parts() {
        job.upload(&load, started).await?
    } else {
        Uploaded::before(load)
    };
    let id = uploaded.load.id.clone();
    let ended = if uploaded.load.state.is_ended() {
        uploaded.load.clone()
    } else {
        // One document on stdout: the summary.
        watch::until_ended(job.client, job.ns, &id, Format::Table, uploaded.rows).await?
    };
    let totals = Totals {
        rows: ended.rows_applied,
        failed: ended.rows_rejected,
        skipped: ended.rows_skipped,
        bytes: job.pushed.files[0].bytes,
        charged_micros: 0,
    };
    if ended.rows_rejected > 0 {
        save_rejects(&job, &ended, &uploaded, failed).await?;
    }
    job.forget()?;
    if ended.state == LoadState::Live {
        return Ok((id, totals));
    }
    let format = connection.listing_format();
    totals.report(started.elapsed(), failed, Some(&id), format)?;
    Err(report::ended(&ended))
}

/// Writes the rows that a load has rejected to the file of failed rows, with their lines in the file.
async fn save_rejects(
    job: &LoadJob<'_>,
    load: &LoadInfo,
    uploaded: &Uploaded,
    failed: &mut FailedFile,
) -> Result<(), CliError> {
    let (client, ns) = (job.client, &load.namespace);
    let listed = || client.load_rejects(ns, &load.id);
    let mut rejects = job.patience.call(client, listed).await?;
    let (mut text, mut listed) = (Vec::new(), 0);
    while let Some(some) = rejects.next().await? {
        text.extend_from_slice(&some);
    }
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let reject: RejectLine = serde_json::from_slice(line)
            .map_err(|error| CliError::Incomplete(format!("a reject cannot be read: {error}")))?;
        let number = uploaded.line_of(reject.part, reject.line);
        let row = reject.text.or(reject.b64).unwrap_or_default();
        let reason = LineFailure::malformed(number, reject.reason);
        failed.push(&load.namespace, row.as_bytes(), &reason)?;
        listed += 1;
    }
    failed.flush()?;
    if listed < load.rows_rejected {
        note!(
            "the server lists the first {listed} of {} rejected rows",
            load.rows_rejected
        );
    }
    Ok(())
}
