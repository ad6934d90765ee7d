//! The operations and sizes that are measured.

use serde::{Serialize, Serializer};
use umbo_types::Operation;

/// Bytes of the values that are stored, from none to a size that few values have.
pub(super) const LENGTHS: [usize; 7] = [0, 100, 1_000, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of the values of ranges, scans and batches: a small row, and one of ten times its size.
const ROW_LENGTHS: [usize; 2] = [100, 1_000];
/// Concurrent puts for a group commit: a few dozen clients are usual.
const GROUP: usize = 16;
/// The small get whose price stays.
pub(super) const SMALL_GET: CallKind = CallKind {
    operation: Operation::Get,
    rows: 1,
    len: ROW_LENGTHS[0],
    at_once: 1,
};

/// One operation of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct CallKind {
    /// The operation.
    #[serde(serialize_with = "name")]
    pub(super) operation: Operation,
    /// Keys or rows of a call.
    pub(super) rows: usize,
    /// Bytes of each value.
    #[serde(rename = "value_bytes")]
    pub(super) len: usize,
    /// Calls at the same time.
    pub(super) at_once: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn name<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.as_str())
}

/// Operations with the bytes of their values, their rows, and the calls at the same time. Ranges and scans are of one
/// chunk at most.
const STEPS: [(Operation, &[usize], &[usize], usize); 7] = [
    (Operation::Get, &LENGTHS, &[1], 1),
    (Operation::MultiGet, &ROW_LENGTHS, &[1, 3, 10, 30, 100], 1),
    (Operation::Range, &ROW_LENGTHS, &[1, 3, 10, 30, 100, 200], 1),
    (Operation::Scan, &ROW_LENGTHS, &[1, 10, 100, 200], 1),
    (
        Operation::BatchWrite,
        &ROW_LENGTHS,
        &[10, 30, 100, 300, 1_000],
        1,
    ),
    (Operation::Put, LENGTHS.split_at(1).1, &[1], 1),
    (Operation::Put, LENGTHS.split_at(1).1, &[1], GROUP),
];

/// Returns all steps; every third in this order is held out.
pub(super) fn steps() -> Vec<CallKind> {
    let mut steps = Vec::new();
    for (operation, lengths, counts, at_once) in STEPS {
        for &len in lengths {
            steps.extend(counts.iter().map(|&rows| CallKind {
                operation,
                rows,
                len,
                at_once,
            }));
        }
    }
    steps
}

/// Returns the rows of a length that are stored: more than the largest call reads and than a small cache holds, in
/// some 35 MB together.
pub(super) fn rows_of(len: usize) -> usize {
    match len {
        0..=1_024 => 4_000,
        1_025..=16_384 => 400,
        _ => 64,
    }
}
