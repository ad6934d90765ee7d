//! Bytes in: decompressed, without a byte order mark. Errors of a decoder are distinguished from errors of its
//! source.

use std::io::{self, BufReader, Chain, Cursor, Read, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CodingError, RowsError};
use crate::format::Coding;

/// Bytes of one read.
pub(crate) const BUFFER_LEN: usize = 256 << 10;
/// The byte order mark that editors of Windows put before a text in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A source that can be read from any offset.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Returns a reader of the decoded bytes. An error of the decoder becomes [`crate::RowsError::Coding`].
pub fn decoded(
    coding: Coding,
    raw: impl Read + Send + 'static,
) -> io::Result<Box<dyn Read + Send>> {
    let has_failed = Arc::new(AtomicBool::new(false));
    let watched = Watched {
        inner: raw,
        has_failed: Arc::clone(&has_failed),
    };
    let buffered = BufReader::with_capacity(BUFFER_LEN, watched);
    let inner: Box<dyn Read + Send> = match coding {
        Coding::Identity => Box::new(buffered),
        Coding::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
        Coding::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
    };
    Ok(Box::new(CodingReader {
        inner,
        coding,
        has_failed,
    }))
}

/// Returns a reader of the decoded bytes, and the coding according to the first bytes.
pub fn detected(mut raw: impl Read + Send + 'static) -> io::Result<(Coding, Box<dyn Read + Send>)> {
    let mut head = Vec::with_capacity(Coding::FIRST_BYTES_LEN);
    raw.by_ref()
        .take(Coding::FIRST_BYTES_LEN as u64)
        .read_to_end(&mut head)?;
    let coding = Coding::of_first_bytes(&head);
    Ok((coding, decoded(coding, Cursor::new(head).chain(raw))?))
}

/// Decoded bytes without a byte order mark.
pub(crate) type Text = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

/// Returns a reader without the byte order mark at the beginning. Text in UTF-16 is refused.
pub(crate) fn without_mark(mut raw: Box<dyn Read + Send>) -> Result<Text, RowsError> {
    let mut head = Vec::with_capacity(BYTE_ORDER_MARK.len());
    raw.by_ref()
        .take(BYTE_ORDER_MARK.len() as u64)
        .read_to_end(&mut head)?;
    if head == BYTE_ORDER_MARK {
        head.clear();
    }
    // Rows begin with ASCII characters, which have a zero byte in UTF-16.
    if matches!(
        head[..],
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..]
    ) {
        return Err(RowsError::Utf16);
    }
    Ok(Cursor::new(head).chain(raw))
}

/// Appends the bytes of one read, up to 256 KiB, and returns their number, or 0 at the end of the source. An
/// interrupted read is repeated.
pub fn read_some(source: &mut dyn Read, buffer: &mut bytes::BytesMut) -> io::Result<usize> {
    let start = buffer.len();
    buffer.resize(start + BUFFER_LEN, 0);
    loop {
        match source.read(&mut buffer[start..]) {
            Ok(len) => {
                buffer.truncate(start + len);
                return Ok(len);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                buffer.truncate(start);
                return Err(error);
            }
        }
    }
}

/// Remembers whether the source of a decoder has failed.
struct Watched<R> {
    inner: R,
    has_failed: Arc<AtomicBool>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        if read
            .as_ref()
            .is_err_and(|error| error.kind() != io::ErrorKind::Interrupted)
        {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        read
    }
}

struct CodingReader {
    inner: Box<dyn Read + Send>,
    coding: Coding,
    has_failed: Arc<AtomicBool>,
}

impl Read for CodingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted || self.has_failed.load(Ordering::Relaxed)
            {
                return error;
            }
            let (coding, reason) = (self.coding, error.to_string());
            io::Error::new(error.kind(), CodingError { coding, reason })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read_all(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        detected(Cursor::new(bytes))?.1.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn the_first_bytes_tell_the_coding() {
        for text in [&b""[..], b"{", b"{\"pk\":\"a\"}\n"] {
            assert_eq!(read_all(text.to_vec()).unwrap(), text);
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text).unwrap();
            let gzip = gzip.finish().unwrap();
            assert_eq!(read_all(gzip.clone()).unwrap(), text);
            let two_members = [gzip.clone(), gzip].concat();
            assert_eq!(read_all(two_members).unwrap(), text.repeat(2));
            let zstd = zstd::encode_all(text, 1).unwrap();
            assert_eq!(read_all(zstd.clone()).unwrap(), text);
            assert_eq!(
                read_all([zstd.clone(), zstd].concat()).unwrap(),
                text.repeat(2)
            );
        }
    }

    #[test]
    fn a_file_cut_off_is_an_error_of_its_coding() {
        let text: Vec<u8> = (0..9_999_u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        for (mut bytes, coding) in [
            (zstd::encode_all(&text[..], 1).unwrap(), Coding::Zstd),
            (gzip.finish().unwrap(), Coding::Gzip),
        ] {
            bytes.truncate(bytes.len() / 2);
            let error = RowsError::from(read_all(bytes).unwrap_err());
            assert!(
                matches!(error, RowsError::Coding { coding: found, .. } if found == coding),
                "{error}"
            );
            assert!(error.is_of_content());
        }
    }

    #[test]
    fn an_error_of_the_source_is_not_one_of_the_coding() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("sector 7"))
            }
        }
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            let head = zstd::encode_all(&b"abc"[..], 1).unwrap();
            let head = if coding == Coding::Zstd {
                head[..6].to_vec()
            } else {
                Vec::new()
            };
            let mut reader = decoded(coding, Cursor::new(head).chain(Broken)).unwrap();
            let error = RowsError::from(reader.read_to_end(&mut Vec::new()).unwrap_err());
            assert!(!error.is_of_content(), "{coding}: {error}");
        }
    }
}
