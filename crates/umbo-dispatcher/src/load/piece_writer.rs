//! The bytes of a body on their way into the rows of an upload, in constant memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use umbo_api::loads::PART_LEN_MAX;
use umbo_control::ControlError;
use umbo_edge::body::{BodyError, next_piece};
use umbo_http::RequestError;
use umbo_loads::digest::{PartDigest, Sha256};
use umbo_loads::limits::PIECE_LEN;
use umbo_loads::{LoadError, LoadRecord, layout};
use umbo_store::Mutation;
use umbo_types::{NamespaceId, RequestUnits};

use super::request::LoadRequest;
use crate::dispatcher::Dispatcher;
use crate::paid_write::patient_write;
use crate::phase::identify::Identified;

/// Pieces that are written together.
const PIECES_MAX: usize = 4;
/// Writes of an upload that are under way at a time.
const WRITES_MAX: usize = 3;
/// Memory of an upload, in bytes: the writes under way, those that gather, and what the connection gives at once.
pub(super) const MEMORY: u64 = (WRITES_MAX as u64 + 2) * PIECES_MAX as u64 * PIECE_LEN;
/// How long an upload waits for quotas or for a shard before it is refused; the client continues it then.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a body as they come, each within the time that a body has.
pub(super) struct Pieces<'a, B> {
    body: &'a mut B,
    timeout: Duration,
}

impl<'a, B> Pieces<'a, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    pub(super) fn new(request: &LoadRequest<'_>, body: &'a mut B) -> Self {
        let timeout = request.dispatcher.limits.body_timeout;
        Self { body, timeout }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
        let late = BodyError::TimedOut {
            timeout: self.timeout,
        };
        let next = timeout(self.timeout, next_piece(self.body)).await;
        Ok(next.unwrap_or(Err(late))?)
    }
}

/// What was stored of a body.
pub(super) struct Stored {
    /// Where it ends in the part.
    pub(super) end: u64,
    /// SHA-256 of the body.
    pub(super) digest: Sha256,
}

/// Stores a body as the bytes of an upload from an offset on.
pub(super) async fn store_body<B>(
    request: &mut LoadRequest<'_>,
    load: &LoadRecord,
    upload: u64,
    offset: u64,
    body: &mut B,
) -> Result<Stored, RequestError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut writer = PieceWriter {
        dispatcher: Arc::clone(request.dispatcher),
        payer: request.identified().clone(),
        content: load.content_id(),
        upload,
        writes: JoinSet::new(),
        gathered: Vec::new(),
        piece: BytesMut::new(),
        at: offset,
        has_written: false,
        paid: RequestUnits::ZERO,
    };
    let mut digest = PartDigest::default();
    let mut pieces = Pieces::new(request, body);
    let (mut end, mut received) = (offset, 0);
    let outcome = async {
        while let Some(bytes) = pieces.next().await? {
            end += bytes.len() as u64;
            received += bytes.len();
            if end > PART_LEN_MAX {
                return Err(ControlError::from(LoadError::PartTooLong).into());
            }
            digest.update(&bytes);
            writer.push(bytes).await?;
        }
        Ok(())
    };
    let outcome = match outcome.await {
        Ok(()) => writer.finish().await,
        // What has come is kept, so that the upload can be continued after it.
        Err(error) => match writer.finish().await {
            Err(first) if matches!(error, RequestError::Body(_)) => Err(first),
            _ => Err(error),
        },
    };
    request.log.received(received);
    request.paid(writer.paid);
    outcome?;
    let digest = digest.finish();
    Ok(Stored { end, digest })
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
    /// The piece that comes in.
    piece: BytesMut,
    /// Where it begins.
    at: u64,
    has_written: bool,
    paid: RequestUnits,
}

impl PieceWriter {
    async fn push(&mut self, mut bytes: Bytes) -> Result<(), RequestError> {
        while !bytes.is_empty() {
            let room = layout::piece_end(self.at) - self.at - self.piece.len() as u64;
            let taken = bytes.split_to(bytes.len().min(usize::try_from(room).unwrap_or(0)));
            self.piece.extend_from_slice(&taken);
            if taken.len() as u64 == room {
                self.end_piece().await?;
            }
        }
        Ok(())
    }

    async fn end_piece(&mut self) -> Result<(), RequestError> {
        let bytes = std::mem::take(&mut self.piece).freeze();
        let len = bytes.len() as u64;
        let piece = layout::piece(self.upload, self.at, bytes);
        self.at += len;
        let other = |last: &Mutation| last.key.partition != piece.key.partition;
        if self.gathered.last().is_some_and(other) {
            self.write().await?;
        }
        self.gathered.push(piece);
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
        let content = self.content;
        let writing =
            async move { patient_write(&dispatcher, &payer, content, &mutations, patience).await };
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

    /// Writes what is left and waits for all of it.
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
