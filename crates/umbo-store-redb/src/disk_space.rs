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

#[cfg(not(target_os = "linux"))]
pub(crate) fn disk_space(_folder: &Path) -> Option<DiskSpace> {
    None
}
