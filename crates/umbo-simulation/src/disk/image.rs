//! The contents of a simulated file: the bytes on the disk, and the bytes that readers see.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::chance::Chance;

/// Length of a sector, in bytes: the unit that a crash keeps or loses.
pub const SECTOR_LEN: usize = 512;

/// Length of a block, in bytes: the unit in which a file takes space.
const BLOCK_LEN: u64 = 4_096;

type Sector = [u8; SECTOR_LEN];

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// The bytes on the disk.
    durable: Vec<u8>,
    /// The bytes that readers see.
    current: Vec<u8>,
    /// Versions of sectors that were written since the last sync, in order.
    unsynced: BTreeMap<usize, Vec<Sector>>,
    /// Lengths that the file has had since the last sync.
    unsynced_lens: Vec<usize>,
    /// Sectors that cannot be read until they are written.
    unreadable: BTreeSet<usize>,
    /// Blocks that were written: the others take no space on the disk.
    written: BTreeSet<u64>,
}

impl Image {
    /// Makes a synced file.
    pub(super) fn of(contents: Vec<u8>) -> Self {
        Self {
            written: blocks_of(0, contents.len()).collect(),
            durable: contents.clone(),
            current: contents,
            ..Self::default()
        }
    }

    /// Returns the bytes that readers see.
    pub(super) fn contents(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    /// Returns the space that it takes on the disk, in bytes.
    pub(super) fn space(&self) -> u64 {
        self.written.len() as u64 * BLOCK_LEN
    }

    /// Returns the space that it takes more once so many bytes are written at an offset.
    pub(super) fn space_for(&self, offset: u64, len: usize) -> u64 {
        let new = blocks_of(offset, len).filter(|block| !self.written.contains(block));
        new.count() as u64 * BLOCK_LEN
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        let to = from + out.len();
        let Some(bytes) = self.current.get(from..to) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut sectors = self.unreadable.range(from / SECTOR_LEN..);
        if sectors
            .next()
            .is_some_and(|sector| sector * SECTOR_LEN < to)
        {
            return Err(io::Error::other("a bad sector"));
        }
        out.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = offset as usize;
        let to = from + data.len();
        let Some(bytes) = self.current.get_mut(from..to) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        bytes.copy_from_slice(data);
        self.written.extend(blocks_of(offset, data.len()));
        for sector in from / SECTOR_LEN..to.div_ceil(SECTOR_LEN) {
            let version = sector_of(&self.current, sector);
            self.unsynced.entry(sector).or_default().push(version);
            self.unreadable.remove(&sector);
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.unsynced_lens.push(self.current.len());
        self.current.resize(len as usize, 0);
        self.written.split_off(&len.div_ceil(BLOCK_LEN));
    }

    pub(super) fn sync(&mut self) {
        self.unsynced_lens.clear();
        self.durable.resize(self.current.len(), 0);
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            if let Some(last) = versions.last() {
                put_sector(&mut self.durable, sector, last);
            }
        }
    }

    /// Some pending sectors reach the disk, the others are forgotten: readers see them, but no later sync
    /// writes them.
    pub(super) fn fail_sync(&mut self, chance: &mut Chance) {
        self.durable.resize(self.current.len(), 0);
        self.unsynced_lens.clear();
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            if chance.per_mille(500)
                && let Some(last) = versions.last()
            {
                put_sector(&mut self.durable, sector, last);
            }
        }
    }

    /// Loses sectors that were not synced, at random. Returns the number of pending sectors.
    pub(super) fn crash(&mut self, chance: &mut Chance) -> usize {
        let unsynced = std::mem::take(&mut self.unsynced);
        let mut lens = std::mem::take(&mut self.unsynced_lens);
        if !lens.is_empty() {
            lens.push(self.current.len());
            self.durable.resize(lens[chance.index(lens.len())], 0);
        }
        // Sometimes all or nothing: a completed flush and none at all are likely, too.
        let keep_per_mille = chance.weighted(&[(2, 500), (1, 0), (1, 1_000), (1, 900), (1, 100)]);
        let count = unsynced.len();
        for (sector, versions) in unsynced {
            if !chance.per_mille(keep_per_mille) {
                continue;
            }
            let at = if chance.per_mille(700) {
                versions.len() - 1
            } else {
                chance.index(versions.len())
            };
            put_sector(&mut self.durable, sector, &versions[at]);
        }
        self.current.clone_from(&self.durable);
        self.written.split_off(&self.len().div_ceil(BLOCK_LEN));
        count
    }

