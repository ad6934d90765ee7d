//! DAGOR's levels (Zhou, Chen, Tian, Wei, Ma, Cui, *Overload control for scaling `WeChat` microservices*, `SoCC` 2018).
//!
//! Every request has a business priority and, within it, a user priority: 128 levels by a hash of the user. A server
//! admits what is at its admission level or above it. A window ends after a second or 2,000 requests. If the average
//! queuing time of the window is above 20 ms, the level is lowered so far that 5 % fewer requests would have been
//! admitted than were (α); otherwise it is raised for 1 % of all requests more (β), by the histogram of the window.
//!
//! Departures. The business priorities are the four tiers. Every request is of a user of its own, drawn at random: the
//! scenarios have a few dozen callers, and with so few users the level would stand still, because a hundredth more is
//! less than any of them asks for. Servers do not tell their level to those upstream: refusing costs nothing here, so that it would
//! change nothing. A window in which no request began has the delay of the oldest one as its average.

use std::time::Instant;

use umbo_overload::Entry;
use umbo_types::Criticality;

use super::decision::{Decision, Decisions};
use super::places::Places;
use crate::random::Random;

/// User priorities within a business priority.
const USERS: usize = 128;
/// Compound priorities, the highest first.
const LEVELS: usize = Criticality::ALL.len() * USERS;
/// Average queuing time above which a server is overloaded.
const QUEUING_MAX_NS: u64 = 20_000_000;
/// A window is as long, or has so many requests.
const WINDOW_NS: u64 = 1_000_000_000;
const WINDOW_REQUESTS: u64 = 2_000;
/// Step down, of the admitted requests, and up, of all requests.
const ALPHA: f64 = 0.05;
const BETA: f64 = 0.01;

/// A server with its admission level.
#[derive(Debug)]
pub(crate) struct Dagor {
    places: Places,
    /// The lowest compound priority that is admitted.
    level: usize,
    window: Window,
    /// Draws users.
    random: Random,
}

/// What happened within a window.
#[derive(Debug)]
struct Window {
    begun_ns: u64,
    /// Requests of each compound priority, refused ones too.
    histogram: [u32; LEVELS],
    requests: u64,
    admitted: u64,
    /// Requests whose turn came, and how long they had waited together.
    turns: u64,
    waited_ns: u64,
}

impl Window {
    const fn new(begun_ns: u64) -> Self {
        Self {
            begun_ns,
            histogram: [0; LEVELS],
            requests: 0,
            admitted: 0,
            turns: 0,
            waited_ns: 0,
        }
    }

    /// Returns the level of the next window.
    fn level(&self, is_overloaded: bool) -> usize {
        let admitted = self.admitted as f64;
        let expected = if is_overloaded {
            admitted * (1.0 - ALPHA)
        } else {
            admitted + self.requests as f64 * BETA
        };
        let mut sum = 0.0;
        for (level, requests) in self.histogram.iter().enumerate() {
            sum += f64::from(*requests);
            if sum > expected {
                return level.saturating_sub(1);
            }
        }
        LEVELS - 1
    }
}

impl Dagor {
    pub(super) const fn new(places: usize) -> Self {
        Self {
            places: Places::new(places),
            level: LEVELS - 1,
            window: Window::new(0),
            random: Random::seeded(0),
        }
    }

    pub(super) const fn places(&self) -> usize {
        self.places.places()
    }

    pub(super) fn enter(
        &mut self,
        request: u32,
        entry: &Entry,
        at: (Instant, u64),
        decisions: &mut Decisions,
    ) {
        let user = self.random.below(USERS as u64) as usize;
        // The highest first.
        let business = Criticality::ALL.len() - 1 - entry.criticality as usize;
        let level = business * USERS + user;
        self.window.histogram[level] += 1;
        self.window.requests += 1;
        if level > self.level {
            decisions.push((request, Decision::Shed));
        } else {
            self.window.admitted += 1;
            self.places.enter(request, entry.deadline, at.1);
            self.serve(at, decisions);
        }
        self.look(at.1);
    }

    pub(super) fn leave(&mut self, at: (Instant, u64), decisions: &mut Decisions) {
        self.places.leave();
        self.serve(at, decisions);
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        self.look(now_ns);
    }

    fn serve(&mut self, at: (Instant, u64), decisions: &mut Decisions) {
        while let Some(turn) = self.places.next(at) {
            self.window.turns += 1;
            self.window.waited_ns += turn.waited_ns;
            let decision = if turn.is_expired {
                Decision::Expired
            } else {
                Decision::Admitted(None)
            };
            decisions.push((turn.request, decision));
        }
    }

    /// Ends the window if it is over.
    fn look(&mut self, now_ns: u64) {
        let window = &self.window;
        if now_ns < window.begun_ns + WINDOW_NS && window.requests < WINDOW_REQUESTS {
            return;
        }
        let waited_ns = match window.turns {
            0 => self.places.delay_ns(now_ns),
            turns => window.waited_ns / turns,
        };
        self.level = window.level(waited_ns > QUEUING_MAX_NS);
        self.window = Window::new(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests at each of the first hundred levels, of which all are admitted.
    fn window() -> Window {
        let mut window = Window::new(0);
        window.histogram[..100].fill(10);
        (window.requests, window.admitted) = (1_000, 1_000);
        window
    }

    #[test]
    fn a_level_moves_by_one_part_of_twenty_down_and_of_a_hundred_up() {
        let mut window = window();
        assert_eq!(window.level(true), 94);
        assert_eq!(window.level(false), LEVELS - 1);
        window.admitted = 500;
        assert_eq!(window.level(false), 50);
        window.admitted = 0;
        assert_eq!(window.level(true), 0);
    }
}
