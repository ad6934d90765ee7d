//! Translates between HTTP and typed requests and answers.
//!
//! Owns every header field, parameter and body of the data plane, and the text of every error.
//! Deliberately calls no store, awaits nothing and reads no clock: everything here is a function of its
//! arguments. Start reading at `decode` (the content of a request) and `encode` (the content of an
//! answer).

pub mod batch_lines;
pub mod byte_range;
mod cache_fields;
mod cache_status;
pub mod content_digest;
pub mod cursor;
pub mod decode;
pub mod digits;
pub mod encode;
mod error_sources;
pub mod fields;
pub mod idempotency_key;
pub mod json_body;
pub mod json_text;
pub mod key_path;
pub mod payer;
mod plane_answer;
pub mod problem;
pub mod query;
mod rate_limit_fields;
pub mod rejection;
mod representation;
mod request_error;
mod request_id;
pub mod retry_ticket;
mod route;
pub mod shed_report;

pub use cache_status::CacheStatus;
pub use encode::{Answer, ResponseMeta, RowAnswer, Timing};
pub use fields::Fields;
pub use payer::Payer;
pub use plane_answer::PlaneAnswer;
pub use representation::Representation;
pub use request_error::{KeyPart, RequestError};
pub use request_id::{RequestId, RequestIds};
