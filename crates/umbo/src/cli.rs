//! The command tree. Owns which commands there are; what each takes stands in its own module.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::command::{
    cluster, completion, config, dispatcher, dlq, hot, kv, ns, quota, serve, shard, shed, token,
    top, version,
};
use crate::failure::Failure;

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 precondition false, 5 rejected (quota),
6 overload, time-out, or server not reached or lost, 7 done in part, 8 not authenticated or not allowed,
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
    /// Send again what imports have given up
    Dlq(dlq::Arguments),
    /// Manage namespaces
    Ns(ns::Arguments),
    /// Say who may spend how much, and what was spent
    Quota(quota::Arguments),
    /// Say which keys are read most; pin them, or block them
    Hot(hot::Arguments),
    /// Watch hot keys, callers and shards
    Top(top::Arguments),
    /// Say how overloaded the server is and what it sheds
    Shed(shed::Arguments),
    /// Plan the map of a cluster, and watch its nodes
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
    /// Runs the command; its failures are already typed by exit code.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
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
