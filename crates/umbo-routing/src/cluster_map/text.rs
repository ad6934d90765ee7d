//! The text of a cluster map: TOML, parsed and written.
//!
//! The invariant: a written map parses to the same map. A text with anything unknown is refused as a whole.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use umbo_types::ShardId;

use super::error::{ClusterMapError, nearest};
use super::node::ClusterNode;
use super::{ClusterMap, ShardPlace, UncheckedMap};
use crate::home::RecordsHome;
use crate::shard_map::SlotRange;

/// Longest text of a map, in bytes: several times the size of the largest one.
const TEXT_LEN_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    cluster_id: String,
    version: u64,
    /// Absent if the home has never changed, as in maps of older versions of Umbo.
    records: Option<RecordsText>,
    nodes: BTreeMap<String, String>,
    shards: Vec<ShardText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsText {
    home: u16,
    epoch: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardText {
    id: u16,
    slots: Vec<String>,
    node: String,
    #[serde(default)]
    moves: u32,
    from: Option<String>,
}

impl ClusterMap {
    /// Parses a map. Returns the first error.
    pub fn parse(text: &str) -> Result<Self, ClusterMapError> {
        if text.len() > TEXT_LEN_MAX {
            return Err(ClusterMapError::TooLong {
                len: text.len(),
                max: TEXT_LEN_MAX,
            });
        }
        let map: MapText = toml::from_str(text).map_err(|error| explain(text, &error))?;
        let nodes = map.nodes.iter();
        let nodes = nodes
            .map(|(name, address)| ClusterNode::new(name, address))
            .collect::<Result<_, _>>()?;
        let mut ranges = Vec::new();
        let mut places = Vec::new();
        for shard in map.shards {
            let id = ShardId(shard.id);
            for slots in &shard.slots {
                ranges.push(read_slots(id, slots)?);
            }
            let place = ShardPlace {
                node: shard.node,
                moves: shard.moves,
                from: shard.from,
            };
            places.push((id, place));
        }
        Self::check(UncheckedMap {
            cluster_id: map.cluster_id,
            version: map.version,
            nodes,
            ranges,
            places,
            home: map
                .records
                .map_or_else(RecordsHome::default, |records| RecordsHome {
                    shard: ShardId(records.home),
                    epoch: records.epoch,
                }),
        })
    }

    /// Writes the map in its canonical form.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a text takes what is written");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "# Which node has which shard; written by 'umbo cluster plan'."
        )?;
        writeln!(text, "cluster_id = \"{}\"", self.cluster_id)?;
        writeln!(text, "version = {}", self.version)?;
        if self.home != RecordsHome::default() {
            writeln!(text, "\n[records]\nhome = {}", self.home.shard)?;
            writeln!(text, "epoch = {}", self.home.epoch)?;
        }
        writeln!(text, "\n[nodes]")?;
        for node in &self.nodes {
            writeln!(text, "\"{}\" = \"{}\"", node.name(), node.address())?;
        }
        let ranges = self.shard_map.ranges();
        for (shard, place) in self.each_place() {
            let own = ranges.iter().filter(|range| range.shard == shard);
            let slots: Vec<_> = own.copied().map(write_slots).collect();
            writeln!(text, "\n[[shards]]\nid = {shard}")?;
            writeln!(text, "slots = [{}]", slots.join(", "))?;
            writeln!(text, "node = \"{}\"", place.node)?;
            if let Some(from) = &place.from {
                writeln!(text, "moves = {}\nfrom = \"{from}\"", place.moves)?;
            }
        }
        Ok(())
    }
}

fn read_slots(shard: ShardId, slots: &str) -> Result<SlotRange, ClusterMapError> {
    let bad = || ClusterMapError::BadSlots {
        shard,
        slots: slots.to_owned(),
    };
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).ok_or_else(bad)
    };
    let (first, last) = (number(first)?, number(last)?);
    Ok(SlotRange { first, last, shard })
}

fn write_slots(range: SlotRange) -> String {
    if range.first == range.last {
        format!("\"{}\"", range.first)
    } else {
        format!("\"{}-{}\"", range.first, range.last)
    }
}

fn explain(text: &str, error: &toml::de::Error) -> ClusterMapError {
    let at = error.span().map_or(0, |span| span.start);
    let before = text.as_bytes().iter().take(at);
    let line = before.filter(|&&byte| byte == b'\n').count() + 1;
    // serde says: unknown field `nod`, expected one of `id`, `node`.
    let message = error.message();
    let mut names = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown field") {
        let message = message.to_owned();
        return ClusterMapError::Syntax { line, message };
    }
    let key = names.next().unwrap_or_default();
    ClusterMapError::UnknownKey {
        line,
        key: key.to_owned(),
        nearest: nearest(key, &names.collect::<Vec<_>>()).map(str::to_owned),
    }
}
