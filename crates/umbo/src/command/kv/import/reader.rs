//! The reading half of an import, on a thread of its own: lines in, batches out to the lanes.
//!
//! The invariant: two lines with one key reach the server in their order. With a window, lines of one key are
//! adjacent and in one batch, or in batches of one lane, which are sent one after the other; and a window is
//! begun only after the one before is done, unless all its keys come after it. Without a window a key always
//! goes to the same lane.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::mpsc::Sender as LaneSender;

use super::batch::{BatchLimits, Builder, ImportBatch};
use super::failed::Reason;
use super::line::{self, LineKind};
use super::progress::ImportState;
use super::window::{LineKeyBuf, SortWindow};
use crate::cli_error::CliError;

/// Longest line: the content of one request.
const LINE_LEN_MAX: usize = (16 << 20) - 1;
/// Bytes of a longer line that are kept; such a line cannot be sent.
const EXCERPT_LEN: usize = 4 << 10;
const CHUNK_LEN: usize = 256 << 10;

/// Settings of the reader.
#[derive(Debug)]
pub(super) struct ReaderOptions {
    /// Bounds of a batch.
    pub(super) limits: BatchLimits,
    /// Bytes of the window; 0 for no sorting.
    pub(super) window_bytes: usize,
}

/// The reader.
pub(super) struct LineReader<'a> {
    options: ReaderOptions,
    lanes: Vec<LaneSender<ImportBatch>>,
    shared: &'a ImportState,
    lines: u64,
    window: SortWindow,
    next_lane: usize,
    /// Highest key of the window before, and the channel that closes when its batches are done.
    before: Option<(LineKeyBuf, Receiver<()>)>,
    unsorted: Vec<Builder>,
    scratch: Vec<u8>,
}

/// No lane takes batches any more: the import was stopped.
struct Stopped;

enum Ended {
    Failed(CliError),
    Stopped,
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<CliError> for Ended {
    fn from(failure: CliError) -> Self {
        Self::Failed(failure)
    }
}

impl<'a> LineReader<'a> {
    pub(super) fn new(
        options: ReaderOptions,
        lanes: Vec<LaneSender<ImportBatch>>,
        shared: &'a ImportState,
    ) -> Self {
        Self {
            window: SortWindow::with_room(options.window_bytes),
            options,
            unsorted: lanes.iter().map(|_| Builder::default()).collect(),
            lanes,
            shared,
            lines: 0,
            next_lane: 0,
            before: None,
            scratch: Vec::new(),
        }
    }

    /// Reads to the end, or until the import is stopped. Lines from before an error of the source are still
    /// sent.
    pub(super) fn run(
        mut self,
        source: &mut dyn Read,
        failed: impl Fn(std::io::Error) -> CliError,
    ) -> Result<(), CliError> {
        let read = self.read(source);
        let rest = match &read {
            Err(ReadError::Ended(Ended::Stopped)) => Ok(()),
            _ => self.finish().map_or_else(|Stopped| Ok(()), Ok),
        };
        match read {
            Ok(()) | Err(ReadError::Ended(Ended::Stopped)) => rest,
            Err(ReadError::Ended(Ended::Failed(failure))) => Err(failure),
            Err(ReadError::Source(error)) => Err(failed(error)),
        }
    }

    /// As [`Self::run`], for lines that come with their numbers in the file.
    pub(super) fn run_lines<'l>(
        mut self,
        lines: impl Iterator<Item = (u64, &'l [u8])>,
    ) -> Result<(), CliError> {
        for (number, line) in lines {
            self.lines = number.saturating_sub(1);
            match self.line(line) {
                Ok(()) => {}
                Err(Ended::Stopped) => return Ok(()),
                Err(Ended::Failed(failure)) => return Err(failure),
            }
        }
        self.finish().map_or_else(|Stopped| Ok(()), Ok)
    }

