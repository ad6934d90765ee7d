//! Follows a load until it has ended, or its version can be activated: with a bar on a terminal, and a line for each
//! change elsewhere.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use umbo_api::loads::{LoadInfo, LoadState, PartInfo};
use umbo_client::Client;
use umbo_types::Namespace;

use super::report;
use crate::cli_error::CliError;
use crate::command::kv::bar::{bar, rate_text, with_bar};
use crate::command::kv::patience::SharedPatience;
use crate::output::{self, Format, counted, note};

/// Longest time between two looks at a load.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time to the second look: a short load ends within it. Each later interval is longer by half.
const FIRST_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until the load has ended or waits for its activation, and returns it. After Ctrl-C the server continues the
/// load. `rows` is the approximate number of rows in the parts, if known.
pub(in crate::command) async fn until_ended(
    client: &Client,
    ns: &Namespace,
    id: &str,
    format: Format,
    rows: Option<u64>,
) -> Result<LoadInfo, CliError> {
    let bar = bar(None);
    let followed = follow(client, (ns, id), format, rows, &bar);
    let ended = with_bar(&bar, followed, || {}).await;
    if matches!(ended, Err(CliError::Interrupted)) {
        note!("load {id} goes on; to follow it: umbo load watch {ns} {id}");
    }
    let ended = ended?;
    match format {
        Format::Table => output::print_note(&describe(&ended, None)),
        Format::Json | Format::Ndjson => output::write_json(&ended)?,
    }
    Ok(ended)
}

async fn follow(
    client: &Client,
    (ns, id): (&Namespace, &str),
    format: Format,
    rows: Option<u64>,
    bar: &ProgressBar,
) -> Result<LoadInfo, CliError> {
    let patience = SharedPatience::new(PATIENCE);
    let (mut shown, mut interval) = (None, FIRST_INTERVAL);
    let mut state = None;
    // This style shows no bytes, which mean nothing here.
    set_style(bar, "{spinner} {msg}  {elapsed}");
    loop {
        let found = || client.load(ns.as_str(), id);
        let load = patience.call(client, found).await?;
        if load.state.is_ended() || load.state == LoadState::Ready && !load.activate {
            return Ok(load);
        }
        bar.set_position(load.rows_applied + load.rows_skipped + load.rows_rejected);
        // Checking, applying and reading back have different rates.
        if state.replace(load.state) != Some(load.state) {
            bar.reset_eta();
        }
        let all = total(&load, rows).map(|(all, _)| all);
        if let Some(all) = all.filter(|all| bar.length() != Some(*all)) {
            bar.set_length(all);
            set_style(bar, "{wide_bar} {percent}%  {msg}");
        }
        let line = describe(&load, rows);
        let rate = rate_text(bar, |rows| counted(rows, "row"));
        if bar.is_hidden() && shown.as_ref() != Some(&line) {
            show(format, &load, &format!("{line}{rate}"))?;
        }
        bar.set_message(format!("{line}{rate}"));
        shown = Some(line);
        interval = (interval * 3 / 2).min(INTERVAL);
        tokio::time::sleep(interval).await;
    }
}

fn show(format: Format, load: &LoadInfo, line: &str) -> Result<(), CliError> {
    match format {
        Format::Table => output::print_note(line),
        Format::Ndjson => output::write_json(load)?,
        // Only the last state is printed, as one document.
        Format::Json => {}
    }
    Ok(())
}

fn set_style(bar: &ProgressBar, template: &str) {
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
}

/// Returns the number of rows of a load, and whether it is exact: the count of the server, or else approximately the
/// lines of its files, the number that its creator expects, or an estimate by the bytes of the counted parts.
fn total(load: &LoadInfo, lines: Option<u64>) -> Option<(u64, bool)> {
    if let Some(counted) = load.rows_total {
        return Some((counted, true));
    }
    if let Some(about) = lines.or(load.expected_rows) {
        return Some((about, false));
    }
    let counted = load.parts.iter().filter(|part| part.rows.is_some());
    let bytes_of = |parts: &mut dyn Iterator<Item = &PartInfo>| {
        parts.map(|part| u128::from(part.bytes)).sum::<u128>()
    };
    let all = bytes_of(&mut load.parts.iter());
    let of_counted = bytes_of(&mut counted.clone());
    let rows: u64 = counted.filter_map(|part| part.rows).sum();
    let rows = (u128::from(rows) * all).checked_div(of_counted)?;
    let is_sealed = !load.state.takes_parts();
    is_sealed.then(|| (u64::try_from(rows).unwrap_or(u64::MAX), of_counted == all))
}

/// Returns the progress of a load as one line. `lines` is the approximate number of rows in the parts, if known.
pub(super) fn describe(load: &LoadInfo, lines: Option<u64>) -> String {
    let state = report::state(load);
    let rows = counted(load.rows_applied, "row");
    let of_all = match total(load, lines) {
        Some((all, is_exact)) if !load.state.is_ended() && all > load.rows_applied => {
            format!(" of {}{all}", if is_exact { "" } else { "about " })
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_load_are_counted_or_estimated_and_said_to_be_so() {
        let said = |state: &str, more: &str, lines| {
            let text = format!(
                r#"{{"id":"l","namespace":"n","mode":"replace","state":"{state}","as_of":1,"created_at":1,"created_by":"c",
                "rows_applied":10,"max_reject_ratio":0,"paused":false{more}}}"#
            );
            let line = describe(&serde_json::from_str(&text).unwrap(), lines);
            line.strip_prefix(&format!("load l: {state}, 10 rows applied"))
                .unwrap()
                .to_owned()
        };
        let part = |bytes: u64, rows: &str| {
            format!(r#"{{"number":0,"bytes":{bytes},"content_type":"a/b","complete":true{rows}}}"#)
        };
        let parts = |counted, rows| {
            let (one, other) = (part(counted, rows), part(300, ""));
            format!(r#","parts":[{one},{other}]"#)
        };
        assert_eq!(said("building", "", None), "");
        assert_eq!(said("building", r#","rows_total":25"#, Some(26)), " of 25");
        assert_eq!(
            said("building", r#","expected_rows":25"#, None),
            " of about 25"
        );
        assert_eq!(said("uploading", "", Some(26)), " of about 26");
        // A quarter of the bytes has 100 rows; more parts may come before the seal.
        let some = parts(100, r#","rows":100"#);
        assert_eq!(said("building", &some, None), " of about 400");
        assert_eq!(said("uploading", &some, None), "");
        assert_eq!(said("building", &parts(100, ""), None), "");
        assert_eq!(said("building", &parts(0, r#","rows":0"#), None), "");
    }
}
