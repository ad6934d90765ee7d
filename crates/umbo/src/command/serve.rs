//! `umbo serve`: dispatcher and embedded store in one process; the default command of `umbo`. `umbo
//! dispatcher` runs the same without the store.

use std::path::PathBuf;

use clap::Args;
use umbo_telemetry::logging::{self, LogHandle, LogSettings};

use crate::cli_error::CliError;
use crate::run_to_end::run_to_end;
use crate::server::{Role, Server};
use crate::settings::{Flag, LoadedSettings, SettingsSources};

/// Arguments of `umbo serve`.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Data folder [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
}

/// Arguments of `umbo serve` and `umbo dispatcher`.
#[derive(Debug, Default, Args)]
pub(super) struct ServerArguments {
    /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the data plane [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of metrics, health and the admin API [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// File of tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// File of quota policies
    #[arg(long, value_name = "FILE")]
    quota_file: Option<String>,
    /// Serve a public address without requiring a token
    #[arg(long)]
    insecure: bool,
}

impl Arguments {
    /// Runs the server until a signal stops it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let own = ("--data", "store.folder", self.data);
        self.server.serve(Role::Serve, own)
    }
}

impl ServerArguments {
    /// Runs a server of a role, which has one more flag, until a signal stops it.
    pub(super) fn serve(self, role: Role, own: GivenFlag) -> Result<(), CliError> {
        let insecure = self.insecure.then(|| "true".to_owned());
        let given = [
            own,
            ("--listen", "server.listen", self.listen),
            ("--admin-listen", "server.admin_listen", self.admin_listen),
            ("--token-file", "auth.token_file", self.token_file),
            ("--quota-file", "quota.policy_file", self.quota_file),
            ("--insecure", "server.insecure", insecure),
        ];
        let sources = SettingsSources {
            file: self.config,
            flags: flags(given),
        };
        let loaded = LoadedSettings::read(&sources)?;
        let log = begin(&loaded)?;
        block_on(async {
            match Server::start(role, sources, loaded, log).await? {
                Some(server) => server.run_until_stopped().await,
                None => Ok(()),
            }
        })
    }
}

/// Starts logging.
pub(super) fn begin(loaded: &LoadedSettings) -> Result<LogHandle, CliError> {
    let log = logging::init(&LogSettings {
        format: loaded.settings.log.format,
        filter: loaded.settings.log.filter.clone(),
    })
    .map_err(CliError::start)?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, "umbo starts with {}", loaded.source());
    if let Some(warning) = loaded.warning() {
        tracing::warn!("{warning}");
    }
    Ok(log)
}

/// Runs a server to its end, on all cores.
pub(super) fn block_on(server: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::start)?;
    run_to_end(&runtime, server)?;
    tracing::info!("umbo has stopped");
    Ok(())
}

/// A flag, its setting, and the value that was given.
pub(super) type GivenFlag = (&'static str, &'static str, Option<String>);

/// Returns the flags that were given.
pub(super) fn flags<const N: usize>(given: [GivenFlag; N]) -> Vec<Flag> {
    let flag = |(name, key, value): GivenFlag| value.map(|value| Flag { name, key, value });
    given.into_iter().filter_map(flag).collect()
}
