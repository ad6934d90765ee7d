//! The source of lines: a file, an object or stdin, plain or compressed. Its first bytes determine the compression, not
//! its name. Counts the bytes read, for the progress bar.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbo_rows::{ReadSeek, RowReader, RowsError};

use crate::cli_error::{CliError, usage};
use crate::command::location::{ObjectReader, is_object};

/// The input of an import.
pub(super) enum ImportInput {
    /// Lines of NDJSON.
    Lines(Box<dyn Read + Send>),
    /// Rows of CSV or Parquet.
    Table(RowReader),
}

/// An open source.
pub(in crate::command) struct LineSource {
    /// The lines, decompressed.
    pub(in crate::command) reader: Box<dyn Read + Send>,
    /// Size of the file before decompression; `None` for stdin and other sources without a size.
    pub(in crate::command) size: Option<u64>,
    /// Bytes of it read so far.
    pub(in crate::command) read: Arc<AtomicU64>,
}

/// Returns the size of a file or object, or `None` for a pipe and other sources without a size.
pub(super) fn size(path: &Path) -> io::Result<Option<u64>> {
    if is_object(path) {
        return Ok(Some(ObjectReader::open(path)?.meta.size));
    }
    let metadata = std::fs::metadata(path)?;
    Ok(metadata.is_file().then_some(metadata.len()))
}

/// Opens a file or object, `-` for stdin.
pub(in crate::command) fn open(path: &Path) -> io::Result<LineSource> {
    let read = Arc::new(AtomicU64::new(0));
    let (inner, size): (Box<dyn Read + Send>, _) = if path.as_os_str() == "-" {
        (Box::new(io::stdin()), None)
    } else if is_object(path) {
        let object = ObjectReader::open(path)?;
        let size = object.meta.size;
        (Box::new(object), Some(size))
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
        reader: umbo_rows::source::detected(counted)?.1,
        size,
        read,
    })
}

/// Opens a file or object that is read from any place; `read` is set to the place.
pub(in crate::command) fn open_counted(
    path: &Path,
    read: &Arc<AtomicU64>,
) -> io::Result<Box<dyn ReadSeek + Send>> {
    read.store(0, Ordering::Relaxed);
    let inner: Box<dyn ReadSeek + Send> = if is_object(path) {
        Box::new(ObjectReader::open(path)?)
    } else {
        Box::new(File::open(path)?)
    };
    let read = Arc::clone(read);
    Ok(Box::new(CountingReader { inner, read }))
}

impl<R: io::Seek> io::Seek for CountingReader<R> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
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

/// Makes the error of a file that has no rows.
pub(in crate::command) fn not_rows(number: u64, line: &[u8]) -> CliError {
    usage!("{}", RowsError::not_rows(number, line))
}
