//! How wrong an estimate is: what a request says beforehand, and what it turns out to cost.
//!
//! The five models of the issue. Each is given as the cost that is declared and the cost that is
//! settled, so that the error stays what it is named for whatever a limiter learns of it. The mean
//! of the settled cost is the same in all of them.

use clap::ValueEnum;

use crate::random::Random;

/// Greatest cost of the heavy tail over its least.
const TAIL_SPAN: f64 = 216.0;
/// Mean cost of the heavy tail over its least: 4 − 3 / ∛216.
const TAIL_MEAN: f64 = 3.5;

/// A model of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettleError {
    /// The estimate is right.
    Exact,
    /// Off by up to 30 % either way.
    Noise,
    /// Every request costs twice what was estimated.
    Under,
    /// Every request costs half of what was estimated.
    Over,
    /// The estimate is the mean; costs span a factor of 216 and most are small.
    HeavyTail,
}

/// Costs of one request, in micro-RU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Costs {
    /// What can be known before.
    pub(crate) declared: u64,
    /// What it comes to.
    pub(crate) settled: u64,
}

impl SettleError {
    /// All models.
    pub(crate) const ALL: [Self; 5] = [
        Self::Exact,
        Self::Noise,
        Self::Under,
        Self::Over,
        Self::HeavyTail,
    ];

    /// Returns its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Noise => "noise",
            Self::Under => "under",
            Self::Over => "over",
            Self::HeavyTail => "heavy-tail",
        }
    }

    /// Draws the costs of a request whose settled cost has the mean `mean`.
    ///
    /// Sizes differ by half the mean either way in every model but the last, which has its own.
    pub(crate) fn draw(self, mean: u64, random: &mut Random) -> Costs {
        let mean = mean as f64;
        let size = mean * (0.5 + random.unit());
        let (declared, settled) = match self {
            Self::Exact => (size, size),
            Self::Noise => (size, size * (0.7 + 0.6 * random.unit())),
            Self::Under => (size / 2.0, size),
            Self::Over => (size * 2.0, size),
            Self::HeavyTail => (mean, mean * heavy_tail(random)),
        };
        Costs {
            declared: declared as u64,
            settled: settled as u64,
        }
    }
}

/// Draws from the distribution of Pareto with exponent 4/3, cut at its 216-fold, with mean 1.
///
/// The exponent is one whose power takes square roots alone, which are exact on every machine.
fn heavy_tail(random: &mut Random) -> f64 {
    let root = (1.0 - random.unit()).sqrt();
    let draw = 1.0 / (root * root.sqrt());
    draw.min(TAIL_SPAN) / TAIL_MEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_the_same_mean_and_its_own_error() {
        let ratios = [1.0, 1.0, 2.0, 0.5, 1.0];
        for (model, ratio) in SettleError::ALL.into_iter().zip(ratios) {
            let mut random = Random::seeded(5);
            let drawn: Vec<_> = (0..200_000)
                .map(|_| model.draw(10_000_000, &mut random))
                .collect();
            let sum = |of: fn(&Costs) -> u64| drawn.iter().map(of).sum::<u64>() as f64;
            let (declared, settled) = (sum(|costs| costs.declared), sum(|costs| costs.settled));
            let mean = settled / drawn.len() as f64;
            assert!((mean / 1e7 - 1.0).abs() < 0.02, "{model:?}: mean {mean}");
            let error = settled / declared;
            assert!((error / ratio - 1.0).abs() < 0.02, "{model:?}: {error}");
            let is_exact = drawn.iter().all(|costs| costs.declared == costs.settled);
            assert_eq!(is_exact, model == SettleError::Exact);
        }
    }

    #[test]
    fn the_tail_is_heavy_and_bounded() {
        let mut random = Random::seeded(1);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| heavy_tail(&mut random)).collect();
        drawn.sort_by(f64::total_cmp);
        let (least, greatest) = (drawn[0], drawn[drawn.len() - 1]);
        assert!((least * TAIL_MEAN - 1.0).abs() < 0.001);
        assert!((greatest * TAIL_MEAN - TAIL_SPAN).abs() < 0.001);
        // A tenth of the requests is half of the cost.
        let of_the_tenth: f64 = drawn[90_000..].iter().sum();
        assert!(of_the_tenth > 0.45 * drawn.iter().sum::<f64>());
    }
}
