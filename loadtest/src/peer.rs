//! Bare axum servers to compare with: what the framework costs without Umbo.

mod axum_range;
mod axum_static;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use axum::Router;
use clap::{Args, Subcommand};
use tokio::net::TcpListener;

use crate::failure::Failure;

/// Arguments of `umbo-loadtest peer`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Port on this machine
    #[arg(long)]
    port: u16,
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Answers every get with the same 256 bytes
    AxumStatic,
    /// Answers ranges from a redb file of its own, which it fills first
    AxumRange {
        /// The file
        #[arg(long)]
        file: PathBuf,
        /// Rows of the scenario to fill it with
        #[arg(long)]
        rows: u64,
    },
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let router = match self.kind {
            Kind::AxumStatic => axum_static::router(),
            Kind::AxumRange { file, rows } => axum_range::router(&file, rows)?,
        };
        // The same kind of runtime as Umbo's: as many workers as it may use cores.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Failure::io("cannot start the runtime"))?;
        runtime.block_on(serve(router, self.port))
    }
}

async fn serve(router: Router, port: u16) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(Failure::io(format!("cannot listen on {address}")))?;
    axum::serve(listener, router)
        .await
        .map_err(Failure::io("cannot serve"))
}
