//! The description of a load for clients: its parts, its progress and its rejects, read from its own rows.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use umbo_api::loads::{LoadInfo, LoadState, PartInfo};
use umbo_http::RequestError;
use umbo_loads::layout::{PARTS, PROGRESS, REJECTS, UPLOADS};
use umbo_loads::{LoadRecord, PartProgress, PartRecord, RunRecord, UploadRecord, layout};
use umbo_store::{RangeRequest, SortRange};
use umbo_types::limits;

use crate::stored_rows::{kept_len, read_json, read_json_rows};
use umbo_dispatcher::plane::OwnRows;

use crate::waits::LoadWaits;

/// The stored bytes of a part.
pub(super) struct Kept {
    /// Bytes.
    pub(super) len: u64,
    /// Whether it is whole.
    pub(super) is_complete: bool,
}

/// Returns the stored bytes of a part, or `None` if nothing of it was uploaded.
pub(super) async fn kept(
    rows: &OwnRows,
    load: &LoadRecord,
    number: u16,
) -> Result<Option<Kept>, RequestError> {
    let report = load.report_id();
    let key = layout::part_key(PARTS, number);
    if let Some((part, _)) = read_json::<_, PartRecord>(rows, report, &key).await? {
        return Ok(Some(Kept {
            len: part.len,
            is_complete: true,
        }));
    }
    let key = layout::part_key(UPLOADS, number);
    let Some((upload, _)) = read_json::<_, UploadRecord>(rows, report, &key).await? else {
        return Ok(None);
    };
    Ok(Some(Kept {
        len: kept_of(rows, load, upload.upload).await?,
        is_complete: false,
    }))
}

/// Returns the number of stored bytes of an upload; 0 if the load has ended or its version is ready.
async fn kept_of(rows: &OwnRows, load: &LoadRecord, upload: u64) -> Result<u64, RequestError> {
    if load.state.is_applied() {
        return Ok(0);
    }
    kept_len(rows, load.content_id(), upload).await
}

/// Returns the description of a part that is whole.
pub(super) fn whole_part(number: u16, part: PartRecord) -> PartInfo {
    PartInfo {
        number,
        bytes: part.len,
        sha256: Some(part.sha256),
        content_type: part.content_type,
        coding: Some(part.coding).filter(|coding| !coding.is_empty()),
        complete: true,
        ..PartInfo::default()
    }
}

/// Reads the progress of a load. Returns `None` before its first run, unless the load waits for that run. The reason
/// why the run waits in this dispatcher is newer than the one in the stored row, and replaces it.
async fn run_of(
    waits: &LoadWaits,
    rows: &OwnRows,
    load: &LoadRecord,
) -> Result<Option<RunRecord>, RequestError> {
    let report = load.report_id();
    let run = read_json::<_, RunRecord>(rows, report, &layout::run_key()).await?;
    let waits = waits.get(report);
    if run.is_none() && waits.is_none() {
        return Ok(None);
    }
    let mut run = run.map_or_else(RunRecord::default, |(run, _)| run);
    run.waits = waits.or(run.waits.take());
    Ok(Some(run))
}

/// Describes a load without its parts. If a shard is away, the load is listed with the reason why its rows are not
/// counted.
pub(crate) async fn describe_for_list(
    waits: &LoadWaits,
    rows: &OwnRows,
    id: &str,
    load: &LoadRecord,
) -> LoadInfo {
    match run_of(waits, rows, load).await {
        Ok(run) => load.info(id, run.as_ref(), Vec::new()),
        Err(error) => {
            let mut info = load.info(id, None, Vec::new());
            let unknown = format!("its rows cannot be counted now: {error}");
            info.reason.get_or_insert(unknown);
            info
        }
    }
}

/// Describes a load.
pub(super) async fn describe(
    waits: &LoadWaits,
    rows: &OwnRows,
    id: &str,
    load: &LoadRecord,
) -> Result<LoadInfo, RequestError> {
    let report = load.report_id();
    let run = run_of(waits, rows, load).await?;
    let mut parts = BTreeMap::new();
    for (number, part) in read_json_rows::<_, PartRecord>(rows, report, PARTS).await? {
        parts.insert(number, whole_part(number, part));
    }
    for (number, upload) in read_json_rows::<_, UploadRecord>(rows, report, UPLOADS).await? {
        if parts.contains_key(&number) {
            continue;
        }
        let bytes = kept_of(rows, load, upload.upload).await?;
        let part = PartInfo {
            number,
            bytes,
            content_type: upload.content_type,
            coding: Some(upload.coding).filter(|coding| !coding.is_empty()),
            ..PartInfo::default()
        };
        parts.insert(number, part);
    }
    let progress = read_json_rows::<_, PartProgress>(rows, report, PROGRESS).await?;
    for (number, progress) in progress {
        let Some(part) = parts.get_mut(&number) else {
            continue;
        };
        part.rows = Some(progress.rows);
        part.rejected = Some(progress.rejected);
        part.applied = run
            .as_ref()
            .and_then(|run| applied(run, number, progress.rows));
        if load.state == LoadState::Live || load.target.is_some() && load.state.is_applied() {
            part.applied = Some(progress.rows);
        }
    }
    // In mode replace a part has its counts once it is applied.
    if let Some(run) = run.as_ref().filter(|run| run.row > 0)
        && let Some((_, part)) = parts
            .iter_mut()
            .find(|(number, _)| u32::from(**number) == run.part)
    {
        part.applied = part.applied.or(Some(run.row));
    }
    Ok(load.info(id, run.as_ref(), parts.into_values().collect()))
}

/// Returns how many rows of a part were read and applied, or `None` before its turn.
fn applied(run: &RunRecord, number: u16, rows: u64) -> Option<u64> {
    match u32::from(number) {
        number if number < run.part => Some(rows),
        number if number == run.part && run.row > 0 => Some(run.row),
        _ => None,
    }
}

/// Returns a page of the kept rejects of a load, a line each: at most `limit` rows after the given part and line, and
/// at most one chunk. If more follow, also returns the part and line of the last one.
pub(super) async fn rejects(
    rows: &OwnRows,
    load: &LoadRecord,
    after: Option<(u16, u64)>,
    limit: u32,
) -> Result<(Bytes, Option<(u16, u64)>), RequestError> {
    let range = after.map_or_else(SortRange::default, |(part, line)| {
        let last = layout::reject_key(part, line);
        SortRange::default().beyond(last.sort.as_bytes(), false)
    });
    let request = RangeRequest {
        namespace: load.report_id(),
        partition: layout::report_partition(REJECTS),
        range,
        reverse: false,
        rows_max: limit.min(limits::CHUNK_ROWS_MAX),
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: false,
    };
    let page = rows.range(&request).await?;
    let mut lines = BytesMut::new();
    for row in page.rows.iter() {
        lines.extend_from_slice(row.value);
        lines.extend_from_slice(b"\n");
    }
    let last = page.resume_after.as_deref().and_then(layout::reject_of);
    Ok((lines.freeze(), last))
}
