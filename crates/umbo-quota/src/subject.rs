//! The subject of a request: all that a policy can match or count by.

use umbo_types::{Attributes, NamespaceId, Operation};

/// What is known of a request when it is to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The payer.
    pub caller: &'a str,
    /// Name of the namespace.
    pub namespace: &'a str,
    /// Id of the namespace; a namespace made anew under an old name begins anew.
    pub namespace_id: NamespaceId,
    /// For whom the caller calls, if it says so.
    pub attributes: Attributes<Option<&'a str>>,
    /// What is to be done.
    pub operation: Operation,
}
