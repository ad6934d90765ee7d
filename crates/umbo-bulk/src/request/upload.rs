//! Uploads of parts: a body becomes rows of the load's content, in constant memory (`piece_writer`).
//!
//! The body is cut into pieces at fixed offsets, a few pieces are written together, and a few of such writes are under
//! way at a time; each is acknowledged once it is on the disk. One row makes a part whole. It is written on the
//! condition that it does not exist yet, so the first of two uploads of a part counts; the other must be the same or is
//! refused. An upload that breaks off leaves bytes that can be continued and are reclaimed when the load ends.

use http_body::Body;
use std::future::pending;
use umbo_api::loads::PART_LEN_MAX;
use umbo_control::ControlError;
use umbo_edge::body::ArrivingBody;
use umbo_http::RequestError;
use umbo_loads::digest::{PartDigest, Sha256, hex};
use umbo_loads::layout::{PARTS, UPLOADS};
use umbo_loads::{LoadError, LoadRecord, LoadStep, PartRecord, UploadRecord, layout};
use umbo_store::{Change, Condition, Mutation};
use umbo_types::{Key, NamespaceId, Value};

use crate::runner::check_format;
use crate::stored_rows::{kept_len, read_json, read_piece};
use crate::wire::{LoadAnswer, Piece, UploadAsk};
use umbo_dispatcher::plane::OwnRows;

use super::identified::{GIVEN_PARTS, LoadRequest};
use super::piece_writer::store_body;
use super::report::whole_part;

/// Serves the upload of a part, or of a piece of one.
pub(super) async fn upload<B: ArrivingBody>(
    request: &mut LoadRequest<'_>,
    ask: &UploadAsk,
    load: &LoadRecord,
    body: &mut B,
) -> Result<LoadAnswer, RequestError> {
    let rows = request.plane.own_rows();
    let number = ask.number;
    let announced = body.size_hint().lower();
    let before = ask.piece.map_or(0, |piece| piece.offset);
    if before.saturating_add(announced) > PART_LEN_MAX {
        return refused(LoadError::PartTooLong);
    }
    let key = layout::part_key(PARTS, number);
    let whole = read_json::<_, PartRecord>(&rows, load.report_id(), &key).await?;
    if let Some((part, _)) = whole {
        return again(request, ask, part, body).await;
    }
    if !load.state.takes_parts() {
        return refused(LoadError::State {
            state: load.state,
            action: GIVEN_PARTS,
        });
    }
    if load.state == umbo_api::loads::LoadState::Created {
        request.step(&ask.id, &LoadStep::TakePart, false).await?;
    }
    match ask.piece {
        None => upload_whole(request, &rows, ask, load, body).await,
        Some(piece) => upload_piece(request, &rows, ask, piece, load, body).await,
    }
}

fn refused<T>(error: LoadError) -> Result<T, RequestError> {
    Err(ControlError::from(error).into())
}

/// Answers the upload of a part that is whole already: the same one changes nothing.
async fn again<B: ArrivingBody>(
    request: &mut LoadRequest<'_>,
    ask: &UploadAsk,
    part: PartRecord,
    body: &mut B,
) -> Result<LoadAnswer, RequestError> {
    let number = ask.number;
    if let Some(piece) = ask.piece {
        if piece.offset != part.len || !body.is_end_stream() {
            let kept = part.len;
            return refused(LoadError::Offset { number, kept });
        }
        return Ok(LoadAnswer::Offset {
            offset: part.len,
            is_complete: true,
        });
    }
    // If the request has a digest, it alone decides: a client that comes back need not send all bytes again.
    let digest = if let Some(digest) = ask.digest {
        digest
    } else {
        let (mut pace, room) = request.plane.body_stream();
        let mut digest = PartDigest::default();
        while let Some(bytes) = pace.next(body, None, &room).await? {
            digest.update(&bytes);
        }
        digest.finish()
    };
    if hex(&digest) == part.sha256 {
        return Ok(LoadAnswer::Part {
            info: whole_part(number, part),
            is_new: false,
        });
    }
    let kept = part.sha256;
    refused(LoadError::PartDiffers { number, kept })
}

