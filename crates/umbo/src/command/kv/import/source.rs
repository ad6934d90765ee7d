//! The source of lines: a file or stdin, plain or compressed. Its first bytes determine the compression, not
//! its name. Counts the bytes read, for the progress bar.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cli_error::CliError;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_LEN: usize = 256 << 10;
/// Bytes of one read.
pub(super) const CHUNK_LEN: usize = 256 << 10;
/// Bytes that are shown of a line which is no row.
const SHOWN_LEN: usize = 60;

/// An open source.
pub(super) struct LineSource {
    /// The lines, decompressed.
    pub(super) reader: Box<dyn Read + Send>,
    /// Size of the file before decompression; none for stdin and other sources without a size.
    pub(super) size: Option<u64>,
    /// Bytes of it read so far.
    pub(super) read: Arc<AtomicU64>,
}

/// Opens a file, `-` for stdin.
pub(super) fn open(path: &Path) -> io::Result<LineSource> {
    let read = Arc::new(AtomicU64::new(0));
    let (inner, size): (Box<dyn Read + Send>, _) = if path.as_os_str() == "-" {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        (Box::new(file), metadata.is_file().then_some(metadata.len()))
    };
    let counted = CountingReader {
        inner,
        read: Arc::clone(&read),
    };
    Ok(LineSource {
        reader: decompressed(counted)?,
        size,
        read,
    })
}

fn decompressed(mut raw: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::with_capacity(ZSTD.len());
    raw.by_ref()
        .take(ZSTD.len() as u64)
        .read_to_end(&mut head)?;
    let (is_gzip, is_zstd) = (head.starts_with(GZIP), head.starts_with(ZSTD));
    let whole = io::Cursor::new(head).chain(raw);
    Ok(if is_gzip {
        let buffered = BufReader::with_capacity(BUFFER_LEN, whole);
        Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
    } else if is_zstd {
        let buffered = BufReader::with_capacity(BUFFER_LEN, whole);
        Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?)
    } else {
        Box::new(whole)
    })
}

struct CountingReader<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// Appends the bytes of one read; an interrupted read is repeated.
pub(super) fn read_some(source: &mut dyn Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let start = buffer.len();
    buffer.resize(start + CHUNK_LEN, 0);
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

/// Makes the error of a file that has no rows.
pub(super) fn not_rows(number: u64, line: &[u8]) -> CliError {
    let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN_LEN)]);
    let shown: String = shown.chars().filter(|one| !one.is_control()).collect();
    let is_text = std::str::from_utf8(&line[..line.len().min(SHOWN_LEN)]).is_ok();
    let kind = match line.first() {
        Some(b'[') => "a JSON array; convert it with: jq -c '.[]' FILE",
        _ if is_text && line.contains(&b',') => {
            "CSV; convert it, with: mlr --icsv --ojsonl cat FILE"
        }
        _ if is_text => "text",
        _ => "not text",
    };
    CliError::NotRows(format!(
        "line {number} is not a JSON object, and nothing was sent: '{shown}'\n  It looks like {kind}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read_all(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        decompressed(io::Cursor::new(bytes))?.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn the_first_bytes_tell_the_compression() {
        for text in [&b""[..], b"{", b"{\"pk\":\"a\"}\n"] {
            assert_eq!(read_all(text.to_vec()).unwrap(), text);
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text).unwrap();
            let gzip = gzip.finish().unwrap();
            assert_eq!(read_all(gzip.clone()).unwrap(), text);
            let two_members = [gzip.clone(), gzip].concat();
            assert_eq!(read_all(two_members).unwrap(), text.repeat(2));
            let zstd = zstd::encode_all(text, 1).unwrap();
            assert_eq!(read_all(zstd).unwrap(), text);
        }
    }

    #[test]
    fn a_file_cut_off_is_an_error() {
        let text: Vec<u8> = (0..9_999_u32).flat_map(u32::to_le_bytes).collect();
        let mut zstd = zstd::encode_all(&text[..], 1).unwrap();
        zstd.truncate(zstd.len() / 2);
        assert!(read_all(zstd).is_err());
    }
}
