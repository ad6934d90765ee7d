//! `umbo version`: the version of the program; with a command, the versions of a namespace.

mod keys;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use umbo_api::versions::{VersionChange, VersionInfo, VersionList, VersionShard};
use umbo_types::Namespace;

use crate::cli_error::{CliError, usage};
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo version`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
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

/// The subcommands of `umbo version`.
#[derive(Debug, Subcommand)]
enum Command {
    /// List the versions with their rows and bytes, as the shards count them now
    Ls {
        /// Namespace
        ns: Namespace,
    },
    /// Compare two versions by shard: rows, bytes and digests
    Diff {
        /// Namespace
        ns: Namespace,
        /// Number of the one version
        one: u32,
        /// Number of the other version
        other: u32,
        /// List up to this many keys whose rows differ now, instead: reads both versions
        #[arg(long, value_name = "N")]
        keys: Option<usize>,
    },
    /// Make a version the live one
    Activate(VersionArgs),
    /// Make the previous live version live again
    Rollback {
        /// Namespace
        ns: Namespace,
        /// Only show what would be changed
        #[arg(long)]
        dry_run: bool,
    },
    /// Drop a version that is kept
    Rm(VersionArgs),
}

/// A version that is to be changed.
#[derive(Debug, Args)]
struct VersionArgs {
    /// Namespace
    ns: Namespace,
    /// Number, as 'umbo version ls' shows it
    number: u32,
    /// Only show what would be changed
    #[arg(long)]
    dry_run: bool,
}

impl Command {
    /// Runs the command.
    fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        block_on(async {
            let client = connection.client()?;
            let (ns, change) = match self {
                Self::Ls { ns } => return list(connection, &client.versions(ns.as_str()).await?),
                Self::Diff {
                    ns,
                    one,
                    other,
                    keys,
                } => {
                    let versions = client.versions(ns.as_str()).await?;
                    return match keys {
                        Some(max) => {
                            let rows = find(&versions, one)?.rows.max(find(&versions, other)?.rows);
                            keys::list(connection, &ns, ([one, other], rows), max).await
                        }
                        None => diff(connection, &versions, one, other),
                    };
                }
                Self::Activate(of) => {
                    let change = client.activate_version(of.ns.as_str(), of.number, of.dry_run);
                    let change = change.await?;
                    (of.ns, change)
                }
                Self::Rollback { ns, dry_run } => {
                    let change = client.roll_back(ns.as_str(), dry_run).await?;
                    (ns, change)
                }
                Self::Rm(of) => {
                    let change = client.remove_version(of.ns.as_str(), of.number, of.dry_run);
                    return tell(connection, &change.await?);
                }
            };
            tell(connection, &change)?;
            // The change is made, even if the versions cannot be listed now.
            if let Ok(versions) = client.versions(ns.as_str()).await {
                warn_of_no_rows(&versions, &change);
            }
            Ok(())
        })
    }
}

/// Warns if the version that is live now has no rows, but the previous one has.
fn warn_of_no_rows(versions: &VersionList, change: &VersionChange) {
    let (live, before) = (change.live, change.before);
    let rows = |number| find(versions, number).map_or(0, |version| version.rows);
    if rows(live) == 0 && rows(before) > 0 {
        let rows = output::counted(rows(before), "row");
        note!(
            "version {live} has no rows: reads find nothing while it is live, and version {before} has {rows}"
        );
    }
}

fn list(connection: &ConnectionArgs, list: &VersionList) -> Result<(), CliError> {
    let format = connection.listing_format();
    Listing::new("VERSION  STATE  LOAD  ROWS NOW  BYTES NOW  ACTIVATED  KEPT UNTIL")
        .with("VERSION", |version: &VersionInfo| {
            version.number.to_string()
        })
        .with("ROWS NOW", |version| version.rows.to_string())
        .with("BYTES NOW", |version| version.bytes.to_string())
        .with("ACTIVATED", |version| output::instant(version.activated_at))
        .with("KEPT UNTIL", |version| output::instant(version.keep_until))
        .write(format, &list.versions)
}

/// Two versions in one shard; `None` for a version that was not read back.
#[derive(Debug, Serialize)]
struct ShardDiff {
    shard: u16,
    one: Option<VersionShard>,
    other: Option<VersionShard>,
    /// Absent if a version was not read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_equal: Option<bool>,
}

fn diff(
    connection: &ConnectionArgs,
    list: &VersionList,
    one: u32,
    other: u32,
) -> Result<(), CliError> {
    let (one, other) = (find(list, one)?, find(list, other)?);
    for version in [one, other] {
        if version.shards.is_empty() {
            let (number, rows) = (version.number, version.rows);
            let note = format!("version {number} was never read back; it has {rows} rows now");
            output::print_note(&note);
        }
    }
    let of_both = |what| [one, other].map(|version| format!("{what} OF {}", version.number));
    let pairs = ["ROWS", "BYTES", "DIGEST"].map(of_both).concat();
    let header = format!("SHARD  {}  EQUAL", pairs.join("  "));
    let cells = |diff: &ShardDiff| {
        let of_both = |of: fn(&VersionShard) -> String| {
            [&diff.one, &diff.other].map(|shard| shard.as_ref().map_or_else(|| "-".to_owned(), of))
        };
        let pairs = [
            of_both(|shard| shard.rows.to_string()),
            of_both(|shard| shard.bytes.to_string()),
            of_both(|shard| shard.digest.chars().take(12).collect()),
        ];
        let equal = diff.is_equal.map(|is| if is { "yes" } else { "no" });
        let mut cells = vec![diff.shard.to_string()];
        cells.extend(pairs.concat());
        cells.push(equal.unwrap_or("-").to_owned());
        cells
    };
    let format = connection.listing_format();
    output::write_list(format, &by_shard(one, other), &header, cells)
}

fn find(list: &VersionList, number: u32) -> Result<&VersionInfo, CliError> {
    let mut versions = list.versions.iter();
    let found = versions.find(|version| version.number == number);
    found.ok_or_else(|| usage!("the namespace has no version {number} now"))
}

fn by_shard(one: &VersionInfo, other: &VersionInfo) -> Vec<ShardDiff> {
    let mut shards = BTreeMap::<u16, [Option<&VersionShard>; 2]>::new();
    for (at, version) in [one, other].into_iter().enumerate() {
        for shard in &version.shards {
            shards.entry(shard.shard).or_default()[at] = Some(shard);
        }
    }
    let shards = shards.into_iter();
    shards
        .map(|(shard, [one, other])| ShardDiff {
            shard,
            is_equal: one.zip(other).map(|(one, other)| one == other),
            one: one.cloned(),
            other: other.cloned(),
        })
        .collect()
}

fn tell(connection: &ConnectionArgs, change: &VersionChange) -> Result<(), CliError> {
    let format = connection.listing_format();
    if format != Format::Table {
        return output::write_json(change);
    }
    let is_dry_run = change.dry_run == Some(true);
    let mut text = if change.before == change.live {
        format!("version {} is live, as before", change.live)
    } else {
        let verb = if is_dry_run { "would be" } else { "is" };
        format!(
            "version {} {verb} live instead of {}",
            change.live, change.before
        )
    };
    for dropped in &change.dropped {
        let verb = if is_dry_run { "would be" } else { "is" };
        let _ = write!(text, "; version {dropped} {verb} dropped");
    }
    text.push('\n');
    output::write_bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::versions::VersionState;

    fn version(number: u32, shards: &[(u16, &str)]) -> VersionInfo {
        let shards = shards.iter().map(|(shard, digest)| VersionShard {
            shard: *shard,
            rows: 1,
            bytes: 2,
            digest: (*digest).to_owned(),
        });
        VersionInfo {
            number,
            state: VersionState::Kept,
            load: None,
            rows: 0,
            bytes: 0,
            activated_at: None,
            keep_until: None,
            shards: shards.collect(),
        }
    }

    #[test]
    fn versions_are_compared_by_shard() {
        let one = version(2, &[(0, "aa"), (1, "bb")]);
        let other = version(3, &[(0, "aa"), (1, "cc")]);
        let equal = |one: &VersionInfo, other: &VersionInfo| -> Vec<_> {
            let shards = by_shard(one, other).into_iter();
            shards.map(|diff| (diff.shard, diff.is_equal)).collect()
        };
        assert_eq!(equal(&one, &other), [(0, Some(true)), (1, Some(false))]);
        assert_eq!(equal(&one, &version(1, &[])), [(0, None), (1, None)]);
    }
}
