//! `umbo version`: the version of the program; with a command, the versions of a namespace.

mod datasets;

use clap::Args;
use serde::Serialize;

use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format};

const HELP: &str = "\
Without a command: the version of this program. With one: the versions of a namespace, which loads of mode replace
have built. Reads see the live one. Writes go to all of them, so that going back loses none.";

/// Arguments of `umbo version`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<datasets::Command>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            None => print_build(connection.listing_format()),
            Some(command) => command.run(connection),
        }
    }
}

#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    arch: &'static str,
    os: &'static str,
}

fn print_build(format: Format) -> Result<(), CliError> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        arch: std::env::consts::ARCH,
        os: std::env::consts::OS,
    };
    output::write_report(format, &build, || {
        output::write_bytes(format!("umbo {}\n", build.version).as_bytes())
    })
}
