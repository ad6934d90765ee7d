//! A plan for an operator: the shards and slots of each node, and the files to copy, in their order.

use std::path::Path;

use serde::Serialize;
use umbo_routing::{ClusterMap, Move};
use umbo_store_redb::shard_file_name;
use umbo_types::limits::SLOTS;

use crate::cli_error::CliError;
use crate::output::{self, Format, Listing};

/// A proposed map, and the steps to put it into effect.
#[derive(Debug, Serialize)]
pub(super) struct Proposal {
    cluster_id: String,
    /// Absent for a new cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    version_before: Option<u64>,
    version: u64,
    shards: u16,
    nodes: Vec<NodeShare>,
    moves: Vec<Copy>,
    /// The map as text.
    map: String,
}

/// The share of a node in the proposed map.
#[derive(Debug, Serialize)]
struct NodeShare {
    node: String,
    address: String,
    shards: usize,
    shards_before: usize,
    slots: u32,
    /// Share of all slots.
    share: f64,
}

/// A file to copy from one node to another.
#[derive(Debug, Serialize)]
struct Copy {
    shard: u16,
    slots: u32,
    file: String,
    from: String,
    /// Absent if the node is no longer in the map.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_address: Option<String>,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_address: Option<String>,
}

impl Proposal {
    pub(super) fn new(before: Option<&ClusterMap>, map: &ClusterMap, moves: &[Move]) -> Self {
        let address = |map: Option<&ClusterMap>, name: &str| {
            let node = map.and_then(|map| map.node(name));
            node.map(|node| node.address().to_owned())
        };
        let share = |name: &str, address: &str| {
            let shards = map.shards_of(name);
            let slots = shards.iter().map(|&shard| map.slots_of(shard)).sum();
            NodeShare {
                node: name.to_owned(),
                address: address.to_owned(),
                shards: shards.len(),
                shards_before: before.map_or(0, |map| map.shards_of(name).len()),
                slots,
                share: f64::from(slots) / f64::from(SLOTS),
            }
        };
        let nodes = map.nodes().iter();
        let copies = moves.iter().map(|one| Copy {
            shard: one.shard.0,
            slots: map.slots_of(one.shard),
            file: shard_file_name(one.shard),
            from_address: address(before, &one.from),
            from: one.from.clone(),
            to_address: address(Some(map), &one.to),
            to: one.to.clone(),
        });
        Self {
            cluster_id: map.cluster_id().to_owned(),
            version_before: before.map(ClusterMap::version),
            version: map.version(),
            shards: map.shards(),
            nodes: nodes
                .map(|node| share(node.name(), node.address()))
                .collect(),
            moves: copies.collect(),
            map: map.to_toml(),
        }
    }

    /// Prints the plan. With a table, the steps go to standard error.
    pub(super) fn print(&self, format: Format, out: Option<&Path>) -> Result<(), CliError> {
        let copies = Listing::new("SHARD  SLOTS  FILE  FROM  FROM-ADDRESS  TO  TO-ADDRESS");
        match format {
            Format::Json => return output::write_json(self),
            Format::Ndjson => return copies.write(format, &self.moves),
            Format::Table => {}
        }
        Listing::new("NODE  ADDRESS  SHARDS  BEFORE  SLOTS  SHARE")
            .with("BEFORE", |node: &NodeShare| node.shards_before.to_string())
            .with("SHARE", |node| format!("{:.1}%", node.share * 100.0))
            .write(format, &self.nodes)?;
        if !self.moves.is_empty() {
            output::write_bytes(b"\n")?;
            copies.write(format, &self.moves)?;
        }
        for line in self.notes(out) {
            output::print_note(&line);
        }
        Ok(())
    }

    fn notes(&self, out: Option<&Path>) -> Vec<String> {
        let cluster = &self.cluster_id;
        if self.version_before == Some(self.version) {
            return vec![format!("nothing to change in cluster '{cluster}'")];
        }
        let (version, moves) = (self.version, self.moves.len() as u64);
        let mut notes = vec![match self.version_before {
            None => format!(
                "the first map of cluster '{cluster}', with {}",
                output::counted(self.shards.into(), "shard")
            ),
            Some(before) => format!(
                "cluster '{cluster}', version {before} to {version}: {} to copy",
                output::counted(moves, "file")
            ),
        }];
        let map = out.map_or_else(
            || "the new map (--out FILE writes it)".to_owned(),
            |path| path.display().to_string(),
        );
        notes.push(if moves == 0 {
            format!("give {map} to all nodes and dispatchers")
        } else {
            let stopped = self.concerned().join(", ");
            format!(
                "1. give {map} to all nodes and dispatchers\n\
                 2. stop the nodes {stopped}: each stamps the files that it gives away (for one that is down already: \
                 umbo shard release)\n\
                 3. copy each file from the data folder of the one node to that of the other, which refuses one \
                 without the stamp\n\
                 4. start the nodes; the original files do not open anywhere any more, and may be removed"
            )
        });
        notes
    }

    /// Returns the nodes that give or take a file, each once, by name.
    fn concerned(&self) -> Vec<&str> {
        let ends = self.moves.iter().flat_map(|one| [&*one.from, &*one.to]);
        let mut nodes: Vec<&str> = ends.collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
