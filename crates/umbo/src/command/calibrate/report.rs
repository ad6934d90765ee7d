//! What a calibration has found, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use umbo_quota::Weights;

use super::fit::{self, FitQuality, Pages, Rung};
use crate::output::table::TextTable;

/// Parts of a dispatcher's request units that are offered as the quota of a caller: half for the most important one, a
/// tenth for one of many.
const QUOTA_SHARES: [f64; 3] = [0.5, 0.25, 0.1];
/// Columns and lines of the plot.
const PLOT: (usize, usize) = (60, 20);

/// The result of a calibration.
#[derive(Debug, Serialize)]
pub(super) struct CalibrationReport {
    /// Whether the program is compiled without optimization, so that its times are of no use.
    is_debug_build: bool,
    processors: usize,
    /// Whether the system's page cache was emptied for cold pages.
    is_cold_from_disk: bool,
    rungs: Vec<RungReport>,
    quality: Vec<FitQuality>,
    /// The `[cost]` block of the settings.
    #[serde(rename = "cost")]
    pub(super) block: String,
    ru_per_busy_ms: f64,
    shard_ru_per_s: f64,
    dispatcher_ru_per_s: f64,
    quotas: Vec<QuotaOffer>,
    /// With the weights of the settings in effect.
    spread_today: Spread,
    /// With the fitted weights.
    spread_fitted: Spread,
}

#[derive(Debug, Serialize)]
struct RungReport {
    operation: String,
    pages: Pages,
    calls: usize,
    is_held_out: bool,
    is_in_memory: bool,
    busy_ms: f64,
    /// The time that the fitted price stands for.
    fitted_ms: f64,
    /// Relative.
    residual: f64,
    ru_today: f64,
    ru_fitted: f64,
}

/// Rate of a caller.
#[derive(Debug, Serialize)]
struct QuotaOffer {
    share: f64,
    ru_per_s: f64,
}

/// How the request units of a busy millisecond differ between operations.
#[derive(Debug, Serialize)]
struct Spread {
    ratio: f64,
    least: f64,
    least_of: String,
    most: f64,
    most_of: String,
}

