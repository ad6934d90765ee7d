//! `umbo hot …`: the keys that are read most, and the lists of keys that operators keep. A key is named as on
//! every other command line, or by the id that `umbo hot ls` shows, which ranges have too.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_api::hot::{
    BusySourceInfo, HotCaller, HotKeyInfo, HotList, HotListed, HotListingSpec, HotPod, HotStanding,
};
use umbo_api::key_text;
use umbo_api::time_to_live;
use umbo_client::{Client, Condition, Error, HotKeyRef};
use umbo_types::Namespace;

use super::kv::{Key, partition_key, ttl};
use crate::cli_error::{CliError, usage};
use crate::clock::millis_ago;
use crate::connection::{ChangeReason, ConnectionArgs, block_on};
use crate::output::{self, Format, Listing, note, rate};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the hot, pinned and blocked keys of the server that answers, most read first
    Ls {
        /// Only pinned and blocked keys
        #[arg(long)]
        listed: bool,
    },
    /// Show whose work keeps shards busy: callers, operations and partitions, largest first
    Busy(Busy),
    /// Keep answers of a key in the cache, even if it is read rarely
    Pin(Put),
    /// Undo pin: the server decides again whether answers of a key are kept
    Unpin(Remove),
    /// Refuse a key: its reads and writes cost nothing and do nothing
    Block(Put),
    /// Serve a key again
    Unblock(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct Busy {
    /// Only this shard
    #[arg(long, value_name = "SHARD")]
    shard: Option<u16>,
    /// How long ago (like 10m, 2h), at most 30 days [default: now]
    #[arg(long, value_name = "DURATION", value_parser = time_to_live::span)]
    ago: Option<Duration>,
}

/// A source of a shard.
#[derive(Serialize)]
struct BusyLine<'a> {
    shard: u16,
    busy: f64,
    #[serde(flatten)]
    source: &'a BusySourceInfo,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    key: KeyArguments,
    /// Reason to show in the list
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How long to list the key (like 30m, 2h, 7d) [default: without limit]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Replace the reason and the time of a listed key
    #[arg(long)]
    update: bool,
    /// Only show the resulting entry of the list
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    key: KeyArguments,
    #[command(flatten)]
    reason: ChangeReason,
}

#[derive(Debug, Args)]
struct KeyArguments {
    /// Namespace
    #[arg(required_unless_present = "id")]
    ns: Option<Namespace>,
    /// Partition key
    #[arg(value_parser = partition_key, required_unless_present = "id")]
    pk: Option<Key>,
    /// Sort key [default: empty]
    sk: Option<Key>,
    /// Id of the key, as 'umbo hot ls' shows it; a range has no other name
    #[arg(long, conflicts_with_all = ["ns", "pk", "sk"])]
    id: Option<String>,
}

impl KeyArguments {
    fn key(&self) -> Result<HotKeyRef<'_>, CliError> {
        match (&self.id, &self.ns, &self.pk) {
            (Some(id), ..) => Ok(HotKeyRef::Id(id)),
            (None, Some(ns), Some(pk)) => {
                let sort = self.sk.as_ref().map_or(&[][..], |key| &key.0);
                Ok(HotKeyRef::Row(ns.as_str(), &pk.0, sort))
            }
            _ => Err(usage!("name a key: NS PK [SK] or --id")),
        }
    }
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Ls { listed } => block_on(list(connection, listed)),
            Self::Busy(busy) => block_on(busy.run(connection)),
            Self::Pin(put) => block_on(put.run(connection, HotList::Pinned)),
            Self::Unpin(remove) => block_on(remove.run(connection, HotList::Pinned)),
            Self::Block(put) => block_on(put.run(connection, HotList::Blocked)),
            Self::Unblock(remove) => block_on(remove.run(connection, HotList::Blocked)),
        }
    }
}

impl Busy {
    async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let at = self.ago.map(millis_ago);
        let report = connection.client()?.busy(self.shard, at).await?;
        let format = connection.listing_format();
        if format == Format::Json {
            return output::write_json(&report);
        }
        let lines = report.shards.iter().flat_map(|of| {
            let (shard, busy) = (of.shard, of.busy);
            let line = move |source| BusyLine {
                shard,
                busy,
                source,
            };
            of.sources.iter().map(line)
        });
        let lines: Vec<_> = lines.collect();
        Listing::new("SHARD  BUSY  SHARE  CALLER  OPERATION  NAMESPACE  PARTITION")
            .with("BUSY", |line: &BusyLine<'_>| percent_of(line.busy))
            .with("SHARE", |line| percent_of(line.source.share))
            .with("PARTITION", |line| partition_of(line.source))
            .write(format, &lines)?;
        let (start, seconds) = (
            output::instant(Some(report.start_ms)),
            report.step_ms / 1_000,
        );
        note!("busy time of the {seconds} s from {start} on, of requests to this server");
        Ok(())
    }
}

