//! Plots as SVG: what a caller asked for, what it got and what its quota is, over time.
//!
//! Written by hand, so that a plot needs nothing to be drawn with and equal runs give equal bytes.

use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
const PANEL_HEIGHT: f64 = 190.0;
const HEAD_HEIGHT: f64 = 62.0;
const FOOT_HEIGHT: f64 = 34.0;
/// Room for the title of a panel, above its frame.
const PANEL_HEAD: f64 = 26.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
/// Points of a line at most; a longer run is averaged.
const POINTS_MAX: usize = 600;
/// How far above the quota a panel reaches, at most, as a multiple of it.
const REACH: f64 = 3.0;

const OFFERED: &str = "#b9bec6";
const ADMITTED: &str = "#1f5fa8";
const QUOTA: &str = "#b3261e";
const TEXT: &str = "#24292f";
const GRID: &str = "#e5e8ec";

/// One caller's lines: a point a second, in units a second.
#[derive(Debug)]
pub(crate) struct Panel {
    /// What stands over it.
    pub(crate) title: String,
    /// Quota of the caller.
    pub(crate) quota: f64,
    /// What it asked for.
    pub(crate) offered: Vec<f64>,
    /// What was admitted.
    pub(crate) admitted: Vec<f64>,
}

/// Draws panels one below the other, all over the same time.
pub(crate) fn draw(title: &str, unit: &str, panels: &[Panel]) -> String {
    let height = HEAD_HEIGHT + PANEL_HEIGHT * panels.len() as f64 + FOOT_HEIGHT;
    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{TEXT}" role="img">"#
    ));
    line(format!("<title>{}</title>", escape(title)));
    line(format!(
        r##"<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"##
    ));
    line(format!(
        r#"<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{}</text>"#,
        escape(title)
    ));
    let entries = [
        (OFFERED, "", "offered"),
        (ADMITTED, "", "admitted"),
        (QUOTA, r#" stroke-dasharray="6 4""#, "quota"),
    ];
    for (at, (colour, dashes, name)) in entries.into_iter().enumerate() {
        let x = LEFT + 110.0 * at as f64;
        let end = x + 28.0;
        line(format!(
            r#"<line x1="{x}" y1="44" x2="{end}" y2="44" stroke="{colour}" stroke-width="2.5"{dashes}/><text x="{}" y="48">{name}</text>"#,
            end + 6.0
        ));
    }
    for (at, panel) in panels.iter().enumerate() {
        line(draw_panel(
            panel,
            unit,
            HEAD_HEIGHT + PANEL_HEIGHT * at as f64,
        ));
    }
    line(format!(
        r#"<text x="{}" y="{}" text-anchor="middle">time, seconds</text>"#,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        height - 10.0
    ));
    line("</svg>".to_owned());
    svg
}

