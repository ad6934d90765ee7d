//! Conversion between the operations of clients and the types of the store contract.

use umbo_store::{Change, Condition, Mutation, Outcome, Page, RangeRequest, SortRange, StoreError};
use umbo_types::{Key, NamespaceId, Value, Version};

use crate::history::{Asked, Effect, OnlyIf, RowName, SeenRows};
use crate::simulation::{met, violated};
use crate::value::writer_of;

/// Returns the mutation of a write.
pub(super) fn mutation(asked: &Asked, bytes: Vec<u8>) -> Mutation {
    let change = match asked.effect {
        Effect::Put { expires_at } => Change::Put {
            value: Value::new(bytes, "", "").expect("the value is short enough"),
            expires_at,
        },
        Effect::Delete | Effect::DeleteInRange => Change::Delete,
    };
    let condition = match asked.only_if {
        OnlyIf::Always => Condition::Always,
        OnlyIf::Absent => Condition::Absent,
        OnlyIf::Present => Condition::Present,
        OnlyIf::Version(version) => Condition::VersionIn(vec![Version(version)]),
    };
    Mutation {
        key: key_of(&asked.row),
        change,
        condition,
    }
}

/// Returns the key of a row.
pub(super) fn key_of(row: &RowName) -> Key {
    Key::new(row.partition.clone(), row.sort.clone()).expect("the names are short enough")
}

/// Returns the request for a part of a row's partition.
pub(super) fn request_of(row: &RowName, range: SortRange, rows_max: u32) -> RangeRequest {
    RangeRequest {
        namespace: NamespaceId(row.namespace as u32),
        partition: key_of(row).partition,
        range,
        reverse: false,
        rows_max,
        bytes_max: 1 << 20,
        keys_only: false,
    }
}

/// Returns the writes that are visible in a chunk of a range; none if a value was not written.
pub(super) fn seen_in(page: &Page, row: &RowName) -> Option<SeenRows> {
    let mut seen = SeenRows::new();
    let mut last = None;
    for found in page.rows.iter() {
        let sort = String::from_utf8_lossy(found.sort).into_owned();
        if last.as_ref().is_some_and(|last| *last >= sort) {
            violated("a range is not in order");
        }
        let Some(id) = writer_of(found.value) else {
            violated("a value of a range is not what was written");
            return None;
        };
        last = Some(sort.clone());
        let name = RowName {
            sort,
            ..row.clone()
        };
        seen.insert(name, (id, found.version.0));
    }
    Some(seen)
}

/// Returns the name of an error, and counts it.
pub(super) fn kind_of(error: &StoreError) -> &'static str {
    let kind = match error {
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Full { .. } => "full",
        StoreError::Io { .. } => "failed to use its file",
        StoreError::Corrupt { .. } => "damaged data",
        StoreError::QueueFull { .. } => "queue full",
        StoreError::NodeBusy { .. } => "node busy",
        StoreError::DeadlinePassed { .. } => "deadline passed",
        StoreError::NamespaceGone { .. } => "namespace gone",
        StoreError::TooEarly { .. } => "too early",
        StoreError::Overtaken { .. } => "overtaken",
        StoreError::Closing => "closing",
    };
    met(kind);
    if error.outcome() == Outcome::Unknown {
        met("unknown outcome");
    }
    kind
}
