//! What it costs to turn a request away, beside a hit of the local cache: instructions, counted.

use crate::check::callgrind::of_answer;
use crate::check::plan::Plan;
use crate::counted::Kind;
use crate::failure::Failure;
use crate::verdict::{Bound, Verdict};

pub(super) fn instructions(_: &Plan) -> Result<Vec<Verdict>, Failure> {
    let hit = of_answer(Kind::Hit, false)?.instructions;
    let verdict = |what: &str, kind| -> Result<Verdict, Failure> {
        let shed = of_answer(kind, false)?.instructions;
        let detail = format!("{shed:.0} and {hit:.0} instructions, sockets apart");
        let verdict = Verdict::one(what, Bound::AtMost(1.0), shed / hit, detail);
        Ok(verdict.with_slack(2.0))
    };
    Ok(vec![
        verdict(
            "instructions: of a shed get, of a cached hit",
            Kind::ShedGet,
        )?,
        verdict(
            "instructions: of a shed put, of a cached hit",
            Kind::ShedPut,
        )?,
    ])
}
