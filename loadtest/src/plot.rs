//! Plots as SVG: lines over time, in panels one below the other.
//!
//! Written by hand, so that a plot needs nothing to be drawn with and nothing to be shown with but what
//! shows SVG: no script, no style sheet, no font of its own. Equal lines give equal bytes.

mod axis;

use std::fmt::Write as _;

pub(crate) use self::axis::Scale;
use self::axis::{Axis, amount};

const WIDTH: f64 = 900.0;
const PANEL_HEIGHT: f64 = 190.0;
const HEAD_HEIGHT: f64 = 62.0;
const FOOT_HEIGHT: f64 = 34.0;
/// Room for the title of a panel, above its frame.
const PANEL_HEAD: f64 = 26.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
/// Room for an entry of the legend: its line, and a letter of its name.
const ENTRY_WIDTH: f64 = 60.0;
const LETTER_WIDTH: f64 = 6.6;
/// Room for a row of it.
const ROW_HEIGHT: f64 = 18.0;
/// Points of a line at most; a longer one is averaged.
const POINTS_MAX: usize = 600;

const TEXT: &str = "#24292f";
const GRID: &str = "#e5e8ec";
const SPAN: &str = "#f6ead0";

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pen {
    colour: &'static str,
    width: f64,
    is_dashed: bool,
}

impl Pen {
    /// What was asked for: in the background.
    pub(crate) const GREY: Self = Self::solid("#b9bec6", 1.5);
    /// What came of it.
    pub(crate) const BLUE: Self = Self::solid("#1f5fa8", 2.0);
    /// Something beside it.
    pub(crate) const GREEN: Self = Self::solid("#2a7d4f", 2.0);
    /// Something in the middle.
    pub(crate) const AMBER: Self = Self::solid("#b26a00", 2.0);
    /// Something that should be small.
    pub(crate) const RED: Self = Self::solid("#b3261e", 2.0);
    /// A bound.
    pub(crate) const BOUND: Self = Self {
        is_dashed: true,
        ..Self::solid("#b3261e", 1.5)
    };

    const fn solid(colour: &'static str, width: f64) -> Self {
        Self {
            colour,
            width,
            is_dashed: false,
        }
    }

    fn dashes(self) -> &'static str {
        if self.is_dashed {
            r#" stroke-dasharray="6 4""#
        } else {
            ""
        }
    }
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// What the legend says; lines of one name have one pen.
    pub(crate) name: &'static str,
    /// How it is drawn.
    pub(crate) pen: Pen,
    /// Seconds and amounts, in order of time. An amount that is no number is a gap.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Line {
    /// Makes a line of one amount for each second, from the first one on.
    pub(crate) fn of_seconds(name: &'static str, pen: Pen, amounts: &[f64]) -> Self {
        let middle = |(second, amount): (usize, &f64)| (second as f64 + 0.5, *amount);
        Self {
            name,
            pen,
            points: amounts.iter().enumerate().map(middle).collect(),
        }
    }

    /// Makes a level line.
    pub(crate) fn level(name: &'static str, pen: Pen, amount: f64, seconds: f64) -> Self {
        Self {
            name,
            pen,
            points: vec![(0.0, amount), (seconds, amount)],
        }
    }
}

/// Lines over one axis.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// What stands over it.
    pub(crate) title: String,
    /// What stands beside its axis.
    pub(crate) unit: String,
    /// How amounts are laid out.
    pub(crate) scale: Scale,
    /// How far it reaches at most; what is above is drawn at its edge.
    pub(crate) reach: Option<f64>,
    /// Lines of the panel; those in front come last.
    pub(crate) lines: Vec<Line>,
}

/// A time in which something is different.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// What.
    pub(crate) name: String,
    /// Seconds from which and to which.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// Panels one below the other, all over the same time.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    /// What stands over all.
    pub(crate) title: String,
    /// Seconds that it shows.
    pub(crate) seconds: f64,
    /// Times that are shaded in every panel.
    pub(crate) spans: Vec<Span>,
    /// The panels.
    pub(crate) panels: Vec<Panel>,
}

