//! The fit: weights of the cost model by non-negative least squares with relative errors.
//!
//! A busy millisecond should cost the same for every operation. The busy time of a call is known only at its end. The
//! operation, the rows and the bytes are mostly known before, but do not tell whether pages are in memory. Most of a
//! price is therefore the measured time, and the rest is fitted to the work of all calls, hot and cold. To judge
//! prices, the median of every other call is the charged time, and the median of the calls between is the time to
//! compare with.

use std::time::Duration;

use serde::Serialize;
use umbo_quota::{ActualUsage, Weights};
use umbo_types::RequestUnits;

use super::steps::{CallKind, SMALL_GET};

/// Part of a price that is measured time. The rest is known before the work is done, so that beginning a request is
/// never free and estimates are useful. If the rest is wrong by a factor of 4, prices stay within a factor of 3.
const TIME_SHARE: f64 = 0.8;
/// Weights of the work: a read, a write, a row, 4,096 bytes read and 4,096 bytes written.
const WORK_WEIGHTS: usize = 5;
/// Number of bytes that a weight of bytes is for.
const BYTES: f64 = 4_096.0;
/// Most sweeps of the descent, which usually ends within some hundreds.
const SWEEPS: usize = 20_000;
/// Relative change of a weight at which the descent has ended.
const SETTLED: f64 = 1e-12;

/// Where the pages of a call were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pages {
    /// In the caches of the store.
    Hot,
    /// In the file.
    Cold,
}

/// The measured cost of a kind of call.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cost {
    #[serde(flatten)]
    pub(super) step: CallKind,
    pub(super) pages: Pages,
    /// The work of a call; its service time is the time that is charged.
    #[serde(skip)]
    pub(super) work: ActualUsage,
    /// Busy time of a call in milliseconds, to compare the price with.
    pub(super) busy_ms: f64,
    /// Calls measured.
    pub(super) calls: usize,
    /// Whether the fit leaves this cost out.
    pub(super) is_held_out: bool,
}

impl Cost {
    /// Returns whether all work was done in memory: writes go to the disk.
    fn is_in_memory(&self) -> bool {
        self.pages == Pages::Hot && !self.step.operation.is_write()
    }

    #[expect(clippy::cast_precision_loss)] // far below 2⁵³
    fn columns(&self) -> [f64; WORK_WEIGHTS] {
        let is_write = self.step.operation.is_write();
        [
            f64::from(u8::from(!is_write)),
            f64::from(u8::from(is_write)),
            self.work.rows as f64,
            self.work.read_bytes as f64 / BYTES,
            self.work.write_bytes as f64 / BYTES,
        ]
    }

    fn charged_ms(&self) -> f64 {
        self.work.service_time.as_secs_f64() * 1e3
    }

    /// Returns the request units of a call.
    pub(super) fn price(&self, weights: &Weights) -> f64 {
        weights.price(self.step.operation, &self.work).as_f64()
    }

    /// Returns the request units of a busy millisecond, if each call is charged for its own busy time.
    fn units_of_ms(&self, weights: &Weights) -> f64 {
        let mut charged = self.clone();
        charged.work.service_time = Duration::from_secs_f64(self.busy_ms / 1e3);
        charged.price(weights) / self.busy_ms
    }
}

/// How well prices match the times of held-out calls.
#[derive(Debug, Serialize)]
pub(super) struct FitQuality {
    /// `memory` or `disk`.
    pub(super) of: &'static str,
    pub(super) costs: usize,
    /// R² of the logarithms.
    pub(super) r2: f64,
    /// Median of the relative errors.
    pub(super) median_error: f64,
}

/// Fitted weights.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) weights: Weights,
    /// Request units of a busy millisecond.
    pub(super) units_of_ms: f64,
    pub(super) quality: [FitQuality; 2],
}