impl Put {
    async fn run(&self, connection: &ConnectionArgs, list: HotList) -> Result<(), CliError> {
        let spec = HotListingSpec {
            reason: self.reason.clone(),
            ttl: self.ttl.map(|ttl| ttl.as_secs()),
        };
        let client = connection.client()?;
        let key = self.key.key()?;
        let (listed, is_new) = self.list(&client, list, key, &spec).await?;
        let format = connection.listing_format();
        Listing::new("NAMESPACE  PK  SK  KIND  STANDING  BY  SINCE  UNTIL  REASON")
            .with("PK", |listed: &HotListed| {
                output::key(listed.key.partition())
            })
            .with("SK", |listed| output::key(listed.key.sort()))
            .with("SINCE", |listed| output::instant(Some(listed.listing.at)))
            .with("UNTIL", |listed| output::instant(listed.listing.until))
            .write_one(format, &listed)?;
        if self.dry_run {
            note!("nothing was changed: this was a dry run");
        } else if !is_new && !self.update {
            note!(
                "it was {} already, and stays as it was; --update begins its time anew",
                list.as_str()
            );
        }
        if listed.standing != list.standing() {
            note!("the key is also blocked, so requests for it are refused until it is unblocked");
        }
        Ok(())
    }

    /// Puts a key on a list; with `--update`, replaces the entry of a listed key. Returns the entry, and whether it is
    /// new.
    async fn list(
        &self,
        client: &Client,
        list: HotList,
        key: HotKeyRef<'_>,
        spec: &HotListingSpec,
    ) -> Result<(HotListed, bool), Error> {
        if self.update {
            let replaced = client.list_hot(list, key, spec, Condition::Exists, self.dry_run);
            match replaced.await {
                Err(error) if error.code() == Some(ErrorCode::PreconditionFailed) => {}
                answer => return answer,
            }
        }
        client
            .list_hot(list, key, spec, Condition::None, self.dry_run)
            .await
    }
}

impl Remove {
    async fn run(&self, connection: &ConnectionArgs, list: HotList) -> Result<(), CliError> {
        let client = connection.changing_client(&self.reason)?;
        client.unlist_hot(list, self.key.key()?).await?;
        note!("the key is not {} any more", list.as_str());
        Ok(())
    }
}

async fn list(connection: &ConnectionArgs, listed: bool) -> Result<(), CliError> {
    let mut report = connection.client()?.hot().await?;
    if listed {
        let is_listed = |key: &HotKeyInfo| key.pinned.is_some() || key.blocked.is_some();
        report.keys.retain(is_listed);
    }
    let format = connection.listing_format();
    if format == Format::Json {
        return output::write_json(&report);
    }
    listing("NAMESPACE  PK  SK  KIND  STANDING  RATE  ERROR  NOW  RU/S  FOR  READS  HITS  CALLERS  BY  UNTIL  REASON  ID")
        .write(format, &report.keys)?;
    if format == Format::Table {
        output::print_note(&summary(&report.pod));
    }
    Ok(())
}

/// Returns the listing of keys that shows these columns.
pub(super) fn listing(header: &'static str) -> Listing<HotKeyInfo> {
    Listing::new(header)
        .with("PK", |info: &HotKeyInfo| output::key(info.key.partition()))
        .with("SK", |info| output::key(info.key.sort()))
        .with("STANDING", |info| {
            let standing = info.standing.as_str();
            match info.standing {
                HotStanding::Pinned | HotStanding::Blocked if info.is_hot => {
                    format!("{standing},hot")
                }
                _ => standing.to_owned(),
            }
        })
        .with("RATE", |info| rate(info.rate))
        .with("ERROR", |info| rate(info.rate_error))
        .with("NOW", |info| rate(info.rate_now))
        .with("READS/S", |info| rate(info.rate_now))
        .with("FOR", |info| {
            let seconds = info.hot_for_ms / 1_000;
            let span = output::span(Duration::from_secs(seconds));
            if info.is_hot { span } else { String::new() }
        })
        .with("HITS", |info| format!("{:.1}%", info.hit_ratio * 100.0))
        .with("CALLERS", |info| callers_text(&info.callers, 3))
        .with("UNTIL", |info| {
            let listing = info.blocked.as_ref().or(info.pinned.as_ref());
            output::instant(listing.and_then(|listing| listing.until))
        })
}

/// Returns a summary of the hot-key layer in one line.
pub(super) fn summary(pod: &HotPod) -> String {
    format!(
        "{:.0} reads/s, hot from {:.0}/s; of all reads {} from the cache, {} with another one; cache: {}, {}",
        pod.reads_rate,
        pod.threshold_rate,
        percent(pod.hits, pod.reads),
        percent(pod.followers, pod.reads),
        match pod.cache_entries {
            1 => "1 entry".to_owned(),
            number => format!("{number} entries"),
        },
        output::bytes(pod.cache_bytes),
    )
}

#[expect(clippy::cast_precision_loss)] // a share for people to look at
fn percent(part: u64, all: u64) -> String {
    format!("{:.1}%", part as f64 / all.max(1) as f64 * 100.0)
}

/// Returns a share of 1 in per cent.
pub(super) fn percent_of(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Returns the partition of a source; `-` if it is not named, or not readable.
pub(super) fn partition_of(source: &BusySourceInfo) -> String {
    match source.partition().unwrap_or_default() {
        none if none.is_empty() => "-".to_owned(),
        partition => key_text::format(&partition),
    }
}

/// Returns the largest callers with their shares as text.
fn callers_text(callers: &[HotCaller], max: usize) -> String {
    let shown = callers.iter().take(max);
    let shown = shown.map(|one| format!("{} {:.0}%", one.caller, one.share * 100.0));
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_named_with_their_shares() {
        let caller = |caller: &str, share| HotCaller {
            caller: caller.to_owned(),
            share,
        };
        let callers = [
            caller("crawler", 0.6),
            caller("shop", 0.3),
            caller("job", 0.1),
        ];
        assert_eq!(callers_text(&callers, 2), "crawler 60%, shop 30%");
        assert_eq!(callers_text(&[], 2), "");
    }
}