impl Plot {
    /// Draws it.
    pub(crate) fn draw(&self) -> String {
        let legend = self.legend();
        let head = HEAD_HEIGHT + legend.last().map_or(0.0, |entry| entry.down);
        let height = head + PANEL_HEIGHT * self.panels.len() as f64 + FOOT_HEIGHT;
        let title = escape(&self.title);
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{TEXT}" role="img">
<title>{title}</title>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{title}</text>
"##
        );
        for entry in legend {
            entry.draw(&mut svg);
        }
        for (at, panel) in self.panels.iter().enumerate() {
            let top = head + PANEL_HEIGHT * at as f64;
            panel.draw(&mut svg, self, top);
        }
        add(
            &mut svg,
            format_args!(
                r#"<text x="{}" y="{}" text-anchor="middle">time, seconds</text>"#,
                f64::midpoint(LEFT, WIDTH - RIGHT),
                height - 10.0
            ),
        );
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns an entry for each name, in as many rows as it takes.
    fn legend(&self) -> Vec<Entry<'_>> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        let (mut x, mut down) = (LEFT, 0.0);
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if entries.iter().any(|entry| entry.line.name == line.name) {
                continue;
            }
            let width = ENTRY_WIDTH + (LETTER_WIDTH * line.name.len() as f64).round();
            if x > LEFT && x + width > WIDTH {
                (x, down) = (LEFT, down + ROW_HEIGHT);
            }
            entries.push(Entry { line, x, down });
            x += width;
        }
        entries
    }

    fn x(&self, second: f64) -> f64 {
        let share = (second / self.seconds.max(1e-3)).clamp(0.0, 1.0);
        LEFT + (WIDTH - LEFT - RIGHT) * share
    }
}

/// A name in the legend.
struct Entry<'a> {
    line: &'a Line,
    x: f64,
    /// How far below the first row.
    down: f64,
}

impl Entry<'_> {
    fn draw(&self, svg: &mut String) {
        let (begin, end) = (self.x, self.x + 28.0);
        let pen = self.line.pen;
        add(
            svg,
            format_args!(
                r#"<line x1="{begin}" y1="{0}" x2="{end}" y2="{0}" stroke="{1}" stroke-width="2.5"{2}/><text x="{3}" y="{4}">{5}</text>"#,
                44.0 + self.down,
                pen.colour,
                pen.dashes(),
                end + 6.0,
                48.0 + self.down,
                escape(self.line.name)
            ),
        );
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, plot: &Plot, top: f64) {
        let right = WIDTH - RIGHT;
        let amounts = self.lines.iter().flat_map(|line| &line.points);
        let amounts = amounts.map(|point| point.1);
        let axis = Axis::new(
            self.scale,
            amounts,
            self.reach,
            (top + PANEL_HEIGHT - 24.0, top + PANEL_HEAD),
        );
        let (from_y, to_y) = (axis.from_y, axis.to_y);
        add(
            svg,
            format_args!(
                r#"<text x="{LEFT}" y="{:.1}">{}</text>"#,
                to_y - 8.0,
                escape(&self.title)
            ),
        );
        for span in &plot.spans {
            let (from, to) = (plot.x(span.from), plot.x(span.to));
            add(
                svg,
                format_args!(
                    r#"<rect x="{from:.1}" y="{to_y:.1}" width="{:.1}" height="{:.1}" fill="{SPAN}"><title>{2}</title></rect><text x="{from:.1}" y="{3:.1}" font-size="10" dx="4">{2}</text>"#,
                    to - from,
                    from_y - to_y,
                    escape(&span.name),
                    to_y + 12.0
                ),
            );
        }
        for tick in axis.ticks() {
            let at = axis.y(tick);
            add(
                svg,
                format_args!(
                    r#"<line x1="{LEFT}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="{GRID}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                    LEFT - 6.0,
                    at + 4.0,
                    amount(tick)
                ),
            );
        }
        for tick in axis::ticks(plot.seconds, 8) {
            let at = plot.x(tick);
            add(
                svg,
                format_args!(
                    r#"<line x1="{at:.1}" y1="{from_y:.1}" x2="{at:.1}" y2="{:.1}" stroke="{TEXT}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{tick}</text>"#,
                    from_y + 4.0,
                    from_y + 17.0
                ),
            );
        }
        for line in &self.lines {
            draw_line(svg, line, plot, &axis);
        }
        let middle = f64::midpoint(from_y, to_y);
        add(
            svg,
            format_args!(
                r#"<path d="M{LEFT} {to_y:.1}V{from_y:.1}H{right:.1}" fill="none" stroke="{TEXT}"/><text x="16" y="{middle:.1}" text-anchor="middle" transform="rotate(-90 16 {middle:.1})">{}</text>"#,
                escape(&self.unit)
            ),
        );
    }
}

