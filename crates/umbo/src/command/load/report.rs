//! A load for people, and the exit code that its end has.

use umbo_api::loads::{LoadInfo, LoadState};

use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output;

/// The columns of a load.
pub(super) const HEADER: &str =
    "ID  STATE  MODE  PARTS  ROWS  APPLIED  SKIPPED  REJECTED  CREATED  REASON";

/// Returns the cells of a load.
pub(super) fn cells(load: &LoadInfo) -> Vec<String> {
    let state = if load.paused {
        format!("{} (paused)", load.state)
    } else {
        load.state.to_string()
    };
    let parts = match load.parts.len() {
        0 => "-".to_owned(),
        parts => parts.to_string(),
    };
    vec![
        load.id.clone(),
        state,
        format!("{:?}", load.mode).to_lowercase(),
        parts,
        all_rows(load).map_or_else(|| "-".to_owned(), |rows| rows.to_string()),
        load.rows_applied.to_string(),
        load.rows_skipped.to_string(),
        load.rows_rejected.to_string(),
        output::instant(Some(load.created_at)),
        load.reason.clone().unwrap_or_default(),
    ]
}

/// Returns how many rows a load has, as counted or as its creator expects; `None` if it is not known.
pub(super) fn all_rows(load: &LoadInfo) -> Option<u64> {
    load.rows_total.or(load.expected_rows)
}

/// Prints a load.
pub(super) fn write(connection: &ConnectionArgs, load: &LoadInfo) -> Result<(), CliError> {
    output::write_one(connection.listing_format(), load, HEADER, cells)
}

/// Returns the error of a load that has ended otherwise than with all its rows.
pub(super) fn outcome(load: &LoadInfo) -> Result<(), CliError> {
    let (ns, id) = (&load.namespace, &load.id);
    match load.state {
        LoadState::Failed | LoadState::Aborted => Err(CliError::LoadEnded {
            id: id.clone(),
            state: load.state,
            reason: load.reason.clone().unwrap_or_default(),
        }),
        _ if load.rows_rejected > 0 => Err(CliError::Partial {
            failed: load.rows_rejected,
            rows: load.rows_applied + load.rows_skipped + load.rows_rejected,
            hint: format!("; see: umbo load rejects {ns} {id}"),
        }),
        _ => Ok(()),
    }
}
