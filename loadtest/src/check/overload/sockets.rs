//! The scenarios over real sockets: a dispatcher in a process of its own over a store of known
//! capacity, open loop.
//!
//! Each figure is a ratio within one run, or a share; what the machine does besides is in both of its
//! sides. Of the scenarios that have no bounds of their own, those of the simulated ones hold.

use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::scenario::{Outcome, Sample, measure, peak};
use crate::verdict::{Bound, Verdict};

/// Where something is not over within what is looked at.
const NEVER_MS: f64 = f64::INFINITY;
/// Shard that a stall stops.
const STALLED: u16 = 0;

/// Seconds of calm before and after, and of trouble.
const fn lengths(plan: &Plan) -> (f64, f64) {
    if plan.is_quick {
        (3.0, 6.0)
    } else {
        (8.0, 30.0)
    }
}

fn is_critical(sample: &Sample) -> bool {
    sample.tier == "critical"
}

fn recovery_ms(outcome: &Outcome) -> f64 {
    outcome
        .recovered_after_s()
        .map_or(NEVER_MS, |seconds| seconds * 1e3)
}

/// Ten times the traffic, beside the same without protection.
pub(super) fn spike(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let (calm_s, trouble_s) = lengths(plan);
    let peak = peak(calm_s)?;
    let umbo = measure("spike", calm_s, trouble_s, true)?;
    let other = measure("spike", calm_s, trouble_s, false)?;
    // Of reads: writes share commits, so that a store of this kind has no most of them.
    let reads = |outcome: &Outcome| outcome.trouble(|sample| !sample.is_write).goodput;
    let writes = umbo.trouble(|sample| sample.is_write);
    let (unloaded, critical) = (umbo.before(is_critical), umbo.trouble(is_critical));
    let theirs = other.trouble(is_critical);
    let (recovery, its) = (recovery_ms(&umbo), recovery_ms(&other));
    let of_other = format!(
        "without: {:.0} reads a second, critical {:.3} answered, recovery {its:.0} ms",
        reads(&other),
        theirs.succeeded
    );
    Ok(vec![
        Verdict::one(
            "sockets spike: goodput of reads, of the peak",
            Bound::AtLeast(0.9),
            reads(&umbo) / peak,
            format!(
                "{:.0} and {peak:.0} reads a second, {:.3} of the writes",
                reads(&umbo),
                writes.succeeded
            ),
        ),
        Verdict::one(
            "sockets spike: critical answered",
            Bound::AtLeast(0.999),
            critical.succeeded,
            format!("of {:.0} a second", critical.offered),
        ),
        Verdict::one(
            "sockets spike: their p99, of unloaded",
            Bound::AtMost(2.3),
            critical.p99_ms / unloaded.p99_ms,
            format!("{:.0} and {:.0} ms", critical.p99_ms, unloaded.p99_ms),
        ),
        Verdict::one(
            "sockets spike: recovery, ms",
            Bound::AtMost(200.0),
            recovery,
            "95 of 100 answered, in intervals of 100 ms",
        ),
        Verdict::one(
            "sockets spike: goodput of reads, of without protection",
            Bound::AtLeast(1.0),
            reads(&umbo) / reads(&other).max(f64::MIN_POSITIVE),
            of_other,
        ),
        Verdict::one(
            "sockets spike: recovery, of without protection",
            Bound::AtMost(0.25),
            // One that was not seen took at least as long as was looked.
            recovery / its.min(calm_s * 1e3),
            "",
        ),
    ])
}

/// One shard of four answers nothing.
pub(super) fn stall(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let (calm_s, trouble_s) = lengths(plan);
    let outcome = measure("stall", calm_s, trouble_s, true)?;
    let is_sound = |sample: &Sample| sample.shard.is_some_and(|shard| shard != STALLED);
    let (before, during) = (outcome.before(is_sound), outcome.trouble(is_sound));
    let stalled = outcome.trouble(|sample| sample.shard == Some(STALLED));
    Ok(vec![
        Verdict::one(
            "sockets stall: goodput of the other shards",
            Bound::AtLeast(0.98),
            during.succeeded / before.succeeded,
            format!("{:.3} answered of the stalled one", stalled.succeeded),
        ),
        Verdict::one(
            "sockets stall: p99 of the other shards",
            Bound::AtMost(1.2),
            during.p99_ms / before.p99_ms,
            format!("{:.0} and {:.0} ms", during.p99_ms, before.p99_ms),
        ),
        Verdict::one(
            "sockets stall: recovery, ms",
            Bound::AtMost(200.0),
            recovery_ms(&outcome),
            "",
        ),
    ])
}

/// All the other ones.
pub(super) fn trouble(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    if plan.is_quick {
        // The scenarios other than spike and stall take minutes, and nothing shorter says much.
        return Ok(Vec::new());
    }
    let names = [
        "slow-disk",
        "scan-storm",
        "noisy-neighbour",
        "bulk-at-peak",
        "recovery",
    ];
    let (calm_s, trouble_s) = lengths(plan);
    let mut verdicts = Vec::new();
    for name in names {
        let outcome = measure(name, calm_s, trouble_s, true)?;
        let (critical, all) = (outcome.trouble(is_critical), outcome.trouble(|_| true));
        let detail = format!(
            "{:.0} of {:.0} requests a second, p99 of critical {:.0} ms",
            all.goodput, all.offered, critical.p99_ms
        );
        verdicts.push(Verdict::one(
            format!("sockets {name}: critical answered"),
            Bound::AtLeast(0.99),
            critical.succeeded,
            detail,
        ));
        verdicts.push(Verdict::one(
            format!("sockets {name}: recovery, ms"),
            Bound::AtMost(200.0),
            recovery_ms(&outcome),
            "",
        ));
        if name == "noisy-neighbour" {
            let quiet = outcome.trouble(|sample| sample.caller != "noisy");
            let upper =
                outcome.trouble(|sample| sample.caller != "noisy" && sample.tier != "sheddable");
            verdicts.push(Verdict::one(
                "  answered of the neighbours, the lowest tier apart",
                Bound::Nothing,
                upper.succeeded,
                format!("{:.3} with it", quiet.succeeded),
            ));
        }
    }
    Ok(verdicts)
}
