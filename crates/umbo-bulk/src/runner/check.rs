//! Checks the parts of a load of mode merge before any row is applied: their bytes, their rows, their rejects. Judges
//! loads of all modes by their counts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use umbo_api::loads::RejectLine;
use umbo_api::problem::shortened;
use umbo_loads::LoadRecord;
use umbo_loads::layout::{self, PartProgress, PartRecord, RunRecord};
use umbo_rows::RejectedRow;
use umbo_store::{Condition, Mutation};

use super::host::{Host, RowCounts};
use super::journal::{Journal, Stop, json_row};
use super::rows::PartRows;
use super::work::{Beats, Parts};
use crate::limits::{EXCERPT_LEN_MAX, REJECTS_MAX};

/// Checks the remaining parts.
pub(super) async fn check_parts(
    host: &Host,
    id: &str,
    load: &LoadRecord,
    parts: &Parts,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    for (number, part) in parts.from(journal.run.checked) {
        let progress = check_rows(host, id, load, number, part, journal).await?;
        journal
            .put_rows(vec![progress_row(number, &progress)])
            .await?;
        journal.run.rows += progress.rows;
        journal.run.rejected += progress.rejected;
        journal.run.checked = u32::from(number) + 1;
        journal.waits_for(None);
        journal.write().await?;
        *tries = 0;
        host.counted(RowCounts {
            rejected: progress.rejected,
            ..RowCounts::default()
        });
    }
    Ok(())
}

/// Counts the rows of a part and keeps its rejects.
async fn check_rows(
    host: &Host,
    id: &str,
    load: &LoadRecord,
    number: u16,
    part: &PartRecord,
    journal: &mut Journal,
) -> Result<PartProgress, Stop> {
    let mut rows = PartRows::open(host.clone(), load, number, part)?;
    let mut beats = Beats::begin();
    let mut progress = PartProgress::default();
    loop {
        let batch = tokio::select! {
            biased;
            () = beats.next() => {
                beats.write(host, id, journal).await?;
                continue;
            }
            batch = rows.next() => batch?,
        };
        let Some(batch) = batch else {
            return Ok(progress);
        };
        progress.rows += batch.len() as u64;
        let mut rejects = Vec::new();
        for row in batch.into_iter().filter_map(|(_, row)| row.err()) {
            if journal.run.rejected + progress.rejected < REJECTS_MAX {
                rejects.push(reject(number, &row));
            }
            progress.rejected += 1;
        }
        journal.put_rows(rejects).await?;
    }
}

/// Returns the row of the report about the rows of a part.
pub(super) fn progress_row(part: u16, progress: &PartProgress) -> Mutation {
    let key = layout::part_key(layout::PROGRESS, part);
    json_row(key, progress, Condition::Always)
}

/// Returns the row of the report about a row that cannot be read.
pub(super) fn reject(part: u16, row: &RejectedRow) -> Mutation {
    let bytes = &row.bytes[..row.bytes.len().min(EXCERPT_LEN_MAX)];
    let is_cut = bytes.len() < row.bytes.len();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        // A character was cut.
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let line = RejectLine {
        part,
        line: row.line,
        reason: shortened(row.reason.to_string()),
        text: text.map(str::to_owned),
        b64: text.is_none().then(|| URL_SAFE_NO_PAD.encode(bytes)),
    };
    reject_row(&line)
}

/// Returns the row of the report that lists a reject.
pub(super) fn reject_row(line: &RejectLine) -> Mutation {
    let key = layout::reject_key(line.part, line.line);
    json_row(key, line, Condition::Always)
}

/// Decides by the counts of all parts whether a load is applied, or its version is kept. The error is the reason why
/// not.
pub(super) fn judge(load: &LoadRecord, run: &RunRecord) -> Result<(), String> {
    if load.import {
        return Ok(());
    }
    let rows = run.rows;
    // Blocked keys are no fault of the rows.
    let rejected = run.rejected.saturating_sub(run.blocked);
    if let Some(expected) = load.expected_rows.filter(|&expected| expected != rows) {
        return Err(format!(
            "its parts have {rows} rows, and {expected} are expected"
        ));
    }
    let max = load.max_reject_ratio;
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
    let is_above = rejected as f64 > rows as f64 * max;
    if is_above {
        return Err(format!(
            "{rejected} of {rows} rows were rejected, and max_reject_ratio is {max}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::loads::LoadSpec;
    use umbo_types::Timestamp;

    #[test]
    fn a_load_is_judged_by_its_rows_and_rejects() {
        let judged = |expected_rows, max_reject_ratio, rows, rejected| {
            let spec = LoadSpec {
                expected_rows,
                max_reject_ratio,
                ..LoadSpec::default()
            };
            let load =
                LoadRecord::create(&spec, ("a", 3), (4, 5), (6, 2), "x", Timestamp(0)).unwrap();
            let run = RunRecord {
                rows,
                rejected,
                ..RunRecord::default()
            };
            judge(&load, &run)
        };
        assert_eq!(judged(None, 0.0, 100, 0), Ok(()));
        assert_eq!(judged(Some(0), 0.0, 0, 0), Ok(()));
        assert!(judged(None, 0.0, 100, 1).unwrap_err().contains("1 of 100"));
        assert_eq!(judged(Some(100), 0.1, 100, 10), Ok(()));
        assert!(judged(None, 0.1, 100, 11).is_err());
        assert!(judged(Some(99), 1.0, 100, 0).unwrap_err().contains("99"));
    }

    #[test]
    fn a_reject_is_text_where_it_can_be() {
        let line = |bytes: &[u8]| {
            let row = RejectedRow {
                line: 7,
                reason: umbo_rows::RejectReason::TooLong,
                bytes: bytes.to_vec().into(),
            };
            let umbo_store::Change::Put { value, .. } = reject(3, &row).change else {
                panic!("a reject is stored");
            };
            serde_json::from_slice::<RejectLine>(&value.bytes).unwrap()
        };
        assert_eq!(line(b"a\tb").text.as_deref(), Some("a\tb"));
        // A client that sends the row again sends its last byte too.
        let unfinished = line(b"caf\xc3");
        let b64 = URL_SAFE_NO_PAD.encode(b"caf\xc3");
        assert_eq!((unfinished.text, unfinished.b64), (None, Some(b64)));
        let long = format!("{}é", "x".repeat(EXCERPT_LEN_MAX - 1));
        assert_eq!(
            line(long.as_bytes()).text.unwrap().len(),
            EXCERPT_LEN_MAX - 1
        );
        let bytes = line(b"\xff\xfe");
        assert_eq!((bytes.text, bytes.b64.as_deref()), (None, Some("__4")));
    }
}