fn draw_panel(panel: &Panel, unit: &str, top: f64) -> String {
    let seconds = panel.admitted.len().max(1) as f64;
    let most = |line: &[f64]| line.iter().copied().fold(0.0, f64::max);
    let reach = most(&panel.offered).min(REACH * panel.quota);
    let reach = reach.max(most(&panel.admitted)).max(panel.quota) * 1.05;
    let (from_y, to_y) = (top + PANEL_HEIGHT - 24.0, top + PANEL_HEAD);
    let x = |second: f64| LEFT + (WIDTH - LEFT - RIGHT) * second / seconds;
    let y = |amount: f64| from_y - (from_y - to_y) * (amount / reach).min(1.0);
    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        r#"<text x="{LEFT}" y="{:.1}">{}</text>"#,
        to_y - 8.0,
        escape(&panel.title)
    ));
    for tick in ticks(reach, 4) {
        let at = y(tick);
        line(format!(
            r#"<line x1="{LEFT}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" stroke="{GRID}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            amount(tick)
        ));
    }
    for tick in ticks(seconds, 8) {
        let at = x(tick);
        line(format!(
            r#"<line x1="{at:.1}" y1="{from_y:.1}" x2="{at:.1}" y2="{:.1}" stroke="{TEXT}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{tick}</text>"#,
            from_y + 4.0,
            from_y + 17.0
        ));
    }
    let path = |amounts: &[f64]| {
        let (step, means) = thinned(amounts);
        let mut path = String::new();
        for (at, mean) in means.into_iter().enumerate() {
            // The last one may stand for less than a whole step.
            let middle = ((at as f64 + 0.5) * step).min(seconds);
            let (x, y) = (x(middle), y(mean));
            write!(path, "{x:.1},{y:.1} ").expect("a string takes every write");
        }
        path
    };
    for (amounts, colour, width) in [
        (&panel.offered, OFFERED, 1.5),
        (&panel.admitted, ADMITTED, 2.0),
    ] {
        line(format!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
            path(amounts).trim_end()
        ));
    }
    let at = y(panel.quota);
    line(format!(
        r#"<line x1="{LEFT}" y1="{at:.1}" x2="{0:.1}" y2="{at:.1}" stroke="{QUOTA}" stroke-width="1.5" stroke-dasharray="6 4"/><path d="M{LEFT} {to_y:.1}V{from_y:.1}H{0:.1}" fill="none" stroke="{TEXT}"/>"#,
        WIDTH - RIGHT
    ));
    let middle = f64::midpoint(from_y, to_y);
    line(format!(
        r#"<text x="16" y="{middle:.1}" text-anchor="middle" transform="rotate(-90 16 {middle:.1})">{} a second</text>"#,
        escape(unit)
    ));
    svg.truncate(svg.trim_end().len());
    svg
}

/// Returns seconds of a point, and the points.
fn thinned(amounts: &[f64]) -> (f64, Vec<f64>) {
    let step = amounts.len().div_ceil(POINTS_MAX).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    (step as f64, amounts.chunks(step).map(mean).collect())
}

/// Returns round numbers from 0 to `most`, about `count` of them.
fn ticks(most: f64, count: usize) -> Vec<f64> {
    let (mut power, mut step) = (1.0, 1.0);
    while step * (count as f64) < most {
        for multiple in [1.0, 2.0, 5.0] {
            step = power * multiple;
            if step * count as f64 >= most {
                break;
            }
        }
        power *= 10.0;
    }
    let mut ticks = Vec::new();
    let mut tick = 0.0;
    while tick <= most {
        ticks.push(tick);
        tick += step;
    }
    ticks
}

fn amount(amount: f64) -> String {
    if amount >= 1e6 {
        format!("{}M", amount / 1e6)
    } else if amount >= 1e4 {
        format!("{}k", amount / 1e3)
    } else {
        format!("{amount}")
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(100.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(120.0, 8), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(ticks(2.1, 4), [0.0, 1.0, 2.0]);
        assert_eq!(ticks(3_600.0, 8).len(), 8);
        assert_eq!(amount(250_000.0), "250k");
    }

    #[test]
    fn a_plot_has_axes_lines_and_no_point_outside() {
        let panel = Panel {
            title: "a < b".to_owned(),
            quota: 100.0,
            offered: (0..1_300).map(|second| f64::from(second % 500)).collect(),
            admitted: vec![99.0; 1_300],
        };
        let svg = draw("steady & exact", "RU", &[panel]);
        assert!(svg.contains("a &lt; b") && svg.contains("steady &amp; exact"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("time, seconds") && svg.contains("RU a second"));
        let points = svg.split("points=\"").nth(1).unwrap();
        let points = points.split('"').next().unwrap();
        assert!(points.split(' ').count() <= POINTS_MAX);
        for point in points.split(' ') {
            let (x, y) = point.split_once(',').unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x.parse().unwrap()));
            let y: f64 = y.parse().unwrap();
            assert!((HEAD_HEIGHT..=HEAD_HEIGHT + PANEL_HEIGHT).contains(&y));
        }
    }
}
