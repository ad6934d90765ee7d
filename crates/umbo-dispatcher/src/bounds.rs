//! Bounds on the memory of a server that a request may hold, by the kind of its body and answer.
//!
//! The operator's guide has all of them in one table. `tests/dispatcher/bounds.rs` holds that table, and names the test
//! of each row.

use umbo_types::limits;

/// Bytes of a large value that gather until it is known to be one: one more than any other value has.
pub const GATHERED_LEN: usize = limits::VALUE_LEN_MAX + 1;
/// Longest body of a multi-get: 1,000 of the longest keys, as base64url in JSON.
pub const MULTI_GET_BODY_LEN_MAX: usize = 5 << 20;
/// Longest body of an explanation: a row with a value of usual length.
pub const EXPLAIN_BODY_LEN_MAX: usize = 1 << 20;
/// Longest body that begins a scan.
pub const SCAN_BODY_LEN_MAX: usize = 16 << 10;
/// Longest body of the admin API but of a policy: settings are small.
pub const ADMIN_BODY_LEN_MAX: usize = 64 << 10;
/// Longest body with a policy, whose lists of callers may be long.
pub const POLICY_BODY_LEN_MAX: usize = 512 << 10;
/// Longest value that is decoded for a client that does not accept its coding.
pub const DECODED_LEN_MAX: usize = 8 * limits::VALUE_LEN_MAX;
