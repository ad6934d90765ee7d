//! A body that is too long for a row, on its way into the store in constant memory.
//!
//! The body is cut into chunks, which are written a few at a time, while the next ones come in; each write has a
//! separate charge. An upload that is broken off is given up at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use umbo_edge::body::{ArrivingBody, BodyError, BodyRoom, GatheredBody};
use umbo_edge::memory::MemoryPermit;
use umbo_http::RequestError;
use umbo_http::content_digest::{ContentDigest, DigestSum};
use umbo_quota::ActualUsage;
use umbo_store::UploadStep;
use umbo_types::{Key, LargeRef, RequestUnits, RowError, UploadId, limits};

use super::body::RequestBody;
use super::received::{GivingUp, LargeUpload, PATIENCE, Received, Target};
use crate::bounds::GATHERED_LEN;
use crate::phase::locate::Located;

/// Bytes that are written together once a body is known to be a large one: each write waits for the disk, and its bytes
/// are in memory two or three times.
const WRITE_LEN: usize = 2 * limits::LARGE_CHUNK_LEN;

/// Returns the work of each write that a body of a large value is stored with, without its row.
pub(super) fn writes_of(len: u64) -> impl Iterator<Item = ActualUsage> {
    let chunk = limits::LARGE_CHUNK_LEN as u64;
    let first = GATHERED_LEN as u64 / chunk * chunk;
    let mut at = 0;
    std::iter::from_fn(move || {
        let write_len = if at == 0 { first } else { WRITE_LEN as u64 };
        let write_bytes = write_len.min(len - at);
        at += write_bytes;
        let rows = write_bytes.div_ceil(chunk);
        (write_bytes > 0).then_some(ActualUsage {
            rows,
            writes: rows,
            write_bytes,
            ..ActualUsage::default()
        })
    })
}

/// Receives a body that may be too long for a row: of at most [`limits::LARGE_VALUE_LEN_MAX`] bytes. A body that was
/// received before is not received again.
pub(super) async fn receive<B: ArrivingBody>(
    located: &mut Located<'_>,
    key: &Key,
    body: &mut RequestBody<'_, B>,
) -> Result<Received, RequestError> {
    if let Some(received) = body.received() {
        return Ok(received);
    }
    let digest = body.begin_pieces()?;
    let target = Target {
        dispatcher: Arc::clone(located.dispatcher),
        payer: located.identified().clone(),
        key: key.clone(),
    };
    let mut writer = ChunkWriter::new(target);
    let received = writer.receive(body).await;
    located
        .log
        .received(usize::try_from(writer.len).unwrap_or(usize::MAX));
    let finished = match received {
        Ok(()) => writer.finish(digest).await,
        Err(error) => Err(error),
    };
    located.charge.paid_apart(writer.paid);
    if !matches!(finished, Ok((Received::Large(_), _))) {
        // A chunk that is being written must not come after the upload was given up.
        writer.end_write().await.ok();
    }
    let (received, memory) = finished?;
    body.keep(received.clone(), memory);
    Ok(received)
}

/// Writes a body in chunks, one write at a time, while the next chunks gather.
struct ChunkWriter {
    giving_up: Option<GivingUp>,
    target: Target,
    upload: UploadId,
    gathered: GatheredBody,
    sum: DigestSum,
    len: u64,
    /// Index of the next chunk that is written.
    next: u32,
    writing: JoinSet<Result<RequestUnits, RequestError>>,
    paid: RequestUnits,
}

impl ChunkWriter {
    fn new(target: Target) -> Self {
        let upload = UploadId(fastrand::u128(..).to_be_bytes());
        Self {
            giving_up: None,
            target,
            upload,
            gathered: GatheredBody::default(),
            sum: DigestSum::new(),
            len: 0,
            next: 0,
            writing: JoinSet::new(),
            paid: RequestUnits::ZERO,
        }
    }

