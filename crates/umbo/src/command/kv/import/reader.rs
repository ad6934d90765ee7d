//! The reading half of an import, on a thread of its own: lines in, batches out to the lanes.
//!
//! The invariant: two lines with one key reach the server in their order. With a window, lines of
//! one key stand next to each other and in one batch, or in batches of one lane, which are sent
//! one after the other; and a window is begun only once the one before is done, unless all its
//! keys come after it. Without a window a key always goes to the same lane.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::mpsc::Sender as LaneSender;

use super::batch::{Batch, BatchLimits, Builder};
use super::failed::Reason;
use super::line::{self, Line};
use super::progress::Shared;
use super::window::{KeyBuf, Window};
use crate::failure::Failure;

/// Longest line: what one request can hold.
const LINE_LEN_MAX: usize = (16 << 20) - 1;
/// Bytes of a longer line that are kept, which nobody could send.
const EXCERPT_LEN: usize = 4 << 10;
const CHUNK_LEN: usize = 256 << 10;

/// What the reader needs to know.
#[derive(Debug)]
pub(super) struct ReaderOptions {
    /// Bounds of a batch.
    pub(super) limits: BatchLimits,
    /// Bytes of the window; 0 sorts nothing.
    pub(super) window_bytes: usize,
}

/// The reader.
pub(super) struct Reader<'a> {
    options: ReaderOptions,
    lanes: Vec<LaneSender<Batch>>,
    shared: &'a Shared,
    lines: u64,
    window: Window,
    next_lane: usize,
    /// Highest key of the window before, and where the end of its batches is awaited.
    before: Option<(KeyBuf, Receiver<()>)>,
    unsorted: Vec<Builder>,
    scratch: Vec<u8>,
}

/// Says that nobody takes batches any more: the import was stopped.
struct Stopped;

enum Ended {
    Failed(Failure),
    Stopped,
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        options: ReaderOptions,
        lanes: Vec<LaneSender<Batch>>,
        shared: &'a Shared,
    ) -> Self {
        Self {
            window: Window::with_room(options.window_bytes),
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

    /// Reads to the end, or until the import is stopped. What was read before an error of the
    /// source is sent all the same.
    pub(super) fn run(
        mut self,
        source: &mut dyn Read,
        failed: impl Fn(std::io::Error) -> Failure,
    ) -> Result<(), Failure> {
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

    /// Takes lines with their numbers in the file instead, to their end or until all is stopped.
    pub(super) fn run_lines<'l>(
        mut self,
        lines: impl Iterator<Item = (u64, &'l [u8])>,
    ) -> Result<(), Failure> {
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
            Ok(Line::Write { partition_len }) => self.write(line, partition_len),
            Ok(Line::Failed(range)) => self.again(line, &line[range]),
            Ok(Line::FailedText(range)) => match serde_json::from_slice::<String>(&line[range]) {
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
            Ok(Line::Write { partition_len }) => self.write(line, partition_len),
            // Not the entry, or it would grow with every try.
            Err(error) => self.refuse(line, error.to_string()).map_err(Ended::from),
            Ok(_) => {
                let detail = "an entry of a file of failed rows within another".to_owned();
                self.refuse(entry, detail).map_err(Ended::from)
            }
        }
    }

    fn refuse(&mut self, line: &[u8], detail: String) -> Result<(), Failure> {
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
            // Every batch of the window before holds a sender; none is ever used to send.
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

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Ended(Ended::Failed(failure))
    }
}

/// Appends what one read returns; a read that is interrupted is tried again.
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

fn send(lane: &LaneSender<Batch>, batch: Batch) -> Result<(), Stopped> {
    lane.blocking_send(batch).map_err(|_| Stopped)
}

/// Cuts a sorted window into batches. Says of each whether it begins with the key that the one
/// before ended with, which happens only where one key has more lines than a batch.
fn cut(
    window: &Window,
    limits: BatchLimits,
    guard: &Sender<()>,
    mut send: impl FnMut(Batch, bool) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    // A run of one key may overfill a batch, up to what the server takes.
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
