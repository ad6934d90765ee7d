//! The file of the cluster map.

use std::path::Path;

use umbo_routing::ClusterMap;

use crate::cli_error::CliError;

/// Reads a map. An invalid map is refused as a whole, with the file's name.
pub(crate) fn read(path: &Path) -> Result<ClusterMap, CliError> {
    let text = std::fs::read_to_string(path).map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    ClusterMap::parse(&text).map_err(|error| CliError::BadMap {
        path: path.to_owned(),
        error: Box::new(error),
    })
}
