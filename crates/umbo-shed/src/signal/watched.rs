//! What the tick knows of one shard: its ratios, its ladder, and the engagement under way.
//!
//! An engagement begins with the first class whose ratio engages. It ends when the penalty has been
//! lifted, rung by rung, and every ratio has stayed high: what only the penalty holds up would come
//! back at once, and goes on as the same engagement.

use std::time::{Duration, Instant};

use umbo_types::{Criticality, ShardId};

use super::class::Class;
use super::events::{Engagement, Log};
use super::ladder::{Ladder, TIERS, Weather};
use super::ratio::{Band, Moment, Ratio};
use super::report::{ClassReport, ShardReport, TierReport};
use super::scale;
use super::settings::SignalSettings;
use super::slices::Slices;
use super::toll::Toll;

/// Classes that each shard has.
pub(crate) const CLASSES: usize = Class::ALL.len();

/// One shard, as the tick sees it.
#[derive(Debug)]
pub(crate) struct Watched {
    ratios: [Ratio; CLASSES],
    ladder: Ladder,
    /// Milliseconds for which the shard was not overloaded.
    calm_ms: u64,
    engagement: Option<Engagement>,
}

/// What the tick finds at a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post<'a> {
    pub(crate) shard: ShardId,
    pub(crate) toll: &'a Toll,
    pub(crate) slices: &'a [Slices; CLASSES],
    pub(crate) now: Instant,
}

/// What a tick did to an engagement.
#[derive(Debug)]
pub(crate) enum Change {
    Begun(Engagement),
    Ended(Engagement),
}

/// The lowest band of the classes that are engaged, and the class with the lowest ratio.
#[derive(Debug, Clone, Copy)]
struct Worst {
    band: Band,
    class: Class,
    ratio: f64,
}

impl Watched {
    /// Knows nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            ratios: [const { Ratio::new() }; CLASSES],
            ladder: Ladder::new(),
            calm_ms: 0,
            engagement: None,
        }
    }

    /// Says whether there is an engagement.
    pub(crate) const fn is_engaged(&self) -> bool {
        self.engagement.is_some()
    }

    /// Goes on by a tick: judges all classes, and tells the toll how hard each tier is penalised.
    pub(crate) fn tick(
        &mut self,
        post: &Post<'_>,
        elapsed_ms: u64,
        log: &mut Log,
        settings: &SignalSettings,
    ) -> Option<Change> {
        let is_frozen = self.engagement.as_ref().is_some_and(|engagement| {
            post.now.saturating_duration_since(engagement.started) < settings.thaw_after
        });
        if !is_frozen {
            self.calm_ms = self.calm_ms.saturating_add(elapsed_ms);
        }
        let moment = Moment {
            elapsed_ms,
            calm_ms: self.calm_ms,
            is_frozen,
            is_penalised: !self.ladder.is_down(),
            oldest: post.toll.oldest(),
        };
        let worst = self.judge(post.slices, &moment, settings);
        let begun = match (worst, &self.engagement) {
            (Some(worst), None) => Some(self.begin(post, worst, log.begin())),
            _ => None,
        };
        let ended = self.penalise(post, worst);
        if let Some(ended) = &ended {
            log.end(ended.clone());
        }
        ended.map(Change::Ended).or(begun.map(Change::Begun))
    }

    /// Returns the state for people.
    pub(crate) fn report(&self, post: &Post<'_>) -> ShardReport {
        let classes = Class::ALL.into_iter().filter_map(|class| {
            let ratio = &self.ratios[class as usize];
            let reading = ratio.reading(&post.slices[class as usize]);
            let is_known = reading.short.is_some() || reading.long.is_some();
            is_known.then(|| ClassReport {
                class,
                p95_short: reading.short.map(scale::Place::time),
                short_window: Duration::from_millis(reading.short_ms),
                short_samples: reading.short_samples,
                p95_long: reading.long.map(scale::Place::time),
                ratio: reading.ratio,
                is_engaged: ratio.is_engaged(),
            })
        });
        let steps = post.toll.steps();
        let engagement = self.engagement(post.toll);
        let shed = engagement.as_ref().map_or([0; TIERS], |now| now.shed);
        ShardReport {
            shard: post.shard,
            classes: classes.collect(),
            tiers: Criticality::ALL.map(|tier| {
                let (penalty_above, penalty) = steps.factors(tier);
                TierReport {
                    tier,
                    is_penalised: steps.has(tier),
                    penalty_above,
                    penalty,
                    shed: shed[tier as usize],
                }
            }),
            engagement,
        }
    }

    /// Returns the engagement under way, with what has been shed so far.
    pub(crate) fn engagement(&self, toll: &Toll) -> Option<Engagement> {
        let mut engagement = self.engagement.clone()?;
        engagement.shed = toll.shed();
        Some(engagement)
    }

    fn judge(
        &mut self,
        slices: &[Slices; CLASSES],
        moment: &Moment,
        settings: &SignalSettings,
    ) -> Option<Worst> {
        let mut worst: Option<Worst> = None;
        for class in Class::ALL {
            let (ratio, slices) = (&mut self.ratios[class as usize], &slices[class as usize]);
            let Some(band) = ratio.tick(slices, moment, settings) else {
                continue;
            };
            let ratio = ratio.reading(slices).ratio.unwrap_or(1.0);
            let so_far = *worst.get_or_insert(Worst { band, class, ratio });
            let is_lower = ratio < so_far.ratio;
            worst = Some(Worst {
                band: band.min(so_far.band),
                class: if is_lower { class } else { so_far.class },
                ratio: ratio.min(so_far.ratio),
            });
        }
        worst
    }

    fn begin(&mut self, post: &Post<'_>, worst: Worst, number: u64) -> Engagement {
        post.toll.begin(number);
        let class = worst.class as usize;
        let reading = self.ratios[class].reading(&post.slices[class]);
        let time = |place: Option<scale::Place>| place.map_or(Duration::ZERO, scale::Place::time);
        let engagement = Engagement {
            number,
            shard: post.shard,
            class: worst.class,
            tier_max: None,
            ratio: worst.ratio,
            ratio_min: worst.ratio,
            p95_short: time(reading.short),
            p95_long: time(reading.long),
            started: post.now,
            ended: None,
            shed: [0; TIERS],
        };
        self.engagement = Some(engagement.clone());
        engagement
    }

    /// Moves the ladder, while there is an engagement; returns the engagement where that was its end.
    fn penalise(&mut self, post: &Post<'_>, worst: Option<Worst>) -> Option<Engagement> {
        let engagement = self.engagement.as_mut()?;
        let ratio = worst.map_or(1.0, |worst| worst.ratio);
        if let Some(worst) = worst {
            post.toll.set_cause(worst.class, worst.ratio);
        }
        engagement.ratio_min = engagement.ratio_min.min(ratio);
        let steps = self.ladder.tick(&Weather {
            band: worst.map_or(Band::Over, |worst| worst.band),
            ratio,
            shares: post.toll.shares(),
            shed: post.toll.shed(),
        });
        let penalised = Criticality::ALL.into_iter().rfind(|tier| steps.has(*tier));
        engagement.tier_max = engagement.tier_max.max(penalised);
        post.toll.fade();
        post.toll.set_steps(steps);
        if worst.is_some() || !self.ladder.is_down() {
            return None;
        }
        self.ladder = Ladder::new();
        let mut ended = self.engagement.take()?;
        ended.ended = Some(post.now);
        ended.shed = post.toll.shed();
        Some(ended)
    }
}
