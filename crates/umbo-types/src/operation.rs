//! Operations of the data plane, the one list that metrics, spans and prices speak of.

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Reads one row (`GET` and `HEAD`).
    Get,
    /// Stores one row.
    Put,
    /// Removes one row.
    Delete,
    /// Reads rows of a partition in order.
    Range,
    /// Removes rows of a partition.
    DeleteRange,
    /// Reads many rows by key.
    MultiGet,
    /// Writes many rows.
    BatchWrite,
    /// Reads a whole namespace.
    Scan,
    /// Says what a request would cost.
    Explain,
    /// Shows what was spent.
    Usage,
    /// The admin API.
    Admin,
    /// Health, metrics, the `OpenAPI` document, and requests that match no route.
    Service,
}

impl Operation {
    /// All operations, in the order of their declaration. Those that touch rows come first.
    pub const ALL: [Self; 12] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::Range,
        Self::DeleteRange,
        Self::MultiGet,
        Self::BatchWrite,
        Self::Scan,
        Self::Explain,
        Self::Usage,
        Self::Admin,
        Self::Service,
    ];

    /// Returns the name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Range => "range",
            Self::DeleteRange => "delete-range",
            Self::MultiGet => "multi-get",
            Self::BatchWrite => "batch-write",
            Self::Scan => "scan",
            Self::Explain => "explain",
            Self::Usage => "usage",
            Self::Admin => "admin",
            Self::Service => "service",
        }
    }

    /// Says whether it works on rows, and so has a price.
    pub const fn has_price(self) -> bool {
        match self {
            Self::Get
            | Self::Put
            | Self::Delete
            | Self::Range
            | Self::DeleteRange
            | Self::MultiGet
            | Self::BatchWrite
            | Self::Scan => true,
            Self::Explain | Self::Usage | Self::Admin | Self::Service => false,
        }
    }

    /// Says whether the operation can change rows.
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Put | Self::Delete | Self::DeleteRange | Self::BatchWrite
        )
    }
}
