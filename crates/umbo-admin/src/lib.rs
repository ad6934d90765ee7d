//! The ports of a dispatcher: the data plane goes to `umbo-dispatcher`, everything else is answered here.
//!
//! Owns the routes below the data plane: health, metrics, the `OpenAPI` document, the admin API and the
//! operators' page on it with its reports. Deliberately knows no storage engine. Start reading at `service`, where
//! requests enter, then `router`.

mod admin;
mod admin_error;
mod asker;
mod cors;
mod diagnosis;
mod fleet;
mod foreign_page;
mod happenings;
mod home_rows;
mod hot_report;
mod observer;
mod page;
mod router;
mod scrape;
mod service;
mod startup_responder;
mod usage_rows;

pub use admin::why::{RECORDS_INTERVAL, RecordWriter};
pub use cors::{BadOrigin, CorsPolicy};
pub use diagnosis::CERTIFICATE_DAYS;
pub use fleet::{
    Connecting, DISPATCHER_ROLE, FleetPlace, FleetView, PRESENCE_INTERVAL, PeerConnector, PeerIo,
};
pub use foreign_page::{BadHostName, HostNames};
pub use observer::DispatcherObserver;
pub use scrape::visit as visit_metrics;
pub use service::Service;
pub use startup_responder::StartupResponder;
pub use usage_rows::UsageWriter;
