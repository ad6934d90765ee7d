//! Kinds of requests and of outcomes, for counters.
//!
//! Their order is the order of the lists in `umbo_telemetry::metric_names`; a test compares them.

use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_store::StoreError;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Get,
    MultiGet,
    Range,
    Scan,
    Write,
    DeleteRange,
    Records,
    Status,
    /// A request that cannot be decoded.
    Other,
}

impl RequestKind {
    pub(crate) fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Get(..) | Ask::Chunk(..) => Self::Get,
            Ask::MultiGet(..) => Self::MultiGet,
            Ask::Range(_) => Self::Range,
            Ask::Scan(..) | Ask::Backup(_) => Self::Scan,
            Ask::Write(_) => Self::Write,
            Ask::DeleteRange(_) => Self::DeleteRange,
            Ask::KeepRecords(_) | Ask::KeptRecords => Self::Records,
            Ask::Probe | Ask::ClusterMap | Ask::Mail => Self::Status,
        }
    }
}

impl RequestKind {
    /// Returns whether requests of this kind only read rows.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::MultiGet | Self::Range | Self::Scan)
    }
}

/// Returns the index of an outcome in the list of outcomes.
pub(crate) fn outcome_index(outcome: &Outcome) -> usize {
    let Outcome::Failed(error) = outcome else {
        return 0;
    };
    match error {
        NodeError::Store(StoreError::NodeBusy { .. } | StoreError::QueueFull { .. }) => 2,
        NodeError::Store(StoreError::DeadlinePassed { .. }) => 4,
        NodeError::Store(_) => 1,
        NodeError::NotOwner { .. } | NodeError::Misplaced { .. } => 3,
        NodeError::BadRequest(_) | NodeError::Unsupported => 5,
    }
}

/// Returns whether an outcome is a failure of the node itself.
pub(crate) fn is_failed(outcome: &Outcome) -> bool {
    outcome_index(outcome) == 1
}

#[cfg(test)]
mod tests {
    use umbo_telemetry::metric_names::{NODE_OUTCOMES, NODE_REQUESTS_ASKED};
    use umbo_types::ShardId;

    use super::*;

    #[test]
    fn what_is_counted_has_the_name_of_its_place() {
        assert_eq!(NODE_REQUESTS_ASKED[RequestKind::Get as usize], "get");
        assert_eq!(NODE_REQUESTS_ASKED[RequestKind::Write as usize], "write");
        assert_eq!(
            NODE_REQUESTS_ASKED[RequestKind::Records as usize],
            "records"
        );
        assert_eq!(NODE_REQUESTS_ASKED[RequestKind::Other as usize], "other");
        assert_eq!(RequestKind::Other as usize, NODE_REQUESTS_ASKED.len() - 1);
        let shard = ShardId(0);
        let named = |error: NodeError| NODE_OUTCOMES[outcome_index(&Outcome::Failed(error))];
        assert_eq!(NODE_OUTCOMES[outcome_index(&Outcome::Row(None))], "done");
        assert_eq!(named(StoreError::NodeBusy { shard }.into()), "busy");
        assert_eq!(named(StoreError::Closing.into()), "failed");
        assert_eq!(
            named(StoreError::DeadlinePassed { shard }.into()),
            "deadline-passed"
        );
        assert_eq!(named(NodeError::Unsupported), "not-understood");
        let map_version = 1;
        assert_eq!(
            named(NodeError::NotOwner { shard, map_version }),
            "not-owner"
        );
    }
}
