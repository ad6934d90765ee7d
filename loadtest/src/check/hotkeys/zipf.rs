//! Keys by popularity: the one of rank r is read in proportion to 1 / r^exponent.

use crate::random::Random;

/// A popularity of keys, numbered from the one that is read most.
#[derive(Debug)]
pub(super) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Makes one of so many keys.
    pub(super) fn new(keys: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        let mut cumulative: Vec<f64> = sums.collect();
        for share in &mut cumulative {
            *share /= sum;
        }
        Self { cumulative }
    }

    /// Draws a key.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let share = random.unit();
        self.cumulative.partition_point(|&below| below <= share) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_drawn_as_often_as_their_rank_says() {
        let zipf = Zipf::new(100, 1.0);
        let mut random = Random::seeded(3);
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1_u32, 2, 5, 10] {
            let share = f64::from(counts[rank as usize - 1]) / 100_000.0;
            let expected = 1.0 / f64::from(rank) / harmonic;
            assert!((share / expected - 1.0).abs() < 0.05, "{rank}: {share}");
        }
    }
}
