//! Seeded draws: service times of many shapes, and exact quantiles of them.

/// `SplitMix64` (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Mean 0, deviation 1 (Box and Muller 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A Poisson count, by the exponential waits between events.
    pub(crate) fn poisson(&mut self, mean: f64) -> u32 {
        let (mut at, mut count) = (self.exponential(), 0);
        while at < mean {
            at += self.exponential();
            count += 1;
        }
        count
    }
}

/// What service times look like. All have a median of about one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Uniform,
    Exponential,
    Lognormal,
    Pareto,
    /// One in this many takes ten times as long.
    Bimodal(f64),
}

impl Shape {
    pub(crate) const FIVE: [Self; 5] = [
        Self::Uniform,
        Self::Exponential,
        Self::Lognormal,
        Self::Pareto,
        Self::Bimodal(8.0),
    ];

    pub(crate) fn draw(self, draw: &mut Draw) -> f64 {
        match self {
            Self::Uniform => 0.5 + draw.unit(),
            Self::Exponential => draw.exponential() / std::f64::consts::LN_2,
            Self::Lognormal => (0.6 * draw.normal()).exp(),
            Self::Pareto => 0.63 * (1.0 - draw.unit()).powf(-1.0 / 1.5),
            Self::Bimodal(one_in) => {
                let scale = if draw.unit() * one_in < 1.0 {
                    10.0
                } else {
                    1.0
                };
                scale * (0.2 * draw.normal()).exp()
            }
        }
    }
}
