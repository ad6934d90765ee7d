//! `umbo cluster …`: the map of a cluster, for a changed set of nodes; and the nodes as a dispatcher sees
//! them.

mod newest;
mod plan;
mod promote_home;
mod report;

use clap::Subcommand;
use umbo_api::cluster::{ClusterStatus, NodeInfo};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Propose a map for these nodes, and show which files to copy where
    Plan(plan::PlanArgs),
    /// Fetch the newest map from the nodes of an older one
    Map(newest::Newest),
    /// Make another shard the home of Umbo's own records, after the current one is lost
    PromoteHome(promote_home::PromoteHome),
    /// Show which nodes a dispatcher uses, and which of them it reaches
    Status,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Plan(plan) => plan.run(connection.listing_format()),
            Self::Map(newest) => block_on(newest.run(connection.listing_format())),
            Self::PromoteHome(promote) => block_on(promote.run()),
            Self::Status => block_on(status(connection)),
        }
    }
}

async fn status(connection: &ConnectionArgs) -> Result<(), CliError> {
    let ClusterStatus { nodes } = connection.client()?.cluster_status().await?;
    let format = connection.listing_format();
    if format == Format::Json {
        return output::write_json(&ClusterStatus { nodes });
    }
    Listing::new(
        "NODE  ADDRESS  STATE  MAP-VERSION  SHARDS  IN-FLIGHT  CLOCK-MS  PROGRAM-VERSION  REASON",
    )
    .with("NODE", |node: &NodeInfo| node.name.clone())
    .with("STATE", |node| {
        let is_up = node.reachable;
        if is_up { "reachable" } else { "unreachable" }.to_owned()
    })
    .with("CLOCK-MS", |node| {
        let ahead = node.clock_ahead_ms.map(|ahead| format!("{ahead:+}"));
        ahead.unwrap_or_default()
    })
    .write(format, &nodes)?;
    if format == Format::Table {
        output::print_note(&summary(&nodes));
    }
    Ok(())
}

fn summary(nodes: &[NodeInfo]) -> String {
    if nodes.is_empty() {
        return "the shards are in the server's own process".to_owned();
    }
    let reachable = nodes.iter().filter(|node| node.reachable).count();
    let all = output::counted(nodes.len() as u64, "node");
    let mut versions: Vec<_> = nodes.iter().filter_map(|node| node.map_version).collect();
    versions.sort_unstable();
    versions.dedup();
    let maps = match versions[..] {
        [] => String::new(),
        [version] => format!("; all use version {version} of the map"),
        [..] => format!("; they use different versions of the map: {versions:?}"),
    };
    format!("{reachable} of {all} reachable{maps}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(map_version: Option<u64>) -> NodeInfo {
        NodeInfo {
            reachable: map_version.is_some(),
            map_version,
            ..NodeInfo::default()
        }
    }

    #[test]
    fn the_summary_says_who_is_away_and_who_lags() {
        for (versions, expected) in [
            (&[][..], "the shards are in the server's own process"),
            (
                &[Some(2), Some(2)],
                "2 of 2 nodes reachable; all use version 2 of the map",
            ),
            (&[None], "0 of 1 node reachable"),
            (
                &[Some(3), None, Some(2)],
                "2 of 3 nodes reachable; they use different versions of the map: [2, 3]",
            ),
        ] {
            let nodes: Vec<_> = versions.iter().copied().map(node).collect();
            assert_eq!(summary(&nodes), expected);
        }
    }
}
