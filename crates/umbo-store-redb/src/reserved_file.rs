//! Files that reserve bytes of the disk. Their bytes are given to other files later.

use std::fs::File;
use std::io;
use std::path::Path;

/// Fewest bytes that are given up or taken at once: few enough that other users of a full disk get hardly any of them.
pub(crate) const STEP_LEN: u64 = 64 << 10;

/// Returns whether an error says that the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Makes a file of reserved bytes longer or shorter. Returns its length, which is less than `len` if the disk is full.
pub(crate) fn set_reserved(path: &Path, len: u64) -> io::Result<u64> {
    if len == 0 {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(0),
        };
    }
    let mut options = File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let mut there = file.metadata()?.len();
    if there > len {
        file.set_len(len)?;
        return Ok(len);
    }
    while there < len {
        let step = STEP_LEN.min(len - there);
        match allocate(&file, there, step) {
            Ok(()) => there += step,
            Err(error) if is_full(&error) => {
                file.set_len(there)?;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(there)
}

/// Makes the disk keep bytes for a range at the end of a file.
fn allocate(file: &File, from: u64, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, len) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        allocated => return Ok(allocated?),
    }
    write_filler(file, from, len)
}

/// Like [`allocate`], if the system cannot allocate: writes bytes.
fn write_filler(mut file: &File, from: u64, len: u64) -> io::Result<()> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    file.seek(SeekFrom::Start(from))?;
    file.write_all(&vec![0x5A; len as usize])?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_reserved_where_the_system_does_not_allocate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve");
        let file = File::create(&path).unwrap();
        write_filler(&file, 0, STEP_LEN).unwrap();
        write_filler(&file, STEP_LEN, 1).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), STEP_LEN + 1);
    }
}