impl CalibrationReport {
    /// Fits the weights; fails with the reason if the rungs are too few.
    pub(super) fn new(rungs: &[Rung], today: &Weights, is_cold: bool) -> Result<Self, String> {
        let fitted = fit::fit(rungs, today)?;
        let weights = &fitted.weights;
        let of_rung = |rung: &Rung| {
            let ru_fitted = rung.price(weights);
            let fitted_ms = ru_fitted / fitted.units_of_ms;
            RungReport {
                operation: rung.name.clone(),
                pages: rung.pages,
                calls: rung.calls,
                is_held_out: rung.is_held_out,
                is_in_memory: rung.is_in_memory(),
                busy_ms: rung.busy_ms,
                fitted_ms,
                residual: fitted_ms / rung.busy_ms - 1.0,
                ru_today: rung.price(today),
                ru_fitted,
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shard_ru_per_s = 1e3 * fitted.units_of_ms;
        #[expect(clippy::cast_precision_loss)] // a number of processors
        let dispatcher_ru_per_s = shard_ru_per_s * processors as f64;
        let quota = |share| QuotaOffer {
            share,
            ru_per_s: (share * dispatcher_ru_per_s).floor(),
        };
        Ok(Self {
            is_debug_build: cfg!(debug_assertions),
            processors,
            is_cold_from_disk: is_cold,
            rungs: rungs.iter().map(of_rung).collect(),
            block: block(weights),
            ru_per_busy_ms: fitted.units_of_ms,
            shard_ru_per_s,
            dispatcher_ru_per_s,
            quotas: QUOTA_SHARES.map(quota).into(),
            spread_today: Spread::new(rungs, today),
            spread_fitted: Spread::new(rungs, weights),
            quality: fitted.quality,
        })
    }

    /// Returns it as text.
    pub(super) fn screen(&self) -> String {
        let mut text = self.table();
        text.push_str("\nMeasured against fitted, both in ms and logarithmic: m memory, d disk, on the line where both agree\n");
        let points = self.rungs.iter().map(|rung| {
            let mark = if rung.is_in_memory { 'm' } else { 'd' };
            (rung.busy_ms, rung.fitted_ms, mark)
        });
        text.push_str(&plot(&points.collect::<Vec<_>>()));
        text.push_str("\nOperations that were not fitted (R² of logarithms)\n");
        let mut table = TextTable::new(&["OF", "BY", "RUNGS", "R2", "MEDIAN-ERROR"]);
        for one in &self.quality {
            table.push(vec![
                one.of.to_owned(),
                one.by.to_owned(),
                one.rungs.to_string(),
                format!("{:.3}", one.r2),
                format!("{:.0}%", one.median_error * 100.0),
            ]);
        }
        text.push_str(&table.finish());
        text.push_str("\nRequest units of a busy millisecond\n");
        let mut table = TextTable::new(&["WEIGHTS", "RATIO", "LEAST", "OF", "MOST", "OF"]);
        for (name, spread) in [
            ("today", &self.spread_today),
            ("fitted", &self.spread_fitted),
        ] {
            table.push(vec![
                name.to_owned(),
                format!("{:.1}", spread.ratio),
                figures(spread.least),
                spread.least_of.clone(),
                figures(spread.most),
                spread.most_of.clone(),
            ]);
        }
        text.push_str(&table.finish());
        self.add_capacity(&mut text);
        // The block is last, so that it is at hand.
        text + "\n" + &self.block
    }

    fn table(&self) -> String {
        let mut table = TextTable::new(&[
            "OPERATION",
            "PAGES",
            "CALLS",
            "FIT",
            "BUSY-MS",
            "FITTED-MS",
            "RESIDUAL",
            "RU-TODAY",
            "RU-FITTED",
        ]);
        for rung in &self.rungs {
            let pages = match rung.pages {
                Pages::Hot => "hot",
                Pages::Cold => "cold",
            };
            let role = if rung.is_held_out {
                "held out"
            } else {
                "fitted"
            };
            table.push(vec![
                rung.operation.clone(),
                pages.to_owned(),
                rung.calls.to_string(),
                role.to_owned(),
                figures(rung.busy_ms),
                figures(rung.fitted_ms),
                format!("{:+.0}%", rung.residual * 100.0),
                figures(rung.ru_today),
                figures(rung.ru_fitted),
            ]);
        }
        table.finish()
    }

    fn add_capacity(&self, text: &mut String) {
        let mut line = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        line(format!(
            "\nA busy millisecond of the store is {} RU: a shard does {:.0} RU/s, a dispatcher {:.0} RU/s with {}",
            figures(self.ru_per_busy_ms),
            self.shard_ru_per_s,
            self.dispatcher_ru_per_s,
            crate::output::counted(self.processors as u64, "processor"),
        ));
        for offer in &self.quotas {
            line(format!(
                "{:.0}% of a dispatcher for each caller: umbo quota set default-caller --rate {:.0}",
                offer.share * 100.0,
                offer.ru_per_s,
            ));
        }
        line(if self.is_cold_from_disk {
            "Cold pages were read from the disk: the system's page cache was emptied before each call".to_owned()
        } else {
            "Cold pages came from the system's page cache, which could not be emptied: a disk is slower".to_owned()
        });
        if self.is_debug_build {
            line(
                "This program is compiled without optimization: its weights are of no use"
                    .to_owned(),
            );
        }
    }
}

impl Spread {
    fn new(rungs: &[Rung], weights: &Weights) -> Self {
        let named = |found: Option<(f64, &Rung)>| {
            found.map_or((0.0, String::new()), |(units, rung)| {
                let pages = if rung.pages == Pages::Hot {
                    "hot"
                } else {
                    "cold"
                };
                (units, format!("{}, {pages}", rung.name))
            })
        };
        let [lowest, highest] = fit::extremes(rungs, weights);
        let ((least, least_of), (most, most_of)) = (named(lowest), named(highest));
        Self {
            ratio: most / least,
            least,
            least_of,
            most,
            most_of,
        }
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

/// Draws points (measured, fitted, mark) on logarithmic axes with the line where both are equal.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // columns and lines of a screen
fn plot(points: &[(f64, f64, char)]) -> String {
    let values = || points.iter().flat_map(|point| [point.0, point.1]);
    let (low, high) = values().fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let (columns, lines) = PLOT;
    let at = |value: f64, cells: usize| {
        let part = (value / low).ln() / (high / low).ln().max(f64::EPSILON);
        ((part * (cells - 1) as f64).round().max(0.0) as usize).min(cells - 1)
    };
    let mut cells = vec![vec![' '; columns]; lines];
    for (line, column) in (0..columns).map(|column| (column * (lines - 1) / (columns - 1), column))
    {
        cells[line][column] = '.';
    }
    for &(measured, fitted, mark) in points {
        cells[at(fitted, lines)][at(measured, columns)] = mark;
    }
    let mut text = String::new();
    for (line, cells) in cells.iter().enumerate().rev() {
        let label = match line {
            0 => figures(low),
            line if line == lines - 1 => figures(high),
            _ => String::new(),
        };
        let cells: String = cells.iter().collect();
        let _ = writeln!(text, "{label:>9} |{}", cells.trim_end());
    }
    let _ = writeln!(text, "{:>9} +{}", "", "-".repeat(columns));
    let width = columns - 8;
    let _ = writeln!(
        text,
        "{:>9}  {:<8}{:>width$}",
        "",
        figures(low),
        figures(high)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_has_its_points_where_they_belong() {
        let text = plot(&[(0.001, 0.001, 'm'), (1_000.0, 0.001, 'd')]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), PLOT.1 + 2);
        let last = lines[PLOT.1 - 1];
        assert!(
            last.starts_with("   0.0010 |m") && last.ends_with('d'),
            "{text}"
        );
        assert_eq!(last.chars().count(), 11 + PLOT.0);
        assert!(
            lines[0].starts_with("     1000 |") && lines[0].ends_with('.'),
            "{text}"
        );
        // One point has no range.
        assert!(plot(&[(1.0, 1.0, 'm')]).contains('m'));
    }

    #[test]
    fn the_block_is_that_of_the_settings() {
        let expected = "[cost]\nversion = 1\nread_base = 1\nwrite_base = 6\nrow = 0.05\nread_bytes = 1\nwrite_bytes = 1\nlatency_ms = 0.1\n";
        assert_eq!(block(&Weights::default()), expected);
    }
}