async fn upload_whole<B: ArrivingBody>(
    request: &mut LoadRequest<'_>,
    rows: &OwnRows,
    ask: &UploadAsk,
    load: &LoadRecord,
    body: &mut B,
) -> Result<LoadAnswer, RequestError> {
    let upload = begin(rows, ask, load).await?;
    let stored = store_body(request, load, (upload.upload, 0), body, pending()).await?;
    if let Some(error) = differs(ask, &stored.digest) {
        // Nothing of it can be continued.
        let key = layout::part_key(UPLOADS, ask.number);
        write_row(
            rows,
            load.report_id(),
            key,
            Change::Delete,
            Condition::Always,
        )
        .await?;
        return refused(error);
    }
    check_state(request, &ask.id).await?;
    let part = part_of(upload, stored.end, &stored.digest);
    let (info, is_new) = complete(rows, ask.number, load, part).await?;
    request.waits.note_change();
    Ok(LoadAnswer::Part { info, is_new })
}

async fn upload_piece<B: ArrivingBody>(
    request: &mut LoadRequest<'_>,
    rows: &OwnRows,
    ask: &UploadAsk,
    piece: Piece,
    load: &LoadRecord,
    body: &mut B,
) -> Result<LoadAnswer, RequestError> {
    let (number, content) = (ask.number, load.content_id());
    let turn = request
        .continuations
        .begin((content, number), piece.offset)
        .await;
    let key = layout::part_key(UPLOADS, number);
    let begun = read_json::<_, UploadRecord>(rows, load.report_id(), &key).await?;
    let upload = match begun {
        Some((upload, _)) => {
            let kept = kept_len(rows, content, upload.upload).await?;
            if piece.offset != kept {
                return refused(LoadError::Offset { number, kept });
            }
            check_type(ask, load, &upload)?;
            upload
        }
        None if piece.offset == 0 => begin(rows, ask, load).await?,
        None => return refused(LoadError::Offset { number, kept: 0 }),
    };
    let place = (upload.upload, piece.offset);
    let stored = store_body(request, load, place, body, turn.overtaken()).await?;
    if stored.is_overtaken {
        let mut kept = stored.end;
        if turn.is_sent_again() {
            erase(rows, content, upload.upload, piece.offset, kept).await?;
            kept = piece.offset;
        }
        return refused(LoadError::Offset { number, kept });
    }
    if let Some(error) = differs(ask, &stored.digest) {
        erase(rows, content, upload.upload, piece.offset, stored.end).await?;
        return refused(error);
    }
    if piece.is_last {
        let digest = if piece.offset == 0 {
            stored.digest
        } else {
            digest_of(rows, content, upload.upload, stored.end).await?
        };
        check_state(request, &ask.id).await?;
        let part = part_of(upload, stored.end, &digest);
        complete(rows, number, load, part).await?;
        request.waits.note_change();
    }
    Ok(LoadAnswer::Offset {
        offset: stored.end,
        is_complete: piece.is_last,
    })
}

/// Refuses a piece of another type or coding than the first piece of the part. A piece without both has the type and
/// the coding of its part.
fn check_type(
    ask: &UploadAsk,
    load: &LoadRecord,
    begun: &UploadRecord,
) -> Result<(), RequestError> {
    if ask.content_type.is_none() && ask.coding.is_empty() {
        return Ok(());
    }
    let content_type = ask.content_type.as_ref().unwrap_or(&begun.content_type);
    let sent = check_format(load, content_type, &ask.coding).map_err(ControlError::from)?;
    if (&sent.0, &sent.1) == (&begun.content_type, &begun.coding) {
        return Ok(());
    }
    refused(LoadError::TypeDiffers {
        number: ask.number,
        begun: format!("{} {}", begun.content_type, begun.coding)
            .trim_end()
            .to_owned(),
        sent: format!("{} {}", sent.0, sent.1).trim_end().to_owned(),
    })
}

/// Begins an upload. Another one of the same part, which may be under way, goes on by itself.
async fn begin(
    rows: &OwnRows,
    ask: &UploadAsk,
    load: &LoadRecord,
) -> Result<UploadRecord, RequestError> {
    let content_type = ask.content_type.as_deref().unwrap_or_default();
    let (content_type, coding) =
        check_format(load, content_type, &ask.coding).map_err(ControlError::from)?;
    let upload = UploadRecord {
        upload: fastrand::u64(..),
        content_type,
        coding,
    };
    let key = layout::part_key(UPLOADS, ask.number);
    let change = json(&upload);
    write_row(rows, load.report_id(), key, change, Condition::Always).await?;
    Ok(upload)
}