/// Fits all weights. A small get from memory keeps its price under the weights `today`.
pub(super) fn fit(costs: &[Cost], today: &Weights) -> Fitted {
    let fitted: Vec<&Cost> = costs.iter().filter(|cost| !cost.is_held_out).collect();
    let reference = |cost: &&Cost| cost.step == SMALL_GET && cost.pages == Pages::Hot;
    let reference = costs.iter().find(reference);
    let reference = reference.expect("all steps are measured");
    let work = fit_work(&fitted).map(|ms| ms * (1.0 - TIME_SHARE));
    let price_ms = dot(&reference.columns(), &work) + TIME_SHARE * reference.charged_ms();
    let units_of_ms = reference.price(today) / price_ms;
    let [read_base, write_base, row, read_bytes, write_bytes] =
        work.map(|ms| units(ms * units_of_ms));
    let weights = Weights {
        version: today.version.saturating_add(1),
        read_base,
        write_base,
        row,
        read_bytes,
        write_bytes,
        latency_ms: units(TIME_SHARE * units_of_ms),
    };
    let judged = |of, in_memory| {
        let is_of = |cost: &&Cost| cost.is_held_out && cost.is_in_memory() == in_memory;
        let costs: Vec<&Cost> = costs.iter().filter(is_of).collect();
        judge(of, &costs, |cost| cost.price(&weights) / units_of_ms)
    };
    Fitted {
        quality: [judged("memory", true), judged("disk", false)],
        weights,
        units_of_ms,
    }
}

/// Returns the price of a busy millisecond of the dearest kind of call, divided by the price for the cheapest kind.
pub(super) fn spread(costs: &[Cost], weights: &Weights) -> f64 {
    let units = costs.iter().map(|cost| cost.units_of_ms(weights));
    let (least, most) = units.fold((f64::MAX, 0.0_f64), |(least, most), units| {
        (least.min(units), most.max(units))
    });
    most / least
}

/// Returns a price within the bounds of the settings.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // neither negative nor above the highest
fn units(price: f64) -> RequestUnits {
    let highest = Weights::HIGHEST.as_f64();
    RequestUnits::from_micros((price.clamp(0.0, highest) * 1e6).round() as u64)
}

/// Fits the weights of the work, in milliseconds, to the time of all calls.
fn fit_work(costs: &[&Cost]) -> [f64; WORK_WEIGHTS] {
    let equations = costs.iter().map(|cost| {
        let ms = f64::midpoint(cost.charged_ms(), cost.busy_ms);
        (cost.columns().map(|column| column / ms), 1.0)
    });
    non_negative(&equations.collect::<Vec<_>>())
}

/// Solves equations by non-negative least squares: cyclic descent along one coordinate at a time, which ends in the
/// only minimum.
fn non_negative(equations: &[([f64; WORK_WEIGHTS], f64)]) -> [f64; WORK_WEIGHTS] {
    let mut products = [[0.0; WORK_WEIGHTS]; WORK_WEIGHTS];
    let mut targets = [0.0; WORK_WEIGHTS];
    for (columns, target) in equations {
        for (one, &column) in columns.iter().enumerate() {
            targets[one] += column * target;
            for (product, other) in products[one].iter_mut().zip(columns) {
                *product += column * other;
            }
        }
    }
    let mut found = [0.0_f64; WORK_WEIGHTS];
    for _ in 0..SWEEPS {
        let mut is_settled = true;
        for at in 0..WORK_WEIGHTS {
            if products[at][at] <= 0.0 {
                continue;
            }
            let missing = targets[at] - dot(&products[at], &found);
            let next = (found[at] + missing / products[at][at]).max(0.0);
            is_settled &= (next - found[at]).abs() <= SETTLED * next.max(found[at]);
            found[at] = next;
        }
        if is_settled {
            break;
        }
    }
    found
}