    fn read(&mut self, source: &mut dyn Read) -> Result<(), ReadError> {
        let mut buffer: Vec<u8> = Vec::with_capacity(2 * CHUNK_LEN);
        let mut is_skipping = false;
        loop {
            let start = buffer.len();
            let len = read_some(source, &mut buffer).map_err(ReadError::Source)?;
            if len == 0 {
                break;
            }
            let mut at = 0;
            for newline in memchr::memchr_iter(b'\n', &buffer[start..]) {
                let end = start + newline;
                if !std::mem::take(&mut is_skipping) {
                    self.line(&buffer[at..end])?;
                }
                at = end + 1;
            }
            buffer.drain(..at);
            if buffer.len() > LINE_LEN_MAX {
                if !std::mem::replace(&mut is_skipping, true) {
                    self.lines += 1;
                    let detail = format!("the line has more than {LINE_LEN_MAX} bytes");
                    self.refuse(&buffer[..EXCERPT_LEN], detail)?;
                }
                buffer.clear();
            } else if is_skipping {
                buffer.clear();
            }
        }
        if !buffer.is_empty() && !is_skipping {
            self.line(&buffer)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Ended> {
        self.lines += 1;
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if self.lines == 1 => rest,
            _ => line,
        };
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        match line::read(line, &mut self.scratch) {
            Ok(LineKind::Write { partition_len }) => self.write(line, partition_len),
            Ok(LineKind::Failed(range)) => self.again(line, &line[range]),
            Ok(LineKind::FailedText(range)) => match serde_json::from_slice::<String>(&line[range])
            {
                Ok(text) => self.again(line, text.trim().as_bytes()),
                Err(error) => self.refuse(line, error.to_string()).map_err(Ended::from),
            },
            Err(error) => self.refuse(line, error.to_string()).map_err(Ended::from),
        }
    }

    /// Takes the line inside an entry of a file of failed rows.
    fn again(&mut self, entry: &[u8], line: &[u8]) -> Result<(), Ended> {
        self.scratch.clear();
        match line::read(line, &mut self.scratch) {
            Ok(LineKind::Write { partition_len }) => self.write(line, partition_len),
            // The line, not the entry, which would otherwise grow with every attempt.
            Err(error) => self.refuse(line, error.to_string()).map_err(Ended::from),
            Ok(_) => {
                let detail = "an entry of a file of failed rows within another".to_owned();
                self.refuse(entry, detail).map_err(Ended::from)
            }
        }
    }

    fn refuse(&mut self, line: &[u8], detail: String) -> Result<(), CliError> {
        self.shared
            .fail(line, &Reason::malformed(self.lines, detail))
    }

    fn write(&mut self, line: &[u8], partition_len: u16) -> Result<(), Ended> {
        if self.shared.is_stopped() {
            return Err(Ended::Stopped);
        }
        let (limits, number) = (self.options.limits, self.lines);
        if self.options.window_bytes == 0 {
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            let place = (hasher.hash_one(&self.scratch) % self.lanes.len() as u64) as usize;
            let builder = &mut self.unsorted[place];
            if builder.is_full_for(line.len(), limits) {
                send(&self.lanes[place], builder.take(None))?;
            }
            builder.push(line, number, limits);
            return Ok(());
        }
        if self.window.bytes() + line.len() > self.options.window_bytes {
            self.send_window()?;
        }
        self.window.keys().extend_from_slice(&self.scratch);
        self.window.push(line, number, partition_len);
        Ok(())
    }

    fn send_window(&mut self) -> Result<(), Stopped> {
        if self.window.is_empty() {
            return Ok(());
        }
        self.window.sort();
        let first = self.window.iter().next();
        if let Some((highest, done)) = self.before.take()
            && !first.is_some_and(|first| first.key.is_after(&highest))
        {
            // Every batch of the window before holds a sender; it is never used to send.
            let _ = done.recv();
        }
        let (guard, done) = channel();
        cut(
            &self.window,
            self.options.limits,
            &guard,
            |batch, is_same_key| {
                if !is_same_key {
                    self.next_lane = (self.next_lane + 1) % self.lanes.len();
                }
                send(&self.lanes[self.next_lane], batch)
            },
        )?;
        let highest = self.window.last().map(|last| last.key.to_owned());
        self.before = highest.map(|highest| (highest, done));
        self.window.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Stopped> {
        self.send_window()?;
        for (builder, lane) in self.unsorted.iter_mut().zip(&self.lanes) {
            if !builder.is_empty() {
                send(lane, builder.take(None))?;
            }
        }
        Ok(())
    }
}

enum ReadError {
    Source(std::io::Error),
    Ended(Ended),
}

impl From<Ended> for ReadError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl From<CliError> for ReadError {
    fn from(failure: CliError) -> Self {
        Self::Ended(Ended::Failed(failure))
    }
}

/// Appends the bytes of one read; an interrupted read is repeated.
fn read_some(source: &mut dyn Read, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
    let start = buffer.len();
    buffer.resize(start + CHUNK_LEN, 0);
    loop {
        match source.read(&mut buffer[start..]) {
            Ok(len) => {
                buffer.truncate(start + len);
                return Ok(len);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                buffer.truncate(start);
                return Err(error);
            }
        }
    }
}

fn send(lane: &LaneSender<ImportBatch>, batch: ImportBatch) -> Result<(), Stopped> {
    lane.blocking_send(batch).map_err(|_| Stopped)
}

/// Cuts a sorted window into batches. Each is marked if it begins with the key that ended the batch before,
/// which happens only if one key has more lines than a batch.
fn cut(
    window: &SortWindow,
    limits: BatchLimits,
    guard: &Sender<()>,
    mut send: impl FnMut(ImportBatch, bool) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    // The lines of one key may exceed a batch, up to the limit of the server.
    let hard = BatchLimits {
        rows: limits.rows.max(umbo_types::limits::BATCH_ROWS_MAX),
        bytes: limits.bytes.max(LINE_LEN_MAX),
    };
    let mut builder = Builder::default();
    let (mut last_key, mut is_same_key) = (None, false);
    for placed in window.iter() {
        let is_run = last_key == Some(placed.key);
        let bounds = if is_run { hard } else { limits };
        if builder.is_full_for(placed.line.len(), bounds) {
            send(builder.take(Some(guard)), is_same_key)?;
            is_same_key = is_run;
        }
        builder.push(placed.line, placed.number, limits);
        last_key = Some(placed.key);
    }
    if builder.is_empty() {
        return Ok(());
    }
    send(builder.take(Some(guard)), is_same_key)
}
