//! The file of the cluster map.

use std::path::{Path, PathBuf};

use umbo_routing::{ClusterMap, SuccessionError};

use crate::cli_error::{CliError, Exit, usage};
use crate::settings::ClusterSection;

/// Returns the file of the map: the given one, or the one in the settings.
pub(crate) fn chosen(
    given: Option<PathBuf>,
    settings: &ClusterSection,
) -> Result<PathBuf, CliError> {
    let path = given.or_else(|| settings.map.as_ref().map(PathBuf::from));
    path.ok_or_else(|| usage!("there is no map: name one with --map, or in the settings"))
}

/// Reads a map. An invalid map is refused as a whole, with the file's name.
pub(crate) fn read(path: &Path) -> Result<ClusterMap, CliError> {
    let text = std::fs::read_to_string(path).map_err(CliError::file("read", path))?;
    ClusterMap::parse(&text).map_err(|error| usage!("{}: {error}", path.display()))
}

/// Makes an error of a map that does not follow the one in a file.
pub(crate) fn no_successor(before: &Path, error: &SuccessionError) -> CliError {
    let message = format_args!("the map does not follow {}: {error}", before.display());
    CliError::told(Exit::Precondition, message)
}
