//! Requests about versions: lists them with their sizes, and changes which one is live.

use std::collections::HashMap;
use std::sync::Arc;
use umbo_api::versions::VersionList;
use umbo_http::RequestError;
use umbo_store::Store;
use umbo_types::NamespaceId;

use crate::wire::{LoadAnswer, VersionAsk};

use super::identified::LoadRequest;

impl LoadRequest<'_> {
    /// Answers a request about versions.
    pub(super) async fn versions(&self, ask: VersionAsk) -> Result<LoadAnswer, RequestError> {
        let namespace = Arc::clone(self.plane.namespace());
        let (dispatcher, origin) = (Arc::clone(self.plane.dispatcher()), self.plane.origin()?);
        let change = async move {
            let control = &dispatcher.control;
            match ask {
                VersionAsk::List => Ok(None),
                VersionAsk::Activate { number, dry_run } => {
                    let number = Some(number);
                    let change = control.activate_version(&namespace, number, dry_run, &origin);
                    change.await.map(Some)
                }
                VersionAsk::Rollback { dry_run } => {
                    let change = control.activate_version(&namespace, None, dry_run, &origin);
                    change.await.map(Some)
                }
                VersionAsk::Remove { number, dry_run } => {
                    let change = control.remove_version(&namespace, number, dry_run, &origin);
                    change.await.map(Some)
                }
            }
        };
        let changed = self.control().run_to_end(change).await?;
        Ok(match changed {
            Some(change) => {
                self.changed_records(change.dry_run.is_some());
                LoadAnswer::VersionChange(change)
            }
            None => LoadAnswer::Versions(self.version_list()),
        })
    }

    fn version_list(&self) -> VersionList {
        let namespace = self.plane.namespace();
        let sizes = sizes(&*self.plane.dispatcher().store);
        let versions = namespace.versions().into_iter().map(|(id, mut info)| {
            (info.rows, info.bytes) = sizes.get(&id).copied().unwrap_or_default();
            info
        });
        VersionList {
            activations: namespace.epoch,
            versions: versions.collect(),
        }
    }
}

/// Returns the rows and bytes of each dataset, over the shards that tell them.
fn sizes(store: &dyn Store) -> HashMap<NamespaceId, (u64, u64)> {
    let mut sizes = HashMap::new();
    for size in store
        .status()
        .into_iter()
        .filter_map(|status| status.sizes)
        .flatten()
    {
        let (rows, bytes): &mut (u64, u64) = sizes.entry(size.namespace).or_default();
        *rows += size.rows;
        *bytes += size.bytes;
    }
    sizes
}
