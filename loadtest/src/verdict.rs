//! The result of a benchmark or a check: a figure against its bound.
//!
//! The figure of something measured in rounds is their median, because a shared machine has bad
//! moments. The figure of something counted or simulated has no such excuse: its worst case decides.

use std::fmt;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// The figure is at most this.
    AtMost(f64),
    /// The figure is at least this.
    AtLeast(f64),
    /// Nothing; the figure is for orientation.
    Nothing,
}

/// Which of many figures decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decisive {
    Median,
    Worst,
}

/// A figure, its bound and its spread.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    what: String,
    bound: Bound,
    decisive: Decisive,
    /// Of the rounds or cases, in order of size; at least one.
    figures: Vec<f64>,
    /// Absolute figures, for a reader's sense of scale.
    detail: String,
    /// How much worse than a recorded one the figure may be, in per cent.
    slack: f64,
}

impl Verdict {
    /// Stands over the verdicts.
    pub(crate) const HEADING: &str = "figure                                             measured    (min … max)              bound      verdict   detail";

    /// Makes a verdict of the figures of all rounds, of which there is at least one.
    pub(crate) fn new(
        what: impl Into<String>,
        bound: Bound,
        figures: Vec<f64>,
        detail: impl Into<String>,
    ) -> Self {
        Self::decided_by(Decisive::Median, what.into(), bound, figures, detail.into())
    }

    /// Makes a verdict of which the worst of all cases decides; there is at least one.
    pub(crate) fn worst(
        what: impl Into<String>,
        bound: Bound,
        figures: Vec<f64>,
        detail: impl Into<String>,
    ) -> Self {
        Self::decided_by(Decisive::Worst, what.into(), bound, figures, detail.into())
    }

    /// Makes a verdict of one figure.
    pub(crate) fn one(
        what: impl Into<String>,
        bound: Bound,
        figure: f64,
        detail: impl Into<String>,
    ) -> Self {
        Self::worst(what, bound, vec![figure], detail)
    }

    /// Makes a verdict of the ratio of two times in nanoseconds, round by round.
    pub(crate) fn of_nanos(
        what: impl Into<String>,
        bound: Bound,
        ours: &[f64],
        other: &[f64],
    ) -> Self {
        let ratios = ours.iter().zip(other).map(|(ours, other)| ours / other);
        let detail = format!("{:.0} ns and {:.0} ns", median_of(ours), median_of(other));
        Self::new(what, bound, ratios.collect(), detail)
    }

    fn decided_by(
        decisive: Decisive,
        what: String,
        bound: Bound,
        mut figures: Vec<f64>,
        detail: String,
    ) -> Self {
        figures.sort_by(f64::total_cmp);
        Self {
            what,
            bound,
            decisive,
            figures,
            detail,
            slack: 0.0,
        }
    }

    /// Lets the figure be worse than a recorded one by so many per cent.
    pub(crate) fn with_slack(self, slack: f64) -> Self {
        Self { slack, ..self }
    }

    /// Returns by how many per cent the figure may be worse than a recorded one.
    pub(crate) fn slack(&self) -> f64 {
        self.slack
    }

    /// Returns what the figure is.
    pub(crate) fn name(&self) -> &str {
        self.what.trim_start()
    }

    /// Returns what must hold.
    pub(crate) fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns the figure that decides.
    pub(crate) fn measured(&self) -> f64 {
        match (self.decisive, self.bound) {
            (Decisive::Worst, Bound::AtMost(_)) => self.figures[self.figures.len() - 1],
            (Decisive::Worst, Bound::AtLeast(_)) => self.figures[0],
            (Decisive::Worst, Bound::Nothing) | (Decisive::Median, _) => median(&self.figures),
        }
    }

    /// Returns whether the bound holds. A figure that is no number holds none.
    pub(crate) fn holds(&self) -> bool {
        let holds = |figure: f64| match self.bound {
            Bound::AtMost(bound) => figure <= bound,
            Bound::AtLeast(bound) => figure >= bound,
            Bound::Nothing => true,
        };
        match self.decisive {
            Decisive::Median => holds(self.measured()),
            Decisive::Worst => self.figures.iter().copied().all(holds),
        }
    }
}

/// Returns the median of figures in order of size, of which there is at least one.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Returns the median of figures in any order, of which there is at least one.
pub(crate) fn median_of(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    median(&figures)
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
        let worst = |bound, figures: &[f64]| Verdict::worst("x", bound, figures.to_vec(), "");
        assert!(!worst(Bound::AtMost(1.0), &[0.5, 1.1, 0.4]).holds());
        assert!(worst(Bound::AtMost(1.1), &[0.5, 1.1, 0.4]).holds());
        assert!(!worst(Bound::AtLeast(0.5), &[9.0, 9.0, 0.4]).holds());
        for bound in [Bound::AtMost(1.0), Bound::AtLeast(1.0)] {
            assert!(!worst(bound, &[1.0, f64::NAN]).holds());
        }
        assert!(
            verdict(Bound::AtLeast(1.0), &[f64::NAN])
                .to_string()
                .contains("FAILS")
        );
    }
}
