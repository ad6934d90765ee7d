//! The subject of a request: all that a policy can match or count by.

use umbo_types::{Attributes, NamespaceId, Operation};

/// The facts about a request that decide which policies and buckets count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The payer.
    pub caller: &'a str,
    /// Name of the namespace.
    pub namespace: &'a str,
    /// Id of the namespace. A namespace that is created again under an old name has a new id, and
    /// so new buckets.
    pub namespace_id: NamespaceId,
    /// User, session and organisation for whom the caller calls, if it names them.
    pub attributes: Attributes<Option<&'a str>>,
    /// The operation.
    pub operation: Operation,
}
