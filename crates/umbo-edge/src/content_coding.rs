//! Content codings (RFC 9110, section 8.4): gzip and zstd, of request bodies and of answers.
//!
//! Owns which coding a header field names or accepts, and the bounds of both directions: an inflated body is
//! never longer than its caller allows, however small it was sent, and neither direction keeps a thread from
//! other requests for longer than a step takes.

use std::io::Read;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{BodyRoom, ReplyAborted, ReplyBody};
use crate::bounds::INFLATIONS_MAX;
use crate::memory::{Full, MemoryPermit};

/// Bytes that are coded before other requests have their turn.
const STEP_LEN: usize = 64 << 10;
/// Largest window of zstd, as a power of two: 8 MiB, which RFC 8878 asks every reader to support.
const WINDOW_LOG_MAX: u32 = 23;
/// The fastest levels: an answer is read once.
const ZSTD_LEVEL: i32 = 1;

/// Permits are decoders at work, of all servers of this process.
static INFLATIONS: Semaphore = Semaphore::const_new(INFLATIONS_MAX);

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentCoding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// Why a body cannot be inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// The body is longer than allowed once inflated.
    #[error("it is longer than {len_max} bytes once inflated")]
    TooLarge {
        /// Longest body, in bytes.
        len_max: usize,
    },
    /// There is no memory for it.
    #[error("there is no memory for its {len} bytes once inflated")]
    NoRoom {
        /// Bytes that need room, at least.
        len: usize,
        /// The bound that leaves no room.
        full: Full,
    },
    /// The body is not of the named coding, or cut off.
    #[error("it is not {}", .0.as_str())]
    Malformed(ContentCoding),
}

/// A body has an unknown coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownCoding;

