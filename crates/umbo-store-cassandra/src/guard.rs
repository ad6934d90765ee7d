//! The guard of a bucket: the state that all rows of the bucket share, and the name of the last commit.

use std::collections::BTreeMap;

use scylla::statement::prepared::PreparedStatement;
use umbo_store::RecordsRevision;
use umbo_types::{NamespaceId, Timestamp, Version};

use crate::cell::BoundValue;
use crate::found::SizeOf;

/// The state that all rows of a bucket share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guard {
    /// Name of the last commit, or `None` before the first.
    pub(crate) tag: Option<i64>,
    /// Name of the commit before.
    pub(crate) previous_tag: Option<i64>,
    /// Highest version given in the bucket.
    pub(crate) top: Version,
    /// The last activation that a writer of the bucket knew: its epoch, and the dataset.
    pub(crate) live: Option<(u32, NamespaceId)>,
    /// The newest copy of the records that the bucket is bound to: no process that knows an older one writes to it.
    pub(crate) records: RecordsRevision,
    /// When the next upload goes that no row refers to.
    pub(crate) due: Option<Timestamp>,
    /// Size of each dataset that has rows.
    pub(crate) sizes: BTreeMap<i32, SizeOf>,
    /// The latest run of each open load.
    pub(crate) runs: BTreeMap<i32, i32>,
}

/// A change of rows: a statement with its values.
pub(crate) type RowChange<'a> = (&'a PreparedStatement, Vec<BoundValue>);
