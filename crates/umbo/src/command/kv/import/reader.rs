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
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::sync::mpsc::Sender as LaneSender;
use umbo_rows::source::{BYTE_ORDER_MARK, read_some};
use umbo_rows::{RowReader, RowsError};

use super::batch::{self, BatchLimits, Builder, ImportBatch, LINE_LEN_MAX};
use super::checkpoint::{Checkpoint, Checkpoints, InputPosition};
use super::end_lines::StreamPart;
use super::ended::{Ended, ReadError, Stopped};
use super::failed::LineFailure;
use super::held::Released;
use super::line::{self, LineKind};
use super::progress::ImportState;
use super::source::{self, ImportInput};
use super::window::{LineKeyBuf, SortWindow};
use crate::cli_error::CliError;

/// Bytes of a longer line that are kept; such a line cannot be sent.
const EXCERPT_LEN: usize = 4 << 10;
/// Bytes of lines without a window after which all of them are done before the next ones are sent.
const UNSORTED_LEN: usize = 64 << 20;
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
    place: InputPosition,
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

/// A window whose batches may not all be done.
struct WindowUnderWay {
    /// Closes when they are.
    done: Receiver<()>,
    /// Where it ends.
    place: InputPosition,
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
            place: InputPosition::default(),
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
        self.checkpoints = Some(Checkpoints::after(checkpoint));
        self
    }

    /// Reads to the end, or until the import is stopped. Lines from before an error of the source are still
    /// sent.
    pub(super) fn run(
        mut self,
        input: &mut ImportInput,
        failed: impl Fn(RowsError) -> CliError,
    ) -> Result<(), CliError> {
        let result = self.run_source(input);
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

    fn run_source(&mut self, input: &mut ImportInput) -> Result<(), ReadError> {
        // What an earlier run has left comes before what it has not read.
        self.release_held()?;
        let read = match input {
            ImportInput::Lines(source) => self.read(&mut **source),
            ImportInput::Table(rows) => self.read_table(rows),
        };
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
        let mut buffer = BytesMut::new();
        let mut is_skipping = false;
        loop {
            let start = buffer.len();
            let len = read_some(source, &mut buffer);
            let len = len.map_err(|error| ReadError::Source(error.into()))?;
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
            buffer.advance(at);
            if buffer.len() > LINE_LEN_MAX {
                if !std::mem::replace(&mut is_skipping, true) {
                    self.place.lines += 1;
                    let max_mib = (LINE_LEN_MAX + 1) >> 20;
                    let detail = format!("with its newline, the line is longer than {max_mib} MiB");
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

    /// Sends the rows of a table as lines.
    fn read_table(&mut self, rows: &mut RowReader) -> Result<(), ReadError> {
        let mut line = BytesMut::new();
        while let Some(row) = rows.next() {
            let row = row.map_err(ReadError::Source)?;
            self.place.lines = rows.line();
            if self.place.lines <= self.lines_before {
                continue;
            }
            line.clear();
            match row {
                Ok(row) => umbo_rows::line::write(&row, &mut line),
                Err(rejected) => {
                    self.shared.count_read(rejected.bytes.len() as u64 + 1);
                    self.refuse(&rejected.bytes, rejected.reason.to_string())?;
                    continue;
                }
            }
            let line = line.trim_ascii();
            self.shared.count_read(line.len() as u64 + 1);
            self.row(line)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Ended> {
        self.place.lines += 1;
        let number = self.place.lines;
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => rest,
            _ => line,
        };
        let line = line.trim_ascii();
        if line.is_empty() || number <= self.lines_before {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_row, true) && !line.starts_with(b"{") {
            return Err(Ended::Failed(source::not_rows(number, line)));
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
            .fail(line, &LineFailure::malformed(self.place.lines, detail))
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
        batch::cut(&self.window, limits, guard, |batch, is_same_key| {
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
        if self.checkpoints.as_ref().is_some_and(Checkpoints::is_due) {
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

fn send(lane: &LaneSender<ImportBatch>, batch: ImportBatch) -> Result<(), Stopped> {
    lane.blocking_send(batch).map_err(|_| Stopped)
}
