//! Past and present overloads: when a shard was under pressure or shed requests, why, for how long, and how many
//! requests it shed. Every request that the queues shed belongs to an episode.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use umbo_types::{Criticality, ShardId};

use super::pressure_controller::PressureInput;
use crate::class::Class;

/// One overload of one shard. It begins with the first tick with pressure or with requests shed since the tick before.
/// It ends with the last tick with one of these or with a raised price, once a second has passed without any of them.
/// So one crowd makes one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadEpisode {
    /// Number of the episode, from 1.
    pub number: u64,
    /// The shard.
    pub shard: ShardId,
    /// The class that was under pressure first.
    pub class: Class,
    /// The input that its pressure came from.
    pub input: PressureInput,
    /// The highest pressure so far, from 0 to 1.
    pub pressure_max: f64,
    /// The highest tier whose price was raised, or `None` if no price was raised.
    pub tier_max: Option<Criticality>,
    /// The latency ratio of the class at the start; 1 if it was not known.
    pub ratio: f64,
    /// The lowest latency ratio of any class since the start.
    pub ratio_min: f64,
    /// p95 of the last second or two, at the start.
    pub p95_short: Duration,
    /// Normal p95 at the start.
    pub p95_long: Duration,
    /// When it began.
    pub started: Instant,
    /// When it ended, which is known a second later; `None` while it goes on.
    pub ended: Option<Instant>,
    /// Requests shed by the queues since the start, by tier, lowest first.
    pub shed: [u64; Criticality::ALL.len()],
}

impl OverloadEpisode {
    /// Returns how long it has lasted.
    pub fn duration(&self, now: Instant) -> Duration {
        let end = self.ended.unwrap_or(now);
        end.saturating_duration_since(self.started)
    }

    /// Returns the requests shed, all tiers together.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}

/// The last episodes that have ended.
#[derive(Debug)]
pub(crate) struct EpisodeLog {
    ended: VecDeque<OverloadEpisode>,
    episodes_max: usize,
    begun: u64,
}

impl EpisodeLog {
    /// Makes an empty log.
    pub(crate) const fn new(episodes_max: usize) -> Self {
        Self {
            ended: VecDeque::new(),
            episodes_max,
            begun: 0,
        }
    }

    /// Returns the number of the next episode.
    pub(crate) const fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Returns the number of all episodes so far, also of the episodes under way.
    pub(crate) const fn begun(&self) -> u64 {
        self.begun
    }

    /// Remembers an episode that has ended; the oldest one makes room.
    pub(crate) fn end(&mut self, episode: OverloadEpisode) {
        self.ended.push_back(episode);
        while self.ended.len() > self.episodes_max {
            self.ended.pop_front();
        }
    }

    /// Returns the episodes that have ended, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &OverloadEpisode> {
        self.ended.iter().rev()
    }
}
