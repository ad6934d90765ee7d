//! The check of the price: what a millisecond of the store costs, by regression over a mixed load of a
//! real server.
//!
//! Gets and ranges of pages that are in memory and of pages that are not; each answer says how long the
//! store took (`Server-Timing`) and what it was charged. What is left of the charge without its base,
//! rows and bytes is the price of the time.

use super::cold_pages::evict;
use super::formula::{MILLISECOND, SETTINGS, fixed_units};
use crate::bench::lab::{Lab, UMBO};
use crate::check::connection::Connection;
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::dataset;
use crate::failure::Failure;
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict, median_of};

/// Rows of a range.
const RANGE_ROWS: u64 = 20;
/// Times the median of its class that were charged at most by the rule before, which is printed beside.
const CAP_BEFORE: f64 = 3.0;

/// What one request took and was charged.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Milliseconds of the store.
    ms: f64,
    /// Request units for them.
    units: f64,
}

pub(super) fn latency(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    let mut random = Random::seeded(plan.seed);
    let requests = if plan.is_quick { 1_000 } else { 5_000 };
    let (mut slopes, mut before, mut details) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lab.plan.rounds {
        evict(&data)?;
        let umbo = lab.umbo_with(&data, Cores::Server, SETTINGS)?;
        let classes = measure(&lab, requests, &mut random)?;
        umbo.process.stop()?;
        let capped = classes.iter().flat_map(|class| capped(class));
        before.push(slope(&capped.collect::<Vec<_>>()) / MILLISECOND);
        let all: Vec<Sample> = classes.concat();
        slopes.push(slope(&all) / MILLISECOND);
        details.extend(all.iter().map(|sample| sample.ms));
    }
    let longest = details.iter().copied().fold(0.0, f64::max);
    let detail = format!(
        "{:.4} of it; with the rule of three medians {:.4}; {:.3} ms in the median, {longest:.1} at most",
        median_of(&slopes),
        median_of(&before),
        median_of(&details),
    );
    let error = slopes.iter().map(|slope| (slope - 1.0).abs()).collect();
    Ok(vec![Verdict::worst(
        "price of a millisecond, off from 0.1 by",
        Bound::AtMost(0.05),
        error,
        detail,
    )])
}

/// Returns the samples of gets and of ranges. Each row is read when its page is cold, and once more.
fn measure(lab: &Lab, requests: u64, random: &mut Random) -> Result<[Vec<Sample>; 2], Failure> {
    let mut connection = Connection::open(UMBO)?;
    let fields = "Prefer: umbo-timing\r\nCache-Control: no-cache\r\n";
    let (mut gets, mut ranges) = (Vec::new(), Vec::new());
    for number in 0..requests {
        let row = random.below(lab.rows);
        let (pk, sk) = (dataset::partition(row), dataset::sort(row));
        let row_bytes = (sk.len() + dataset::VALUE_LEN) as f64;
        let get = lab.request("GET", &format!("kv/{pk}/{sk}"), fields, b"");
        for _ in 0..2 {
            gets.push(sample(&mut connection, &get, 1.0, row_bytes)?);
        }
        if number % 5 == 0 {
            let target = format!("range/{pk}?limit={RANGE_ROWS}");
            let range = lab.request("GET", &target, fields, b"");
            let rows = RANGE_ROWS as f64;
            ranges.push(sample(&mut connection, &range, rows, rows * row_bytes)?);
        }
    }
    Ok([gets, ranges])
}

/// Asks for rows of so many bytes.
fn sample(
    connection: &mut Connection,
    request: &[u8],
    rows: f64,
    bytes: f64,
) -> Result<Sample, Failure> {
    let answer = connection.ask(request)?;
    if !answer.is_success() {
        return Err(answer.unexpected());
    }
    let (ms, charged) = (answer.number("store;dur=")?, answer.number("\r\numbo-ru:")?);
    let units = charged - fixed_units(1.0, rows, bytes);
    Ok(Sample { ms, units })
}

/// Returns what the same requests would be charged where three medians are the most.
fn capped(class: &[Sample]) -> Vec<Sample> {
    let times: Vec<f64> = class.iter().map(|sample| sample.ms).collect();
    let most = CAP_BEFORE * median_of(&times);
    let capped = |ms: f64| Sample {
        ms,
        units: MILLISECOND * ms.min(most),
    };
    times.into_iter().map(capped).collect()
}

/// Returns the rise of the line of least squares, in request units for a millisecond.
fn slope(samples: &[Sample]) -> f64 {
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
    let (ms, units) = (mean(|sample| sample.ms), mean(|sample| sample.units));
    let above = |sample: &Sample| (sample.ms - ms) * (sample.units - units);
    let below = |sample: &Sample| (sample.ms - ms).powi(2);
    samples.iter().map(above).sum::<f64>() / samples.iter().map(below).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        let times = [0.01, 0.02, 0.03, 0.04, 5.0];
        let sample = |ms: f64| Sample {
            ms,
            units: MILLISECOND * ms,
        };
        let samples = times.map(sample);
        assert!((slope(&samples) - MILLISECOND).abs() < 1e-12);
        // Three medians of most of the time is next to nothing of the long time.
        assert!(slope(&capped(&samples)) < 0.05 * MILLISECOND);
    }
}
