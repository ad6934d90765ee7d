//! Operation classes: operations whose service times are alike enough to be one distribution.
//!
//! Each kind of work has a separate class, so that more scans and fewer gets change the mix and not
//! the latency.

use std::fmt;

use umbo_types::Operation;

/// The kind of work of a store call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// One row is read.
    PointRead,
    /// Many rows are read by key.
    MultiRead,
    /// One chunk of a range is read.
    Range,
    /// One chunk of a scan is read.
    Scan,
    /// One row is written or removed.
    PointWrite,
    /// Many rows are written or removed.
    BulkWrite,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::PointRead,
        Self::MultiRead,
        Self::Range,
        Self::Scan,
        Self::PointWrite,
        Self::BulkWrite,
    ];

    /// Returns the class of an operation, or `None` if the operation touches no rows.
    pub const fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Get => Some(Self::PointRead),
            Operation::MultiGet => Some(Self::MultiRead),
            Operation::Range => Some(Self::Range),
            Operation::Scan => Some(Self::Scan),
            Operation::Put | Operation::Delete => Some(Self::PointWrite),
            Operation::DeleteRange | Operation::BatchWrite => Some(Self::BulkWrite),
            Operation::Load
            | Operation::Explain
            | Operation::Usage
            | Operation::Admin
            | Operation::Service => None,
        }
    }

    /// Returns whether its work goes through the queue for writes.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::PointWrite | Self::BulkWrite)
    }

    /// Returns the name used on the wire and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PointRead => "point-read",
            Self::MultiRead => "multi-read",
            Self::Range => "range",
            Self::Scan => "scan",
            Self::PointWrite => "point-write",
            Self::BulkWrite => "bulk-write",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_price_has_a_class() {
        for operation in Operation::ALL {
            assert_eq!(Class::of(operation).is_some(), operation.has_price());
        }
        for (at, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
        }
    }
}
