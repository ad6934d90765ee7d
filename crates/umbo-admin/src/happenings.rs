//! What happens behind a dispatcher, as events: shards that move, overloads. The diagnosis tells of nodes and shards that
//! come and go.
//!
//! Owns the comparison of two looks a second apart. What comes and goes between them is not seen.

use std::collections::{BTreeMap, BTreeSet};

use umbo_api::observe::{Event, EventKind};
use umbo_dispatcher::Dispatcher;
use umbo_overload::OverloadEpisode;
use umbo_store::NodeStatus;
use umbo_types::ShardId;

/// The state at the last look.
#[derive(Debug, Default)]
pub(crate) struct Happenings {
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

    #[test]
    fn a_shard_that_moves_is_told_once() {
        let node = |name: &str, shards: &[u16]| NodeStatus {
            name: name.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            failure: None,
            map_version: None,
            shards: shards.iter().copied().map(ShardId).collect(),
            in_flight: Some(0),
            clock_ahead: None,
            program_version: None,
        };
        let (mut seen, mut told) = (Happenings::default(), Vec::new());
        seen.look_at_nodes(&[node("a", &[0]), node("b", &[1])], &mut told);
        assert_eq!(told, []);
        for _ in 0..2 {
            seen.look_at_nodes(&[node("a", &[]), node("b", &[0, 1])], &mut told);
        }
        let text = "shard 0 is on node 'b' and was on 'a'".to_owned();
        let moved = Happening(EventKind::ShardMoved, "0".to_owned(), text);
        assert_eq!(told, [moved]);
    }
}
