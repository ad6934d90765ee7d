//! The tick's state of one shard: the latency of its classes, its pressure, and the episode under way.

use std::time::{Duration, Instant};

use umbo_types::{Criticality, ShardId};

use super::episode::{EpisodeLog, OverloadEpisode};
use super::fair_shares::{Excess, FairShares};
use super::heavy_work::HeavyWork;
use super::latency::LatencyState;
use super::log_histogram::Place;
use super::penalty::{Measures, Prices};
use super::pressure_controller::{CLASSES, PressureController, PressureInput, TickInput, Worst};
use super::report::{ClassReport, PriceReport, ShardReport};
use super::settings::PressureSettings;
use super::time_slices::TimeSlices;
use crate::class::Class;
use crate::estimate::SLICE;

/// A shard as the tick reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardView<'a> {
    pub(crate) shard: ShardId,
    pub(crate) slices: &'a [TimeSlices; CLASSES],
    pub(crate) shares: &'a FairShares,
    pub(crate) heavy: &'a HeavyWork,
    pub(crate) now: Instant,
}

/// The change of an episode by a tick.
#[derive(Debug)]
pub(crate) enum EpisodeChange {
    Begun(OverloadEpisode),
    Ended(OverloadEpisode),
}

/// The tick's state of one shard.
#[derive(Debug)]
pub(crate) struct ShardMonitor {
    latencies: [LatencyState; CLASSES],
    controller: PressureController,
    prices: Prices,
    episode: Option<OverloadEpisode>,
    /// The last tick with a cause of an episode or a raised price.
    active: Option<Instant>,
    /// Requests shed by the queues, now and when the episode began.
    shed: [u64; Criticality::ALL.len()],
    shed_before: [u64; Criticality::ALL.len()],
    shed_by_queue: [u64; 2],
}

