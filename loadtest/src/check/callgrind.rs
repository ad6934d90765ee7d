//! Instructions and allocations of answers, by callgrind over `umbo-loadtest counted`.
//!
//! Every figure is the difference of two runs: whatever a process does before and after the requests is in both.

use std::process::Command;

use crate::counted::Kind;
use crate::failure::Failure;
use crate::process::find;

/// Answers of the shorter and of the longer run; a put is as long as forty others.
const ANSWERS: (u32, u32) = (200, 2_200);
const PUTS: (u32, u32) = (50, 250);
/// Answers of a run whose rows are counted, and rows of each of them in the shorter and the longer run. As many as make
/// little of what the longer run does once: 3.4 million instructions for its memory.
const OF_ROWS: u32 = 400;
const FEW_ROWS: u32 = 20;
const MANY_ROWS: u32 = 120;

/// What one answer, or one row of it, takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) instructions: f64,
    /// How often it asks for memory, on the thread of the dispatcher.
    pub(super) allocations: f64,
}

impl Counted {
    /// Returns what each of so many more answers or rows took.
    fn each(few: Self, many: Self, more: u32) -> Self {
        let each = |few: f64, many: f64| (many - few) / f64::from(more);
        Self {
            instructions: each(few.instructions, many.instructions),
            allocations: each(few.allocations, many.allocations),
        }
    }
}

/// Returns what one answer takes, over a store in the same process or through a shard node.
pub(super) fn of_answer(kind: Kind, is_remote: bool) -> Result<Counted, Failure> {
    let (few, many) = if kind == Kind::Put { PUTS } else { ANSWERS };
    let more = many - few;
    let (few, many) = (
        run(kind, is_remote, few, 1)?,
        run(kind, is_remote, many, 1)?,
    );
    Ok(Counted::each(few, many, more))
}

/// Returns what one more row of an answer takes.
pub(super) fn of_row(kind: Kind, is_remote: bool) -> Result<Counted, Failure> {
    let few = run(kind, is_remote, OF_ROWS, FEW_ROWS)?;
    let many = run(kind, is_remote, OF_ROWS, MANY_ROWS)?;
    Ok(Counted::each(few, many, OF_ROWS * (MANY_ROWS - FEW_ROWS)))
}

fn run(kind: Kind, is_remote: bool, requests: u32, rows: u32) -> Result<Counted, Failure> {
    let valgrind = find("valgrind", "install the package valgrind")?;
    let own = std::env::current_exe().map_err(Failure::io("own program"))?;
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(["counted", kind.as_str()])
        .args([format!("--requests={requests}"), format!("--rows={rows}")])
        .args(is_remote.then_some("--hop"))
        .output()
        .map_err(Failure::io("valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    // "==123== Collected : 456"
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let instructions = collected.and_then(|count| count.trim().parse().ok());
    let allocations = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match (instructions, allocations) {
        (Some(instructions), Some(allocations)) if output.status.success() => Ok(Counted {
            instructions,
            allocations,
        }),
        _ => Err(Failure::WrongAnswer(format!("callgrind: {text}"))),
    }
}
