//! What a door decides about requests.

use umbo_overload::Permit;

/// What a door decided about a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The request goes to the store.
    Admitted(Option<Permit>),
    /// The request is turned away by an overload.
    Shed,
    /// The deadline of the request passed while it waited.
    Expired,
}

/// Decisions, each with its request.
pub(crate) type Decisions = Vec<(u32, Decision)>;
