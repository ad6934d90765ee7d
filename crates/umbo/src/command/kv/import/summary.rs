//! The summary of an import, as its last line and as JSON.

use std::time::Duration;

use serde::Serialize;
use umbo_api::ru::Ru;

use super::failed::FailedFile;
use crate::cli_error::CliError;
use crate::output::{self, Format, counted, note};

/// Rows and bytes of an import.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    /// Rows written.
    pub(super) rows: u64,
    /// Rows that failed.
    pub(super) failed: u64,
    /// Rows that had expired, or were older than the stored rows.
    pub(super) skipped: u64,
    /// Bytes of the written rows; for a load, the bytes of its file.
    pub(super) bytes: u64,
    /// Charge of the server, in millionths of a request unit; not known for a load.
    #[serde(skip)]
    pub(super) charged_micros: u64,
}

/// The summary of an import.
#[derive(Debug, Serialize)]
struct ImportSummary<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    seconds: f64,
    rows_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ru: Option<Ru>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<&'a str>,
}

impl Totals {
    /// Prints the summary. `load` is the load that has written the rows.
    pub(super) fn report(
        &self,
        elapsed: Duration,
        failed: &FailedFile,
        load: Option<&str>,
        format: Format,
    ) -> Result<(), CliError> {
        let millis = elapsed.as_millis().max(1);
        let rows_per_second = (u128::from(self.rows) * 1_000 / millis) as u64;
        let charged = (load.is_none()).then_some(self.charged_micros);
        let summary = ImportSummary {
            totals: self,
            seconds: elapsed.as_secs_f64(),
            rows_per_second,
            failed_file: (self.failed > 0).then(|| failed.path().display().to_string()),
            ru: charged.map(Ru::from_micros),
            load,
        };
        let (rows, bytes) = (counted(self.rows, "row"), counted(self.bytes, "byte"));
        let skipped = match self.skipped {
            0 => String::new(),
            rows => format!("{rows} skipped that are newer or had expired already, "),
        };
        let (failed, seconds) = (self.failed, summary.seconds);
        note!(
            "{rows} written, {failed} failed, {skipped}{bytes} in {seconds:.1} s ({rows_per_second} rows/s)"
        );
        output::write_report(format, &summary, || Ok(()))
    }

    /// Returns an error if rows of the import have failed.
    pub(super) fn outcome(&self, failed: &FailedFile) -> Result<(), CliError> {
        if self.failed == 0 {
            return Ok(());
        }
        let file = failed.path().display();
        Err(CliError::Partial {
            failed: self.failed,
            rows: self.rows + self.failed,
            hint: format!("; they are in {file}, with the reason of each"),
        })
    }
}