fn differs(ask: &UploadAsk, found: &Sha256) -> Option<LoadError> {
    let sent = ask.digest.filter(|sent| sent != found)?;
    Some(LoadError::Digest {
        sent: hex(&sent),
        found: hex(found),
    })
}

fn part_of(upload: UploadRecord, len: u64, digest: &Sha256) -> PartRecord {
    PartRecord {
        upload: upload.upload,
        len,
        sha256: hex(digest),
        content_type: upload.content_type,
        coding: upload.coding,
    }
}

/// Refuses a part of a load that takes no more parts. Asks the home, as another dispatcher may have sealed or ended the
/// load a moment ago. While the home is away, the copy here counts, and the seal leaves out parts that come too late.
async fn check_state(request: &LoadRequest<'_>, id: &str) -> Result<(), RequestError> {
    drop(Box::pin(request.control().refresh()).await);
    let load = request.find(id).await?;
    if load.state.takes_parts() {
        return Ok(());
    }
    refused(LoadError::State {
        state: load.state,
        action: GIVEN_PARTS,
    })
}

/// Makes a part whole. If another upload was first, this one must be the same. The flag is true if this upload was
/// first.
async fn complete(
    rows: &OwnRows,
    number: u16,
    load: &LoadRecord,
    part: PartRecord,
) -> Result<(umbo_api::loads::PartInfo, bool), RequestError> {
    let (report, key) = (load.report_id(), layout::part_key(PARTS, number));
    let change = json(&part);
    let is_new = write_row(rows, report, key.clone(), change, Condition::Absent).await?;
    if is_new {
        return Ok((whole_part(number, part), true));
    }
    let kept = read_json::<_, PartRecord>(rows, report, &key).await?;
    match kept {
        Some((kept, _)) if kept.sha256 == part.sha256 => Ok((whole_part(number, kept), false)),
        Some((kept, _)) => {
            let kept = kept.sha256;
            refused(LoadError::PartDiffers { number, kept })
        }
        None => refused(LoadError::PartNotFound { number }),
    }
}

fn json(record: &impl serde::Serialize) -> Change {
    let bytes = serde_json::to_vec(record).expect("a record is made of numbers and texts");
    Change::Put {
        value: Value {
            bytes: bytes.into(),
            ..Value::default()
        },
        expires_at: None,
    }
}

/// Changes a row of a load's report. Returns whether the condition was true.
async fn write_row(
    rows: &OwnRows,
    report: NamespaceId,
    key: Key,
    change: Change,
    condition: Condition,
) -> Result<bool, RequestError> {
    let mutation = Mutation {
        key,
        change,
        condition,
    };
    rows.write_one(report, mutation).await
}

/// Returns the digest of all bytes of an upload that was made in pieces.
async fn digest_of(
    rows: &OwnRows,
    content: NamespaceId,
    upload: u64,
    len: u64,
) -> Result<Sha256, RequestError> {
    let (mut digest, mut at) = (PartDigest::default(), 0);
    while at < len {
        let piece = read_piece(rows, content, upload, at).await?;
        let piece = piece.filter(|piece| !piece.is_empty()).ok_or_else(|| {
            RequestError::Internal(format!("bytes of an upload are missing, from {at} on"))
        })?;
        let left = usize::try_from(len - at).unwrap_or(usize::MAX);
        let piece = &piece[..piece.len().min(left)];
        digest.update(piece);
        at += piece.len() as u64;
    }
    Ok(digest.finish())
}

/// Removes the stored bytes of a refused piece of a part.
async fn erase(
    rows: &OwnRows,
    content: NamespaceId,
    upload: u64,
    mut at: u64,
    end: u64,
) -> Result<(), RequestError> {
    while at < end {
        let next = layout::piece_end(at).min(end);
        let key = layout::piece_key(upload, at, next - at);
        write_row(rows, content, key, Change::Delete, Condition::Always).await?;
        at = next;
    }
    Ok(())
}