    async fn receive<B: ArrivingBody>(
        &mut self,
        body: &mut RequestBody<'_, B>,
    ) -> Result<(), RequestError> {
        let room = body.room();
        while let Some(mut piece) = body.next_piece(&self.gathered).await? {
            self.len += piece.len() as u64;
            if self.len > limits::LARGE_VALUE_LEN_MAX {
                return Err(RowError::LongerThanAny(self.len).into());
            }
            self.sum.add(&piece);
            while !piece.is_empty() {
                // Whether it is a large value is known one byte beyond the longest other one.
                let len = if self.next == 0 {
                    GATHERED_LEN
                } else {
                    WRITE_LEN
                };
                let taken = piece.split_to(piece.len().min(len - self.gathered.len()));
                self.gathered.grow(taken.len(), len, &room).await?;
                self.gathered.push(&taken, len);
                if self.gathered.len() == len {
                    self.write(&room).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes the gathered bytes as whole chunks; the rest stays.
    async fn write(&mut self, room: &BodyRoom<'_>) -> Result<(), RequestError> {
        self.end_write().await?;
        let (mut bytes, memory) = self.gathered.take();
        let steps = self.take_steps(&mut bytes, false);
        // The rest is copied, so that the memory of the written bytes is given back together with them.
        self.gathered.grow(bytes.len(), WRITE_LEN, room).await?;
        self.gathered.push(&bytes, WRITE_LEN);
        self.begin_write(steps, memory);
        Ok(())
    }

    fn take_steps(&mut self, gathered: &mut Bytes, is_end: bool) -> Vec<UploadStep> {
        let mut steps = Vec::new();
        while gathered.len() >= limits::LARGE_CHUNK_LEN || (is_end && !gathered.is_empty()) {
            let len = gathered.len().min(limits::LARGE_CHUNK_LEN);
            steps.push(UploadStep::Append {
                upload: self.upload,
                index: self.next,
                bytes: gathered.split_to(len),
            });
            self.next += 1;
        }
        steps
    }

    /// Begins to write steps; they hold `memory` until they are written.
    fn begin_write(&mut self, steps: Vec<UploadStep>, memory: Option<MemoryPermit>) {
        // A caller without a quota need not send more.
        let is_first = self.giving_up.is_none();
        self.giving_up
            .get_or_insert_with(|| GivingUp::new(&self.target, self.upload));
        let target = self.target.clone();
        let patience = if is_first { Duration::ZERO } else { PATIENCE };
        self.writing.spawn(async move {
            let written = target.write(steps, patience).await;
            drop(memory);
            written
        });
    }

    /// Waits for the write under way.
    async fn end_write(&mut self) -> Result<(), RequestError> {
        while let Some(ended) = self.writing.join_next().await {
            let paid = ended.map_err(|defect| RequestError::Internal(defect.to_string()))??;
            let sum = self.paid.as_micros().saturating_add(paid.as_micros());
            self.paid = RequestUnits::from_micros(sum);
        }
        Ok(())
    }

    /// Ends the body: writes the remaining bytes of a long one, and compares its digest.
    async fn finish(
        &mut self,
        digest: Option<ContentDigest>,
    ) -> Result<(Received, Option<MemoryPermit>), RequestError> {
        let sum = std::mem::take(&mut self.sum).finish();
        if digest.is_some_and(|digest| digest != sum) {
            return Err(RequestError::DigestMismatch);
        }
        if self.giving_up.is_none() {
            let (bytes, memory) = self.gathered.take();
            return Ok((Received::Small(bytes), memory));
        }
        self.end_write().await?;
        let (mut bytes, memory) = self.gathered.take();
        let steps = self.take_steps(&mut bytes, true);
        if !steps.is_empty() {
            self.begin_write(steps, memory);
            self.end_write().await?;
        }
        let giving_up = self.giving_up.take();
        let giving_up = giving_up.ok_or(RequestError::Body(BodyError::Aborted {
            reason: "its upload was dropped".to_owned(),
        }))?;
        let large = LargeRef {
            upload: self.upload,
            len: self.len,
            sha256: sum.0,
        };
        let upload = LargeUpload::new(large, giving_up);
        Ok((Received::Large(Arc::new(upload)), None))
    }
}
