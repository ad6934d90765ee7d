//! The command tree. Owns the list of commands and their examples; the arguments of each are in its own module.

mod examples;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::cli_error::{CliError, usage};
use crate::command::{
    backup, calibrate, cluster, completion, config, dispatcher, doctor, events, fleet, hot, kv,
    load, man, ns, quota, restore, running, serve, shard, shed, status, token, top, version, why,
};
use crate::connection::ConnectionArgs;
use crate::output;

/// Variable with the command to run if the command line names none. The project's cargo configuration sets it, so that
/// `cargo run` serves.
const DEFAULT_COMMAND: &str = "UMBO_DEFAULT_COMMAND";

/// Umbo, a sharded key-value store.
#[derive(Debug, Parser)]
#[command(name = "umbo", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read and write rows
    #[command(subcommand)]
    Kv(kv::Command),
    /// Upload datasets that the server applies by itself
    #[command(subcommand)]
    Load(load::Command),
    /// Manage namespaces
    #[command(subcommand)]
    Ns(ns::Command),
    /// Manage quotas: policies, usage, and the cost of requests
    #[command(subcommand)]
    Quota(quota::Command),
    /// List the keys that are read most; pin or block keys
    #[command(subcommand)]
    Hot(hot::Command),
    /// Show a server on one screen: version, requests of the last five minutes, namespaces, shards, callers and problems
    Status,
    /// Check this machine, its settings and the server, and report problems
    Doctor(doctor::Arguments),
    /// Watch hot keys, callers and shards live
    Top(top::Arguments),
    /// List changes by operators and other events, or follow them
    Events(events::Arguments),
    /// Show the overload of the server, and the requests that it sheds
    #[command(subcommand)]
    Shed(shed::Command),
    /// Show why a request was refused or slow, or why a caller is refused
    Why(why::Arguments),
    /// List the requests in flight, on all dispatchers of the cluster
    Ps,
    /// End a request in flight: a stream ends with a cursor, a waiting request is refused
    Kill(running::KillArguments),
    /// Measure what operations cost on this machine, and fit the weights of `[cost]`
    Calibrate(calibrate::Arguments),
    /// Plan the map of a cluster, and show its nodes
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Run a shard node of a cluster; list and check shards
    Shard(shard::Arguments),
    /// Copy all rows and records to a folder or an object store, while the server serves; check a backup
    Backup(backup::Arguments),
    /// Put a backup into a new data folder, with any number of shards
    Restore(restore::Arguments),
    /// List the dispatchers of a cluster
    Fleet,
    /// Manage tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Print the completion script of a shell
    Completion(completion::Arguments),
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man(man::Arguments),
    /// Show or check settings
    #[command(subcommand)]
    Config(config::Command),
    /// Run the server: dispatcher and embedded store in one process
    Serve(serve::Arguments),
    /// Run a dispatcher in front of the shard nodes of a cluster
    Dispatcher(dispatcher::Arguments),
    /// Print the version; list, compare and activate the versions of a namespace
    Version(version::Arguments),
}

