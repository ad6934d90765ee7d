//! The command tree. Owns the list of commands; the arguments of each are in its own module.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cli_error::CliError;
use crate::command::{
    cluster, completion, config, dispatcher, dlq, hot, kv, ns, quota, serve, shard, shed, token,
    top, version,
};

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 precondition false, 5 rejected (quota),
6 overload, timeout, or server unreachable, 7 partly done, 8 not authenticated or not allowed,
130 interrupted.";

/// Umbo, a sharded key-value store.
#[derive(Debug, Parser)]
#[command(name = "umbo", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read and write rows
    Kv(kv::Arguments),
    /// Send rows again that failed in an import
    Dlq(dlq::Arguments),
    /// Manage namespaces
    Ns(ns::Arguments),
    /// Manage quotas: policies, usage, and the cost of requests
    Quota(quota::Arguments),
    /// List the keys that are read most; pin or block keys
    Hot(hot::Arguments),
    /// Watch hot keys, callers and shards live
    Top(top::Arguments),
    /// Show how overloaded the server is and what it sheds
    Shed(shed::Arguments),
    /// Plan the map of a cluster, and show its nodes
    Cluster(cluster::Arguments),
    /// Run a shard node of a cluster; list and check shards
    Shard(shard::Arguments),
    /// Manage tokens
    Token(token::Arguments),
    /// Print the completion script of a shell
    Completion(completion::Arguments),
    /// Show or check settings
    Config(config::Arguments),
    /// Run the server: dispatcher and embedded store in one process (the default)
    Serve(serve::Arguments),
    /// Run a dispatcher in front of the shard nodes of a cluster
    Dispatcher(dispatcher::Arguments),
    /// Print the version
    Version(version::Arguments),
}

impl Cli {
    /// Runs the command. An error already has its exit code.
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            None => serve::Arguments::default().run(),
            Some(Command::Kv(arguments)) => arguments.run(),
            Some(Command::Dlq(arguments)) => arguments.run(),
            Some(Command::Ns(arguments)) => arguments.run(),
            Some(Command::Quota(arguments)) => arguments.run(),
            Some(Command::Hot(arguments)) => arguments.run(),
            Some(Command::Top(arguments)) => arguments.run(),
            Some(Command::Shed(arguments)) => arguments.run(),
            Some(Command::Cluster(arguments)) => arguments.run(),
            Some(Command::Shard(arguments)) => arguments.run(),
            Some(Command::Token(arguments)) => arguments.run(),
            Some(Command::Completion(arguments)) => arguments.run(&mut Self::command()),
            Some(Command::Config(arguments)) => arguments.run(),
            Some(Command::Serve(arguments)) => arguments.run(),
            Some(Command::Dispatcher(arguments)) => arguments.run(),
            Some(Command::Version(arguments)) => arguments.run(),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_well_formed() {
        Cli::command().debug_assert();
    }
}
