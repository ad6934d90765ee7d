//! What it costs to turn a request away, beside a hit of the local cache: instructions, counted.
//!
//! Each kind is answered a few times and many times, and the difference is what the more of them cost:
//! whatever a process does before and after is in both.

use std::process::Command;

use crate::check::plan::Plan;
use crate::counted::Kind;
use crate::failure::Failure;
use crate::process::find;
use crate::verdict::{Bound, Verdict};

/// Answers of the shorter and of the longer run.
const FEW: u32 = 200;
const MANY: u32 = 1_200;

pub(super) fn instructions(_: &Plan) -> Result<Vec<Verdict>, Failure> {
    let hit = of_one(Kind::Hit)?;
    let verdict = |what: &str, kind| -> Result<Verdict, Failure> {
        let shed = of_one(kind)?;
        let detail = format!("{shed:.0} and {hit:.0} instructions, sockets apart");
        Ok(Verdict::one(what, Bound::AtMost(1.0), shed / hit, detail))
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

/// Returns the instructions of one answer.
fn of_one(kind: Kind) -> Result<f64, Failure> {
    let (few, many) = (counted(kind, FEW)?, counted(kind, MANY)?);
    Ok((many - few) / f64::from(MANY - FEW))
}

fn counted(kind: Kind, requests: u32) -> Result<f64, Failure> {
    let valgrind = find("valgrind", "install the package valgrind")?;
    let own = std::env::current_exe().map_err(Failure::io("own program"))?;
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(["counted", kind.as_str(), &format!("--requests={requests}")])
        .output()
        .map_err(Failure::io("valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    // "==123== Collected : 456"
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let count = collected.and_then(|count| count.trim().parse().ok());
    match count {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(Failure::WrongAnswer(format!("callgrind: {text}"))),
    }
}
