//! The thread that writes an export, and its checkpoints.
//!
//! The invariant of a checkpoint: the first `file_bytes` bytes of the part file are complete frames of its compression,
//! and hold exactly the rows before the recorded places of all segments. Later bytes are cut off when the export is
//! continued.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use umbo_api::ru::Ru;
use umbo_api::stream::{End, EndLine, EndReason};
use umbo_client::RowPage;
use umbo_rows::{Coding, TableFormat, TableWriter};
use umbo_types::Namespace;

use crate::cli_error::{CliError, usage};
use crate::command::kv::file_name::{read_document, remove_file, with_suffix, write_document};
use crate::command::kv::format::FileFormat;
use crate::command::location::{ObjectWriter, is_object};

/// Time between two checkpoints. Each one ends a frame, which costs compression a little.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(2);

/// How to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileCompression {
    /// gzip
    Gzip,
    /// zstd
    Zstd,
}

/// A page of a segment.
#[derive(Debug)]
pub(super) struct SegmentPage {
    pub(super) segment: usize,
    pub(super) page: RowPage,
    /// Rows of the page that were left out.
    pub(super) left_out: u64,
}

/// Where the reading of a segment is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SegmentPlace {
    /// Nothing was read.
    Start,
    /// At this cursor.
    At(String),
    /// All of it was read.
    Done,
}

/// Progress of an export, in a file next to the exported one: `FILE.progress`, one JSON object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportProgress {
    namespace: String,
    #[serde(default)]
    format: FileFormat,
    compression: Option<FileCompression>,
    /// Place of each segment.
    pub(super) places: Vec<SegmentPlace>,
    /// Rows written.
    pub(super) rows: u64,
    /// Rows left out.
    #[serde(default)]
    pub(super) left_out: u64,
    /// Bytes of the written rows before compression.
    pub(super) text_bytes: u64,
    /// Valid bytes of the part file.
    file_bytes: u64,
}

impl ExportProgress {
    /// Begins an export.
    pub(super) fn begin(
        ns: &Namespace,
        segments: u32,
        format: FileFormat,
        compression: Option<FileCompression>,
    ) -> Self {
        Self {
            namespace: ns.as_str().to_owned(),
            format,
            compression,
            places: vec![SegmentPlace::Start; segments as usize],
            ..Self::default()
        }
    }

    /// Loads the progress of an export to a file, or returns `None` if the progress does not exist.
    pub(super) fn load(file: &Path) -> Result<Option<Self>, CliError> {
        read_document(&progress_path(file), "the progress of an export")
    }

    /// Checks that it is the progress of the same export as `anew`, which would begin now.
    pub(super) fn check(&self, file: &Path, anew: &Self) -> Result<(), CliError> {
        let len = std::fs::metadata(part_path(file)).map_or(0, |metadata| metadata.len());
        let differences = [
            (self.namespace != anew.namespace, "was of another namespace"),
            (self.format != anew.format, "was in another format"),
            (
                self.compression != anew.compression,
                "was compressed in another way",
            ),
            (len < self.file_bytes, "has lost a part of its rows"),
        ];
        let file = file.display();
        let found = differences.into_iter().find(|(is_so, _)| *is_so);
        found.map_or(Ok(()), |(_, reason)| {
            Err(usage!(
                "the export to {file} that was interrupted {reason}; leave out --resume to begin anew"
            ))
        })
    }

    /// Returns whether an export that was interrupted can be continued: Parquet has no rows without its end.
    pub(super) fn is_resumable(&self) -> bool {
        self.format != FileFormat::Parquet
    }

    /// Begins a frame of the output; a file that is continued has its header already.
    fn frame(&self, out: Out, is_continued: bool) -> io::Result<TableWriter<Out>> {
        let format = match self.format {
            FileFormat::Ndjson => TableFormat::Lines,
            FileFormat::Csv => TableFormat::Csv,
            FileFormat::Parquet => TableFormat::Parquet,
        };
        let coding = match self.compression {
            None => Coding::Identity,
            Some(FileCompression::Gzip) => Coding::Gzip,
            Some(FileCompression::Zstd) => Coding::Zstd,
        };
        Ok(TableWriter::new(format, coding, out, is_continued)?)
    }

