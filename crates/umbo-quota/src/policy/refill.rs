//! The interval of refills: its text form, and the amount of one refill.

use std::time::Duration;

use umbo_types::decimal::{self, MILLIONTHS};

use super::error::PolicyProblem;
use crate::limits::{REFILL_MAX, REFILL_MIN};

/// Returns the most atoms that one refill brings.
pub(super) fn refill_brings(rate: u64, refill: Duration) -> u64 {
    let atoms = (u128::from(rate) * refill.as_millis()).div_ceil(1_000);
    u64::try_from(atoms).expect("ten seconds of the highest rate are fewer than 2^56 atoms")
}

/// Reads a refill, in seconds or milliseconds.
pub(super) fn read_refill(text: &str) -> Result<Duration, PolicyProblem> {
    let bad = || PolicyProblem::BadRefill(text.to_owned());
    let (number, micros_each) = match text.strip_suffix("ms") {
        Some(number) => (number, 1_000),
        None => (text.strip_suffix('s').ok_or_else(bad)?, MILLIONTHS),
    };
    let millionths = decimal::parse_millionths(number).map_err(|_| bad())?;
    let micros = u128::from(millionths) * u128::from(micros_each) / u128::from(MILLIONTHS);
    let is_whole = u128::from(millionths) * u128::from(micros_each) % 1_000_000_000 == 0;
    if !is_whole {
        return Err(bad());
    }
    let refill = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
    if !(REFILL_MIN..=REFILL_MAX).contains(&refill) {
        return Err(PolicyProblem::RefillOutOfRange {
            value: text.to_owned(),
            min: format_refill(REFILL_MIN),
            max: format_refill(REFILL_MAX),
        });
    }
    Ok(refill)
}

/// Writes a refill as it is read.
pub(super) fn format_refill(refill: Duration) -> String {
    if refill.subsec_nanos() == 0 {
        format!("{}s", refill.as_secs())
    } else {
        format!("{}ms", refill.as_millis())
    }
}