fn dot(one: &[f64; WORK_WEIGHTS], other: &[f64; WORK_WEIGHTS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[expect(clippy::cast_precision_loss)] // some dozens of costs
fn judge(of: &'static str, costs: &[&Cost], price_ms: impl Fn(&Cost) -> f64) -> FitQuality {
    let count = costs.len().max(1) as f64;
    let mean = costs.iter().map(|cost| cost.busy_ms.ln()).sum::<f64>() / count;
    let (mut missed, mut all, mut errors) = (0.0, 0.0, Vec::new());
    for cost in costs {
        let predicted = price_ms(cost).max(f64::MIN_POSITIVE);
        missed += (predicted.ln() - cost.busy_ms.ln()).powi(2);
        all += (cost.busy_ms.ln() - mean).powi(2);
        errors.push((predicted - cost.busy_ms).abs() / cost.busy_ms);
    }
    FitQuality {
        of,
        costs: costs.len(),
        r2: if all > 0.0 { 1.0 - missed / all } else { 0.0 },
        median_error: median(&mut errors),
    }
}

/// Returns the median, the upper one of two; 0 if there are no values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use umbo_types::Operation;

    use super::*;

    /// Milliseconds of a read, a write, a row, 4,096 bytes read and 4,096 bytes written.
    const TRUE_MS: [f64; WORK_WEIGHTS] = [0.004, 0.9, 0.0006, 0.0015, 0.03];

    /// Returns costs of known weights, some of them wrong by up to this part, and cold ones that take longer.
    fn costs(true_ms: [f64; WORK_WEIGHTS], noise: f64, cold: f64) -> Vec<Cost> {
        let mut costs = Vec::new();
        let sizes: [(u64, u64); 8] = [
            (1, 100),
            (1, 4_096),
            (1, 65_536),
            (1, 262_144),
            (10, 100),
            (100, 100),
            (100, 1_000),
            (1_000, 1_000),
        ];
        for (pages, times) in [(Pages::Hot, 1.0), (Pages::Cold, cold)] {
            for operation in [Operation::Get, Operation::Put] {
                for (rows, len) in sizes {
                    let (is_write, at) = (operation.is_write(), costs.len());
                    let bytes = rows * len;
                    let step = CallKind {
                        operation,
                        ..SMALL_GET
                    };
                    let mut cost = Cost {
                        step,
                        pages,
                        work: ActualUsage {
                            rows,
                            read_bytes: if is_write { 0 } else { bytes },
                            write_bytes: if is_write { bytes } else { 0 },
                            ..ActualUsage::default()
                        },
                        busy_ms: 1.0,
                        calls: 10,
                        is_held_out: at % 3 == 2,
                    };
                    let ms = dot(&cost.columns(), &true_ms) * times;
                    let wrong = [-noise, noise, 0.0, noise / 2.0, -noise / 2.0][at % 5];
                    cost.busy_ms = ms * (1.0 + wrong);
                    cost.work.service_time = Duration::from_secs_f64(ms / 1e3);
                    costs.push(cost);
                }
            }
        }
        costs
    }

    #[test]
    fn known_weights_are_recovered() {
        let all = costs(TRUE_MS, 0.05, 1.0);
        let of_work = fit_work(&all.iter().collect::<Vec<_>>());
        for (found, known) in of_work.iter().zip(TRUE_MS) {
            assert!((found / known - 1.0).abs() < 0.12, "{of_work:?}");
        }
        let today = Weights::default();
        let fitted = fit(&all, &today);
        let reference = &all[0];
        let price = |weights: &Weights| weights.price(Operation::Get, &reference.work).as_f64();
        assert!((price(&fitted.weights) / price(&today) - 1.0).abs() < 0.01);
        let ms = fitted.weights.latency_ms.as_f64();
        assert!((ms / fitted.units_of_ms - TIME_SHARE).abs() < 0.001, "{ms}");
        assert_eq!(fitted.weights.version, today.version + 1);
        for quality in &fitted.quality {
            assert!(
                quality.r2 > 0.98 && quality.median_error < 0.1,
                "{quality:?}"
            );
        }
    }

    #[test]
    fn the_price_is_the_work_also_where_the_work_does_not_tell_the_time() {
        let all = costs(TRUE_MS, 0.05, 20.0);
        let fitted = fit(&all, &Weights::default());
        assert!(spread(&all, &Weights::default()) > 20.0);
        let spread = spread(&all, &fitted.weights);
        assert!(spread < 3.0, "{spread} {:?}", fitted.weights);
        for quality in &fitted.quality {
            assert!(
                quality.r2 > 0.9 && quality.median_error < 0.25,
                "{quality:?}"
            );
        }
    }

    #[test]
    fn no_weight_is_negative() {
        // Each row makes a call faster: without the bound its weight would be below zero.
        let all = costs([2.0, 2.0, -0.001, 0.0, 0.0], 0.0, 1.0);
        let found = fit_work(&all.iter().collect::<Vec<_>>());
        assert!(found.iter().all(|&weight| weight >= 0.0), "{found:?}");
        assert!(found[2] < 1e-9, "{found:?}");
        assert!(found[0] > 1.0 && found[1] > 1.0, "{found:?}");
        assert_eq!(units(-1.0), RequestUnits::ZERO);
        assert_eq!(units(1e9), Weights::HIGHEST);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| format!("{:?}", median(&mut values.to_vec()));
        assert_eq!(of(&[]), "0.0");
        assert_eq!(of(&[3.0, 1.0, 2.0]), "2.0");
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), "3.0");
    }
}