impl ShardMonitor {
    /// Knows nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            latencies: [const { LatencyState::new() }; CLASSES],
            controller: PressureController::default(),
            prices: Prices::default(),
            episode: None,
            active: None,
            shed: Default::default(),
            shed_before: Default::default(),
            shed_by_queue: Default::default(),
        }
    }

    /// Advances by a tick. Returns the measures to take now, and the change of the episode.
    pub(crate) fn tick(
        &mut self,
        view: &ShardView<'_>,
        input: &TickInput,
        elapsed_ms: u32,
        log: &mut EpisodeLog,
        settings: &PressureSettings,
    ) -> (Measures, Option<EpisodeChange>) {
        let lasted = |episode: &OverloadEpisode| episode.duration(view.now);
        let has_pressure = |episode: &&OverloadEpisode| episode.pressure_max > 0.0;
        let is_frozen = self.episode.as_ref().filter(has_pressure).map(lasted);
        let is_frozen = is_frozen.is_some_and(|lasted| lasted < settings.thaw_after);
        let mut latency = [0.0; CLASSES];
        for ((state, slices), pressure) in
            self.latencies.iter_mut().zip(view.slices).zip(&mut latency)
        {
            *pressure = state.tick(slices, elapsed_ms, (input.oldest, is_frozen), settings);
        }
        // A caller alone delays no other caller.
        if latency.iter().any(|one| *one > 0.0) && view.shares.callers_by_tier() == 1 {
            latency = [0.0; CLASSES];
        }
        let shed_before = std::mem::replace(&mut self.shed, input.shed);
        let by_queue_before = std::mem::replace(&mut self.shed_by_queue, input.shed_by_queue);
        let designated = &settings.designated;
        let is_calm = self.controller.is_at_rest()
            && !input.is_any()
            && latency.iter().all(|one| *one <= 0.0);
        let excess = if is_calm {
            Excess::default()
        } else {
            view.shares.excess()
        };
        let is_explained = !is_calm && self.is_explained(view, &latency, input.oldest);
        let found = (excess, is_explained);
        let (worst, measures) = self.controller.tick(latency, input, designated, found);
        self.prices = measures.prices;
        // Queues may shed between two ticks, without pressure at either.
        let cause = worst.or_else(|| shedding(by_queue_before, input.shed_by_queue));
        if cause.is_some() || !self.controller.is_at_rest() {
            self.active = Some(view.now);
        }
        let change = match cause {
            Some(cause) if self.episode.is_none() => {
                self.shed_before = shed_before;
                let episode = self.begin(view, &cause, log.begin());
                self.episode = Some(episode.clone());
                Some(EpisodeChange::Begun(episode))
            }
            None if self.is_quiet(view.now) => {
                let ended = self.end();
                if let Some(ended) = &ended {
                    log.end(ended.clone());
                }
                ended.map(EpisodeChange::Ended)
            }
            _ => None,
        };
        self.update(view, worst);
        (measures, change)
    }

    /// Returns the longest service time that is charged, by class. `None` if all of it is charged: no episode is under
    /// way, or the normal p99 is not known.
    pub(crate) fn charged_max(&self) -> [Option<Duration>; CLASSES] {
        let is_overloaded = self.episode.is_some();
        std::array::from_fn(|class| {
            let normal = is_overloaded.then(|| self.latencies[class].normal_p99());
            normal.flatten()
        })
    }

    /// Returns the episode under way.
    pub(crate) const fn episode(&self) -> Option<&OverloadEpisode> {
        self.episode.as_ref()
    }

    /// Returns the greatest pressure of any class.
    pub(crate) fn pressure(&self) -> f32 {
        let classes = Class::ALL.into_iter();
        let pressures = classes.map(|class| self.controller.pressure(class));
        pressures.fold(0.0, f64::max) as f32
    }

    /// Returns the state for people.
    pub(crate) fn report(&self, view: &ShardView<'_>) -> ShardReport {
        let classes = Class::ALL.into_iter().filter_map(|class| {
            let state = &self.latencies[class as usize];
            let reading = state.reading(&view.slices[class as usize]);
            let pressure = self.controller.pressure(class);
            let is_known = reading.short.is_some() || reading.long.is_some() || pressure > 0.0;
            is_known.then(|| ClassReport {
                class,
                p95_short: reading.short.map(Place::time),
                short_window: Duration::from_millis(reading.short_ms.into()),
                short_samples: reading.short_samples,
                p95_long: reading.long.map(Place::time),
                ratio: reading.ratio,
                pressure,
                is_engaged: state.is_engaged(),
            })
        });
        ShardReport {
            shard: view.shard,
            classes: classes.collect(),
            shares: view.shares.report(),
            heavy: [false, true].map(|is_write| view.heavy.bound(is_write)),
            prices: Criticality::ALL.map(|tier| PriceReport {
                tier,
                above_share: self.prices.multiplier(tier, true),
                others: self.prices.multiplier(tier, false),
            }),
            episode: self.episode.clone(),
        }
    }

    /// Returns whether one heavy request explains the latencies of all classes that are under pressure.
    fn is_explained(
        &self,
        view: &ShardView<'_>,
        latency: &[f64; CLASSES],
        oldest: Duration,
    ) -> bool {
        let mut pressed = Class::ALL.into_iter().zip(latency);
        pressed.all(|(class, pressure)| {
            let state = &self.latencies[class as usize];
            let heavy = view.heavy.longest(class.is_write());
            *pressure <= 0.0 || state.is_within(&view.slices[class as usize], heavy, oldest)
        })
    }

    fn begin(&self, view: &ShardView<'_>, worst: &Worst, number: u64) -> OverloadEpisode {
        let class = worst.class as usize;
        let reading = self.latencies[class].reading(&view.slices[class]);
        let time = |place: Option<Place>| place.map_or(Duration::ZERO, Place::time);
        let ratio = reading.ratio.unwrap_or(1.0);
        OverloadEpisode {
            number,
            shard: view.shard,
            class: worst.class,
            input: worst.input,
            pressure_max: worst.pressure,
            tier_max: None,
            ratio,
            ratio_min: ratio,
            p95_short: time(reading.short),
            p95_long: time(reading.long),
            started: view.now,
            ended: None,
            shed: Default::default(),
        }
    }

    fn update(&mut self, view: &ShardView<'_>, worst: Option<Worst>) {
        let Some(episode) = &mut self.episode else {
            return;
        };
        if let Some(worst) = worst {
            episode.pressure_max = episode.pressure_max.max(worst.pressure);
        }
        let engaged = self.latencies.iter().zip(view.slices);
        let engaged = engaged.filter(|(state, _)| state.is_engaged());
        let ratios = engaged.filter_map(|(state, slices)| state.reading(slices).ratio);
        episode.ratio_min = ratios.fold(episode.ratio_min, f64::min);
        let raised = |tier: &Criticality| self.prices.has(*tier);
        let raised = Criticality::ALL.into_iter().rfind(raised);
        episode.tier_max = episode.tier_max.max(raised);
        episode.shed = std::array::from_fn(|tier| self.shed[tier] - self.shed_before[tier]);
    }

    /// Returns whether the shard has been at rest long enough to end the episode.
    fn is_quiet(&self, now: Instant) -> bool {
        self.active
            .is_none_or(|active| now.saturating_duration_since(active) >= SLICE)
    }

    fn end(&mut self) -> Option<OverloadEpisode> {
        let mut ended = self.episode.take()?;
        ended.ended = self.active;
        Some(ended)
    }
}

/// Returns the cause of an episode that begins with requests shed by a queue, or `None` if no request was shed.
fn shedding(before: [u64; 2], now: [u64; 2]) -> Option<Worst> {
    let classes = [Class::PointRead, Class::PointWrite];
    let grown = before.into_iter().zip(now).zip(classes);
    let grown = grown.filter(|((before, now), _)| now > before);
    let most = grown.max_by_key(|((before, now), _)| now - before);
    most.map(|(_, class)| Worst {
        pressure: 0.0,
        class,
        input: PressureInput::QueueDelay,
    })
}
