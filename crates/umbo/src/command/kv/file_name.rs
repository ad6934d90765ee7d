//! Names of files that stand beside another one.

use std::path::{Path, PathBuf};

/// Appends to the name of a file.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}