    fn take(&mut self, of: SegmentPage) {
        self.rows += of.page.rows;
        self.left_out += of.left_out;
        let place = of.page.cursor.map(SegmentPlace::At);
        self.places[of.segment] = place.unwrap_or(SegmentPlace::Done);
    }
}

/// The writing thread.
pub(super) struct ExportWriter {
    written: oneshot::Receiver<Result<Output, CliError>>,
    rows: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    /// Name of the file or object.
    file: Option<PathBuf>,
}

impl ExportWriter {
    /// Starts the thread, which ends when no sender of pages is left.
    pub(super) fn start(
        file: Option<PathBuf>,
        progress: ExportProgress,
        pages: mpsc::Receiver<SegmentPage>,
    ) -> Result<Self, CliError> {
        let (done, written) = oneshot::channel();
        let writer = Self {
            written,
            rows: Arc::default(),
            bytes: Arc::default(),
            file: file.clone(),
        };
        let (rows, bytes) = (Arc::clone(&writer.rows), Arc::clone(&writer.bytes));
        std::thread::Builder::new()
            .name("umbo-export-writer".to_owned())
            .spawn(move || {
                let count = |progress: &ExportProgress| {
                    rows.store(progress.rows, Ordering::Relaxed);
                    bytes.store(progress.text_bytes, Ordering::Relaxed);
                };
                let output = Output::open(file.clone(), progress);
                let result = output.and_then(|output| output.take_all(pages, count));
                let part = |file: PathBuf| {
                    if is_object(&file) {
                        file
                    } else {
                        part_path(&file)
                    }
                };
                let part = file.map(part);
                // If the receiver is gone, the program ends.
                let _ = done.send(result.map_err(|error| failure(part.as_deref(), error)));
            })
            .map_err(CliError::start)?;
        Ok(writer)
    }

    /// Returns the rows written, and their bytes.
    pub(super) fn counts(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.rows), load(&self.bytes))
    }

    /// Waits for the thread. If everything was read, ends the file and gives it its name; otherwise keeps the written
    /// rows for a later run.
    pub(super) async fn finish(self, is_whole: bool) -> Result<ExportProgress, CliError> {
        let output = self.written.await;
        let mut output = output.map_err(|_| CliError::start("the writing thread has ended"))??;
        let ended = if is_whole {
            output.complete()
        } else {
            output.keep()
        };
        ended.map_err(|error| failure(self.file.as_deref(), error))?;
        Ok(output.progress)
    }
}

fn failure(file: Option<&Path>, error: io::Error) -> CliError {
    match file {
        Some(file) => CliError::file("write", file)(error),
        None => CliError::from_output(error),
    }
}

type Out = BufWriter<Box<dyn Sink>>;

