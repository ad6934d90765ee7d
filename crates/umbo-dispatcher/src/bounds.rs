//! What clients may hold of a server's memory, and how fast they have to be: one table, for each kind of body and answer.
//!
//! The operator's guide has the same table. Each row names the test that holds it.

use umbo_edge::bounds::{COMPRESSIONS_MAX, CONNECTION_WINDOW, FREE_LEN, INFLATIONS_MAX};
use umbo_types::limits;

/// Bytes of a large value that gather until it is known to be one: one more than any other value has.
pub(crate) const GATHERED_LEN: usize = limits::VALUE_LEN_MAX + 1;
/// Pieces of a part that are written together.
pub(crate) const PIECES_MAX: usize = 4;
/// Writes of a part that are under way at a time.
pub(crate) const WRITES_MAX: usize = 3;
/// Longest body of a multi-get: 1,000 of the longest keys, as base64url in JSON.
pub(crate) const MULTI_GET_BODY_LEN_MAX: usize = 5 << 20;
/// Longest body of an explanation: a row with a value of usual length.
pub(crate) const EXPLAIN_BODY_LEN_MAX: usize = 1 << 20;
/// Longest body that begins a scan.
pub(crate) const SCAN_BODY_LEN_MAX: usize = 16 << 10;
/// Longest body that says something about a load: a few numbers and names of columns.
pub(crate) const LOAD_BODY_LEN_MAX: usize = 4 << 10;
/// Longest body of the admin API but of a policy: settings are small.
pub const ADMIN_BODY_LEN_MAX: usize = 64 << 10;
/// Longest body with a policy, whose lists of callers may be long.
pub const POLICY_BODY_LEN_MAX: usize = 512 << 10;
/// Longest value that is decoded for a client that does not accept its coding.
pub(crate) const DECODED_LEN_MAX: usize = 8 * limits::VALUE_LEN_MAX;

/// How fast a client has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// All of a body comes within `body_timeout`.
    Whole,
    /// A body comes at 1 KiB a second, within each `body_timeout`.
    Sent,
    /// An answer is taken at 1 KiB a second, within each `write_timeout`.
    Taken,
    /// No client is waited for.
    None,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// What is held.
    pub what: &'static str,
    /// Bytes of it, at most, with default settings.
    pub bytes_max: usize,
    /// How fast its client has to be.
    pub pace: Pace,
    /// The test that holds it.
    pub test: &'static str,
}

const fn bound(what: &'static str, bytes_max: usize, pace: Pace, test: &'static str) -> Bound {
    Bound {
        what,
        bytes_max,
        pace,
        test,
    }
}

const SLOW: &str = "tests/streams/test_slow_uploads.py test_slow_uploads_hinder_no_writer";
const AS_IT_COMES: &str = "crates/umbo-edge/src/body/arriving.rs memory_is_taken_as_a_body_comes_and_given_up_where_it_is_wanted_and_slow";
const STREAMED: &str =
    "crates/umbo-edge/src/body/arriving.rs a_streamed_body_has_a_least_rate_and_no_end";
const UNREAD: &str =
    "tests/streams/test_unread_answers.py test_unread_answers_hold_no_more_than_their_budget";
const DECODED: &str =
    "tests/streams/test_unread_answers.py test_values_are_decoded_within_the_budget";
const MIB: usize = 1 << 20;

/// The table: what one request holds, then one connection, one caller, and all of them.
pub const TABLE: &[Bound] = &[
    bound(
        "a request: body of a put up to 1 MiB",
        limits::VALUE_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    bound(
        "a request: body of a large value, of up to 64 MiB",
        2 * GATHERED_LEN,
        Pace::Sent,
        STREAMED,
    ),
    bound(
        "a request: body of a part of a load, of up to 256 MiB",
        (1 + PIECES_MAX * (1 + WRITES_MAX)) * limits::LARGE_CHUNK_LEN,
        Pace::Sent,
        STREAMED,
    ),
    bound(
        "a request: body of a batch write",
        limits::BATCH_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    bound(
        "a request: body of a multi-get",
        MULTI_GET_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    bound(
        "a request: body of an explanation",
        EXPLAIN_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    bound(
        "a request: body of a scan",
        SCAN_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    bound(
        "a request: body about a load",
        LOAD_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    bound(
        "a request: body with a policy",
        POLICY_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    bound(
        "a request: other bodies of the admin API",
        ADMIN_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    bound(
        "a request: what an encoded body is inflated to, beside it",
        limits::BATCH_BODY_LEN_MAX,
        Pace::None,
        "crates/umbo-edge/src/content_coding.rs nothing_is_inflated_without_memory_for_it",
    ),
    bound(
        "a request: answer of a get",
        limits::VALUE_LEN_MAX,
        Pace::Taken,
        UNREAD,
    ),
    bound(
        "a request: answer of a get that is decoded",
        DECODED_LEN_MAX,
        Pace::Taken,
        DECODED,
    ),
    bound(
        "a request: answer of a multi-get, its values",
        limits::MULTI_GET_BYTES_MAX,
        Pace::Taken,
        UNREAD,
    ),
    bound(
        "a connection: what came and was not read, HTTP/2",
        CONNECTION_WINDOW as usize,
        Pace::None,
        SLOW,
    ),
    bound(
        "a connection: answers, a sixteenth of `answer_memory` or one answer",
        16 * MIB,
        Pace::Taken,
        "crates/umbo-edge/src/memory.rs a_connection_holds_no_more_than_its_share",
    ),
    bound(
        "a caller: bodies, half of `body_memory`: as much as it leaves free",
        128 * MIB,
        Pace::None,
        "crates/umbo-edge/src/memory.rs a_caller_leaves_as_much_as_it_holds_and_is_forgotten_when_it_holds_nothing",
    ),
    bound(
        "the process: bodies, `body_memory`",
        256 * MIB,
        Pace::None,
        SLOW,
    ),
    bound(
        "the process: answers, `answer_memory`",
        256 * MIB,
        Pace::None,
        UNREAD,
    ),
    bound(
        "the process: short bodies and short answers, of `requests_in_flight_max` requests",
        2 * 4_096 * FREE_LEN,
        Pace::None,
        SLOW,
    ),
    bound(
        "the process: decoders at work",
        INFLATIONS_MAX * 8 * MIB,
        Pace::None,
        DECODED,
    ),
    bound(
        "the process: answers that are compressed",
        COMPRESSIONS_MAX * MIB,
        Pace::None,
        "crates/umbo-edge/src/content_coding.rs what_is_compressed_inflates_again_within_its_bound",
    ),
];
