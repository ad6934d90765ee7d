//! The reading half of an import, on a thread of its own: lines in, batches out to the lanes.
//!
//! The invariant: two lines with one key reach the server in their order. With a window, lines of one key are
//! adjacent and in one batch, or in batches of one lane, which are sent one after the other; and a window is
//! begun only after the one before is done, unless all its keys come after it. Without a window a key always
//! goes to the same lane. Rows that waited for a shard are windows of their own: nothing else is under way while
//! they are sent.
//!
//! Checkpoints are made here, of the lines of windows that are done.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender as LaneSender;

use super::batch::{BatchLimits, Builder, ImportBatch};
use super::checkpoint::Checkpoint;
use super::end_lines::{EndCheck, StreamPart};
use super::failed::Reason;
use super::held::Released;
use super::line::{self, LineKind};
use super::progress::ImportState;
use super::window::{LineKeyBuf, SortWindow};
use crate::cli_error::CliError;

/// Longest line: the content of one request.
const LINE_LEN_MAX: usize = (16 << 20) - 1;
/// Bytes of a longer line that are kept; such a line cannot be sent.
const EXCERPT_LEN: usize = 4 << 10;
const CHUNK_LEN: usize = 256 << 10;
/// Bytes of a line that is no row that are shown.
const SHOWN_LEN: usize = 60;
/// Bytes of lines without a window after which all of them are done before the next ones are sent.
const UNSORTED_LEN: usize = 64 << 20;
/// Shortest time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at whether a shard is back, once there is nothing else to do.
const HELD_INTERVAL: Duration = Duration::from_millis(20);

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
    /// Lines read, and what they say of their number.
    place: Place,
    /// Lines that an earlier run has finished.
    lines_before: u64,
    has_row: bool,
    window: SortWindow,
    unsorted: Vec<Builder>,
    unsorted_bytes: usize,
    /// Every batch of the present window holds a sender, which is never used to send.
    guard: (Sender<()>, Receiver<()>),
    /// Windows that were sent, the oldest first.
    under_way: VecDeque<WindowUnderWay>,
    /// Highest key of the newest of them.
    highest: Option<LineKeyBuf>,
    next_lane: usize,
    scratch: Vec<u8>,
    checkpoints: Option<Checkpoints>,
}

/// A place in the input: the number of a line, and what the lines up to it say of their number.
#[derive(Debug, Clone, Default)]
struct Place {
    lines: u64,
    end: EndCheck,
}

/// A window whose batches may not all be done.
struct WindowUnderWay {
    /// Closes when they are.
    done: Receiver<()>,
    /// Where it ends.
    place: Place,
}

