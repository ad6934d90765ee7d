//! Follows a load until it has ended, or its version can be activated: a bar on a terminal, a line for each change elsewhere.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::ProgressStyle;
use umbo_api::loads::{LoadInfo, LoadState};
use umbo_client::Client;
use umbo_types::Namespace;

use super::report;
use crate::cli_error::CliError;
use crate::command::kv::bar::bar;
use crate::command::kv::patience::{Patience, is_temporary};
use crate::output::{self, Format, counted};
use crate::signals::Interrupts;

/// Longest time between two looks at a load.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time to the second look: a short load ends within it. Each time is half as long again as the one before.
const FIRST_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns the load as it is once nothing more happens to it by itself. Ctrl-C leaves it to the server. `rows` is about
/// how many rows its parts have, if that is known.
pub(in crate::command) async fn until_ended(
    client: &Client,
    ns: &Namespace,
    id: &str,
    format: Format,
    rows: Option<u64>,
) -> Result<LoadInfo, CliError> {
    let mut patience = Patience::new(PATIENCE);
    let (mut attempts, mut shown, mut interval) = (0, None, FIRST_INTERVAL);
    let mut interrupts = Interrupts::begin()?;
    let bar = bar(rows);
    // How many bytes there are says nothing here.
    let style = ProgressStyle::with_template(match rows {
        Some(_) => "{wide_bar} {percent}%  {msg}  {per_sec}  ETA {eta}",
        None => "{spinner} {msg}  {elapsed}",
    });
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let ended = loop {
        let asked = tokio::select! {
            asked = client.load(ns.as_str(), id) => asked,
            () = interrupts.next() => {
                bar.finish_and_clear();
                output::note(&format!("load {id} goes on; to follow it: umbo load watch {ns} {id}"));
                return Err(CliError::Interrupted);
            }
        };
        let wait = match asked {
            Ok(load) => {
                attempts = 0;
                patience.progress();
                if load.state.is_ended() || load.state == LoadState::Ready && !load.activate {
                    break load;
                }
                let line = describe(&load);
                if bar.is_hidden() && shown.as_ref() != Some(&line) {
                    show(format, &load, &line)?;
                }
                bar.set_message(line.clone());
                bar.set_position(load.rows_applied + load.rows_skipped + load.rows_rejected);
                shown = Some(line);
                interval = (interval * 3 / 2).min(INTERVAL);
                interval
            }
            Err(error) => {
                attempts += 1;
                let wait = error.retry_after();
                if !is_temporary(&error) || !patience.goes_on(attempts, wait, Instant::now()) {
                    bar.finish_and_clear();
                    return Err(error.into());
                }
                wait.unwrap_or_else(|| client.jitter(2 * INTERVAL))
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = interrupts.next() => {
                bar.finish_and_clear();
                output::note(&format!("load {id} goes on; to follow it: umbo load watch {ns} {id}"));
                return Err(CliError::Interrupted);
            }
        }
    };
    bar.finish_and_clear();
    match format {
        Format::Table => output::note(&describe(&ended)),
        Format::Json | Format::Ndjson => output::write_json(&ended)?,
    }
    Ok(ended)
}

fn show(format: Format, load: &LoadInfo, line: &str) -> Result<(), CliError> {
    match format {
        Format::Table => output::note(line),
        Format::Ndjson => output::write_json(load)?,
        // One document: the last.
        Format::Json => {}
    }
    Ok(())
}

/// Returns how far a load is, in a line.
pub(super) fn describe(load: &LoadInfo) -> String {
    let [_, state, ..] = &report::cells(load)[..] else {
        return String::new();
    };
    let rows = counted(load.rows_applied, "row");
    // Known of each part once it is counted.
    let all: Option<u64> = load.parts.iter().map(|part| part.rows).sum();
    let of_all = match all {
        Some(all) if !load.state.is_ended() && all > load.rows_applied => format!(" of {all}"),
        _ => String::new(),
    };
    let mut line = format!("load {}: {state}, {rows} applied{of_all}", load.id);
    for (number, what) in [
        (
            load.rows_skipped,
            "skipped: newer data is there, or they have expired",
        ),
        (load.rows_rejected, "rejected"),
    ] {
        if number > 0 {
            let _ = write!(line, ", {number} {what}");
        }
    }
    if let Some(reason) = &load.reason {
        let _ = write!(line, "; {reason}");
    }
    line
}
