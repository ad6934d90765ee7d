//! The vocabulary of Umbo.
//!
//! Owns the types that every other crate uses: keys, rows, versions, time, callers, request units and the
//! hard limits. Deliberately does not depend on HTTP, storage, asynchronous code, logging or any real clock:
//! a clock is a trait here and is read only above the storage tier.
//!
//! Start with [`key`] and [`row`].

pub mod attribute;
pub mod believed_clock;
pub mod buggify;
pub mod caller;
pub mod clock;
pub mod criticality;
pub mod decimal;
pub mod glob;
pub mod key;
pub mod limits;
pub mod operation;
pub mod price_multiplier;
pub mod request_units;
pub mod row;
pub mod version;

pub use attribute::{Attribute, Attributes};
pub use believed_clock::BelievedClock;
pub use caller::{Caller, CallerId, Grant, GrantError, NamespacePattern, Permission};
pub use clock::{CLOCK_OFFSET_MAX, Clock, Deadline, Timestamp};
pub use criticality::{Criticality, UnknownCriticality};
pub use decimal::DecimalError;
pub use key::{
    Key, KeyError, Namespace, NamespaceError, NamespaceId, PartitionKey, ShardId, SortKey,
};
pub use operation::Operation;
pub use price_multiplier::PriceMultiplier;
pub use request_units::RequestUnits;
pub use row::{FormError, LargeRef, Row, RowError, StoredForm, UploadId, Value};
pub use version::{Version, VersionClock};
