//! What a benchmark came to: the median of its rounds against a bound.

use std::fmt;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// The figure is at most this.
    AtMost(f64),
    /// The figure is at least this.
    AtLeast(f64),
    /// Nothing; the figure is for orientation.
    Nothing,
}

/// A figure, its bound and its spread.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    what: String,
    bound: Bound,
    /// Of the rounds, in order of size; at least one.
    figures: Vec<f64>,
    /// Absolute figures, for a reader's sense of scale.
    detail: String,
}

impl Verdict {
    /// Stands over the verdicts.
    pub(super) const HEADING: &str = "benchmark                                          measured    (min … max)              bound      verdict   detail";

    /// Makes a verdict of the figures of all rounds, of which there is at least one.
    pub(super) fn new(
        what: impl Into<String>,
        bound: Bound,
        mut figures: Vec<f64>,
        detail: impl Into<String>,
    ) -> Self {
        figures.sort_by(f64::total_cmp);
        Self {
            what: what.into(),
            bound,
            figures,
            detail: detail.into(),
        }
    }

    /// Returns the median.
    pub(super) fn measured(&self) -> f64 {
        median(&self.figures)
    }

    /// Says whether the bound holds.
    pub(super) fn holds(&self) -> bool {
        let measured = self.measured();
        match self.bound {
            Bound::AtMost(bound) => measured <= bound,
            Bound::AtLeast(bound) => measured >= bound,
            Bound::Nothing => true,
        }
    }
}

/// Returns the median of figures in order of size, of which there is at least one.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |figure: f64| {
            if figure >= 1_000.0 {
                format!("{figure:.0}")
            } else {
                format!("{figure:.3}")
            }
        };
        let bound = match self.bound {
            Bound::AtMost(bound) => format!("≤ {bound}"),
            Bound::AtLeast(bound) => format!("≥ {bound}"),
            Bound::Nothing => "-".to_owned(),
        };
        let spread = format!(
            "({} … {})",
            show(self.figures[0]),
            show(self.figures[self.figures.len() - 1])
        );
        let verdict = match self.bound {
            Bound::Nothing => "-",
            _ if self.holds() => "holds",
            _ => "FAILS",
        };
        write!(
            f,
            "{:<50} {:<11} {spread:<24} {bound:<10} {verdict:<9} {}",
            self.what,
            show(self.measured()),
            self.detail
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_and_the_bound_itself_holds() {
        let verdict = |bound, figures: &[f64]| Verdict::new("x", bound, figures.to_vec(), "");
        assert!(verdict(Bound::AtMost(1.0), &[9.0, 1.0, 0.5]).holds());
        assert!(!verdict(Bound::AtMost(0.9), &[9.0, 1.0, 0.5]).holds());
        assert!(verdict(Bound::AtLeast(2.5), &[2.0, 3.0]).holds());
        assert!(!verdict(Bound::AtLeast(2.6), &[3.0, 2.0]).holds());
        assert!(
            verdict(Bound::AtLeast(1.0), &[f64::NAN])
                .to_string()
                .contains("FAILS")
        );
    }
}
