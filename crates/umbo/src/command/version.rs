//! `umbo version`: the version, as text or JSON.

use serde::Serialize;

use crate::cli_error::CliError;
use crate::output::{self, Format};

#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    arch: &'static str,
    os: &'static str,
}

/// Prints the version.
pub(crate) fn run(format: Format) -> Result<(), CliError> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        arch: std::env::consts::ARCH,
        os: std::env::consts::OS,
    };
    match format {
        Format::Table => output::write_bytes(format!("umbo {}\n", build.version).as_bytes()),
        Format::Json | Format::Ndjson => output::write_json(&build),
    }
}
