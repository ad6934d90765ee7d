//! The plot of a scenario: what each tier got, and how long it took.

use super::outcome::{Outcome, TIERS, Window};
use crate::plot::{Line, Panel, Pen, Plot, Scale, Span};

/// Length of the intervals that are drawn, in seconds.
const STEP_S: f64 = 0.25;
const PENS: [Pen; 3] = [Pen::GREEN, Pen::BLUE, Pen::AMBER];

/// Returns the plot.
pub(super) fn picture(name: &str, outcome: &Outcome) -> Plot {
    let plan = &outcome.plan;
    let steps = (plan.whole_s / STEP_S).round() as usize;
    let line = |name: &'static str, pen, tier: Option<&str>, figure: fn(&Window) -> f64| Line {
        name,
        pen,
        points: (0..steps)
            .map(|at| {
                let from_s = at as f64 * STEP_S;
                let window = outcome.window(from_s, from_s + STEP_S, |sample| {
                    tier.is_none_or(|tier| sample.tier == tier)
                });
                (from_s + STEP_S / 2.0, figure(&window))
            })
            .collect(),
    };
    let by_tier = |figure: fn(&Window) -> f64| {
        let tiers = TIERS.into_iter().zip(PENS);
        tiers.map(move |(tier, pen)| (tier, pen, figure))
    };
    let mut requests = vec![line("offered", Pen::GREY, None, |window| window.offered)];
    requests.extend(
        by_tier(|window| window.goodput)
            .map(|(tier, pen, figure)| line(tier, pen, Some(tier), figure)),
    );
    let latencies = by_tier(|window| window.p99_ms);
    let latencies = latencies.map(|(tier, pen, figure)| line(tier, pen, Some(tier), figure));
    Plot {
        title: format!("{name}: what each tier got"),
        seconds: plan.whole_s,
        spans: vec![Span {
            name: name.to_owned(),
            from: plan.from_s,
            to: plan.to_s,
        }],
        panels: vec![
            Panel {
                title: "requests answered".to_owned(),
                unit: "a second".to_owned(),
                scale: Scale::Logarithmic,
                reach: None,
                lines: requests,
            },
            Panel {
                title: "p99 of those answered".to_owned(),
                unit: "milliseconds".to_owned(),
                scale: Scale::Logarithmic,
                reach: None,
                lines: latencies.collect(),
            },
        ],
    }
}
