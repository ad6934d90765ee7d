//! `umbo serve`: dispatcher and embedded store in one process; also what `umbo` alone does.

use std::path::PathBuf;

use clap::Args;
use umbo_telemetry::logging::{self, LogSettings};

use crate::failure::Failure;
use crate::server::Server;
use crate::settings::{Flag, Loaded};

/// Arguments of `umbo serve`.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Settings file; else the one that `UMBO_CONFIG` names, else `umbo.toml` where it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the data plane [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of metrics, health and the admin API [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// File of tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Serve a public address though no token is asked for
    #[arg(long)]
    insecure: bool,
}

impl Arguments {
    /// Reads the settings in effect, for the start and for every reload.
    pub(crate) fn settings(&self) -> Result<Loaded, Failure> {
        let given = [
            ("--data", "store.folder", self.data.clone()),
            ("--listen", "server.listen", self.listen.clone()),
            (
                "--admin-listen",
                "server.admin_listen",
                self.admin_listen.clone(),
            ),
            ("--token-file", "auth.token_file", self.token_file.clone()),
            (
                "--insecure",
                "server.insecure",
                self.insecure.then(|| "true".to_owned()),
            ),
        ];
        let flag = |(name, key, value): (&'static str, &'static str, Option<String>)| {
            value.map(|value| Flag { name, key, value })
        };
        let flags: Vec<Flag> = given.into_iter().filter_map(flag).collect();
        Ok(Loaded::read(self.config.as_deref(), &flags)?)
    }

    /// Runs the server until it is told to stop.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let loaded = self.settings()?;
        let log = logging::init(&LogSettings {
            format: loaded.settings.log.format.into(),
            filter: loaded.settings.log.filter.clone(),
        })
        .map_err(Failure::start)?;
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, "umbo starts with {}", loaded.source());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Failure::start)?;
        runtime.block_on(async {
            let server = Server::start(self, loaded, log).await?;
            server.run_until_told().await
        })?;
        tracing::info!("umbo has stopped");
        Ok(())
    }
}
