//! The plot of a drill: the reads of all clients, and the latency of normal traffic.

use super::outcome::{INTERVAL, Outcome};
use super::traffic::{Target, Traffic};
use crate::plot::{Line, Panel, Pen, Plot, Scale, Span};

/// Returns the plot.
pub(super) fn picture(outcome: &Outcome, traffic: &Traffic, is_on: bool) -> Plot {
    let step_s = INTERVAL.as_secs_f64();
    let to_s = outcome.attack_from_s + outcome.attack_s();
    let what = match traffic.target {
        Target::Keys(keys) => format!("attack on {keys} keys"),
        Target::Absent(keys) => format!("attack on {keys} absent keys"),
        Target::Spread => "as many reads of all keys".to_owned(),
    };
    let mut spans = vec![Span {
        name: what.clone(),
        from: outcome.attack_from_s,
        to: to_s,
    }];
    if let Some(restart) = outcome.restart {
        spans.push(Span {
            name: "restart".to_owned(),
            from: restart.from_s,
            to: restart.to_s,
        });
    }
    let layer = if is_on { "" } else { ", without the layer" };
    Plot {
        title: format!("{what} beside normal traffic{layer}"),
        seconds: outcome.whole_s,
        spans,
        panels: vec![reads(outcome, step_s), latencies(outcome, step_s)],
    }
}

fn reads(outcome: &Outcome, step_s: f64) -> Panel {
    let middle = |at: usize| (at as f64 + 0.5) * step_s;
    let samples = outcome.attack.samples.iter().enumerate();
    let attack = samples.map(|(at, &reads)| {
        let at_s = outcome.attack_from_s + middle(at);
        (at_s, reads as f64 / step_s)
    });
    let normal = steps(outcome, step_s).map(|from_s| {
        let window = outcome.window(from_s, from_s + step_s);
        (from_s + step_s / 2.0, window.goodput)
    });
    let store = outcome.looks.windows(2).map(|pair| {
        let [one, other] = [pair[0], pair[1]];
        let rate = (other.1 - one.1) / (other.0 - one.0).max(1e-6);
        (f64::midpoint(one.0, other.0), rate)
    });
    Panel {
        title: "requests and reads".to_owned(),
        unit: "a second".to_owned(),
        scale: Scale::Logarithmic,
        reach: None,
        lines: vec![
            line("reads of the attack, answered", Pen::GREY, attack),
            line("normal traffic, answered", Pen::BLUE, normal),
            line("reads of the store", Pen::RED, store),
        ],
    }
}

fn latencies(outcome: &Outcome, step_s: f64) -> Panel {
    let windows: Vec<(f64, f64, f64)> = steps(outcome, step_s)
        .map(|from_s| {
            let window = outcome.window(from_s, from_s + step_s);
            (from_s + step_s / 2.0, window.p50_ms, window.p99_ms)
        })
        .collect();
    Panel {
        title: "latency of gets of other keys".to_owned(),
        unit: "milliseconds".to_owned(),
        scale: Scale::Logarithmic,
        reach: None,
        lines: vec![
            line("p99", Pen::GREEN, windows.iter().map(|w| (w.0, w.2))),
            line("p50", Pen::AMBER, windows.iter().map(|w| (w.0, w.1))),
        ],
    }
}

fn steps(outcome: &Outcome, step_s: f64) -> impl Iterator<Item = f64> + use<> {
    let count = (outcome.whole_s / step_s).round() as usize;
    (0..count).map(move |at| at as f64 * step_s)
}

fn line(name: &'static str, pen: Pen, points: impl Iterator<Item = (f64, f64)>) -> Line {
    Line {
        name,
        pen,
        points: points.collect(),
    }
}
