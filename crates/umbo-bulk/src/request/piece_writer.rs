//! The bytes of a body on their way into the rows of an upload, in constant memory.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{JoinError, JoinSet};
use umbo_api::loads::PART_LEN_MAX;
use umbo_control::ControlError;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::Identified;
use umbo_dispatcher::plane::patient_write;
use umbo_edge::body::{ArrivingBody, BodyRoom, GatheredBody};
use umbo_edge::memory::MemoryPermit;
use umbo_http::RequestError;
use umbo_loads::digest::{PartDigest, Sha256};
use umbo_loads::{LoadError, LoadRecord, layout};
use umbo_store::Mutation;
use umbo_types::{NamespaceId, RequestUnits};

use super::identified::LoadRequest;
use crate::limits::{PIECES_MAX, WRITES_MAX};

/// How long an upload waits for quotas or for a shard before it is refused; the client continues it then.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stored bytes of a body.
pub(super) struct Stored {
    /// Offset in the part at which they end.
    pub(super) end: u64,
    /// SHA-256 of the body.
    pub(super) digest: Sha256,
    /// Whether another request continues the part, and the rest of the body was left out.
    pub(super) is_overtaken: bool,
}

/// Stores a body as the bytes of an upload from an offset on, until it is overtaken.
pub(super) async fn store_body<B: ArrivingBody>(
    request: &mut LoadRequest<'_>,
    load: &LoadRecord,
    (upload, offset): (u64, u64),
    body: &mut B,
    overtaken: impl Future<Output = ()>,
) -> Result<Stored, RequestError> {
    let mut writer = PieceWriter {
        dispatcher: Arc::clone(request.plane.dispatcher()),
        payer: request.plane.payer().clone(),
        content: load.content_id(),
        upload,
        writes: JoinSet::new(),
        gathered: Vec::new(),
        held: Vec::new(),
        piece: GatheredBody::default(),
        at: offset,
        has_written: false,
        paid: RequestUnits::ZERO,
    };
    let mut digest = PartDigest::default();
    let (mut pace, room) = request.plane.body_stream();
    let (mut end, mut received, mut is_overtaken) = (offset, 0, false);
    let mut overtaken = pin!(overtaken);
    let outcome = async {
        loop {
            let bytes = tokio::select! {
                biased;
                () = &mut overtaken => {
                    is_overtaken = true;
                    break;
                }
                bytes = pace.next(body, writer.held(), &room) => bytes?,
            };
            let Some(bytes) = bytes else {
                break;
            };
            end += bytes.len() as u64;
            received += bytes.len();
            if end > PART_LEN_MAX {
                return Err(ControlError::from(LoadError::PartTooLong).into());
            }
            digest.update(&bytes);
            writer.push(bytes, &room).await?;
        }
        Ok(())
    };
    let outcome = match outcome.await {
        Ok(()) => writer.finish().await,
        // The bytes received so far are kept, so that the upload can be continued after them.
        Err(error) => match writer.finish().await {
            Err(first) if matches!(error, RequestError::Body(_)) => Err(first),
            _ => Err(error),
        },
    };
    request.plane.received(received);
    request.plane.paid(writer.paid);
    outcome?;
    let digest = digest.finish();
    Ok(Stored {
        end,
        digest,
        is_overtaken,
    })
}

/// Writes the bytes of an upload in order, a few pieces at a time.
struct PieceWriter {
    dispatcher: Arc<Dispatcher>,
    payer: Identified,
    content: NamespaceId,
    upload: u64,
    writes: JoinSet<Result<RequestUnits, RequestError>>,
    /// Pieces that are written next, all of one segment.
    gathered: Vec<Mutation>,
    /// Their memory.
    held: Vec<MemoryPermit>,
    /// The piece that comes in.
    piece: GatheredBody,
    /// Offset in the part at which it begins.
    at: u64,
    has_written: bool,
    paid: RequestUnits,
}

impl PieceWriter {
    /// Returns the memory of the bytes that are not being written.
    fn held(&self) -> Option<&MemoryPermit> {
        self.piece.held().or_else(|| self.held.first())
    }

    async fn push(&mut self, mut bytes: Bytes, room: &BodyRoom<'_>) -> Result<(), RequestError> {
        while !bytes.is_empty() {
            let piece_len = usize::try_from(layout::piece_end(self.at) - self.at).unwrap_or(0);
            let taken = bytes.split_to(bytes.len().min(piece_len - self.piece.len()));
            let at_once = BodyRoom {
                patience: Duration::ZERO,
                ..*room
            };
            if self
                .piece
                .grow(taken.len(), piece_len, &at_once)
                .await
                .is_err()
            {
                // The gathered pieces give their memory back once they are written.
                self.write().await?;
                self.piece.grow(taken.len(), piece_len, room).await?;
            }
            self.piece.push(&taken, piece_len);
            if self.piece.len() == piece_len {
                self.end_piece().await?;
            }
        }
        Ok(())
    }

    async fn end_piece(&mut self) -> Result<(), RequestError> {
        let (bytes, memory) = self.piece.take();
        let len = bytes.len() as u64;
        let piece = layout::piece(self.upload, self.at, bytes);
        self.at += len;
        let other = |last: &Mutation| last.key.partition != piece.key.partition;
        if self.gathered.last().is_some_and(other) {
            self.write().await?;
        }
        self.gathered.push(piece);
        self.held.extend(memory);
        // The first write is made at once: a caller without a quota need not send more.
        if self.gathered.len() >= PIECES_MAX || !self.has_written {
            self.write().await?;
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), RequestError> {
        let mutations = std::mem::take(&mut self.gathered);
        if mutations.is_empty() {
            return Ok(());
        }
        while self.writes.len() >= WRITES_MAX {
            self.join().await?;
        }
        let (dispatcher, payer) = (Arc::clone(&self.dispatcher), self.payer.clone());
        let patience = if self.has_written {
            PATIENCE
        } else {
            Duration::ZERO
        };
        let (content, memory) = (self.content, std::mem::take(&mut self.held));
        let writing = async move {
            let written = patient_write(&dispatcher, &payer, content, &mutations, patience).await;
            drop(memory);
            written
        };
        self.writes.spawn(writing);
        if !std::mem::replace(&mut self.has_written, true) {
            self.join().await?;
        }
        Ok(())
    }

    async fn join(&mut self) -> Result<(), RequestError> {
        let Some(ended) = self.writes.join_next().await else {
            return Ok(());
        };
        let defect = |error: JoinError| RequestError::Internal(error.to_string());
        let paid = ended.map_err(defect)??;
        self.paid = RequestUnits::from_micros(self.paid.as_micros() + paid.as_micros());
        Ok(())
    }

    /// Writes the remaining pieces and waits for all writes.
    async fn finish(&mut self) -> Result<(), RequestError> {
        let mut outcome = Ok(());
        if !self.piece.is_empty() {
            outcome = self.end_piece().await;
        }
        if outcome.is_ok() {
            outcome = self.write().await;
        }
        while !self.writes.is_empty() {
            let joined = self.join().await;
            outcome = outcome.and(joined);
        }
        outcome
    }
}
