//! `umbo version`: the version, as text or JSON.

use clap::Args;
use serde::Serialize;

use crate::cli_error::CliError;
use crate::output::{self, Format};

/// Arguments of `umbo version`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    arch: &'static str,
    os: &'static str,
}

impl Arguments {
    /// Prints the version.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        let build = Build {
            version: env!("CARGO_PKG_VERSION"),
            arch: std::env::consts::ARCH,
            os: std::env::consts::OS,
        };
        match self.output {
            Format::Table => output::write_bytes(format!("umbo {}\n", build.version).as_bytes()),
            Format::Json | Format::Ndjson => output::write_json(&build),
        }
    }
}
