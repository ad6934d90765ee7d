//! The callers that use most now, which have series.
//!
//! A caller is ranked by its rates, smoothed over about ten seconds: request units, plus one for each request,
//! also a rejected one, so that a caller whose quota is used up is seen too. A caller keeps its place until
//! another one scores a quarter more. Memory is in proportion to the callers that are passed in.

use std::collections::HashMap;
use std::sync::Arc;

/// Most callers with series.
pub const TOP_CALLERS: usize = 20;
/// Seconds after which a past rate counts for 1/e.
const MEMORY_SECONDS: f64 = 10.0;
/// A new caller must score more than a caller with a place times this factor.
const ADVANTAGE: f64 = 1.25;
/// Lowest score of a caller that has not stopped: a request in ten minutes.
const SCORE_MIN: f64 = 1.0 / 600.0;

/// What a caller has used since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallerCounts {
    /// Request units charged.
    pub ru: f64,
    /// Requests that were admitted.
    pub requests: f64,
    /// Requests that a quota rejected.
    pub rejected: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

impl CallerCounts {
    /// Adds what the caller has used elsewhere.
    pub fn add(&mut self, other: Self) {
        self.ru += other.ru;
        self.requests += other.requests;
        self.rejected += other.rejected;
        self.bytes += other.bytes;
    }

    /// Returns the rates a second since `before`; totals that went down have begun anew.
    fn rates_since(&self, before: &Self, seconds: f64) -> Self {
        let rate = |now: f64, before: f64| (now - before).max(0.0) / seconds;
        Self {
            ru: rate(self.ru, before.ru),
            requests: rate(self.requests, before.requests),
            rejected: rate(self.rejected, before.rejected),
            bytes: rate(self.bytes, before.bytes),
        }
    }
}

#[derive(Debug, Default)]
struct CallerActivity {
    before: CallerCounts,
    now: CallerCounts,
    rates: CallerCounts,
    score: f64,
    has_place: bool,
    is_present: bool,
}

/// The ranking.
#[derive(Debug, Default)]
pub struct TopCallers {
    seen: HashMap<Arc<str>, CallerActivity>,
}

impl TopCallers {
    /// Makes an empty ranking.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the totals of all callers, `seconds` after the last time; `visit` passes each part of a caller's
    /// totals to its argument. Callers that are not passed any more are forgotten.
    pub fn update(
        &mut self,
        seconds: f64,
        visit: impl FnOnce(&mut dyn FnMut(&Arc<str>, CallerCounts)),
    ) {
        for seen in self.seen.values_mut() {
            seen.before = std::mem::take(&mut seen.now);
            seen.is_present = false;
        }
        visit(&mut |caller, totals| {
            if let Some(seen) = self.seen.get_mut(caller) {
                seen.now.add(totals);
                seen.is_present = true;
            } else {
                let seen = CallerActivity {
                    now: totals,
                    is_present: true,
                    ..CallerActivity::default()
                };
                self.seen.insert(Arc::clone(caller), seen);
            }
        });
        self.seen.retain(|_, seen| seen.is_present);
        let seconds = seconds.max(f64::MIN_POSITIVE);
        let weight = 1.0 - (-seconds / MEMORY_SECONDS).exp();
        for seen in self.seen.values_mut() {
            seen.rates = seen.now.rates_since(&seen.before, seconds);
            let CallerCounts {
                ru,
                requests,
                rejected,
                ..
            } = seen.rates;
            seen.score += (ru + requests + rejected - seen.score) * weight;
        }
        self.give_places();
    }

    fn give_places(&mut self) {
        let rank = |seen: &CallerActivity| {
            let advantage = if seen.has_place { ADVANTAGE } else { 1.0 };
            seen.score * advantage
        };
        let active = self.seen.values_mut().filter(|seen| seen.score > SCORE_MIN);
        let mut ranked: Vec<&mut CallerActivity> = active.collect();
        ranked.sort_unstable_by(|one, other| rank(other).total_cmp(&rank(one)));
        for (place, seen) in ranked.into_iter().enumerate() {
            seen.has_place = place < TOP_CALLERS;
        }
        for seen in self.seen.values_mut() {
            seen.has_place &= seen.score > SCORE_MIN;
        }
    }

    /// Returns the callers that use most with their rates a second, in falling order of use.
    pub fn top(&self) -> Vec<(Arc<str>, CallerCounts)> {
        let top = self.seen.iter().filter(|(_, seen)| seen.has_place);
        let mut top: Vec<_> = top.collect();
        top.sort_unstable_by(|one, other| {
            other
                .1
                .score
                .total_cmp(&one.1.score)
                .then(one.0.cmp(other.0))
        });
        top.into_iter()
            .map(|(caller, seen)| (Arc::clone(caller), seen.rates))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(requests: f64) -> CallerCounts {
        CallerCounts {
            ru: requests,
            requests,
            ..CallerCounts::default()
        }
    }

    fn run(top: &mut TopCallers, totals: &[(Arc<str>, f64)]) {
        top.update(1.0, |add| {
            for (caller, total) in totals {
                add(caller, requests(*total));
            }
        });
    }

    #[test]
    fn the_callers_of_now_have_places_and_not_those_of_long_ago() {
        let mut totals: Vec<(Arc<str>, f64)> = (0..100_u8)
            .map(|at| (Arc::from(at.to_string()), f64::from(at)))
            .collect();
        let mut top = TopCallers::new();
        run(&mut top, &totals);
        let names = |top: &TopCallers| -> Vec<String> {
            top.top().iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(&top).len(), TOP_CALLERS);
        assert_eq!(names(&top)[0], "99");
        for _ in 0..150 {
            totals[3].1 += 5.0;
            run(&mut top, &totals);
        }
        assert_eq!(names(&top)[0], "3");
        assert!((top.top()[0].1.ru - 5.0).abs() < 1e-9);
        // The rest has stopped.
        assert!(names(&top).len() < TOP_CALLERS, "{:?}", names(&top));
    }

    #[test]
    fn a_place_does_not_change_hands_for_a_little_more() {
        let mut totals: Vec<(Arc<str>, f64)> = (0..=TOP_CALLERS)
            .map(|at| (Arc::from(at.to_string()), 0.0))
            .collect();
        let mut top = TopCallers::new();
        let mut step = |top: &mut TopCallers, last: f64| {
            for (at, (_, total)) in totals.iter_mut().enumerate() {
                *total += if at == TOP_CALLERS { last } else { 100.0 };
            }
            run(top, &totals);
        };
        for _ in 0..20 {
            step(&mut top, 90.0);
        }
        let last = TOP_CALLERS.to_string();
        let has_last = |top: &TopCallers| top.top().iter().any(|(name, _)| **name == *last);
        assert!(!has_last(&top));
        for _ in 0..60 {
            step(&mut top, 110.0);
        }
        assert!(!has_last(&top));
        for _ in 0..60 {
            step(&mut top, 200.0);
        }
        assert!(has_last(&top));
        assert_eq!(top.top().len(), TOP_CALLERS);
    }

    #[test]
    fn a_rejected_caller_is_seen_and_parts_add_up() {
        let mut top = TopCallers::new();
        let name: Arc<str> = Arc::from("greedy");
        let rejected = CallerCounts {
            rejected: 50.0,
            ..CallerCounts::default()
        };
        top.update(1.0, |add| {
            add(&name, rejected);
            add(&name, rejected);
        });
        assert!((top.top()[0].1.rejected - 100.0).abs() < 1e-9);
    }
}
