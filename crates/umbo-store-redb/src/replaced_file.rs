//! Small files of a data folder that are replaced as a whole: the manifest and the copy of Umbo's own records.
//!
//! Owns the file `spare`. It reserves bytes of the disk for these files, so that they can be replaced while the disk is
//! full.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::reserved_file::{is_full, set_reserved};

const SPARE_NAME: &str = "spare";
/// Fewest bytes of the spare file, and its length as a multiple of the length of the largest file that was replaced.
const SPARE_LEN_MIN: u64 = 64 << 10;
const SPARE_CONTENTS: u64 = 2;

/// Replaces a file of a folder atomically, also across a crash: a later read finds the old content or the new
/// one, and the new one once this has returned.
pub(crate) fn replace_file(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let spare = folder.join(SPARE_NAME);
    let replaced = match replace(folder, name, content) {
        Err(error) if is_full(&error) => {
            set_reserved(&spare, 0)?;
            replace(folder, name, content)
        }
        replaced => replaced,
    };
    let there = std::fs::metadata(&spare).map_or(0, |spare| spare.len());
    let wanted = SPARE_LEN_MIN.max(SPARE_CONTENTS * content.len() as u64);
    if there < wanted
        && let Err(reason) = set_reserved(&spare, wanted)
    {
        tracing::warn!(file = %spare.display(), %reason, "cannot reserve disk space for later changes");
    }
    replaced
}

fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(name))?;
    sync_folder(folder)
}

/// Makes the names of files in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
