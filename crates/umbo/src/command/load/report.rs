//! Loads as text for people, and the exit code of a load that has ended.

use umbo_api::loads::{LoadInfo, LoadState};

use crate::cli_error::{CliError, Exit};
use crate::connection::ConnectionArgs;
use crate::output::{self, Listing};

/// Returns the state of a load, and whether it is paused.
pub(super) fn state(load: &LoadInfo) -> String {
    let paused = if load.paused { " (paused)" } else { "" };
    format!("{}{paused}", load.state)
}

/// Returns the listing of loads that shows these columns.
pub(super) fn listing(header: &'static str) -> Listing<LoadInfo> {
    Listing::new(header)
        .with("STATE", state)
        .with("PARTS", |load: &LoadInfo| match load.parts.len() {
            0 => String::new(),
            parts => parts.to_string(),
        })
        .with("ROWS", |load| output::or_empty(all_rows(load)))
        .with("APPLIED", |load| load.rows_applied.to_string())
        .with("SKIPPED", |load| load.rows_skipped.to_string())
        .with("REJECTED", |load| load.rows_rejected.to_string())
}

/// The columns of a load.
pub(super) const HEADER: &str =
    "ID  STATE  MODE  PARTS  ROWS  APPLIED  SKIPPED  REJECTED  CREATED  REASON";

/// The columns of a load, with its namespace.
pub(super) const HEADER_OF_ALL: &str =
    "NAMESPACE  ID  STATE  MODE  PARTS  ROWS  APPLIED  SKIPPED  REJECTED  CREATED  REASON";

/// Returns how many rows a load has, as counted or as its creator expects; `None` if it is not known.
pub(super) fn all_rows(load: &LoadInfo) -> Option<u64> {
    load.rows_total.or(load.expected_rows)
}

/// Prints a load.
pub(super) fn write(connection: &ConnectionArgs, load: &LoadInfo) -> Result<(), CliError> {
    listing(HEADER).write_one(connection.listing_format(), load)
}

/// Returns the error of a load that has ended before all its rows were applied.
pub(in crate::command) fn ended(load: &LoadInfo) -> CliError {
    let (id, state, reason) = (&load.id, load.state, load.reason.as_deref());
    let reason = reason.unwrap_or_default();
    CliError::told(Exit::Failed, format_args!("load {id} is {state}: {reason}"))
}

/// Returns an error if a load has failed, was aborted or has rejected rows.
pub(super) fn outcome(load: &LoadInfo) -> Result<(), CliError> {
    let (ns, id) = (&load.namespace, &load.id);
    match load.state {
        LoadState::Failed | LoadState::Aborted => Err(ended(load)),
        _ if load.rows_rejected > 0 => Err(CliError::Partial {
            failed: load.rows_rejected,
            rows: load.rows_applied + load.rows_skipped + load.rows_rejected,
            hint: format!("; see: umbo load rejects {ns} {id}"),
        }),
        _ => Ok(()),
    }
}