    pub(super) fn heal(&mut self) {
        self.unreadable.clear();
    }

    pub(super) fn spoil(&mut self, bytes: &[u8]) -> bool {
        let middle = bytes.len() / 2;
        let places = memchr::memmem::find_iter(&self.current, bytes);
        let sectors: Vec<_> = places.map(|at| (at + middle) / SECTOR_LEN).collect();
        self.unreadable.extend(&sectors);
        !sectors.is_empty()
    }

    pub(super) fn flip(&mut self, bytes: &[u8]) -> bool {
        let mut is_there = false;
        for content in [&mut self.current, &mut self.durable] {
            let mut from = 0;
            while let Some(at) = find(&content[from..], bytes) {
                content[from + at + bytes.len() / 2] ^= 0x10;
                from += at + bytes.len();
                is_there = true;
            }
        }
        is_there
    }
}

/// Returns the blocks that some bytes of a file are in.
fn blocks_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    offset / BLOCK_LEN..(offset + len as u64).div_ceil(BLOCK_LEN)
}

fn sector_of(content: &[u8], sector: usize) -> Sector {
    let from = sector * SECTOR_LEN;
    let to = content.len().min(from + SECTOR_LEN);
    let mut copy = [0; SECTOR_LEN];
    copy[..to - from].copy_from_slice(&content[from..to]);
    copy
}

fn put_sector(content: &mut [u8], sector: usize, version: &Sector) {
    let from = sector * SECTOR_LEN;
    let to = content.len().min(from + SECTOR_LEN);
    if from < to {
        content[from..to].copy_from_slice(&version[..to - from]);
    }
}

fn find(content: &[u8], bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(content, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(image: &mut Image, offset: u64, byte: u8) {
        image.write(offset, &[byte; SECTOR_LEN]).unwrap();
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_of_the_rest_one_of_its_versions() {
        let (mut old, mut middle, mut new) = (0, 0, 0);
        for seed in 0..200 {
            let mut image = Image::default();
            image.set_len(2 * SECTOR_LEN as u64);
            written(&mut image, 0, 1);
            written(&mut image, SECTOR_LEN as u64, 9);
            image.sync();
            written(&mut image, 0, 2);
            written(&mut image, 0, 3);
            image.crash(&mut Chance::new(seed, "crash"));
            let mut seen = [0; 2 * SECTOR_LEN];
            image.read(0, &mut seen).unwrap();
            assert!(seen[..SECTOR_LEN].iter().all(|&byte| byte == seen[0]));
            assert!(seen[SECTOR_LEN..].iter().all(|&byte| byte == 9));
            match seen[0] {
                1 => old += 1,
                2 => middle += 1,
                3 => new += 1,
                other => panic!("{other} was never written"),
            }
        }
        assert!(old > 0 && middle > 0 && new > 0);
    }

    #[test]
    fn what_a_failed_sync_has_lost_is_seen_until_the_power_fails() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut chance = Chance::new(seed, "sync");
            let mut image = Image::default();
            image.set_len(SECTOR_LEN as u64);
            written(&mut image, 0, 1);
            image.sync();
            written(&mut image, 0, 2);
            image.fail_sync(&mut chance);
            image.sync();
            let mut seen = [0; SECTOR_LEN];
            image.read(0, &mut seen).unwrap();
            assert_eq!(seen[0], 2);
            image.crash(&mut chance);
            image.read(0, &mut seen).unwrap();
            lost += u64::from(seen[0] == 1);
        }
        assert!((10..40).contains(&lost));
    }

    #[test]
    fn a_bad_sector_is_readable_once_it_was_written() {
        let mut image = Image::default();
        image.set_len(4 * SECTOR_LEN as u64);
        written(&mut image, 1024, 7);
        assert!(image.spoil(&[7; 100]));
        assert!(image.read(0, &mut [0; 2048]).is_err());
        assert!(image.read(0, &mut [0; 1024]).is_ok());
        written(&mut image, 1024, 8);
        assert!(image.read(0, &mut [0; 2048]).is_ok());
    }
}
