//! Cold pages: files of which the system holds nothing in memory.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Drops the pages of all files of a folder from the memory of the system.
pub(super) fn evict(folder: &Path) -> Result<(), Failure> {
    let files = std::fs::read_dir(folder).map_err(Failure::io(folder.display().to_string()))?;
    for file in files {
        let path = file.map_err(Failure::io("a file of the data"))?.path();
        if path.is_file() {
            Command::new("dd")
                .arg(format!("if={}", path.display()))
                .args(["iflag=nocache", "count=0"])
                .stderr(Stdio::null())
                .status()
                .map_err(Failure::io("dd"))?;
        }
    }
    Ok(())
}