/// Records how far an import is.
struct Checkpoints {
    checkpoint: Checkpoint,
    rows_before: u64,
    saved_at: Instant,
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
            place: Place::default(),
            lines_before: 0,
            has_row: false,
            unsorted_bytes: 0,
            guard: channel(),
            under_way: VecDeque::new(),
            highest: None,
            next_lane: 0,
            scratch: Vec::new(),
            checkpoints: None,
        }
    }

    /// Makes checkpoints, and leaves out the lines that an earlier run has finished.
    pub(super) fn with_checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.lines_before = checkpoint.lines;
        self.place.end = checkpoint.end.clone();
        self.has_row = checkpoint.lines > 0;
        self.checkpoints = Some(Checkpoints {
            rows_before: checkpoint.rows,
            saved_at: Instant::now(),
            checkpoint,
        });
        self
    }

    /// Reads to the end, or until the import is stopped. Lines from before an error of the source are still
    /// sent.
    pub(super) fn run(
        mut self,
        source: &mut dyn Read,
        failed: impl Fn(std::io::Error) -> CliError,
    ) -> Result<(), CliError> {
        let result = self.run_source(source);
        self.wait_for_all();
        if result.is_err() || self.shared.is_stopped() {
            self.save_checkpoint();
        }
        match result {
            Ok(()) | Err(ReadError::Ended(Ended::Stopped)) => Ok(()),
            Err(ReadError::Ended(Ended::Failed(failure))) => Err(failure),
            Err(ReadError::Source(error)) => Err(failed(error)),
        }
    }

    fn run_source(&mut self, source: &mut dyn Read) -> Result<(), ReadError> {
        // What an earlier run has left comes before what it has not read.
        self.release_held()?;
        let read = self.read(source);
        if !matches!(read, Err(ReadError::Ended(_))) {
            self.finish()?;
        }
        if let (Ok(()), Some(missing)) = (&read, self.place.end.missing()) {
            self.shared.note_incomplete(missing);
        }
        read
    }

    /// As [`Self::run`], for lines of a file of failed rows, which come with their numbers.
    pub(super) fn run_lines<'l>(
        mut self,
        lines: impl Iterator<Item = (u64, &'l [u8])>,
    ) -> Result<(), CliError> {
        let send = || {
            for (number, line) in lines {
                self.place.lines = number;
                self.row(line.trim_ascii())?;
            }
            self.finish()
        };
        match send() {
            Err(Ended::Failed(failure)) => Err(failure),
            Ok(()) | Err(Ended::Stopped) => Ok(()),
        }
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
                    self.place.lines += 1;
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
        self.place.lines += 1;
        let number = self.place.lines;
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if number == 1 => rest,
            _ => line,
        };
        let line = line.trim_ascii();
        if line.is_empty() || number <= self.lines_before {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_row, true) && !line.starts_with(b"{") {
            return Err(Ended::Failed(not_rows(number, line)));
        }
        self.shared.count_read(line.len() as u64 + 1);
        match self.place.end.take(number, line) {
            StreamPart::Row => self.row(line),
            StreamPart::End => {
                self.shared.count_settled(line.len() as u64 + 1);
                Ok(())
            }
            StreamPart::Incomplete(how) => {
                self.shared.note_incomplete(how);
                Ok(())
            }
        }
    }

    fn row(&mut self, line: &[u8]) -> Result<(), Ended> {
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
            .fail(line, &Reason::malformed(self.place.lines, detail))
    }

    fn write(&mut self, line: &[u8], partition_len: u16) -> Result<(), Ended> {
        if self.shared.is_stopped() {
            return Err(Ended::Stopped);
        }
        self.push(line, self.place.lines, partition_len)?;
        if self.is_full() {
            self.send_window()?;
            self.save_checkpoint_if_due();
            self.release_held()?;
        }
        Ok(())
    }

    /// Adds a row whose key is in `scratch` to the window.
    fn push(&mut self, line: &[u8], number: u64, partition_len: u16) -> Result<(), Stopped> {
        if self.options.window_bytes > 0 {
            self.window.keys().extend_from_slice(&self.scratch);
            self.window.push(line, number, partition_len);
            return Ok(());
        }
        let limits = self.options.limits;
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let place = (hasher.hash_one(&self.scratch) % self.lanes.len() as u64) as usize;
        let builder = &mut self.unsorted[place];
        if builder.is_full_for(line.len(), limits) {
            send(&self.lanes[place], builder.take(Some(&self.guard.0)))?;
        }
        builder.push(line, number, limits);
        self.unsorted_bytes += line.len();
        Ok(())
    }

    fn is_full(&self) -> bool {
        match self.options.window_bytes {
            0 => self.unsorted_bytes >= UNSORTED_LEN,
            bytes => self.window.bytes() >= bytes,
        }
    }

    /// Sends what was gathered.
    fn send_window(&mut self) -> Result<(), Stopped> {
        let sent = self.send_sorted().and_then(|()| self.send_unsorted());
        let (_, done) = std::mem::replace(&mut self.guard, channel());
        let place = self.place.clone();
        self.under_way.push_back(WindowUnderWay { done, place });
        sent
    }

    fn send_sorted(&mut self) -> Result<(), Stopped> {
        if self.window.is_empty() {
            return Ok(());
        }
        self.window.sort();
        let first = self.window.iter().next();
        let is_after =
            |highest: &LineKeyBuf| first.is_some_and(|first| first.key.is_after(highest));
        if !self.highest.as_ref().is_none_or(is_after) {
            for window in &self.under_way {
                let _ = window.done.recv();
            }
        }
        let (limits, guard) = (self.options.limits, &self.guard.0);
        cut(&self.window, limits, guard, |batch, is_same_key| {
            if !is_same_key {
                self.next_lane = (self.next_lane + 1) % self.lanes.len();
            }
            send(&self.lanes[self.next_lane], batch)
        })?;
        self.highest = self.window.last().map(|last| last.key.to_owned());
        self.window.clear();
        Ok(())
    }

    fn send_unsorted(&mut self) -> Result<(), Stopped> {
        self.unsorted_bytes = 0;
        for (builder, lane) in self.unsorted.iter_mut().zip(&self.lanes) {
            if !builder.is_empty() {
                send(lane, builder.take(Some(&self.guard.0)))?;
            }
        }
        Ok(())
    }

    /// Waits until everything that was sent is done: written, failed or held.
    fn wait_for_all(&mut self) {
        for window in &self.under_way {
            let _ = window.done.recv();
        }
    }

    /// Sends the rows of all shards that are back, each in their order and with nothing else under way.
    fn release_held(&mut self) -> Result<(), Ended> {
        while self.shared.held().is_some_and(|held| held.has_back()) {
            self.wait_for_all();
            let released = match self.shared.held() {
                Some(mut held) => held.release()?,
                None => None,
            };
            let Some(Released {
                shard,
                mut rows,
                path,
            }) = released
            else {
                return Ok(());
            };
            while let Some(row) = rows.next()? {
                self.scratch.clear();
                if let Ok(LineKind::Write { partition_len }) =
                    line::read(&row.line, &mut self.scratch)
                {
                    self.push(&row.line, row.number, partition_len)?;
                }
                if self.is_full() {
                    self.send_window()?;
                    self.wait_for_all();
                }
            }
            self.send_window()?;
            self.wait_for_all();
            if let Some(mut held) = self.shared.held() {
                held.end_release(shard);
            }
            // Until here the last checkpoint names the file.
            self.save_checkpoint();
            // A file that is left says nothing wrong: no checkpoint names it.
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Sends the last rows, and waits for those that are held until their shards are back or patience ends.
    fn finish(&mut self) -> Result<(), Ended> {
        self.send_window()?;
        loop {
            self.wait_for_all();
            self.release_held()?;
            if self.shared.is_stopped() {
                return Err(Ended::Stopped);
            }
            if self.shared.held().is_none_or(|held| held.is_empty()) {
                return Ok(());
            }
            if !self.shared.goes_on(u32::MAX, None) {
                return Ok(self.shared.give_up_held()?);
            }
            std::thread::sleep(HELD_INTERVAL);
        }
    }

    fn save_checkpoint_if_due(&mut self) {
        let is_due = |made: &Checkpoints| made.saved_at.elapsed() >= CHECKPOINT_INTERVAL;
        if self.checkpoints.as_ref().is_some_and(is_due) {
            self.save_checkpoint();
        }
    }

    /// Saves how far the windows are that are done.
    fn save_checkpoint(&mut self) {
        let is_done =
            |window: &WindowUnderWay| window.done.try_recv() == Err(TryRecvError::Disconnected);
        let mut place = None;
        while self.under_way.front().is_some_and(is_done) {
            place = self.under_way.pop_front().map(|window| window.place);
        }
        let (Some(place), Some(made)) = (place, &mut self.checkpoints) else {
            return;
        };
        if let Err(failure) = made.save(place, self.shared) {
            self.checkpoints = None;
            self.shared
                .note(format!("{failure}; the import cannot be continued later"));
        }
    }
}

impl Checkpoints {
    fn save(&mut self, place: Place, shared: &ImportState) -> Result<(), CliError> {
        let checkpoint = &mut self.checkpoint;
        checkpoint.held = match shared.held() {
            Some(mut held) => held.sync()?,
            None => Vec::new(),
        };
        (checkpoint.failed_bytes, checkpoint.failed) = shared.sync_failed()?;
        // Rows that waited are sent before any line is read.
        (checkpoint.lines, checkpoint.end) = (checkpoint.lines.max(place.lines), place.end);
        checkpoint.rows = self.rows_before + shared.written();
        self.saved_at = Instant::now();
        checkpoint.save()
    }
}

/// Makes the error of a file that has no rows.
fn not_rows(number: u64, line: &[u8]) -> CliError {
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