impl Cli {
    /// Parses the command line. Ends the program if the command line asks for help or is not valid.
    pub(crate) fn of_command_line() -> Self {
        let mut tree = Self::tree();
        let matches = tree.get_matches_mut();
        if let Some(ignored) = ignored_option(&matches) {
            tree.error(ErrorKind::ArgumentConflict, ignored).exit();
        }
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Returns the command tree with the help pages as they are shown.
    fn tree() -> clap::Command {
        examples::add_to(Self::command())
    }

    /// Runs the command. An error already has its exit code.
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let connection = &self.connection;
        match self.command {
            None => run_default(),
            Some(Command::Kv(command)) => command.run(connection),
            Some(Command::Load(command)) => command.run(connection),
            Some(Command::Ns(command)) => command.run(connection),
            Some(Command::Quota(command)) => command.run(connection),
            Some(Command::Hot(command)) => command.run(connection),
            Some(Command::Status) => status::run(connection),
            Some(Command::Doctor(arguments)) => arguments.run(connection),
            Some(Command::Top(arguments)) => arguments.run(connection),
            Some(Command::Events(arguments)) => arguments.run(connection),
            Some(Command::Shed(command)) => command.run(connection),
            Some(Command::Why(arguments)) => arguments.run(connection),
            Some(Command::Ps) => running::ps(connection),
            Some(Command::Kill(arguments)) => arguments.run(connection),
            Some(Command::Calibrate(arguments)) => arguments.run(connection),
            Some(Command::Cluster(command)) => command.run(connection),
            Some(Command::Shard(arguments)) => arguments.run(connection),
            Some(Command::Backup(arguments)) => arguments.run(connection),
            Some(Command::Restore(arguments)) => arguments.run(),
            Some(Command::Fleet) => fleet::run(connection),
            Some(Command::Token(command)) => command.run(connection),
            Some(Command::Completion(arguments)) => arguments.run(&mut Self::tree()),
            Some(Command::Man(arguments)) => arguments.run(Self::tree()),
            Some(Command::Config(command)) => command.run(),
            Some(Command::Serve(arguments)) => arguments.run(),
            Some(Command::Dispatcher(arguments)) => arguments.run(),
            Some(Command::Version(arguments)) => arguments.run(connection),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

/// Options for calls of a server.
const CLIENT_OPTIONS: &str = "server token ca_file insecure_skip_verify timeout criticality";
/// Commands that call no server. `shard` and `version` call none only without a subcommand.
const LOCAL: &str = "calibrate restore serve dispatcher shard config completion version man";

/// Returns an error text if an option on the command line would be ignored by the command, else `None`. Variables of
/// the environment are not checked: they may be meant for other commands.
fn ignored_option(matches: &ArgMatches) -> Option<String> {
    let (name, mut inner) = matches.subcommand()?;
    let is_of_both = matches!(name, "shard" | "version");
    if !LOCAL.split(' ').any(|one| one == name) || (is_of_both && inner.subcommand_name().is_some())
    {
        return None;
    }
    while let Some((_, below)) = inner.subcommand() {
        inner = below;
    }
    let is_given = |option: &&str| inner.value_source(option) == Some(ValueSource::CommandLine);
    let option = CLIENT_OPTIONS.split(' ').find(is_given)?.replace('_', "-");
    Some(format!(
        "--{option} is for commands that call a server, and 'umbo {name}' calls none"
    ))
}

/// Runs without a command: prints the help page, or serves if [`DEFAULT_COMMAND`] says so.
fn run_default() -> Result<(), CliError> {
    match std::env::var(DEFAULT_COMMAND) {
        Err(_) => output::write_bytes(Cli::tree().render_long_help().to_string().as_bytes()),
        Ok(name) if name == "serve" => serve::Arguments::default().run(),
        Ok(name) => Err(usage!(
            "{DEFAULT_COMMAND} is '{name}'; the only default command is serve"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(line: &str) -> Option<String> {
        let words = line.split_whitespace();
        ignored_option(&Cli::tree().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn options_that_would_be_ignored_are_refused() {
        for line in [
            "umbo serve --token x",
            "umbo --server h:1 serve",
            "umbo serve -k",
            "umbo dispatcher --timeout 1s",
            "umbo shard --ca-file f",
            "umbo config show --criticality critical",
        ] {
            let said = ignored(line);
            assert!(
                said.is_some_and(|said| said.contains("calls none")),
                "{line}"
            );
        }
        for line in [
            "umbo serve --listen 127.0.0.1:0",
            "umbo shard ls --token x",
            "umbo version ls demo --token x",
            "umbo kv get demo a --server h:1",
            "umbo config show -o json",
            "umbo --token x status",
        ] {
            assert_eq!(ignored(line), None, "{line}");
        }
    }

    #[test]
    fn the_tree_is_well_formed() {
        Cli::command().debug_assert();
        Cli::tree().debug_assert();
    }
}
