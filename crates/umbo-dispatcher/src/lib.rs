//! The stateless pod: HTTP in, the pipeline, HTTP out.
//!
//! Owns everything that knows HTTP on the server's side. Deliberately knows no storage engine: a
//! `Store` is handed in. Start reading at `pipeline`, which is the life of a request from top to
//! bottom; `service` is where requests enter, `encode` the only place where an outcome becomes
//! HTTP.

pub mod auth;
pub mod edge;
