//! What nodes tell of themselves.

use std::collections::HashMap;
use std::net::SocketAddr;

use umbo_types::Timestamp;

/// What a node tells of itself.
#[derive(Debug, Clone)]
pub(crate) struct NodeReport {
    pub(crate) release: String,
    /// Names the schema that it has.
    pub(crate) schema: String,
    /// By how much the clock of this process is ahead of its clock, at least, in microseconds.
    pub(crate) clock_ahead: i64,
}

/// The last report of each node, by its address.
pub(crate) type NodeReports = HashMap<SocketAddr, NodeReport>;

/// Returns by how much a clock is ahead of another one, at least: one showed two times, around the answer of the other.
pub(crate) const fn ahead_of(answer: Timestamp, (asked, answered): (Timestamp, Timestamp)) -> i64 {
    // The answer is in milliseconds.
    let (begin, end) = (answer.0, answer.0 + 999);
    if asked.0 > end {
        (asked.0 - end).cast_signed()
    } else if answered.0 < begin {
        -((begin - answered.0).cast_signed())
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_by_what_the_time_of_the_answer_does_not_explain() {
        let at = Timestamp::from_millis;
        let answer = at(10_000);
        assert_eq!(ahead_of(answer, (at(9_990), at(10_020))), 0);
        assert_eq!(ahead_of(answer, (at(10_000), at(10_000))), 0);
        assert_eq!(ahead_of(answer, (at(12_000), at(12_900))), 1_999_001);
        assert_eq!(ahead_of(answer, (at(7_000), at(8_000))), -2_000_000);
    }
}
