//! Where a backup is: a folder, or a place in an object store.

use std::path::absolute;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, parse_url_opts};

use crate::cli_error::CliError;

/// Variables of the environment that say how an object store is reached begin with these.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Where a backup is.
pub(in crate::command) struct Location {
    store: Box<dyn ObjectStore>,
    path: Path,
    text: String,
}

impl Location {
    /// Opens a folder, which is created where there is none, or a place in an object store.
    pub(in crate::command) fn open(text: &str) -> Result<Self, CliError> {
        let bad = |reason: String| CliError::backup(format_args!("{text}: {reason}"));
        let text = text.trim_end_matches('/');
        let (store, path) = match text.parse() {
            Ok(url) if text.contains("://") => {
                // Another may be there: either does.
                drop(rustls::crypto::ring::default_provider().install_default());
                let variables = std::env::vars()
                    .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
                let variables = variables.map(|(name, value)| (name.to_lowercase(), value));
                parse_url_opts(&url, variables).map_err(|error| bad(error.to_string()))?
            }
            _ => {
                let folder = absolute(text).map_err(|error| bad(error.to_string()))?;
                std::fs::create_dir_all(&folder).map_err(|error| bad(error.to_string()))?;
                let store = LocalFileSystem::new_with_prefix(&folder);
                let store = store
                    .map_err(|error| bad(error.to_string()))?
                    .with_fsync(true);
                (Box::new(store) as Box<dyn ObjectStore>, Path::default())
            }
        };
        Ok(Self {
            store,
            path,
            text: text.to_owned(),
        })
    }

    /// Returns the name of a file, for people.
    pub(super) fn name_of(&self, file: &str) -> String {
        format!("{}/{file}", self.text)
    }

    /// Returns a file; none if there is none.
    pub(super) async fn find(&self, file: &str) -> Result<Option<Bytes>, CliError> {
        let failed =
            |error: Error| CliError::backup(format_args!("{}: {error}", self.name_of(file)));
        match self.store.get(&self.path.clone().join(file)).await {
            Ok(found) => Ok(Some(found.bytes().await.map_err(failed)?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Stores a file; it is on the disk, or in the store, when this returns.
    pub(super) async fn put(&self, file: &str, bytes: Bytes) -> Result<(), CliError> {
        let stored = self
            .store
            .put(&self.path.clone().join(file), bytes.into())
            .await;
        let failed = |error| CliError::backup(format_args!("{}: {error}", self.name_of(file)));
        stored.map(|_| ()).map_err(failed)
    }
}
