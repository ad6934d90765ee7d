//! Operations of the data plane, the one list for metrics, spans and prices.

/// The kind of a request.
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
    /// Creates, uploads, follows or ends a load.
    Load,
    /// Computes the cost of a request without executing it.
    Explain,
    /// Reports the usage of callers.
    Usage,
    /// The admin API.
    Admin,
    /// Health, metrics, the `OpenAPI` document, and requests that match no route.
    Service,
}

impl Operation {
    /// All operations, in the order of their declaration. Operations that touch rows come first.
    pub const ALL: [Self; 13] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::Range,
        Self::DeleteRange,
        Self::MultiGet,
        Self::BatchWrite,
        Self::Scan,
        Self::Load,
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
            Self::Load => "load",
            Self::Explain => "explain",
            Self::Usage => "usage",
            Self::Admin => "admin",
            Self::Service => "service",
        }
    }

    /// Operations that have a price, because they work on rows.
    pub const PRICED: [Self; 8] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::Range,
        Self::DeleteRange,
        Self::MultiGet,
        Self::BatchWrite,
        Self::Scan,
    ];

    /// Returns the place in [`Self::PRICED`], or `None` if the operation has no price.
    pub const fn price_index(self) -> Option<usize> {
        match self {
            Self::Get => Some(0),
            Self::Put => Some(1),
            Self::Delete => Some(2),
            Self::Range => Some(3),
            Self::DeleteRange => Some(4),
            Self::MultiGet => Some(5),
            Self::BatchWrite => Some(6),
            Self::Scan => Some(7),
            Self::Load | Self::Explain | Self::Usage | Self::Admin | Self::Service => None,
        }
    }

    /// Returns whether the operation works on rows, and so has a price.
    pub const fn has_price(self) -> bool {
        self.price_index().is_some()
    }

    /// Returns whether the operation can change rows.
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            Self::Put | Self::Delete | Self::DeleteRange | Self::BatchWrite
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_with_a_price_has_a_place_of_its_own() {
        for (index, operation) in Operation::PRICED.into_iter().enumerate() {
            assert_eq!(operation.price_index(), Some(index), "{operation:?}");
        }
        let priced = Operation::ALL.iter().filter(|one| one.has_price());
        assert_eq!(priced.count(), Operation::PRICED.len());
    }
}
