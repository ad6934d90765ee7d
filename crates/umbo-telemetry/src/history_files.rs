//! The history in files, so that a restart keeps it.
//!
//! Owns the format and the names. A file is a sequence of blocks, each with its length and checksum; blocks are only
//! appended, once a minute, and a file is deleted as a whole when all of it is too old. That bounds the folder to
//! about 50 MiB with 512 series, and to a tenth of it with fifty. Seconds are not kept. A block that was cut off by
//! a crash is overwritten; a file with a damaged block is set aside, with what follows the block.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use umbo_api::observe::Event;
use xxhash_rust::xxh3::xxh3_64;

use crate::history::{History, LEVELS};
use crate::metric_names::series_by_name;
use crate::series::SeriesKey;

/// Begins every block: this format, and nothing else that ends up in the folder.
const MAGIC: [u8; 4] = *b"UmH1";
/// Bytes before the content of a block: magic, length, checksum.
const HEAD_LEN: usize = 16;
/// Longest content of a block; a longer one is damage.
const BLOCK_LEN_MAX: usize = 16 << 20;
/// Steps of a block: a minute of ten seconds, an hour of ten minutes.
const BLOCK_STEPS: u64 = 6;
/// Steps of a file, by level: four hours, five days. Seconds have none.
const FILE_STEPS: [u64; LEVELS.len()] = [0, 1_440, 720];
/// Ends the name of a file.
const SUFFIX: &str = ".history";
/// Most events of a minute that are kept: the newest.
const EVENTS_PER_APPEND: usize = 50;

const SAMPLES: u8 = 1;
const EVENTS: u8 = 2;

/// What the files held.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Happenings of before the restart.
    pub(crate) events: Vec<Event>,
    /// Files that were damaged, as they are called now.
    pub(crate) damaged: Vec<PathBuf>,
}

/// The files of one history.
#[derive(Debug)]
pub(crate) struct HistoryFiles {
    folder: PathBuf,
    /// By level: the next step to be written.
    next: [u64; LEVELS.len()],
    last_event: u64,
}

/// Blocks to be appended, by file.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Vec<(PathBuf, Vec<u8>)>);

impl HistoryFiles {
    /// Opens the files of a folder, which is made if it is absent, and restores the history up to `now`, in seconds
    /// since the Unix epoch.
    pub(crate) fn open(
        folder: &Path,
        now: u64,
        history: &mut History,
    ) -> io::Result<(Self, Restored)> {
        fs::create_dir_all(folder)?;
        let mut files = Self {
            folder: folder.to_owned(),
            next: [0; LEVELS.len()],
            last_event: 0,
        };
        let mut restored = Restored::default();
        for (level, file_steps) in FILE_STEPS.iter().enumerate().skip(1) {
            let now_step = now / LEVELS[level].step_seconds;
            for (first, path) in files.of_level(level)? {
                if first + file_steps + LEVELS[level].kept < now_step {
                    fs::remove_file(&path)?;
                    continue;
                }
                files.read(&path, now, history, &mut restored)?;
            }
            files.next[level] = history.end_of(level).unwrap_or(0);
        }
        files.last_event = restored
            .events
            .iter()
            .map(|event| event.id)
            .max()
            .unwrap_or(0);
        history.restored(now);
        Ok((files, restored))
    }

    /// Makes blocks of the steps that have ended since the last time, and of new events. Cheap enough for the time
    /// that the history is locked. Steps that fill no block yet are left for the next time, unless this is the last.
    pub(crate) fn blocks(&mut self, history: &History, events: &[Event], is_last: bool) -> Blocks {
        let mut blocks = Blocks::default();
        for (level, file_steps) in FILE_STEPS.into_iter().enumerate().skip(1) {
            let end = history.end() / LEVELS[level].step_seconds;
            let mut next = self.next[level].max(end.saturating_sub(LEVELS[level].kept));
            // A clock that went back leaves steps that are written again.
            next = next.min(end);
            while next < end {
                let steps = BLOCK_STEPS - next % BLOCK_STEPS;
                if !is_last && next + steps > end {
                    break;
                }
                let steps = steps.min(end - next);
                if let Some(content) = samples(history, level, next, steps) {
                    let path = self.path(level, next - next % file_steps);
                    blocks.0.push((path, block(&content)));
                }
                next += steps;
            }
            self.next[level] = next;
        }
        let last_event = self.last_event;
        let new = events.iter().filter(|event| event.id > last_event);
        let new: Vec<&Event> = new.collect();
        let new = &new[new.len().saturating_sub(EVENTS_PER_APPEND)..];
        if let Some(last) = new.last() {
            self.last_event = last.id;
            let mut content = vec![EVENTS];
            content.extend(serde_json::to_vec(new).expect("an event is numbers and texts"));
            let level = LEVELS.len() - 1;
            let step = last.at_ms / 1_000 / LEVELS[level].step_seconds;
            let path = self.path(level, step - step % FILE_STEPS[level]);
            blocks.0.push((path, block(&content)));
        }
        blocks
    }

    /// Appends blocks, and deletes files that are too old. Blocks that could not be appended are left out.
    pub(crate) fn append(&self, blocks: Blocks) -> io::Result<()> {
        for (path, block) in blocks.0 {
            let is_new = !path.exists();
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?
                .write_all(&block)?;
            if is_new {
                self.delete_old()?;
            }
        }
        Ok(())
    }

