//! The options of every command that calls a server, and the client and runtime made from them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use umbo_api::admin::NamespaceSpec;
use umbo_api::{ErrorCode, time_to_live};
use umbo_client::{Client, Error, LocalLimit, Options, QuotaUnit};
use umbo_types::{Criticality, Namespace};

use crate::cli_error::CliError;
use crate::output::Format;
use crate::run_to_end::run_to_end;

/// Address and credentials of the server, and the form of the output.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Address of the server: http://…, https://…, or HOST:PORT
    #[arg(
        long,
        global = true,
        env = "UMBO_SERVER",
        value_name = "ADDRESS",
        default_value = "http://127.0.0.1:8080"
    )]
    server: String,
    /// Token to send
    #[arg(long, global = true, env = "UMBO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// PEM file of certificates to trust instead of the system's: authorities, or the server's own
    #[arg(long, global = true, env = "UMBO_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate of the server, like curl; a machine in between can read and change everything
    #[arg(short = 'k', long, global = true, env = "UMBO_INSECURE_SKIP_VERIFY")]
    insecure_skip_verify: bool,
    /// Timeout of one request, retries included (like 500ms, 10s, 2m)
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = time_to_live::span
    )]
    timeout: Duration,
    /// Importance of the requests: critical-plus, critical, sheddable-plus or sheddable
    #[arg(long, global = true, value_name = "TIER")]
    criticality: Option<Criticality>,
    /// Form of the output: table, json or ndjson [default: a table, but NDJSON for rows that go into a pipe or file]
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        hide_possible_values = true
    )]
    output: Option<Format>,
}

/// Why a change is made.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChangeReason {
    /// Reason to show with the change in 'umbo events'
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl ConnectionArgs {
    /// Makes a client.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.options())?)
    }

    /// Makes a client for a change, which the server shows among its events with this reason.
    pub(crate) fn changing_client(&self, reason: &ChangeReason) -> Result<Client, CliError> {
        let client = self.client()?;
        Ok(match &reason.reason {
            Some(reason) => client.with_reason(reason)?,
            None => client,
        })
    }

    /// Makes a client for bulk work: paced, and with the lowest criticality if the command line has none, so
    /// that it is shed first.
    pub(crate) fn bulk_client(&self) -> Result<Client, CliError> {
        self.writing_client(None)
    }

    /// Makes a client for bulk work that writes at most this many rows a second.
    pub(crate) fn writing_client(&self, rows_per_second: Option<u32>) -> Result<Client, CliError> {
        let mut options = self.options().for_bulk();
        options.local_limit = rows_per_second.map(|rate| LocalLimit {
            unit: QuotaUnit::Writes,
            rate: rate.into(),
        });
        Ok(Client::new(&options)?)
    }

    /// Returns the same options for another server of the same fleet.
    pub(crate) fn with_server(&self, server: &str) -> Self {
        Self {
            server: server.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the address of the server, with its scheme.
    pub(crate) fn server(&self) -> String {
        with_scheme(&self.server)
    }

    fn options(&self) -> Options {
        let mut options = Options::new(self.server());
        options.accepts_any_certificate = self.insecure_skip_verify;
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

/// Returns an address with its scheme: HOST:PORT is an address of HTTP.
fn with_scheme(server: &str) -> String {
    let port = server.rsplit_once(':').map(|(_, port)| port);
    let is_bare = !server.contains("://") && port.is_some_and(|port| port.parse::<u16>().is_ok());
    if is_bare {
        format!("http://{server}")
    } else {
        server.to_owned()
    }
}

/// Adds the nearest name to an error about a missing namespace.
pub(crate) async fn with_nearest(client: &Client, ns: &Namespace, mut error: CliError) -> CliError {
    if let CliError::Client(Error::Problem { problem }) = &mut error
        && problem.code() == Some(ErrorCode::NamespaceNotFound)
        && let Ok(list) = client.namespaces().await
    {
        let names: Vec<&str> = list.namespaces.iter().map(|one| &*one.name).collect();
        if let Some(nearest) = umbo_quota::nearest(ns.as_str(), &names) {
            problem.detail = format!("did you mean '{nearest}'? {}", problem.detail);
        }
    }
    error
}

/// Creates a namespace with default settings, and notes it unless another client was faster.
pub(crate) async fn create_namespace(
    client: &Client,
    name: &str,
    note: impl FnOnce(&str),
) -> Result<(), Error> {
    let (_, is_new) = client
        .put_namespace(name, &NamespaceSpec::default())
        .await?;
    if is_new {
        note(&format!("created namespace '{name}'"));
    }
    Ok(())
}

/// Returns an answer, or `None` if the caller lacks the permission.
pub(crate) fn allowed<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.code() == Some(ErrorCode::Forbidden) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns a value of the process in the text of its metrics, for the few that no route of the API has.
pub(crate) fn process_metric(metrics: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value)
}

/// Runs a command on the current thread, which is enough for one server.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::start)?;
    run_to_end(&runtime, future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_of_the_process_has_its_whole_name() {
        let text = "# TYPE a gauge\nab 1\na{b=\"c\"} 2\na 3.5\n";
        assert_eq!(process_metric(text, "a"), Some(3.5));
        assert_eq!(process_metric(text, "b"), None);
    }

    #[test]
    fn a_host_with_a_port_needs_no_scheme() {
        for (given, address) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:80", "http://localhost:80"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("https://a:1", "https://a:1"),
            ("localhost", "localhost"),
            ("a:b", "a:b"),
        ] {
            assert_eq!(with_scheme(given), address);
        }
    }
}
