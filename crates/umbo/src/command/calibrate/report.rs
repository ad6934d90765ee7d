//! The result of a calibration, as text and as JSON.

use serde::Serialize;
use umbo_quota::Weights;

use super::fit::{self, Cost, FitQuality};
use crate::output::{Listing, counted};

/// Parts of a dispatcher's request units that are offered as the quota of a caller: half for the most important one, a
/// tenth for one of many.
const QUOTA_SHARES: [f64; 3] = [0.5, 0.25, 0.1];

/// The result of a calibration.
#[derive(Debug, Serialize)]
pub(super) struct CalibrationReport {
    /// Whether the program is compiled without optimization, so that its times are of no use.
    is_debug_build: bool,
    processors: usize,
    /// Whether the system's page cache was emptied for cold pages.
    is_cold_from_disk: bool,
    costs: Vec<CostReport>,
    quality: [FitQuality; 2],
    /// The `[cost]` block of the settings.
    #[serde(rename = "cost")]
    pub(super) block: String,
    ru_per_busy_ms: f64,
    shard_ru_per_s: f64,
    dispatcher_ru_per_s: f64,
    quotas_ru_per_s: [f64; 3],
    /// How much more a busy millisecond costs for one operation than for another, with the weights of the settings.
    spread_today: f64,
    /// The same with the fitted weights.
    spread_fitted: f64,
}

#[derive(Debug, Serialize)]
struct CostReport {
    #[serde(flatten)]
    cost: Cost,
    /// The time that the fitted price stands for.
    fitted_ms: f64,
    /// Relative.
    residual: f64,
    ru_today: f64,
    ru_fitted: f64,
}

impl CalibrationReport {
    /// Fits the weights.
    pub(super) fn new(costs: &[Cost], today: &Weights, is_cold_from_disk: bool) -> Self {
        let fitted = fit::fit(costs, today);
        let weights = &fitted.weights;
        let of_cost = |cost: &Cost| {
            let ru_fitted = cost.price(weights);
            let fitted_ms = ru_fitted / fitted.units_of_ms;
            CostReport {
                cost: cost.clone(),
                fitted_ms,
                residual: fitted_ms / cost.busy_ms - 1.0,
                ru_today: cost.price(today),
                ru_fitted,
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shard_ru_per_s = 1e3 * fitted.units_of_ms;
        #[expect(clippy::cast_precision_loss)] // a number of processors
        let dispatcher_ru_per_s = shard_ru_per_s * processors as f64;
        Self {
            is_debug_build: cfg!(debug_assertions),
            processors,
            is_cold_from_disk,
            costs: costs.iter().map(of_cost).collect(),
            block: block(weights),
            ru_per_busy_ms: fitted.units_of_ms,
            shard_ru_per_s,
            dispatcher_ru_per_s,
            quotas_ru_per_s: QUOTA_SHARES.map(|share| (share * dispatcher_ru_per_s).floor()),
            spread_today: fit::spread(costs, today),
            spread_fitted: fit::spread(costs, weights),
            quality: fitted.quality,
        }
    }

    /// Returns the report as text, with the block at the end.
    pub(super) fn screen(&self) -> String {
        let mut lines = vec![self.table()];
        for one in &self.quality {
            lines.push(format!(
                "held out, {}: {} operations, R² of logarithms {:.3}, median error {:.0}%",
                one.of,
                one.costs,
                one.r2,
                100.0 * one.median_error
            ));
        }
        lines.push(format!(
            "A busy millisecond costs {:.1} times as much for one operation as for another by the weights of today, and \
             {:.1} times by the fitted ones\n",
            self.spread_today, self.spread_fitted
        ));
        lines.push(format!(
            "A busy millisecond of the store is {} RU: a shard does {:.0} RU/s, a dispatcher {:.0} RU/s with {}",
            figures(self.ru_per_busy_ms),
            self.shard_ru_per_s,
            self.dispatcher_ru_per_s,
            counted(self.processors as u64, "processor"),
        ));
        for (share, rate) in QUOTA_SHARES.iter().zip(self.quotas_ru_per_s) {
            let percent = 100.0 * share;
            lines.push(format!(
                "{percent:.0}% of a dispatcher for each caller: umbo quota set default-caller --rate {rate:.0}"
            ));
        }
        lines.push(if self.is_cold_from_disk {
            "Cold pages were read from the disk: the system's page cache was emptied before each call".to_owned()
        } else {
            "Cold pages came from the system's page cache, which could not be emptied: a disk is slower".to_owned()
        });
        if self.is_debug_build {
            lines.push(
                "This program is compiled without optimization: its weights are of no use"
                    .to_owned(),
            );
        }
        lines.push(format!("\n{}", self.block));
        lines.join("\n")
    }

    fn table(&self) -> String {
        Listing::new("OPERATION  ROWS  BYTES  AT-ONCE  PAGES  CALLS  FIT  BUSY-MS  FITTED-MS  RU-TODAY  RU-FITTED  RESIDUAL  TOO-CHEAP|TOO-DEAR")
            .with("BYTES", |one: &CostReport| one.cost.step.len.to_string())
            .with("FIT", |one| {
                let is_held_out = one.cost.is_held_out;
                if is_held_out { "held-out" } else { "fitted" }.to_owned()
            })
            .with("BUSY-MS", |one| figures(one.cost.busy_ms))
            .with("FITTED-MS", |one| figures(one.fitted_ms))
            .with("RU-TODAY", |one| figures(one.ru_today))
            .with("RU-FITTED", |one| figures(one.ru_fitted))
            .with("RESIDUAL", |one| format!("{:+.0}%", one.residual * 100.0))
            .with("TOO-CHEAP|TOO-DEAR", |one| bar(one.residual))
            .table(&self.costs)
    }
}

/// Draws a residual as a bar from the middle, of a cell for each tenth of the measured time.
#[expect(clippy::cast_possible_truncation)] // a bounded number of cells
fn bar(residual: f64) -> String {
    let cells = (10.0 * residual).round().clamp(-10.0, 10.0) as i32;
    let bar = "#".repeat(cells.unsigned_abs() as usize);
    match cells {
        ..0 => format!("{bar:>10}|"),
        _ => format!("{:>10}|{bar}", ""),
    }
}

/// Returns the block of the settings, ready to paste.
fn block(weights: &Weights) -> String {
    format!(
        "[cost]\nversion = {}\nread_base = {}\nwrite_base = {}\nrow = {}\nread_bytes = {}\nwrite_bytes = {}\nlatency_ms = {}\n",
        weights.version,
        weights.read_base,
        weights.write_base,
        weights.row,
        weights.read_bytes,
        weights.write_bytes,
        weights.latency_ms,
    )
}

/// Returns a number with three figures or more.
fn figures(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_residual() {
        assert_eq!(bar(-0.31), "       ###|");
        assert_eq!(bar(0.2), "          |##");
        assert_eq!(bar(0.0), "          |");
        assert_eq!(bar(70.0), "          |##########");
    }

    #[test]
    fn the_block_is_that_of_the_settings() {
        let expected = "[cost]\nversion = 1\nread_base = 1\nwrite_base = 6\nrow = 0.05\nread_bytes = 1\nwrite_bytes = 1\nlatency_ms = 0.1\n";
        assert_eq!(block(&Weights::default()), expected);
    }
}
