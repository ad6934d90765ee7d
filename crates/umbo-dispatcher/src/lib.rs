//! The stateless pod: HTTP in, the pipeline, HTTP out.
//!
//! Owns everything that knows HTTP on the server's side. Deliberately knows no storage engine: a
//! `Store` is handed in. Start reading at `pipeline`, which is the life of a request from top to
//! bottom; `service` is where requests enter, `encode` the only place where an outcome becomes
//! HTTP.

mod admin;
pub mod auth;
mod cache_fields;
mod classify;
mod cursor;
mod decode;
mod digits;
mod door;
pub mod edge;
mod encode;
mod exchange;
mod failure;
mod fields;
mod hot_keys;
mod namespaces;
mod openapi;
mod operation;
pub mod overload;
mod overload_gauges;
mod page;
mod patience;
mod payer;
mod pipeline;
mod pod;
pub mod policies;
mod price;
mod problem;
mod query;
mod quota_gauges;
pub mod quota_spec;
mod random;
mod rate_limit_fields;
mod reach;
mod rejection;
mod request_id;
mod router;
mod scrape;
mod service;
mod shield;
mod system;
mod tokens;
mod unread;
mod until;
mod wait;

pub use door::Door;
pub use failure::Failure;
pub use openapi::document as openapi_document;
pub use pod::{Dispatcher, Parts, PodLimits};
pub use service::Service;
