//! The options of every command that calls a server, and the client and runtime made from them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use umbo_client::{Client, Options};
use umbo_types::Criticality;

use crate::cli_error::CliError;
use crate::output::Format;

/// Address and credentials of the server, and the form of the output.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// Address of the server
    #[arg(
        long,
        global = true,
        env = "UMBO_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        help_heading = "Connection"
    )]
    server: String,
    /// Token to send
    #[arg(
        long,
        global = true,
        env = "UMBO_TOKEN",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    token: Option<String>,
    /// PEM file of certificates to trust instead of the system's
    #[arg(
        long,
        global = true,
        env = "UMBO_CA_FILE",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    ca_file: Option<PathBuf>,
    /// Timeout of one request, retries included (like 500ms, 10s, 2m)
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = humantime::parse_duration,
        help_heading = "Connection"
    )]
    timeout: Duration,
    /// Importance of the requests: critical-plus, critical, sheddable-plus or sheddable
    #[arg(long, global = true, value_name = "TIER", help_heading = "Connection")]
    criticality: Option<Criticality>,
    /// Form of the output; where not given, a table, but NDJSON for rows that go into a pipe or file
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    output: Option<Format>,
}

impl Connection {
    /// Makes a client.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.options())?)
    }

    /// Makes a client for bulk work: paced, and with the lowest criticality if the command line has none, so
    /// that it is shed first.
    pub(crate) fn bulk_client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.options().for_bulk())?)
    }

    fn options(&self) -> Options {
        let mut options = Options::new(&*self.server);
        options.token = self.token.clone().filter(|token| !token.is_empty());
        options.ca_file.clone_from(&self.ca_file);
        options.timeout = self.timeout;
        options.criticality = self.criticality;
        options
    }

    /// Returns the form for a listing; the default is a table.
    pub(crate) fn listing_format(&self) -> Format {
        self.output.unwrap_or(Format::Table)
    }

    /// Returns the form for rows; the default is a table on a terminal and NDJSON elsewhere.
    pub(crate) fn row_format(&self) -> Format {
        self.output.unwrap_or_else(Format::for_rows)
    }
}

/// Runs a command on the current thread, which is enough for one server.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::start)?
        .block_on(future)
}
