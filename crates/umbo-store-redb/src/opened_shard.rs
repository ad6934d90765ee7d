//! The opened and claimed file of a shard, or why it is not open, with the report for operators.
//!
//! The invariant: a shard that does not open is reported, and prevents no other from opening.

use std::time::Duration;

use redb::{Database, ReadableDatabase as _};
use umbo_types::{Clock, Version};

use crate::bad_read::isolated;
use crate::file_error::{FileError, guarded};
use crate::report::ShardOpening;
use crate::shard_file::{OpenedFile, ShardFile, begin_write};
use crate::sizes::{self, Sizes};
use crate::snapshot::ShardSnapshot;

/// The result of opening a shard.
pub(crate) struct OpenedShard {
    pub(crate) file: ShardFile,
    pub(crate) opened: Result<OpenedFile, FileError>,
    pub(crate) report: ShardOpening,
}

/// Opens the file of a shard and claims it.
pub(crate) fn open_shard(file: ShardFile, clock: &dyn Clock) -> OpenedShard {
    let begun = clock.monotonic();
    let opened = file.recovered();
    let was_closed = opened
        .as_ref()
        .is_ok_and(|opened| opened.progress.is_closed);
    let opened = opened.and_then(|mut opened| {
        file.claim(&mut opened)?;
        if opened.sizes.is_none() {
            count_sizes(&file, &mut opened);
        }
        Ok(opened)
    });
    let mut report = report_of(&file);
    report.took = clock.monotonic().saturating_duration_since(begun);
    match &opened {
        Ok(opened) => {
            report.rows = opened.snapshot.row_count();
            report.version_ceiling = opened.progress.version_ceiling;
            report.was_recovered = !was_closed;
            report.was_repaired = opened.was_repaired;
        }
        Err(failure) => report.unavailable = Some(file.blame(failure)),
    }
    log(&report);
    OpenedShard {
        file,
        opened,
        report,
    }
}

/// Counts the rows of a file that has no sizes. The shard serves also if that fails; its sizes are unknown
/// then.
fn count_sizes(file: &ShardFile, opened: &mut OpenedFile) {
    let counted = recount(&opened.database).and_then(|counted| {
        let transaction = opened.database.begin_read()?;
        opened.snapshot = ShardSnapshot::of(&transaction, &opened.fences)?;
        Ok(counted)
    });
    let path = file.path.display();
    match counted {
        Ok(counted) => {
            tracing::info!(file = %path, "counted the rows of a file that had no sizes of namespaces");
            opened.sizes = Some(counted);
        }
        Err(failure) => {
            tracing::warn!(file = %path, reason = %failure, "the rows of a file cannot be counted");
        }
    }
}

fn recount(database: &Database) -> Result<Sizes, FileError> {
    let transaction = guarded(|| begin_write(database))?;
    match isolated(|| sizes::recount(&transaction)) {
        Ok(sizes) => guarded(|| Ok(transaction.commit()?)).map(|()| sizes),
        Err(failure) => {
            guarded(|| Ok(transaction.abort()?))?;
            Err(failure)
        }
    }
}

/// Reports a shard without a file, and the reason why no file was made.
pub(crate) fn refused_shard(file: ShardFile, reason: String) -> OpenedShard {
    let mut report = report_of(&file);
    report.unavailable = Some(file.blame(&reason));
    log(&report);
    OpenedShard {
        file,
        opened: Err(FileError::Missing(reason)),
        report,
    }
}

fn report_of(file: &ShardFile) -> ShardOpening {
    ShardOpening {
        shard: file.shard(),
        file: file.path.clone(),
        rows: 0,
        version_ceiling: Version::default(),
        took: Duration::ZERO,
        was_recovered: false,
        was_repaired: false,
        unavailable: None,
    }
}

fn log(report: &ShardOpening) {
    let (file, took) = (report.file.display(), report.took.as_millis() as u64);
    if let Some(reason) = &report.unavailable {
        tracing::error!(%reason, "a shard is unavailable, the others serve");
    } else if report.was_recovered {
        tracing::warn!(
            %file,
            took_ms = took,
            rows = report.rows,
            full_repair = report.was_repaired,
            "a shard that was not closed has recovered"
        );
    } else {
        tracing::debug!(%file, took_ms = took, rows = report.rows, "a shard is open");
    }
}
