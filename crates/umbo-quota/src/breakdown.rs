//! The parts of an estimate, for people.
//!
//! The base and the announced bytes have exact prices. The rest is divided in proportion to the
//! earlier charges of similar requests. The parts add up to the estimate exactly; only that
//! division is a guess.

use umbo_types::{Operation, RequestUnits};

use crate::cost::{ActualUsage, CostHint, Weights};
use crate::report::{Breakdown, Tally};

/// Divides an estimate at the plain price. `like` is the tally of similar requests.
pub(crate) fn breakdown(
    weights: &Weights,
    operation: Operation,
    estimate: RequestUnits,
    hint: &CostHint,
    like: &Tally,
) -> Breakdown {
    let nothing = weights.price(operation, &ActualUsage::default());
    let priced = |work: ActualUsage| weights.price(operation, &work).saturating_sub(nothing);
    let rows = |rows| {
        priced(ActualUsage {
            rows,
            ..ActualUsage::default()
        })
    };
    let read = |read_bytes| {
        priced(ActualUsage {
            read_bytes,
            ..ActualUsage::default()
        })
    };
    let written = |write_bytes| {
        priced(ActualUsage {
            write_bytes,
            ..ActualUsage::default()
        })
    };

    let announced = if operation.is_write() {
        hint.body_len
    } else {
        None
    };
    let base = nothing.min(estimate);
    let left = estimate.saturating_sub(base);
    let write_bytes = written(announced.unwrap_or(0)).min(left);
    let rest = left.saturating_sub(write_bytes);

    let bases = nothing.as_micros().saturating_mul(like.requests);
    let (of_rows, of_bytes) = (rows(like.rows), read(like.read_bytes));
    let of_time = [
        RequestUnits::from_micros(bases),
        of_rows,
        of_bytes,
        written(like.write_bytes),
    ]
    .into_iter()
    .fold(
        like.charged.saturating_sub(like.penalty),
        RequestUnits::saturating_sub,
    );
    let all = [of_rows, of_bytes, of_time].map(|part| u128::from(part.as_micros()));
    let all = all.iter().sum::<u128>().max(1);
    let share = |part: RequestUnits| {
        let share = u128::from(rest.as_micros()) * u128::from(part.as_micros()) / all;
        RequestUnits::from_micros(share as u64)
    };
    let (rows, read_bytes) = (share(of_rows), share(of_bytes));
    Breakdown {
        base,
        rows,
        read_bytes,
        write_bytes,
        latency: rest.saturating_sub(rows).saturating_sub(read_bytes),
        penalty: RequestUnits::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(breakdown: Breakdown) -> [String; 5] {
        let Breakdown {
            base,
            rows,
            read_bytes,
            write_bytes,
            latency,
            ..
        } = breakdown;
        [base, rows, read_bytes, write_bytes, latency].map(|part| part.to_string())
    }

    #[test]
    fn a_range_is_divided_as_those_before_it_were() {
        let like = Tally {
            requests: 10,
            charged: RequestUnits::from_micros(100_000_000),
            rows: 1_000,
            read_bytes: 8 * 4_096 * 4,
            ..Tally::default()
        };
        let estimate = RequestUnits::from_micros(10_000_000);
        let divided = breakdown(
            &Weights::default(),
            Operation::Range,
            estimate,
            &CostHint::default(),
            &like,
        );
        // Rows 50, bytes 32, and what is left of 100 but for ten bases: 8.
        assert_eq!(parts(divided), ["1", "5", "3.2", "0", "0.8"]);
    }

    #[test]
    fn a_put_is_priced_by_its_length() {
        let hint = CostHint {
            body_len: Some(8_192),
            ..CostHint::default()
        };
        let like = Tally {
            rows: 1,
            ..Tally::default()
        };
        let estimate = RequestUnits::from_micros(8_050_000);
        let divided = breakdown(&Weights::default(), Operation::Put, estimate, &hint, &like);
        assert_eq!(parts(divided), ["6", "0.05", "0", "2", "0"]);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            estimate: u64, body_len: u64, charged: u64, requests: u64, rows: u64, bytes: u64, at in 0_usize..8,
        ) {
            let like = Tally {
                requests,
                charged: RequestUnits::from_micros(charged),
                rows,
                read_bytes: bytes,
                write_bytes: bytes,
                ..Tally::default()
            };
            let hint = CostHint { body_len: Some(body_len), ..CostHint::default() };
            let estimate = RequestUnits::from_micros(estimate);
            let operation = Operation::ALL[at];
            let parts = breakdown(&Weights::default(), operation, estimate, &hint, &like);
            let sum = [parts.base, parts.rows, parts.read_bytes, parts.write_bytes, parts.latency]
                .map(|part| u128::from(part.as_micros()));
            prop_assert_eq!(sum.iter().sum::<u128>(), u128::from(estimate.as_micros()));
        }
    }
}
