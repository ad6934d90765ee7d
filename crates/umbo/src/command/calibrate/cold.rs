//! Cold pages: the files of a store, dropped from the system's page cache.

use std::fs::File;
use std::path::Path;

/// Opens the files of all shards of a folder of data.
pub(super) fn open_files(folder: &Path) -> std::io::Result<Vec<File>> {
    let paths = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<_> = paths.collect::<Result<_, _>>()?;
    let files = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "redb"));
    files.map(File::open).collect()
}

/// Asks the system to drop the pages of files from its page cache, and returns whether their first pages are gone then.
#[cfg(target_os = "linux")]
pub(super) fn evict(files: &[File]) -> bool {
    use std::io::IoSliceMut;

    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let mut is_gone = true;
    for file in files {
        // Advice: a file system may ignore it.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let byte = &mut [0];
        let read = preadv2(
            file,
            &mut [IoSliceMut::new(byte)],
            0,
            ReadWriteFlags::NOWAIT,
        );
        is_gone &= matches!(read, Ok(0) | Err(Errno::AGAIN));
    }
    is_gone
}

/// Other systems have no such advice.
#[cfg(not(target_os = "linux"))]
pub(super) fn evict(_files: &[File]) -> bool {
    false
}
