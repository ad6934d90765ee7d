//! The source of a value that is sent in pieces.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use reqwest::Body;

/// Bytes that are read from a file at a time.
const READ_LEN: usize = 64 << 10;

type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// A value that is sent in pieces, from its beginning for each attempt.
#[derive(Clone)]
pub struct ValueSource {
    len: u64,
    open: Arc<dyn Fn() -> ByteStream + Send + Sync>,
}

impl ValueSource {
    /// Makes a source of `len` bytes. `open` returns all of them, each time that it is called.
    pub fn new<S>(len: u64, open: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let open = Arc::new(move || -> ByteStream { Box::pin(open()) });
        Self { len, open }
    }

    /// Makes the source of a file that has `len` bytes.
    pub fn file(path: PathBuf, len: u64) -> Self {
        Self::new(len, move || {
            let begun = Some((path.clone(), None));
            stream::unfold(begun, |state| async move {
                let (path, file) = state?;
                let read = tokio::task::spawn_blocking(move || read(path, file)).await;
                match read.unwrap_or_else(|defect| Err(io::Error::other(defect))) {
                    Ok((piece, _, _)) if piece.is_empty() => None,
                    Ok((piece, path, file)) => Some((Ok(piece), Some((path, Some(file))))),
                    Err(error) => Some((Err(error), None)),
                }
            })
        })
    }

    /// Returns the number of bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the number of bytes is zero.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the body of one attempt.
    pub(crate) fn body(&self) -> Body {
        Body::wrap_stream((self.open)())
    }
}

impl fmt::Debug for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueSource")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Reads the next piece of a file, and opens the file first if it is not open.
fn read(path: PathBuf, file: Option<File>) -> io::Result<(Bytes, PathBuf, File)> {
    let mut file = match file {
        Some(file) => file,
        None => File::open(&path)?,
    };
    let mut piece = vec![0; READ_LEN];
    let len = file.read(&mut piece)?;
    piece.truncate(len);
    Ok((piece.into(), path, file))
}
