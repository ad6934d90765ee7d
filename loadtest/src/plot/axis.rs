//! Axes: where an amount is, and which round amounts are named.

/// How amounts are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From nought, evenly.
    Linear,
    /// By powers of ten; what is nought or less is at the lower edge.
    Logarithmic,
}

/// An axis of a panel.
#[derive(Debug)]
pub(super) struct Axis {
    scale: Scale,
    /// Amounts at the lower and the upper edge.
    least: f64,
    most: f64,
    /// Where the edges are.
    pub(super) from_y: f64,
    pub(super) to_y: f64,
}

impl Axis {
    /// Makes an axis that holds these amounts, as far as it may reach.
    pub(super) fn new(
        scale: Scale,
        amounts: impl Iterator<Item = f64> + Clone,
        reach: Option<f64>,
        (from_y, to_y): (f64, f64),
    ) -> Self {
        let amounts = amounts.filter(|amount| amount.is_finite());
        let most = amounts.clone().fold(0.0, f64::max);
        let most = reach.map_or(most, |reach| most.min(reach));
        let (least, most) = match scale {
            Scale::Linear => (0.0, if most > 0.0 { most * 1.05 } else { 1.0 }),
            Scale::Logarithmic => {
                let above = amounts.filter(|&amount| amount > 0.0);
                let least = above.fold(most.max(1.0), f64::min);
                let power = |amount: f64| 10_f64.powf(amount);
                let low = power(least.log10().floor());
                // At least one power, or nothing could be told apart.
                (low, power(most.max(low * 10.0).log10().ceil()))
            }
        };
        Self {
            scale,
            least,
            most,
            from_y,
            to_y,
        }
    }

    /// Returns where an amount is; beyond an edge it is at the edge.
    pub(super) fn y(&self, amount: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => amount / self.most,
            Scale::Logarithmic => {
                let amount = amount.max(self.least);
                (amount / self.least).log10() / (self.most / self.least).log10()
            }
        };
        self.from_y - (self.from_y - self.to_y) * share.clamp(0.0, 1.0)
    }

    /// Returns the amounts that are named.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => ticks(self.most, 4),
            Scale::Logarithmic => {
                let powers = (self.most / self.least).log10().round() as i32;
                let tick = |power| self.least * 10_f64.powi(power);
                (0..=powers).map(tick).collect()
            }
        }
    }
}

/// Returns round numbers from 0 to `most`, about `count` of them.
pub(super) fn ticks(most: f64, count: usize) -> Vec<f64> {
    let (mut power, mut step) = (1.0, 1.0);
    while step * (count as f64) < most {
        for multiple in [1.0, 2.0, 5.0] {
            step = power * multiple;
            if step * count as f64 >= most {
                break;
            }
        }
        power *= 10.0;
    }
    let mut ticks = Vec::new();
    let mut tick = 0.0;
    while tick <= most {
        ticks.push(tick);
        tick += step;
    }
    ticks
}

/// Returns an amount as people write it.
pub(super) fn amount(amount: f64) -> String {
    if amount >= 1e6 {
        format!("{}M", amount / 1e6)
    } else if amount >= 1e4 {
        format!("{}k", amount / 1e3)
    } else if amount >= 1.0 || amount == 0.0 {
        format!("{amount}")
    } else {
        // Powers of ten below one are not exact.
        let text = format!("{amount:.6}");
        text.trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(100.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(120.0, 8), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(ticks(2.1, 4), [0.0, 1.0, 2.0]);
        assert_eq!(ticks(3_600.0, 8).len(), 8);
        assert_eq!(amount(250_000.0), "250k");
        assert_eq!(amount(0.01), "0.01");
    }

    #[test]
    fn a_logarithmic_axis_gives_every_power_the_same_room() {
        let amounts = [0.0, f64::NAN, 3.0, 40_000.0];
        let axis = Axis::new(Scale::Logarithmic, amounts.into_iter(), None, (100.0, 0.0));
        let named: Vec<String> = axis.ticks().into_iter().map(amount).collect();
        assert_eq!(named, ["1", "10", "100", "1000", "10k", "100k"]);
        for (amount, y) in [(0.0, 100.0), (1.0, 100.0), (10.0, 80.0), (1e5, 0.0)] {
            assert!((axis.y(amount) - y).abs() < 1e-9, "{amount}");
        }
    }

    #[test]
    fn an_axis_without_amounts_is_drawn_all_the_same() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let axis = Axis::new(scale, std::iter::empty(), None, (100.0, 0.0));
            assert!(axis.y(0.0).is_finite() && !axis.ticks().is_empty());
        }
    }
}
