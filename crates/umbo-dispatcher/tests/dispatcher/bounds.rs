//! The table of bounds is that of the operator's guide, and each row has its test.

use std::path::Path;

use umbo_bulk::limits::{LOAD_BODY_LEN_MAX, PIECES_MAX, WRITES_MAX};
use umbo_dispatcher::bounds::{
    ADMIN_BODY_LEN_MAX, DECODED_LEN_MAX, EXPLAIN_BODY_LEN_MAX, GATHERED_LEN,
    MULTI_GET_BODY_LEN_MAX, POLICY_BODY_LEN_MAX, SCAN_BODY_LEN_MAX,
};
use umbo_edge::bounds::{
    COMPRESSIONS_MAX, CONNECTION_WINDOW, FREE_LEN, INFLATIONS_MAX, REFUSED_BODIES_MAX,
};
use umbo_types::limits;

/// How fast a client has to be.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// All of a body comes within `body_timeout`.
    Whole,
    /// A body comes at 1 KiB a second, within each `body_timeout`.
    Sent,
    /// An answer is taken at 1 KiB a second, within each `write_timeout`.
    Taken,
    /// No client is waited for.
    None,
}

/// A row of the table: what is held, bytes of it at most with default settings, how fast its client has to be, and the
/// test that holds it.
type Bound = (&'static str, usize, Pace, &'static str);

const MIB: usize = 1 << 20;
const SLOW: &str = "tests/streams/test_slow_uploads.py test_slow_uploads_hinder_no_writer";
const AS_IT_COMES: &str = "crates/umbo-edge/src/body/arriving.rs memory_is_taken_as_a_body_comes_and_given_up_where_it_is_wanted_and_slow";
const STREAMED: &str =
    "crates/umbo-edge/src/body/arriving.rs a_streamed_body_has_a_least_rate_and_no_end";
const UNREAD: &str =
    "tests/streams/test_unread_answers.py test_unread_answers_hold_no_more_than_their_budget";
const CROWD: &str = "tests/streams/test_slow_uploads.py test_slow_short_bodies_give_way_where_requests_are_in_flight";
const DECODED: &str =
    "tests/streams/test_unread_answers.py test_values_are_decoded_within_the_budget";

