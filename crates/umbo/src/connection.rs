//! The options of every command that speaks to a server, and the client and runtime made of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use umbo_client::{Client, Options};
use umbo_types::Criticality;

use crate::failure::Failure;
use crate::output::Format;

/// Where the server is, how to speak to it, and in which form to answer.
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
    /// PEM file of certificates to trust instead of those the system trusts
    #[arg(
        long,
        global = true,
        env = "UMBO_CA_FILE",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    ca_file: Option<PathBuf>,
    /// Time for one request, repetitions included (like 500ms, 10s, 2m)
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = humantime::parse_duration,
        help_heading = "Connection"
    )]
    timeout: Duration,
    /// How much it matters: critical-plus, critical, sheddable-plus or sheddable
    #[arg(long, global = true, value_name = "TIER", help_heading = "Connection")]
    criticality: Option<Criticality>,
    /// Form of the output; where not said, a table, but for rows that go into a pipe or file NDJSON
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    output: Option<Format>,
}

impl Connection {
    /// Makes a client.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.options())?)
    }

    /// Makes a client for work that nobody waits for: paced, and the first to be shed where the
    /// command line names no criticality.
    pub(crate) fn bulk_client(&self) -> Result<Client, Failure> {
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

    /// Returns the form for a listing: a table where none was asked for.
    pub(crate) fn listing_format(&self) -> Format {
        self.output.unwrap_or(Format::Table)
    }

    /// Returns the form for rows: a table on a terminal and NDJSON elsewhere where none was
    /// asked for.
    pub(crate) fn row_format(&self) -> Format {
        self.output.unwrap_or_else(Format::for_rows)
    }
}

/// Runs a command on this thread; what it waits for is one server.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::start)?
        .block_on(future)
}