fn draw_line(svg: &mut String, line: &Line, plot: &Plot, axis: &Axis) {
    let points = thinned(&line.points);
    for part in points.split(|point| !point.1.is_finite()) {
        if part.is_empty() {
            continue;
        }
        let mut path = String::new();
        for &(second, amount) in part {
            write!(path, "{:.1},{:.1} ", plot.x(second), axis.y(amount))
                .expect("a string takes every write");
        }
        add(
            svg,
            format_args!(
                r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="{}"{}/>"#,
                path.trim_end(),
                line.pen.colour,
                line.pen.width,
                line.pen.dashes()
            ),
        );
    }
}

/// Returns so few points that each can be seen: means of neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let sum = |pick: fn(&(f64, f64)) -> f64| chunk.iter().map(pick).sum::<f64>();
        let len = chunk.len() as f64;
        (sum(|point| point.0) / len, sum(|point| point.1) / len)
    };
    points.chunks(step).map(mean).collect()
}

fn add(svg: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(svg, "{text}").expect("a string takes every write");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale, lines: Vec<Line>) -> Plot {
        Plot {
            title: "steady & exact".to_owned(),
            seconds: 1_300.0,
            spans: vec![Span {
                name: "attack".to_owned(),
                from: 100.0,
                to: 200.0,
            }],
            panels: vec![Panel {
                title: "a < b".to_owned(),
                unit: "RU a second".to_owned(),
                scale,
                reach: Some(300.0),
                lines,
            }],
        }
    }

    fn points(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let lines = svg.split("<polyline points=\"").skip(1);
        let parse = |point: &str| {
            let (x, y) = point.split_once(',').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        lines
            .map(|line| line.split('"').next().unwrap().split(' ').map(parse))
            .map(Iterator::collect)
            .collect()
    }

    #[test]
    fn a_plot_has_axes_lines_a_legend_and_no_point_outside() {
        let offered: Vec<f64> = (0..1_300).map(|second| f64::from(second % 500)).collect();
        let lines = || {
            vec![
                Line::of_seconds("offered", Pen::GREY, &offered),
                Line::level("quota", Pen::BOUND, 100.0, 1_300.0),
            ]
        };
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = plot(scale, lines()).draw();
            assert!(svg.contains("a &lt; b") && svg.contains("steady &amp; exact"));
            assert!(svg.contains(">offered</text>") && svg.contains(">attack</text>"));
            assert!(svg.contains("time, seconds") && svg.contains("RU a second"));
            assert!(!svg.contains("href") && !svg.contains("script"));
            let lines = points(&svg);
            assert_eq!(lines.len(), 2);
            assert!(lines[0].len() <= POINTS_MAX);
            for (x, y) in lines.into_iter().flatten() {
                assert!((LEFT..=WIDTH - RIGHT).contains(&x));
                assert!((HEAD_HEIGHT..=HEAD_HEIGHT + PANEL_HEIGHT).contains(&y));
            }
        }
    }

    #[test]
    fn a_long_legend_takes_more_rows_and_the_panels_make_room() {
        let height = |names: &[&'static str]| {
            let lines = names
                .iter()
                .map(|name| Line::level(name, Pen::RED, 1.0, 9.0));
            let plot = plot(Scale::Linear, lines.collect());
            let svg = plot.draw();
            let height = svg.split("height=\"").nth(1).unwrap();
            let rows = plot.legend().last().unwrap().down / ROW_HEIGHT;
            (height.split('"').next().unwrap().to_owned(), rows)
        };
        let one = height(&["short"]);
        let names = ["first", "second", "third", "fourth"].map(|name| name.repeat(8).leak());
        let names = names.map(|name| &*name);
        let many = height(&names);
        assert_eq!((one.0.as_str(), one.1), ("286", 0.0));
        assert_eq!((many.0.as_str(), many.1), ("304", 1.0));
    }

    #[test]
    fn what_is_unknown_is_a_gap() {
        let line = Line {
            name: "p99",
            pen: Pen::BLUE,
            points: vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)],
        };
        let lines = points(&plot(Scale::Logarithmic, vec![line]).draw());
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