impl ContentCoding {
    /// The codings, as `Accept-Encoding` lists them.
    pub const ALL: &str = "gzip, zstd";

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Reads one coding, or returns `None` if it is not known.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.trim_ascii().eq_ignore_ascii_case(known.as_bytes());
        if is("gzip") || is("x-gzip") {
            Some(Self::Gzip)
        } else if is("zstd") {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    /// Returns the coding of a body by its `Content-Encoding`, or `None` if the field is absent or `identity`.
    pub fn of_body(named: Option<&HeaderValue>) -> Result<Option<Self>, UnknownCoding> {
        let named = named.map(HeaderValue::as_bytes);
        match named.filter(|named| !named.eq_ignore_ascii_case(b"identity")) {
            None => Ok(None),
            Some(named) => Self::parse(named).map(Some).ok_or(UnknownCoding),
        }
    }

    /// Returns the coding that `Accept-Encoding` prefers for an answer, or zstd if it prefers neither. `None` if it
    /// names no known coding.
    pub fn preferred(accepted: &HeaderValue) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for (name, weight) in weights(accepted) {
            let Some(coding) = Self::parse(name) else {
                continue;
            };
            let is_better = best.is_none_or(|(other, held)| {
                weight > other || (weight >= other && held == Self::Gzip)
            });
            if weight > 0.0 && is_better {
                best = Some((weight, coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    /// Inflates a body of at most `len_max` bytes, in memory of the bodies of its caller.
    pub async fn inflate_body(
        self,
        body: &[u8],
        len_max: usize,
        room: &BodyRoom<'_>,
    ) -> Result<(Bytes, MemoryPermit), InflateError> {
        let mut permit = room.memory.permit(room.caller);
        loop {
            match self
                .inflate(body, len_max, |len| permit.try_grow(len))
                .await
            {
                Err(InflateError::NoRoom { len, .. }) => {
                    // A waiting body holds no memory that another one waits for.
                    permit.resize(0);
                    let reserved = permit.reserve(len, room.patience).await;
                    reserved.map_err(|full| InflateError::NoRoom { len, full })?;
                }
                inflated => {
                    let inflated = inflated?;
                    permit.resize(inflated.len());
                    return Ok((inflated, permit));
                }
            }
        }
    }

    /// Inflates bytes to at most `len_max`. `hold` takes memory for a number of bytes; if it fails, the inflated
    /// bytes are given up.
    pub async fn inflate(
        self,
        body: &[u8],
        len_max: usize,
        mut hold: impl FnMut(usize) -> Result<(), Full>,
    ) -> Result<Bytes, InflateError> {
        let malformed = |_| InflateError::Malformed(self);
        let decoder = INFLATIONS.acquire().await;
        let mut reader: Box<dyn Read + Send + '_> = match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(body)),
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(body);
                let mut decoder = decoder.map_err(malformed)?;
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(malformed)?;
                Box::new(decoder)
            }
        };
        let mut inflated = Vec::new();
        loop {
            let len = inflated.len();
            if inflated.capacity() < len + STEP_LEN {
                let room = (2 * len).min(len_max).max(len) + STEP_LEN;
                hold(room).map_err(|full| InflateError::NoRoom { len: room, full })?;
                inflated.reserve_exact(room - len);
            }
            let step = (&mut *reader).take(STEP_LEN as u64);
            let read = { step }.read_to_end(&mut inflated).map_err(malformed)?;
            if inflated.len() > len_max {
                return Err(InflateError::TooLarge { len_max });
            }
            if read < STEP_LEN {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop((reader, decoder));
        inflated.shrink_to_fit();
        Ok(inflated.into())
    }

    /// Compresses a body as the connection takes it. Each piece of a stream is sent when it is there; its hold lasts
    /// until it is compressed. `permit` is given back at the end.
    pub fn compress(self, body: ReplyBody, permit: OwnedSemaphorePermit) -> ReplyBody {
        let Ok(encoder) = Encoder::new(self) else {
            return body;
        };
        let state = CompressedBody {
            body,
            encoder: Some(encoder),
            piece: Bytes::new(),
            _permit: permit,
        };
        ReplyBody::stream(stream::unfold(state, |mut state| async move {
            let piece = state.next().await?;
            Some((piece, state))
        }))
    }
}

/// Returns whether `Accept-Encoding` accepts all codings that a `Content-Encoding` lists. An absent field
/// accepts any.
pub fn is_accepted(accepted: Option<&HeaderValue>, codings: &[u8]) -> bool {
    let Some(accepted) = accepted else {
        return true;
    };
    codings.split(|&byte| byte == b',').all(|coding| {
        let coding = coding.trim_ascii();
        let weight_of = |wanted: &[u8]| {
            let mut found = weights(accepted).filter(|(name, _)| {
                name.eq_ignore_ascii_case(wanted)
                    || (ContentCoding::parse(name).is_some()
                        && ContentCoding::parse(name) == ContentCoding::parse(wanted))
            });
            found.next().map(|(_, weight)| weight)
        };
        let weight = weight_of(coding).or_else(|| weight_of(b"*"));
        coding.eq_ignore_ascii_case(b"identity") || weight.is_some_and(|weight| weight > 0.0)
    })
}

/// Returns whether `Accept-Encoding` names a coding. A wildcard or an absent field does not count: most clients that
/// send one do not mean to ask for a coding.
pub fn is_named(accepted: Option<&HeaderValue>, coding: ContentCoding) -> bool {
    let mut weights = accepted.into_iter().flat_map(weights);
    weights.any(|(name, weight)| ContentCoding::parse(name) == Some(coding) && weight > 0.0)
}

/// Returns the members of a field like `Accept-Encoding` or `Accept`, each with its weight (RFC 9110, section 12.4.2).
/// A weight that cannot be read is 0.
pub fn weights(accepted: &HeaderValue) -> impl Iterator<Item = (&[u8], f32)> {
    let parts = accepted.as_bytes().split(|&byte| byte == b',');
    parts.map(|part| {
        let mut fields = part.split(|&byte| byte == b';');
        let name = fields.next().unwrap_or_default().trim_ascii();
        let weight = fields.find_map(|field| {
            let field = field.trim_ascii();
            field
                .strip_prefix(b"q=")
                .or_else(|| field.strip_prefix(b"Q="))
        });
        let weight = weight.map_or(1.0, |text| {
            let text = std::str::from_utf8(text).unwrap_or_default();
            text.parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0)
        });
        (name, weight)
    })
}

/// A body that is being compressed.
struct CompressedBody {
    body: ReplyBody,
    /// `None` once it has ended.
    encoder: Option<Encoder>,
    /// The rest of the current piece, still to be compressed.
    piece: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl CompressedBody {
    async fn next(&mut self) -> Option<Result<Bytes, ReplyAborted>> {
        loop {
            let encoder = self.encoder.as_mut()?;
            if self.piece.is_empty() {
                match self.body.frame().await {
                    Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                    Some(Err(aborted)) => {
                        self.encoder = None;
                        return Some(Err(aborted));
                    }
                    None => {
                        let last = self.encoder.take()?.finish();
                        return Some(last.map(Bytes::from).map_err(|_| ReplyAborted));
                    }
                }
                continue;
            }
            let step = self.piece.split_to(self.piece.len().min(STEP_LEN));
            match encoder.write(&step, self.piece.is_empty()) {
                Ok(coded) if coded.is_empty() => tokio::task::yield_now().await,
                Ok(coded) => return Some(Ok(coded.into())),
                Err(_) => {
                    self.encoder = None;
                    return Some(Err(ReplyAborted));
                }
            }
        }
    }
}

enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: ContentCoding) -> std::io::Result<Self> {
        Ok(match coding {
            ContentCoding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(
                Vec::new(),
                flate2::Compression::fast(),
            )),
            ContentCoding::Zstd => {
                Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?)
            }
        })
    }

    /// Compresses bytes. Returns the finished output of these and earlier bytes; with a flush, all of it.
    fn write(&mut self, bytes: &[u8], is_flushed: bool) -> std::io::Result<Vec<u8>> {
        let writer: &mut dyn std::io::Write = match self {
            Self::Gzip(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
        };
        writer.write_all(bytes)?;
        if is_flushed {
            writer.flush()?;
        }
        Ok(std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }))
    }

