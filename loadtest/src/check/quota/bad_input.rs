//! Bad input: policies that cannot be meant are refused with the place and what stands there, and the
//! policies in effect stay.

use std::time::Instant;

use umbo_quota::{Limiter, Policy, PolicyDraft, PolicySet, Source};

use super::setting::{USUAL, limiter, put};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

/// A change that makes a policy bad, and what a refusal has to name.
type Bad = (fn(&mut PolicyDraft), &'static [&'static str]);

const BAD: [Bad; 24] = [
    (|p| p.name = String::new(), &["name"]),
    (
        |p| p.name = "No Such Name".into(),
        &["name", "No Such Name"],
    ),
    (|p| p.name = "x".repeat(10_000), &["name"]),
    (|p| p.unit = "tokens".into(), &["unit", "tokens"]),
    (
        |p| p.unit = "request".into(),
        &["unit", "request", "requests"],
    ),
    (|p| p.rate = "0".into(), &["rate", "0"]),
    (|p| p.rate = "0.000".into(), &["rate"]),
    (|p| p.rate = "-5".into(), &["rate", "-5"]),
    (|p| p.rate = "NaN".into(), &["rate", "NaN"]),
    (|p| p.rate = "inf".into(), &["rate", "inf"]),
    (|p| p.rate = "1e9".into(), &["rate", "1e9"]),
    (
        |p| p.rate = "18446744073709551616".into(),
        &["rate", "18446744073709551616"],
    ),
    (|p| p.rate = "0.00000001".into(), &["rate", "0.00000001"]),
    (
        |p| p.burst = Some("99999999999999".into()),
        &["burst", "99999999999999"],
    ),
    (
        |p| (p.rate, p.burst) = ("1000".into(), Some("1".into())),
        &["burst", "burst 1", "rate 1000", "50ms"],
    ),
    (
        |p| (p.rate, p.burst) = ("0.001".into(), Some("5000".into())),
        &["burst", "5000", "0.001"],
    ),
    (|p| p.refill = Some("1ms".into()), &["refill", "1ms"]),
    (|p| p.refill = Some("50".into()), &["refill", "50"]),
    (|p| p.per = vec!["team".into()], &["per[0]", "team"]),
    (
        |p| p.per = vec!["caller".into(), "caller".into()],
        &["per[1]", "caller"],
    ),
    (
        |p| (p.per, p.scope) = (vec!["shard".into()], Some("pod".into())),
        &["scope", "pod", "shard"],
    ),
    (|p| p.mode = Some("dry-run".into()), &["mode", "dry-run"]),
    (|p| p.status = Some("503".into()), &["status", "503"]),
    (
        |p| {
            p.unit = "writes".into();
            p.matches.operations = vec!["get".into()];
        },
        &["operations", "writes", "get"],
    ),
];

pub(super) fn bad_input(plan: &Plan) -> Vec<Verdict> {
    let origin = Instant::now();
    let limiter = limiter(&[USUAL], origin, plan.seed);
    let before = limiter.policies();
    let mut wrong = Vec::new();
    for (at, (change, expected)) in BAD.iter().enumerate() {
        let mut draft = USUAL.draft();
        change(&mut draft);
        let refusal = reload(&limiter, &[draft]).err().unwrap_or_default();
        if !expected.iter().all(|part| refusal.contains(part)) {
            wrong.push(format!("{at}: '{refusal}'"));
        }
    }
    // Two that are fine by themselves and have one name.
    let twice = reload(&limiter, &[USUAL.draft(), USUAL.draft()]);
    let twice = twice.err().unwrap_or_default();
    for part in ["callers", "policies[0]", "policies[1]"] {
        if !twice.contains(part) {
            wrong.push(format!("twice: '{twice}'"));
        }
    }
    let many: Vec<PolicyDraft> = (0..300)
        .map(|number| PolicyDraft {
            name: format!("p{number}"),
            ..USUAL.draft()
        })
        .collect();
    if !reload(&limiter, &many)
        .err()
        .unwrap_or_default()
        .contains("256")
    {
        wrong.push("too many".to_owned());
    }
    let is_unchanged =
        *before == *limiter.policies() && limiter.admit(&put("caller", 0), origin, 0).is_ok();
    if !is_unchanged {
        wrong.push("the policies in effect have changed".to_owned());
    }
    vec![Verdict::one(
        "bad input: not refused, or not by place and value",
        Bound::AtMost(0.0),
        wrong.len() as f64,
        if wrong.is_empty() {
            format!("{} policies and two sets", BAD.len())
        } else {
            wrong.join("; ")
        },
    )]
}

/// Does what a server does that is given policies: all of them, or none.
fn reload(limiter: &Limiter, drafts: &[PolicyDraft]) -> Result<(), String> {
    let read = |draft| Policy::parse(draft, Source::File).map_err(|error| error.to_string());
    let policies = drafts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let set = PolicySet::new(policies).map_err(|error| error.to_string())?;
    limiter.replace(set);
    Ok(())
}
