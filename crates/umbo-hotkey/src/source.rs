//! The source of a store call: whose work it is, and where.

use umbo_types::{CallerId, NamespaceId, Operation, PartitionKey};

/// The source of a store call: whose work it is, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallSource {
    /// The caller that pays; `None` for Umbo's own work.
    pub caller: Option<CallerId>,
    /// The operation of the call.
    pub operation: Operation,
    /// The namespace.
    pub namespace: NamespaceId,
    /// The partition; `None` for work in several, and for the rest of a caller's partitions.
    pub partition: Option<PartitionKey>,
}

impl CallSource {
    /// Returns the same caller, operation and namespace with another partition.
    pub(crate) fn with(&self, partition: Option<PartitionKey>) -> Self {
        Self {
            caller: self.caller.clone(),
            partition,
            ..*self
        }
    }

    /// Returns a copy that shares no bytes with the body of a request.
    pub(crate) fn copied(&self) -> Self {
        let bytes = self.partition.as_ref().map(|key| key.as_bytes().to_vec());
        self.with(bytes.and_then(|bytes| PartitionKey::new(bytes).ok()))
    }
}

/// Returns the partition of more than half of the keys, if there is one (Boyer and Moore 1991).
pub fn majority<'a>(
    partitions: impl Iterator<Item = &'a PartitionKey> + Clone,
) -> Option<&'a PartitionKey> {
    let (candidate, _) = partitions
        .clone()
        .fold((None, 0_usize), |(held, lead), one| match held {
            Some(held) if held == one => (Some(held), lead + 1),
            Some(held) if lead > 0 => (Some(held), lead - 1),
            _ => (Some(one), 1),
        });
    let all = partitions.clone().count();
    let of_it = partitions.filter(|one| candidate == Some(*one)).count();
    candidate.filter(|_| 2 * of_it > all)
}
