//! The map of a cluster as it stands on the disk.

use std::path::Path;

use umbo_routing::ClusterMap;

use crate::failure::Failure;

/// Reads a map. One that anything is wrong with is refused as a whole, by name.
pub(crate) fn read(path: &Path) -> Result<ClusterMap, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    ClusterMap::parse(&text).map_err(|error| Failure::BadMap {
        path: path.to_owned(),
        error: Box::new(error),
    })
}
