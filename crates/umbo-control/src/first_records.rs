//! The first reading of Umbo's own records: from the home or from a copy. Makes them if the store has none
//! yet.

use std::sync::Arc;
use std::time::Duration;

use umbo_routing::RecordsHome;
use umbo_store::{RecordsRevision, Store};

use crate::error::ControlError;
use crate::records::home::{ChangeError, Home, HomeError};
use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Time for each request to the home.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Length of the secret of cursors and hashes, in bytes.
const SECRET_LEN: usize = 32;
const SECRET_NAME: &str = "cursor";

/// Returns the secret that all dispatchers of a store share.
pub(crate) fn secret(set: &RecordSet) -> Result<[u8; SECRET_LEN], Unreadable> {
    let content = set.get(Kind::Secret, SECRET_NAME);
    content
        .and_then(|bytes| <[u8; SECRET_LEN]>::try_from(&bytes[..]).ok())
        .ok_or_else(|| unreadable(Kind::Secret, SECRET_NAME, &"it is missing or damaged"))
}

/// Reads the records of a store for the first time: at home, or, while the home is away, from the newest
/// copy of any node. Makes them if the store has none yet.
pub(crate) async fn first_set(
    store: &dyn Store,
    home: &Home,
) -> Result<Arc<RecordSet>, ControlError> {
    let heard = store.records_revision();
    let away = match home.read(None, TIMEOUT).await {
        Ok(Some((set, _))) if set.revision >= heard => return Ok(set),
        Ok(Some((set, _))) => behind(store, set.revision, heard),
        Ok(None) => match store.kept_records().await? {
            Some(copy) => empty(store, copy.revision),
            None => return make_set(store, home).await,
        },
        Err(error @ HomeError::Unreadable(_)) => return Err(error.into()),
        Err(error @ HomeError::Away { .. }) => error,
    };
    // If the copies fail too, the error of the home is more useful.
    match store.kept_records().await {
        Ok(Some(copy)) => {
            tracing::warn!(reason = %away, "starting from a copy of Umbo's own records");
            Ok(Arc::new(RecordSet::from_copy(&copy)?))
        }
        Ok(None) | Err(_) => Err(away.into()),
    }
}

/// Makes the first set of a store: the secret, and nothing else.
async fn make_set(store: &dyn Store, home: &Home) -> Result<Arc<RecordSet>, ControlError> {
    let (shard, epoch) = (store.home().shard, store.home().epoch);
    if epoch != RecordsHome::default().epoch {
        let reason = format!("epoch {epoch} was not begun: umbo cluster promote-home begins it");
        return Err(ControlError::RecordsAway { shard, reason });
    }
    let mut fresh = [0; SECRET_LEN];
    getrandom::fill(&mut fresh).map_err(|error| ControlError::Internal(error.to_string()))?;
    let edits = Edits::none().put(Kind::Secret, SECRET_NAME, fresh.to_vec());
    // Rows of an earlier life, whose records are lost, keep their ids.
    let ids = store
        .status()
        .into_iter()
        .map(|status| status.namespace_max.0);
    let mut first = RecordSet::default();
    first.revision.epoch = epoch;
    first.last_namespace = ids.max().unwrap_or_default();
    let first = first.changed(&edits);
    match home.write(&first, &edits, None, TIMEOUT).await {
        Ok(()) => Ok(Arc::new(first)),
        // Another dispatcher was first.
        Err(ChangeError::Conflict { .. }) => {
            let found = home.read(None, TIMEOUT).await?;
            found.map(|(set, _)| set).ok_or_else(|| {
                let reason = "another dispatcher makes the records".to_owned();
                ControlError::RecordsAway { shard, reason }
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports that the home was put back to an older state.
pub(crate) fn behind(
    store: &dyn Store,
    at_home: RecordsRevision,
    heard: RecordsRevision,
) -> HomeError {
    HomeError::Away {
        shard: store.home().shard,
        reason: format!(
            "it holds revision {} of epoch {}, but revision {} of epoch {} was seen before: it was restored \
             to an older state, or this map is outdated",
            at_home.number, at_home.epoch, heard.number, heard.epoch
        ),
    }
}

/// Reports that the home has lost the records.
pub(crate) fn empty(store: &dyn Store, kept: RecordsRevision) -> HomeError {
    HomeError::Away {
        shard: store.home().shard,
        reason: format!(
            "it holds no records, and a copy of revision {} of epoch {} is kept",
            kept.number, kept.epoch
        ),
    }
}
