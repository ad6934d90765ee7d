//! Umbo as it ships beside the policies of others, simulated: DAGOR's levels and Breakwater's credit.
//!
//! A line for each scenario and policy, its figures medians over seeds; only Umbo's own of the spike have bounds, and of
//! those the worst seed decides.

use umbo_overload::QueueSettings;

use crate::check::cases::{Case, run_all};
use crate::check::plan::Plan;
use crate::simulate::overload::{Calm, Discipline, Figures, Kind, Scenario, run};
use crate::verdict::{Bound, Verdict, median_of};

/// Where something is not over within what is looked at.
const NEVER: f64 = f64::INFINITY;

/// The results of all policies in a case, Umbo's first.
type All = [Figures; Discipline::POLICIES.len()];

pub(super) fn policies(plan: &Plan) -> Vec<Verdict> {
    let (trouble_s, seeds) = if plan.is_quick { (15.0, 1) } else { (30.0, 3) };
    let cases: Vec<Case<Scenario>> = Kind::ALL
        .into_iter()
        .flat_map(|kind| {
            (0..seeds).map(move |seed| Case {
                name: kind.as_str().to_owned(),
                scenario: Scenario::new(kind, plan.seed + seed, trouble_s),
            })
        })
        .collect();
    let all = run_all(&cases, |case| measured(&case.scenario));
    let mut verdicts = Vec::new();
    for (kind, all) in Kind::ALL.into_iter().zip(all.chunks(seeds as usize)) {
        for (at, policy) in Discipline::POLICIES.into_iter().enumerate() {
            let figures: Vec<&Figures> = all.iter().map(|figures| &figures[at]).collect();
            verdicts.push(line(kind, policy, &figures));
        }
        if kind == Kind::Spike {
            verdicts.extend(aims(all));
        }
    }
    verdicts
}

fn measured(scenario: &Scenario) -> All {
    let calm = Calm::of(scenario);
    Discipline::POLICIES.map(|policy| {
        let account = run(scenario, policy, QueueSettings::default());
        Figures::of(scenario, &account, &calm)
    })
}

/// Returns a line of the table.
fn line(kind: Kind, policy: Discipline, figures: &[&Figures]) -> Verdict {
    let of = |figure: fn(&Figures) -> f64| -> Vec<f64> {
        figures.iter().map(|figures| figure(figures)).collect()
    };
    let recovery = median_of(&of(|figures| figures.recovery_ms.unwrap_or(NEVER)));
    let recovery = if recovery == NEVER {
        "not within 3 s".to_owned()
    } else {
        format!("{recovery:.0} ms")
    };
    let detail = format!(
        "critical and above {:.2} %, p99 {:.2} of unloaded; recovery {recovery}",
        100.0 * median_of(&of(|figures| figures.success)),
        median_of(&of(|figures| figures.p99)),
    );
    let what = format!("{}: goodput of {}", kind.as_str(), policy.as_str());
    Verdict::new(what, Bound::Nothing, of(|figures| figures.goodput), detail)
}

/// Holds Umbo to its aims in a spike.
fn aims(all: &[All]) -> [Verdict; 4] {
    let aim = |what: &str, bound: Bound, figure: fn(&Figures) -> f64| {
        let figures = all.iter().map(|[umbo, ..]| figure(umbo)).collect();
        Verdict::worst(format!("  umbo: {what}"), bound, figures, "")
    };
    [
        aim("goodput, of the peak", Bound::AtLeast(0.95), |umbo| {
            umbo.goodput
        }),
        aim(
            "critical and above answered",
            Bound::AtLeast(0.999),
            |umbo| umbo.success,
        ),
        aim("their p99, of unloaded", Bound::AtMost(2.0), |umbo| {
            umbo.p99
        }),
        aim("recovery, ms", Bound::AtMost(200.0), |umbo| {
            umbo.recovery_ms.unwrap_or(NEVER)
        }),
    ]
}
