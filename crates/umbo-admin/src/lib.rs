//! The ports of a dispatcher: the data plane goes to `umbo-dispatcher`, everything else is answered here.
//!
//! Owns the routes below the data plane: health, metrics, the `OpenAPI` document and the admin API, and what
//! operators see there. Deliberately knows no storage engine. Start reading at `service`, where requests
//! enter, then `router`.

mod admin;
mod admin_error;
mod cors;
mod hot_report;
mod overload_gauges;
mod quota_gauges;
mod router;
mod scrape;
mod service;
mod startup_responder;

pub use cors::{BadOrigin, CorsPolicy};
pub use service::Service;
pub use startup_responder::StartupResponder;
