//! One counter of a world: its clients, and the most and the least that they may be admitted.

use umbo_quota::Limit;

use crate::support::{RU, Random};

/// A price of a write with an empty body.
const BASE: u64 = 6_050_000;
/// Bytes of a request unit.
const VOLUME: u64 = 4_096;

#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    /// Usual price of a request, in micro-RU.
    price: u64,
    /// Demand, as a multiple of the rate.
    demand: f64,
    /// Exponent of the distribution over dispatchers: 0 is even, and a high one prefers the first.
    skew: i32,
    first: usize,
    owed: f64,
    /// Largest estimate admitted, largest burst, and most sides that decided apart.
    price_max: u64,
    burst_max: u64,
    sides_max: u64,
    rate_max: u64,
    pub(crate) admitted: f64,
    /// Refill of all sides, in micro-RU.
    refill: f64,
    /// Balance of a bucket that knows all. Its debt is bounded while dispatchers are cut off: each side may spend the rate then.
    balance: f64,
    measured: (f64, f64),
    /// The most by which the admitted went over burst and refill, in bursts and in prices.
    pub(crate) excess: (f64, f64),
}

impl Counter {
    pub(crate) fn new(at: u64, random: &mut Random) -> Self {
        let price = random.pick(&[7, 40, 1_000, 50_000]) * RU;
        let rate = price * random.pick(&[50, 100, 200]);
        let burst = rate * random.pick(&[1, 2, 4]) / 2;
        Self {
            name: format!("caller-{at}"),
            limit: Limit { rate, burst },
            price,
            demand: 2.0,
            skew: random.pick(&[0, 0, 3, 40]),
            first: random.below(16) as usize,
            owed: 0.0,
            price_max: 0,
            burst_max: burst,
            sides_max: 1,
            rate_max: rate,
            admitted: 0.0,
            refill: 0.0,
            balance: burst as f64,
            measured: (0.0, 0.0),
            excess: (0.0, 0.0),
        }
    }

    pub(crate) fn with_limit(mut self, limit: Limit) -> Self {
        self.change(limit);
        (self.rate_max, self.burst_max) = (limit.rate, limit.burst);
        self.balance = limit.burst as f64;
        self.price = self
            .price
            .min(limit.rate / 5)
            .max(limit.rate / 200)
            .max(7 * RU);
        self
    }

    pub(crate) fn change(&mut self, limit: Limit) {
        // A raised burst is no gift: the balance stays.
        self.burst_max = self.burst_max.max(limit.burst);
        self.limit = limit;
    }

    /// Lets demand and places change.
    pub(crate) fn turn(&mut self, random: &mut Random) {
        self.demand = random.pick(&[0.0, 0.5, 1.0, 2.0, 4.0]);
        self.skew = random.pick(&[0, 0, 3, 40]);
        self.first = random.below(16) as usize;
    }

    pub(crate) fn calm(&mut self, random: &mut Random) {
        self.turn(random);
        self.demand = 2.0;
        // Eleven dispatchers have room for two requests each.
        self.price = self.price.min(self.limit.burst.min(self.limit.rate) / 24);
    }

    /// Returns the number of requests of a step.
    pub(crate) fn due(&mut self, step_ms: u64, random: &mut Random) -> u64 {
        let requests = self.demand * self.limit.rate as f64 / self.price as f64;
        self.owed += requests * step_ms as f64 / 1_000.0 * 2.0 * random.unit();
        let due = self.owed.floor();
        self.owed -= due;
        due as u64
    }

    /// Returns the dispatcher of a request.
    pub(crate) fn place(&self, count: usize, random: &mut Random) -> usize {
        let rank = random.unit().powi(self.skew + 1) * count as f64;
        (self.first + rank as usize) % count
    }

    /// Returns the announced length of a request, and the length that it turns out to have; `None` if nothing is done.
    /// `most` is the price of the largest requests, in hundredths of a burst.
    pub(crate) fn draw(&self, most: Option<u64>, random: &mut Random) -> (u64, Option<u64>) {
        let price = match (random.below(100), most) {
            (0, Some(most)) => self.limit.burst * random.below(most) / 100,
            (1..=30, _) => self.price / 2 + random.below(self.price),
            _ => self.price,
        };
        let len = price.saturating_sub(BASE) * VOLUME / RU;
        let done = match random.below(20) {
            0 => None,
            1..=5 => Some(random.below(len + 1)),
            _ => Some(len),
        };
        (len, done)
    }

    pub(crate) fn admit(&mut self, estimate: u64, cost: u64) {
        self.price_max = self.price_max.max(estimate);
        self.admitted += cost as f64;
        self.balance -= cost as f64;
    }

    /// Takes the refunds of a dispatcher that is killed.
    pub(crate) fn lose(&mut self, beyond: u64) {
        self.balance -= beyond as f64;
    }

    pub(crate) fn pass(&mut self, step_ms: u64, sides: u64, is_cut: bool) {
        let refill = self.limit.rate as f64 * step_ms as f64 / 1_000.0;
        self.refill += refill * sides as f64;
        self.sides_max = self.sides_max.max(sides);
        self.balance = (self.balance + refill).min(self.limit.burst as f64);
        self.rate_max = self.rate_max.max(self.limit.rate);
        if is_cut {
            self.balance = self.balance.max(-(self.rate_max as f64));
        }
    }

    /// Checks that no more was admitted than is promised. `begun` is the number of dispatchers that have begun.
    pub(crate) fn check(&mut self, begun: u64) -> Result<(), String> {
        let periods = 0.2 * self.limit.rate as f64;
        let allowed = self.sides_max as f64 * (self.burst_max as f64 + periods) + 1.1 * self.refill;
        let over = self.admitted - allowed;
        let price = self.price_max.max(1) as f64;
        self.excess.0 = self.excess.0.max(over / self.burst_max as f64);
        self.excess.1 = self.excess.1.max(over / price);
        if over > begun as f64 * price {
            return Err(format!("{} was admitted too much: {self:?}", self.name));
        }
        Ok(())
    }

    /// Begins to measure.
    pub(crate) fn measure(&mut self) {
        self.measured = (self.admitted, self.balance.min(0.0));
    }

    /// Checks that the rate is admitted, but for the repayment of a debt.
    pub(crate) fn check_calm(&self, calm_ms: u64) -> Result<(), String> {
        let (before, debt) = self.measured;
        let due = self.limit.rate as f64 * calm_ms as f64 / 1_000.0 + debt;
        let got = self.admitted - before;
        // A change of owners counts the units twice whose answers were lost: they are repaid.
        let twice = 0.3 * self.limit.rate as f64;
        if got < 0.95 * due - 2.0 * self.price as f64 - twice {
            let share = got / due;
            return Err(format!(
                "{} gets {share:.3} of its due: {self:?}",
                self.name
            ));
        }
        Ok(())
    }
}