    fn delete_old(&self) -> io::Result<()> {
        for (level, file_steps) in FILE_STEPS.iter().enumerate().skip(1) {
            for (first, path) in self.of_level(level)? {
                if first + file_steps + LEVELS[level].kept < self.next[level] {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }

    fn path(&self, level: usize, first: u64) -> PathBuf {
        self.folder.join(format!("{level}-{first:012}{SUFFIX}"))
    }

    /// Returns the files of a level, oldest first, each with its first step.
    fn of_level(&self, level: usize) -> io::Result<Vec<(u64, PathBuf)>> {
        let prefix = format!("{level}-");
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            let first = name
                .strip_prefix(&prefix)
                .and_then(|name| name.strip_suffix(SUFFIX));
            if let Some(first) = first.and_then(|first| first.parse().ok()) {
                files.push((first, path));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Reads a file, cuts off a block that was not written whole, and sets a damaged file aside.
    fn read(
        &self,
        path: &Path,
        now: u64,
        history: &mut History,
        restored: &mut Restored,
    ) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        loop {
            let at = file.stream_position()?;
            match next_block(&mut file, len - at)? {
                BlockRead::Block(content) => {
                    let is_read = match content.split_first() {
                        Some((&SAMPLES, rest)) => restore(rest, now, history).is_some(),
                        Some((&EVENTS, rest)) => match serde_json::from_slice(rest) {
                            Ok(events) => {
                                let events: Vec<Event> = events;
                                restored.events.extend(events);
                                true
                            }
                            Err(_) => false,
                        },
                        _ => false,
                    };
                    if is_read {
                        continue;
                    }
                }
                BlockRead::End => return Ok(()),
                BlockRead::Torn => {
                    return file.set_len(at);
                }
                BlockRead::Damage => {}
            }
            // One of each level is kept for inspection; more would pile up.
            let level = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            let level = level.split('-').next().unwrap_or("");
            let aside = self.folder.join(format!("{level}.damaged"));
            fs::rename(path, &aside)?;
            restored.damaged.push(aside);
            return Ok(());
        }
    }
}

enum BlockRead {
    Block(Vec<u8>),
    End,
    /// The last block is not whole.
    Torn,
    Damage,
}

fn next_block(file: &mut File, left: u64) -> io::Result<BlockRead> {
    if left == 0 {
        return Ok(BlockRead::End);
    }
    let mut head = [0; HEAD_LEN];
    if left < HEAD_LEN as u64 {
        return Ok(BlockRead::Torn);
    }
    file.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let checksum = u64::from_le_bytes(*head.last_chunk().expect("a head has 16 bytes"));
    let rest = left - HEAD_LEN as u64;
    if head[..4] != MAGIC || len > BLOCK_LEN_MAX {
        // After a loss of power the end of a file may be zeros.
        let is_zero = head == [0; HEAD_LEN];
        return Ok(if is_zero {
            BlockRead::Torn
        } else {
            BlockRead::Damage
        });
    }
    if len as u64 > rest {
        return Ok(BlockRead::Torn);
    }
    let mut content = vec![0; len];
    file.read_exact(&mut content)?;
    Ok(match xxh3_64(&content) == checksum {
        true => BlockRead::Block(content),
        false if len as u64 == rest => BlockRead::Torn,
        false => BlockRead::Damage,
    })
}

fn block(content: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(HEAD_LEN + content.len());
    block.extend(MAGIC);
    block.extend((content.len() as u32).to_le_bytes());
    block.extend(xxh3_64(content).to_le_bytes());
    block.extend(content);
    block
}

/// Returns the content of a block of samples, or `None` without any value.
fn samples(history: &History, level: usize, first: u64, steps: u64) -> Option<Vec<u8>> {
    let mut content = vec![SAMPLES, level as u8, steps as u8];
    content.extend(first.to_le_bytes());
    let head_len = content.len();
    for (key, values) in history.steps(level, first..first + steps) {
        if values.iter().all(|value| value.is_nan()) {
            continue;
        }
        let name = key.series.name;
        content.push(name.len() as u8);
        content.extend(name.as_bytes());
        content.extend((key.value.len() as u16).to_le_bytes());
        content.extend(key.value.as_bytes());
        for value in values {
            content.extend(value.to_le_bytes());
        }
    }
    (content.len() > head_len).then_some(content)
}

/// Restores the samples of a block, or returns `None` if the block was not written by [`samples`]. Skips series that
/// this version does not keep.
fn restore(content: &[u8], now: u64, history: &mut History) -> Option<()> {
    let mut rest = content;
    let level = usize::from(take(&mut rest, 1)?[0]);
    let steps = u64::from(take(&mut rest, 1)?[0]);
    let first = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
    let end = now / LEVELS.get(level)?.step_seconds;
    while !rest.is_empty() {
        let name_len = take(&mut rest, 1)?[0];
        let name = std::str::from_utf8(take(&mut rest, name_len.into())?).ok()?;
        let label_len = u16::from_le_bytes(take(&mut rest, 2)?.try_into().ok()?);
        let label = std::str::from_utf8(take(&mut rest, label_len.into())?).ok()?;
        let values = take(&mut rest, steps as usize * 4)?;
        let Some(series) = series_by_name(name) else {
            continue;
        };
        let key = SeriesKey::new(series, label);
        for (step, value) in (first..end).zip(values.chunks_exact(4)) {
            let value = f32::from_le_bytes(value.try_into().ok()?);
            history.record_step(level, step, [(key.clone(), value)]);
        }
    }
    Some(())
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests;
