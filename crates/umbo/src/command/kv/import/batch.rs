//! A batch to be sent: its lines, and the number of each in the input file; and how a window is cut into batches.

use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::window::SortWindow;

/// Longest line: the content of one request.
pub(super) const LINE_LEN_MAX: usize = umbo_rows::LINE_LEN_MAX;

/// Lines of one request.
#[derive(Debug)]
pub(super) struct ImportBatch {
    /// The lines, each with its newline.
    pub(super) body: Bytes,
    /// Where each line ends in the body, its newline included.
    ends: Vec<u32>,
    /// The number of each line in the file, from 1.
    numbers: Vec<u64>,
    /// Dropped with the batch: a channel closes when all batches of a window are dropped.
    _window: Option<Sender<()>>,
}

impl ImportBatch {
    /// Makes a batch of a single line.
    pub(super) fn of_line(line: &[u8], number: u64) -> Self {
        let limits = BatchLimits { rows: 1, bytes: 0 };
        let mut builder = Builder::default();
        builder.push(line, number, limits);
        builder.take(None)
    }

    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a line without its newline.
    pub(super) fn line(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.body[start as usize..self.ends[at] as usize - 1]
    }

    /// Returns the number of a line in its file.
    pub(super) fn number(&self, at: usize) -> u64 {
        self.numbers[at]
    }

    /// Returns the bytes of all lines but some.
    pub(super) fn bytes_without(&self, lines: &[usize]) -> u64 {
        let left_out: usize = lines.iter().map(|&at| self.line(at).len() + 1).sum();
        (self.body.len() - left_out) as u64
    }

    /// Returns the body of a request with only some of the lines.
    pub(super) fn body_of(&self, lines: &[usize]) -> Bytes {
        if lines.len() == self.len() {
            return self.body.clone();
        }
        let mut body = Vec::new();
        for &at in lines {
            body.extend_from_slice(self.line(at));
            body.push(b'\n');
        }
        body.into()
    }
}

/// Bounds of a batch. A single line larger than `bytes` is a batch of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    /// Most rows.
    pub(super) rows: usize,
    /// Most bytes.
    pub(super) bytes: usize,
}

/// A batch that is being filled.
#[derive(Debug, Default)]
pub(super) struct Builder {
    body: Vec<u8>,
    ends: Vec<u32>,
    numbers: Vec<u64>,
}

impl Builder {
    /// Returns whether it has no lines.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns whether one more line of this length would exceed a bound.
    pub(super) fn is_full_for(&self, len: usize, limits: BatchLimits) -> bool {
        !self.is_empty()
            && (self.ends.len() >= limits.rows || self.body.len() + len + 1 > limits.bytes)
    }

    /// Adds a line.
    pub(super) fn push(&mut self, line: &[u8], number: u64, limits: BatchLimits) {
        if self.is_empty() {
            self.body.reserve_exact(limits.bytes.max(line.len() + 1));
            self.ends.reserve_exact(limits.rows);
            self.numbers.reserve_exact(limits.rows);
        }
        self.body.extend_from_slice(line);
        self.body.push(b'\n');
        self.ends.push(self.body.len() as u32);
        self.numbers.push(number);
    }

    /// Takes the lines out as a batch.
    pub(super) fn take(&mut self, window: Option<&Sender<()>>) -> ImportBatch {
        let taken = std::mem::take(self);
        ImportBatch {
            body: taken.body.into(),
            ends: taken.ends,
            numbers: taken.numbers,
            _window: window.cloned(),
        }
    }
}

/// Cuts a sorted window into batches. Each is marked if it begins with the key that ended the batch before,
/// which happens only if one key has more lines than a batch.
pub(super) fn cut<E>(
    window: &SortWindow,
    limits: BatchLimits,
    guard: &Sender<()>,
    mut send: impl FnMut(ImportBatch, bool) -> Result<(), E>,
) -> Result<(), E> {
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
