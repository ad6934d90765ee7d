//! How long the disk of a folder takes to sync a small write: the least that a commit can take.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time of the measurement.
const TIME_MAX: Duration = Duration::from_millis(500);
/// Most syncs of the measurement.
const SYNCS_MAX: usize = 200;
/// A page of the store, and of most disks.
const BLOCK_LEN: usize = 4 << 10;

/// Appends small blocks to a new file and syncs each, and removes the file. Returns the median time of a sync and the
/// time that 99 of 100 syncs take at most, in milliseconds.
pub(super) fn sync_ms(path: &Path) -> io::Result<[f64; 2]> {
    let mut file = File::create(path)?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < SYNCS_MAX && begun.elapsed() < TIME_MAX {
        let at = Instant::now();
        file.write_all(&[0x5A; BLOCK_LEN])?;
        file.sync_data()?;
        times.push(at.elapsed());
    }
    std::fs::remove_file(path)?;
    times.sort_unstable();
    // There is at least one time.
    let part = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    Ok([part(50), part(99)])
}
