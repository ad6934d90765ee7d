//! The wire contract of Umbo, shared by server and client.
//!
//! Owns error codes and problem bodies, header names, the row format in both directions, key texts, policies, hot keys,
//! and the admin types. It depends on no storage, quota or HTTP code: a status here is a number, a header name a
//! string.

pub mod admin;
pub mod backup;
pub mod batch;
pub mod cluster;
pub mod columns;
pub mod diagnosis;
pub mod error_code;
pub mod fleet;
pub mod header;
pub mod hot;
pub mod json_line;
pub mod key_text;
pub mod loads;
pub mod observe;
pub mod path;
pub mod problem;
pub mod quantity;
pub mod quota;
pub mod row;
pub mod ru;
pub mod running;
pub mod shed;
pub mod stream;
pub mod time_to_live;
pub mod versions;
mod whole_number;
pub mod why;

/// The contract for services, as text (Markdown).
pub const CONTRACT: &str = include_str!("../README.md");

/// The contract as an `OpenAPI` 3.1 document, in JSON. `tests/openapi` makes it from the files in the folder `openapi`,
/// the error codes and the types of this crate.
pub const DOCUMENT: &str = include_str!("../openapi.json");

pub use error_code::{ErrorCode, ErrorKind, Scope};
pub use problem::{Outcome, Problem, QuotaLimit, Retry};
pub use quantity::Quantity;
