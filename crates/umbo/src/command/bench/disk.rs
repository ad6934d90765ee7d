//! How long the disk of a folder takes to sync a small write: the least that a commit can take.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::phase::quantile_ms;
use crate::cli_error::CliError;

/// Longest time of the measurement.
const TIME_MAX: Duration = Duration::from_millis(500);
/// Most syncs of the measurement.
const SYNCS_MAX: usize = 200;
/// A page of the store, and of most disks.
const BLOCK_LEN: usize = 4 << 10;

/// Times of a sync of 4 KiB, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct DiskSample {
    pub(crate) sync_p50_ms: f64,
    pub(crate) sync_p99_ms: f64,
}

/// Appends small blocks to a file in the folder, and syncs each.
pub(crate) fn measure(folder: &Path) -> Result<DiskSample, CliError> {
    let path = folder.join("sync-probe");
    let mut times = probe(&path).map_err(CliError::file("write", &path))?;
    times.sort_unstable();
    Ok(DiskSample {
        sync_p50_ms: quantile_ms(&times, 500),
        sync_p99_ms: quantile_ms(&times, 990),
    })
}

fn probe(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = File::create(path)?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < SYNCS_MAX && begun.elapsed() < TIME_MAX {
        let at = Instant::now();
        file.write_all(&[0x5A; BLOCK_LEN])?;
        file.sync_data()?;
        times.push(at.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