/// The target of the written bytes.
trait Sink: Write + Send {
    /// Ends the output once all bytes are written.
    fn complete(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for io::Stdout {}

impl Sink for File {}

impl Sink for ObjectWriter {
    fn complete(&mut self) -> io::Result<()> {
        self.appear()
    }
}

/// The output of an export, and its progress.
struct Output {
    /// The file that has checkpoints: stdout has no file, and an object is complete or absent.
    file: Option<PathBuf>,
    /// The part file, to sync it and to learn its length.
    handle: Option<File>,
    frame: Option<TableWriter<Out>>,
    progress: ExportProgress,
}

impl Output {
    fn open(file: Option<PathBuf>, progress: ExportProgress) -> io::Result<Self> {
        let (object, file) = match file {
            Some(name) if is_object(&name) => (Some(ObjectWriter::create(&name)?), None),
            file => (None, file),
        };
        let open = |file: &PathBuf| {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false);
            let mut part = options.open(part_path(file))?;
            part.set_len(progress.file_bytes)?;
            part.seek(SeekFrom::End(0))?;
            Ok::<File, io::Error>(part)
        };
        let handle = file.as_ref().map(open).transpose()?;
        let out: Box<dyn Sink> = match (&handle, object) {
            (Some(part), _) => Box::new(part.try_clone()?),
            (None, Some(object)) => Box::new(object),
            (None, None) => Box::new(io::stdout()),
        };
        let out = BufWriter::with_capacity(256 << 10, out);
        Ok(Self {
            frame: Some(progress.frame(out, progress.file_bytes > 0)?),
            file,
            handle,
            progress,
        })
    }

    /// Writes pages until all senders are gone.
    fn take_all(
        mut self,
        mut pages: mpsc::Receiver<SegmentPage>,
        count: impl Fn(&ExportProgress),
    ) -> io::Result<Self> {
        let mut checkpoint_at = Instant::now() + CHECKPOINT_INTERVAL;
        while let Some(page) = pages.blocking_recv() {
            self.progress.text_bytes += self.write(&page.page.lines)?;
            self.progress.take(page);
            count(&self.progress);
            if self.file.is_none() || !self.progress.is_resumable() {
                // A reader of a pipe gets whole pages as they come.
                continue;
            }
            if Instant::now() >= checkpoint_at {
                self.checkpoint()?;
                checkpoint_at = Instant::now() + CHECKPOINT_INTERVAL;
            }
        }
        Ok(self)
    }

    /// Writes lines of NDJSON in the format of the export. Returns their bytes before compression.
    fn write(&mut self, lines: &[u8]) -> io::Result<u64> {
        match &mut self.frame {
            Some(frame) => Ok(frame.write_lines(lines)?),
            None => Err(io::Error::other("the last frame has ended")),
        }
    }

    /// Ends the frame, flushes it to the file, and returns the file.
    fn finish_frame(&mut self) -> io::Result<Option<Out>> {
        let Some(frame) = self.frame.take() else {
            return Ok(None);
        };
        let mut out = frame.finish()?;
        out.flush()?;
        Ok(Some(out))
    }

    fn end_frame(&mut self) -> io::Result<()> {
        let out = self.finish_frame()?;
        let next = out.map(|out| self.progress.frame(out, true)).transpose()?;
        self.frame = next;
        Ok(())
    }

    fn checkpoint(&mut self) -> io::Result<()> {
        self.end_frame()?;
        let (Some(file), Some(handle)) = (&self.file, &self.handle) else {
            return Ok(());
        };
        handle.sync_data()?;
        self.progress.file_bytes = handle.metadata()?.len();
        write_document(&progress_path(file), &self.progress)
    }

    /// Keeps the rows for a later run. Leaves no file if there are no rows, or if the export cannot be continued.
    fn keep(&mut self) -> io::Result<()> {
        let Some(file) = self.file.clone() else {
            return self.end_frame();
        };
        if self.progress.rows > 0 && self.progress.is_resumable() {
            return self.checkpoint();
        }
        std::fs::remove_file(part_path(&file))
    }

    /// Writes the end line of NDJSON, and gives the file its name.
    fn complete(&mut self) -> io::Result<()> {
        if self.progress.format == FileFormat::Ndjson {
            let end = End {
                more: false,
                cursor: None,
                why: EndReason::Done,
                cause: None,
                rows: self.progress.rows,
                expired: 0,
                bytes: self.progress.text_bytes,
                ru: Ru::default(),
            };
            let mut line = serde_json::to_vec(&EndLine { end })?;
            line.push(b'\n');
            self.write(&line)?;
        }
        if let Some(mut out) = self.finish_frame()? {
            out.get_mut().complete()?;
        }
        let (Some(file), Some(handle)) = (&self.file, &self.handle) else {
            return Ok(());
        };
        handle.sync_all()?;
        std::fs::rename(part_path(file), file)?;
        remove_file(&progress_path(file))
    }
}

fn part_path(file: &Path) -> PathBuf {
    with_suffix(file, ".part")
}

fn progress_path(file: &Path) -> PathBuf {
    with_suffix(file, ".progress")
}
