//! The disk that has a data folder.

use std::path::Path;

use umbo_store::DiskSpace;

/// Returns the disk that has a folder.
#[cfg(target_os = "linux")]
pub(crate) fn disk_space(folder: &Path) -> Option<DiskSpace> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(DiskSpace {
        size: disk.f_blocks.saturating_mul(disk.f_frsize),
        free: disk.f_bavail.saturating_mul(disk.f_frsize),
    })
}

/// Returns how many bytes of the disk a file has, which may be fewer than its length.
#[cfg(unix)]
pub(crate) fn blocks_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    // The system counts in units of 512 bytes, regardless of the block size of the disk.
    Some(std::fs::metadata(path).ok()?.blocks() * 512)
}

#[cfg(not(unix))]
pub(crate) fn blocks_of(path: &Path) -> Option<u64> {
    Some(std::fs::metadata(path).ok()?.len())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn disk_space(_folder: &Path) -> Option<DiskSpace> {
    None
}
