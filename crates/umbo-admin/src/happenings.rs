//! What happens behind a dispatcher, as events: nodes and shards that come and go, shards that move, overloads.
//!
//! Owns the comparison of two looks a second apart. What comes and goes between them is not seen.

use std::collections::{BTreeMap, BTreeSet};

use umbo_api::observe::{Event, EventKind};
use umbo_dispatcher::Dispatcher;
use umbo_overload::OverloadEpisode;
use umbo_store::{NodeStatus, ShardState, ShardStatus};
use umbo_types::ShardId;

/// The state at the last look. Before the first look everything counts as well, so that a node that is away from the
/// start is told.
#[derive(Debug, Default)]
pub(crate) struct Happenings {
    lost_nodes: BTreeSet<String>,
    lost_shards: BTreeSet<ShardId>,
    owners: BTreeMap<ShardId, String>,
    /// Number of the newest overload that was seen.
    last_episode: u64,
    /// Numbers of the overloads that were under way.
    under_way: BTreeSet<u64>,
}

impl Happenings {
    /// Looks at the shards and nodes of a dispatcher, and adds their changes to its events.
    pub(crate) fn look(&mut self, dispatcher: &Dispatcher) {
        let mut told = Vec::new();
        self.look_at_nodes(&dispatcher.store.nodes(), &mut told);
        self.look_at_shards(&dispatcher.store.status(), &mut told);
        if let Some(overload) = &dispatcher.overload {
            self.look_at_overloads(&overload.controller().episodes(), &mut told);
        }
        let at_ms = dispatcher.clock.wall().as_millis();
        for Happening(kind, subject, text) in told {
            let event = Event::new(at_ms, kind, subject, text);
            dispatcher.control.events.happened(event);
        }
    }

    fn look_at_nodes(&mut self, nodes: &[NodeStatus], told: &mut Vec<Happening>) {
        for node in nodes {
            let name = node.name.clone();
            match &node.failure {
                Some(reason) if self.lost_nodes.insert(name.clone()) => {
                    let text = format!("node '{name}' is not reachable: {reason}");
                    told.push(Happening(EventKind::NodeLost, name, text));
                }
                None if self.lost_nodes.remove(&name) => {
                    let text = format!("node '{name}' is reachable again");
                    told.push(Happening(EventKind::NodeBack, name, text));
                }
                Some(_) | None => {}
            }
            for shard in &node.shards {
                let before = self.owners.insert(*shard, node.name.clone());
                if let Some(before) = before.filter(|before| *before != node.name) {
                    let text = format!(
                        "shard {shard} is on node '{}' and was on '{before}'",
                        node.name
                    );
                    told.push(Happening(EventKind::ShardMoved, shard.to_string(), text));
                }
            }
        }
        // A node that has left the map does not come back.
        let is_there = |name: &String| nodes.iter().any(|node| node.name == *name);
        self.lost_nodes.retain(is_there);
    }

    fn look_at_shards(&mut self, shards: &[ShardStatus], told: &mut Vec<Happening>) {
        for status in shards {
            let shard = status.shard;
            let text = match &status.state {
                ShardState::Available => {
                    if self.lost_shards.remove(&shard) {
                        let text = format!("shard {shard} serves again");
                        told.push(Happening(EventKind::ShardBack, shard.to_string(), text));
                    }
                    continue;
                }
                ShardState::ReadOnly(reason) => format!("shard {shard} is read-only: {reason}"),
                ShardState::Unavailable(reason) => {
                    format!("shard {shard} is unavailable: {reason}")
                }
            };
            if self.lost_shards.insert(shard) {
                told.push(Happening(EventKind::ShardLost, shard.to_string(), text));
            }
        }
    }

    fn look_at_overloads(&mut self, episodes: &[OverloadEpisode], told: &mut Vec<Happening>) {
        let mut episodes: Vec<_> = episodes.iter().collect();
        episodes.sort_by_key(|episode| episode.number);
        for episode in episodes {
            let shard = episode.shard.to_string();
            if episode.number > self.last_episode {
                self.last_episode = episode.number;
                self.under_way.insert(episode.number);
                let text = format!(
                    "shard {shard} is overloaded: {} of class {}, latency ratio {:.2}",
                    episode.input.as_str(),
                    episode.class.as_str(),
                    episode.ratio
                );
                told.push(Happening(EventKind::OverloadEngaged, shard.clone(), text));
            }
            if let Some(ended) = episode.ended
                && self.under_way.remove(&episode.number)
            {
                let seconds = episode.duration(ended).as_secs_f64();
                let shed = episode.shed_total();
                let text = format!(
                    "the overload of shard {shard} has ended after {seconds:.1} s; {shed} requests were shed"
                );
                told.push(Happening(EventKind::OverloadEnded, shard, text));
            }
        }
    }
}

/// Kind, subject and text of an event.
#[derive(Debug, PartialEq, Eq)]
struct Happening(EventKind, String, String);

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, failure: Option<&str>, shards: &[u16]) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            failure: failure.map(str::to_owned),
            map_version: None,
            shards: shards.iter().copied().map(ShardId).collect(),
            in_flight: 0,
            clock_ahead: None,
        }
    }

    fn kinds(told: &mut Vec<Happening>) -> Vec<(EventKind, String)> {
        told.drain(..).map(|one| (one.0, one.1)).collect()
    }

    #[test]
    fn a_change_is_told_once() {
        let (mut seen, mut told) = (Happenings::default(), Vec::new());
        let both = [node("a", None, &[0]), node("b", Some("refused"), &[1])];
        seen.look_at_nodes(&both, &mut told);
        assert_eq!(kinds(&mut told), [(EventKind::NodeLost, "b".to_owned())]);
        seen.look_at_nodes(&both, &mut told);
        assert_eq!(kinds(&mut told), []);
        let moved = [node("a", None, &[]), node("b", None, &[0, 1])];
        seen.look_at_nodes(&moved, &mut told);
        let expected = [
            (EventKind::NodeBack, "b".to_owned()),
            (EventKind::ShardMoved, "0".to_owned()),
        ];
        assert_eq!(kinds(&mut told), expected);
        let shard = |state| [ShardStatus::new(ShardId(3), state)];
        let away = shard(ShardState::ReadOnly("disk full".to_owned()));
        seen.look_at_shards(&away, &mut told);
        seen.look_at_shards(&away, &mut told);
        seen.look_at_shards(&shard(ShardState::Available), &mut told);
        let expected = [
            (EventKind::ShardLost, "3".to_owned()),
            (EventKind::ShardBack, "3".to_owned()),
        ];
        assert_eq!(kinds(&mut told), expected);
    }
}