/// What one request holds, then one connection, one caller, and all of them.
const TABLE: &[Bound] = &[
    (
        "a request: body of a put up to 1 MiB",
        limits::VALUE_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    (
        "a request: body of a put of unknown length or of a large value, of up to 64 MiB",
        2 * GATHERED_LEN,
        Pace::Sent,
        STREAMED,
    ),
    (
        "a request: body of a part of a load, of up to 256 MiB",
        (1 + PIECES_MAX * (1 + WRITES_MAX)) * limits::LARGE_CHUNK_LEN,
        Pace::Sent,
        STREAMED,
    ),
    (
        "a request: body of a batch write",
        limits::BATCH_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    (
        "a request: body of a multi-get",
        MULTI_GET_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    (
        "a request: body of an explanation",
        EXPLAIN_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    (
        "a request: body of a scan",
        SCAN_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    (
        "a request: body about a load",
        LOAD_BODY_LEN_MAX,
        Pace::Whole,
        AS_IT_COMES,
    ),
    (
        "a request: body with a policy",
        POLICY_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    (
        "a request: other bodies of the admin API",
        ADMIN_BODY_LEN_MAX,
        Pace::Whole,
        SLOW,
    ),
    (
        "a request: what an encoded body is inflated to, beside it",
        limits::BATCH_BODY_LEN_MAX,
        Pace::None,
        "crates/umbo-edge/src/content_coding.rs nothing_is_inflated_without_memory_for_it",
    ),
    (
        "a request: answer of a get",
        limits::VALUE_LEN_MAX,
        Pace::Taken,
        UNREAD,
    ),
    (
        "a request: answer of a get that is decoded",
        DECODED_LEN_MAX,
        Pace::Taken,
        DECODED,
    ),
    (
        "a request: answer of a multi-get, its values",
        limits::MULTI_GET_BYTES_MAX,
        Pace::Taken,
        UNREAD,
    ),
    (
        "a request: answer of a large value, a piece",
        limits::LARGE_CHUNK_LEN,
        Pace::Taken,
        "tests/streams/test_large_values.py test_the_largest_value_takes_little_memory",
    ),
    (
        "a request: answer of a range or a scan, a piece",
        (limits::CHUNK_BYTES_MAX as usize + limits::VALUE_LEN_MAX) / 3 * 4,
        Pace::Taken,
        "tests/streams/test_streams.py test_clients_that_read_nothing_hold_little_and_are_cut",
    ),
    (
        "a load that runs: a line of a part",
        16 * MIB,
        Pace::None,
        "crates/umbo-rows/tests/formats/main.rs a_line_that_is_too_long_is_rejected_and_the_next_one_read",
    ),
    (
        "a load that runs: rows that are applied, of up to 16 MiB each",
        umbo_bulk::limits::OPEN_BYTES_MAX as usize + 16 * MIB,
        Pace::None,
        "crates/umbo-bulk/src/runner/open_batches.rs large_values_leave_no_room_for_further_batches",
    ),
    (
        "a load that runs: names of the columns of a table, of up to 4,096",
        256 << 10,
        Pace::None,
        "crates/umbo-rows/src/table.rs a_table_has_as_many_columns_as_are_looked_up_in_no_time_and_no_more",
    ),
    (
        "a connection: what came and was not read, HTTP/1",
        64 << 10,
        Pace::None,
        SLOW,
    ),
    (
        "a connection: what came and was not read, HTTP/2",
        CONNECTION_WINDOW as usize,
        Pace::None,
        SLOW,
    ),
    (
        "a connection: answers, a sixteenth of `answer_memory` or one answer",
        16 * MIB,
        Pace::Taken,
        "crates/umbo-edge/src/memory.rs a_connection_holds_no_more_than_its_share",
    ),
    (
        "a caller: bodies, half of `body_memory`: as much as it leaves free",
        128 * MIB,
        Pace::None,
        "crates/umbo-edge/src/memory.rs a_caller_leaves_as_much_as_it_holds_and_is_forgotten_when_it_holds_nothing",
    ),
    (
        "the process: bodies, `body_memory`",
        256 * MIB,
        Pace::None,
        SLOW,
    ),
    (
        "the process: answers, `answer_memory`",
        256 * MIB,
        Pace::None,
        UNREAD,
    ),
    (
        "the process: short bodies and short answers, of `requests_in_flight_max` requests",
        2 * 4_096 * FREE_LEN,
        Pace::None,
        CROWD,
    ),
    (
        "the process: decoders at work",
        INFLATIONS_MAX * 8 * MIB,
        Pace::None,
        DECODED,
    ),
    (
        "the process: answers that are compressed",
        COMPRESSIONS_MAX * MIB,
        Pace::None,
        "crates/umbo-edge/src/content_coding.rs what_is_compressed_inflates_again_within_its_bound",
    ),
    (
        "the process: refused bodies that are read to their end",
        REFUSED_BODIES_MAX * FREE_LEN,
        Pace::None,
        "crates/umbo-edge/src/unread_body.rs no_more_refused_bodies_are_read_than_may_be",
    ),
];

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > MIB => format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB),
        _ => format!("{} KiB", bytes >> 10),
    }
}

fn row(&(what, bytes_max, pace, _): &Bound) -> String {
    let pace = match pace {
        Pace::Whole => "all of it within `body_timeout`",
        Pace::Sent => "sent at 1 KiB/s",
        Pace::Taken => "taken at 1 KiB/s",
        Pace::None => "",
    };
    format!("| {what} | {} | {pace} |\n", size(bytes_max))
}

#[test]
fn the_guide_has_the_table() {
    let table: String = TABLE.iter().map(row).collect();
    let guide = text("config/README.md");
    assert!(
        guide.contains(&table),
        "config/README.md is to have:\n{table}"
    );
}

#[test]
fn each_row_has_its_test() {
    for (what, _, _, test) in TABLE {
        let (path, name) = test.split_once(' ').unwrap();
        let named = [format!("fn {name}("), format!("def {name}(")];
        let text = text(path);
        assert!(
            named.iter().any(|named| text.contains(named)),
            "{what}: {path} has no test {name}"
        );
    }
}