    fn finish(self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::body::NoRequests;
    use crate::bounds::BODY_PARTS;
    use crate::memory::CallerMemory;

    const BOTH: [ContentCoding; 2] = [ContentCoding::Gzip, ContentCoding::Zstd];

    fn permit() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    async fn compressed(coding: ContentCoding, pieces: Vec<Bytes>) -> Bytes {
        let pieces = stream::iter(pieces.into_iter().map(Ok));
        let body = coding.compress(ReplyBody::stream(pieces), permit());
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn what_is_compressed_inflates_again_within_its_bound() {
        for coding in BOTH {
            for len in [0, 1, STEP_LEN - 1, STEP_LEN, 3 * STEP_LEN + 7] {
                let text = Bytes::from(vec![b'x'; len]);
                let coded =
                    compressed(coding, vec![text.clone(), Bytes::new(), text.clone()]).await;
                let whole = coding.inflate(&coded, 2 * len, |_| Ok(())).await.unwrap();
                assert_eq!(whole.len(), 2 * len);
                if len > 0 {
                    let len_max = 2 * len - 1;
                    let refused = coding.inflate(&coded, len_max, |_| Ok(())).await;
                    assert_eq!(refused, Err(InflateError::TooLarge { len_max }));
                    let cut = coding
                        .inflate(&coded[..coded.len() - 1], 2 * len, |_| Ok(()))
                        .await;
                    assert_eq!(cut, Err(InflateError::Malformed(coding)));
                }
            }
            let wrong = coding.inflate(b"{\"keys\":[]}", 100, |_| Ok(())).await;
            assert_eq!(wrong, Err(InflateError::Malformed(coding)));
        }
    }

    #[tokio::test]
    async fn nothing_is_inflated_without_memory_for_it() {
        for coding in BOTH {
            let coded = compressed(coding, vec![Bytes::from(vec![0; 1 << 20])]).await;
            let (mut held, budget) = (0, 256 << 10);
            let within = |len| {
                held = len;
                (len <= budget).then_some(()).ok_or(Full::Server)
            };
            let refused = coding.inflate(&coded, 8 << 20, within).await;
            let (len, full) = (held, Full::Server);
            assert_eq!(refused, Err(InflateError::NoRoom { len, full }));
            assert!(held > budget && held <= 2 * budget + STEP_LEN, "{held}");
            let counted = |len| {
                held = len;
                Ok(())
            };
            coding.inflate(&coded, 8 << 20, counted).await.unwrap();
            assert!(held <= (2 << 20) + STEP_LEN, "{held}");
            let memory = CallerMemory::new(4 << 20, BODY_PARTS);
            let room = |patience| BodyRoom {
                memory: &memory,
                caller: 1,
                patience,
                requests: &NoRequests,
            };
            let soon = room(Duration::from_millis(1));
            let (text, permit) = coding.inflate_body(&coded, 8 << 20, &soon).await.unwrap();
            assert_eq!((text.len(), permit.held_len()), (1 << 20, 1 << 20));
            let mut other = memory.permit(1);
            assert!(other.try_resize(1 << 20).is_ok());
            let full = coding.inflate_body(&coded, 8 << 20, &soon).await;
            assert!(matches!(full, Err(InflateError::NoRoom { .. })));
            assert_eq!(memory.held_bytes(), 2 << 20, "what failed holds nothing");
            let late = room(Duration::from_secs(20));
            let waiting = coding.inflate_body(&coded, 8 << 20, &late);
            let giving = async { drop((other, permit)) };
            assert!(tokio::join!(waiting, giving).0.is_ok());
        }
    }

    #[tokio::test]
    async fn each_piece_leaves_when_it_is_there_and_a_failure_cuts() {
        for coding in BOTH {
            let pieces = stream::iter([Ok(Bytes::from_static(b"one")), Err(ReplyAborted)]);
            let mut body = coding.compress(ReplyBody::stream(pieces), permit());
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(!first.is_empty());
            assert_eq!(body.frame().await.unwrap().unwrap_err(), ReplyAborted);
            assert!(body.frame().await.is_none());
        }
    }

    #[test]
    fn a_client_has_the_coding_that_it_prefers() {
        let preferred = |text| ContentCoding::preferred(&HeaderValue::from_static(text));
        for (accepted, coding) in [
            ("", None),
            ("identity", None),
            ("br, *", None),
            ("gzip;q=0", None),
            ("gzip;q=x", None),
            ("gzip, deflate, br", Some(ContentCoding::Gzip)),
            ("gzip, zstd", Some(ContentCoding::Zstd)),
            ("zstd, GZIP", Some(ContentCoding::Zstd)),
            ("zstd;q=0.5, gzip;q=0.8", Some(ContentCoding::Gzip)),
        ] {
            assert_eq!(preferred(accepted), coding, "{accepted}");
        }
    }

    #[test]
    fn a_coding_is_named_or_not() {
        let is = |accepted| {
            is_named(
                Some(&HeaderValue::from_static(accepted)),
                ContentCoding::Zstd,
            )
        };
        assert!(is("zstd") && is("gzip, ZSTD;q=0.1"));
        assert!(!is("") && !is("*") && !is("gzip, zstd;q=0") && !is("identity"));
        assert!(!is_named(None, ContentCoding::Zstd));
    }

    #[test]
    fn a_stored_coding_is_accepted_or_not() {
        let is = |accepted, codings: &str| {
            is_accepted(
                Some(&HeaderValue::from_static(accepted)),
                codings.as_bytes(),
            )
        };
        assert!(is_accepted(None, b"br"));
        for (accepted, codings) in [
            ("gzip", "gzip"),
            ("x-gzip", "gzip"),
            ("*", "br"),
            ("a, b", "a,b"),
            ("", "identity"),
        ] {
            assert!(is(accepted, codings), "{accepted}: {codings}");
        }
        for (accepted, codings) in [
            ("", "gzip"),
            ("identity", "gzip"),
            ("gzip;q=0, *", "gzip"),
            ("gzip", "gzip, br"),
        ] {
            assert!(!is(accepted, codings), "{accepted}: {codings}");
        }
    }
}
