//! What became of a request, as its counters tell it apart.

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Answered, also that there is no such row or that a condition is false.
    Served,
    /// Invalid, or not allowed.
    Refused,
    /// A quota is used up.
    Rejected,
    /// An overload, or a bound of the process.
    Shed,
    /// Something broke or took too long.
    Failed,
}

impl RequestOutcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [
        Self::Served,
        Self::Refused,
        Self::Rejected,
        Self::Shed,
        Self::Failed,
    ];

    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::Shed => "shed",
            Self::Failed => "failed",
        }
    }
}
