//! Reading the part of a file that the system's page cache holds.
//!
//! Only Linux supports this (`RWF_NOWAIT`), and not on every file system. Elsewhere reads wait for the disk on the
//! calling thread, as they would without this module.

use std::path::Path;

use crate::opener::ReadAtOnce;

/// Opens a file for reads from the page cache, if the system supports them.
#[cfg(target_os = "linux")]
pub(crate) fn open(path: &Path) -> Option<Box<dyn ReadAtOnce>> {
    let file = std::fs::File::open(path).ok()?;
    let is_known = linux::read(&file, 0, &mut [0]).is_some();
    is_known.then(|| Box::new(linux::CachedFile(file)) as Box<dyn ReadAtOnce>)
}

/// Other systems do not support them.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open(_path: &Path) -> Option<Box<dyn ReadAtOnce>> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::IoSliceMut;

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use crate::opener::ReadAtOnce;

    #[derive(Debug)]
    pub(super) struct CachedFile(pub(super) File);

    impl ReadAtOnce for CachedFile {
        fn read_at_once(&self, offset: u64, out: &mut [u8]) -> bool {
            read(&self.0, offset, out) == Some(out.len())
        }
    }

    /// Returns how many bytes were in the page cache, or `None` if the system cannot tell.
    pub(super) fn read(file: &File, offset: u64, out: &mut [u8]) -> Option<usize> {
        let flags = ReadWriteFlags::NOWAIT;
        match preadv2(file, &mut [IoSliceMut::new(out)], offset, flags) {
            Ok(read) => Some(read),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => None,
            Err(_) => Some(0),
        }
    }
}
