//! The ordinary file system.

use std::fs::File;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend, StorageError};

use crate::opener::{Opener, ReadAtOnce};

/// The ordinary file system.
#[derive(Debug)]
pub(crate) struct PlainFiles;

impl Opener for PlainFiles {
    fn open(&self, path: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        let file = File::options().read(true).write(true).open(path);
        Ok(Box::new(FileBackend::new(file.map_err(StorageError::Io)?)?))
    }

    fn open_at_once(&self, path: &Path) -> Option<Box<dyn ReadAtOnce>> {
        crate::page_cache::open(path)
    }
}
