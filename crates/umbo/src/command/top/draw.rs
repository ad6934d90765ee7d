//! A frame as lines of text. Owns the layout of each tab, the order of its rows, and the choice of lines for a small
//! screen.

use std::cmp::Ordering;

use clap::ValueEnum as _;

use super::frame::{CallerFrame, PolicyFrame, ScreenFrame, ServerFrame, ShardFrame};
use super::view::{Tab, TableView};
use crate::command::hot;
use crate::output::listing::Listing;
use crate::output::{self, rate, table};

/// Columns and lines of a drawing area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// An unlimited area, for output that is not a screen.
pub(super) const WIDE: ScreenSize = ScreenSize {
    columns: usize::MAX,
    lines: usize::MAX,
};

/// Most lines for hot keys and for callers on a screen; shards get the rest.
const PART_LINES_MAX: usize = 10;
/// Most characters of a cell that are shown; rows are sorted and filtered by all of it.
const CELL_LEN_MAX: usize = 40;

/// Draws a frame as a view looks at it: its tab, sorted and filtered.
pub(super) fn lines(frame: &ScreenFrame, view: &TableView, size: ScreenSize) -> Vec<String> {
    let mut lines = if view.tab == Tab::Overview && view.filter.is_empty() && !view.is_typing {
        overview(frame, size)
    } else {
        let mut lines = vec![server_line(&frame.pod), filter_line(view)];
        // The header is a line too.
        let rest = size.lines.saturating_sub(lines.len() + 1);
        lines.extend(part(header(view.tab), &sorted(frame, view), rest));
        lines
    };
    lines.truncate(size.lines);
    for line in &mut lines {
        *line = cut(line, size.columns);
    }
    lines
}

/// Draws the line that names tabs, keys and the server; the tab in view stands in brackets.
pub(super) fn tabs_line(view: &TableView, server: &str, columns: usize) -> String {
    let whole = whole_tabs_line(view, server);
    if whole.chars().count() <= columns {
        return whole;
    }
    let tab = view.tab.as_str();
    cut(&format!("[{tab}] 1-6 tabs  q quit  {server}"), columns)
}

fn whole_tabs_line(view: &TableView, server: &str) -> String {
    let tabs = Tab::value_variants()
        .iter()
        .copied()
        .zip(1..)
        .map(|(tab, number)| {
            let name = tab.as_str();
            if tab == view.tab {
                format!("[{number} {name}]")
            } else {
                format!(" {number} {name} ")
            }
        });
    let tabs: String = tabs.collect();
    format!("{tabs} s sort  r reverse  / filter  d next server  q quit  {server}")
}

fn filter_line(view: &TableView) -> String {
    let header = columns(view.tab);
    let sorted = view.sort.and_then(|at| header.get(at));
    let order = if view.is_ascending {
        "smallest first"
    } else {
        "largest first"
    };
    let sorted = sorted.map_or_else(String::new, |column| format!("by {column}, {order}  "));
    match (view.filter.as_str(), view.is_typing) {
        (filter, true) => format!("{sorted}filter: {filter}_"),
        ("", false) => sorted,
        (filter, false) => format!("{sorted}filter: {filter}"),
    }
}

/// Returns the columns of a tab.
pub(super) fn columns(tab: Tab) -> Vec<&'static str> {
    table::columns(header(tab))
}

const fn header(tab: Tab) -> &'static str {
    match tab {
        Tab::Overview | Tab::Hot => {
            "NAMESPACE  PK  SK  KIND  STANDING  READS/S  ERROR  RU/S  HITS  CALLERS"
        }
        Tab::Callers => "CALLER  RU/S  REQUESTS/S  REJECTED/S",
        Tab::Shards => "SHARD  STATE  REQUESTS/S  RU/S  QUEUED  ROWS  FILE",
        Tab::Quotas => "POLICY  UTILISATION  REJECTED/S  WOULD-REJECT/S  BUCKETS",
        Tab::Overload => {
            "SHARD  STATE  PRESSURE  LATENCY-RATIO  WAITING  OLDEST-MS  IN-FLIGHT  LIMIT"
        }
    }
}

/// Returns the cells of a tab's rows.
fn rows(frame: &ScreenFrame, tab: Tab) -> Vec<Vec<String>> {
    let header = header(tab);
    match tab {
        Tab::Overview | Tab::Hot => hot::listing(header).rows(&frame.hot_keys),
        Tab::Callers => Listing::<CallerFrame>::new(header).rows(&frame.callers),
        Tab::Shards => Listing::new(header)
            .with("FILE", |shard: &ShardFrame| {
                output::bytes(shard.info.file_bytes)
            })
            .rows(&frame.shards),
        Tab::Quotas => Listing::new(header)
            .with("UTILISATION", |policy: &PolicyFrame| {
                format!("{:.1}%", policy.counters.utilisation * 100.0)
            })
            .rows(&frame.policies),
        Tab::Overload => {
            let shards = frame.shards.iter().filter(|shard| shard.overload.is_some());
            let shards: Vec<&ShardFrame> = shards.collect();
            Listing::new(header)
                .with("STATE", |shard: &&ShardFrame| match &shard.overload {
                    Some(overload) if overload.is_overloaded => "overloaded".to_owned(),
                    _ => "ok".to_owned(),
                })
                .rows(&shards)
        }
    }
}

fn sorted(frame: &ScreenFrame, view: &TableView) -> Vec<Vec<String>> {
    let mut rows = rows(frame, view.tab);
    rows.retain(|cells| view.passes(cells));
    if let Some(at) = view.sort {
        rows.sort_by(|one, other| compare(&one[at], &other[at]).reverse());
    }
    if view.is_ascending {
        rows.reverse();
    }
    rows
}

/// Compares cells as numbers with their units where both are, else as texts.
fn compare(one: &str, other: &str) -> Ordering {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        // A cell without a number is less than a cell with one.
        (one, other) if one.is_some() != other.is_some() => one.is_some().cmp(&other.is_some()),
        // Texts are compared in reverse, so that they are in alphabetical order if the largest number comes first.
        _ => other.cmp(one),
    }
}

/// Reads a cell as a number: plain, in percent, or a size like `1.0 MiB`.
fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim_end_matches('%');
    cell.parse().ok().or_else(|| {
        let (number, unit) = cell.split_once(' ')?;
        let number: f64 = number.parse().ok()?;
        let power = ["B", "KiB", "MiB", "GiB", "TiB"]
            .iter()
            .position(|known| *known == unit)?;
        Some(number * 1_024_f64.powi(i32::try_from(power).ok()?))
    })
}

fn overview(frame: &ScreenFrame, size: ScreenSize) -> Vec<String> {
    let mut lines = vec![server_line(&frame.pod), hot_line(frame)];
    let part_max = PART_LINES_MAX.min(size.lines.saturating_sub(lines.len() + 1) / 3);
    for tab in [Tab::Hot, Tab::Callers, Tab::Shards] {
        lines.push(String::new());
        let is_last = tab == Tab::Shards;
        let rest = size.lines.saturating_sub(lines.len() + 1);
        let rows_max = if is_last { rest } else { part_max };
        lines.extend(part(header(tab), &rows(frame, tab), rows_max));
    }
    lines
}

/// Draws a table of at most this many rows, and the number of further ones.
fn part(header: &str, rows: &[Vec<String>], rows_max: usize) -> Vec<String> {
    let shown = if rows.len() > rows_max {
        rows_max.saturating_sub(1)
    } else {
        rows.len()
    };
    let columns = table::columns(header);
    table::first(header, rows, shown, |cells| {
        let cells = columns.iter().zip(cells);
        let shortened = cells.map(|(&column, cell)| match column {
            // A list whose parts are short.
            "CALLERS" => cell.clone(),
            _ => cut(cell, CELL_LEN_MAX),
        });
        shortened.collect()
    })
}

fn server_line(pod: &ServerFrame) -> String {
    let milliseconds =
        |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2} ms"));
    let operation = pod.operation.as_deref().unwrap_or_default();
    format!(
        "requests {}/s  ru {}/s  rejected {}/s  shed {}/s  refused {}/s  failed {}/s  {operation} p50 {}  p99 {}  connections {:.0}",
        rate(pod.requests_rate),
        rate(pod.ru_rate),
        rate(pod.rejected_rate),
        rate(pod.shed_rate),
        rate(pod.refused_rate),
        rate(pod.failed_rate),
        milliseconds(pod.p50_ms),
        milliseconds(pod.p99_ms),
        pod.connections,
    )
}

fn hot_line(frame: &ScreenFrame) -> String {
    let Some(hot) = &frame.hot else {
        return "hot keys are off".to_owned();
    };
    format!(
        "hot keys: {}; saved {}/s",
        hot::summary(hot),
        rate(frame.pod.saved_rate),
    )
}

/// Returns the part of a text that fits.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::super::frame::OverloadFrame;
    use super::*;
    use umbo_api::admin::ShardInfo;
    use umbo_api::hot::{HotCaller, HotKeyInfo, HotKeyName, HotKind, HotPod, HotStanding};
    use umbo_api::quota::PolicyCounters;

    fn key(at: usize) -> HotKeyInfo {
        HotKeyInfo {
            key: HotKeyName {
                id: "AQ".to_owned(),
                hash: "00".to_owned(),
                namespace: "shop".to_owned(),
                kind: HotKind::Row,
                pk: Some(format!("listing:{at}")),
                pk64: None,
                sk: None,
                sk64: Some("_w".to_owned()),
            },
            standing: HotStanding::Pinned,
            is_hot: true,
            rate: 0.0,
            rate_error: 2.5,
            rate_now: 1_234.5,
            ru_rate: 1_300.0,
            hot_for_ms: 0,
            reads: 10,
            hits: 9,
            hit_ratio: 0.9,
            callers: Vec::new(),
            pinned: None,
            blocked: None,
        }
    }

    fn frame(keys: usize, callers: usize, shards: u16) -> ScreenFrame {
        let caller = |at: usize| CallerFrame {
            caller: format!("caller-{at}"),
            ru_rate: 5.0,
            requests_rate: 4.0,
            rejected_rate: 0.0,
        };
        let shard = |shard: u16| ShardFrame {
            info: ShardInfo {
                shard,
                node: None,
                state: "available".to_owned(),
                reason: None,
                slots: 4_096,
                rows: 7,
                file_bytes: 1 << (20 + shard),
                queued: 0,
            },
            requests_rate: 10.0,
            ru_rate: 11.0,
            overload: Some(OverloadFrame {
                is_overloaded: shard == 1,
                pressure: f64::from(shard) / 4.0,
                latency_ratio: None,
                limit: 8,
                in_flight: 3,
                waiting: 0,
                oldest_ms: 0.0,
            }),
        };
        let policy = |at: usize| PolicyFrame {
            policy: format!("policy-{at}"),
            counters: PolicyCounters {
                utilisation: 0.5,
                buckets: 3,
                ..PolicyCounters::default()
            },
            rejected_rate: 1.0,
            would_reject_rate: 0.0,
        };
        ScreenFrame {
            seconds: Some(1.0),
            pod: ServerFrame {
                requests_rate: 1_000.0,
                rejected_rate: 1.0,
                shed_rate: 0.0,
                refused_rate: 0.0,
                failed_rate: 0.0,
                ru_rate: 1_100.0,
                operation: Some("get".to_owned()),
                p50_ms: Some(0.125),
                p99_ms: None,
                saved_rate: 900.0,
                connections: 4.0,
            },
            hot_keys: (0..keys).map(key).collect(),
            hot: Some(HotPod::default()),
            callers: (0..callers).map(caller).collect(),
            shards: (0..shards).map(shard).collect(),
            policies: (0..callers).map(policy).collect(),
        }
    }

    fn all() -> TableView {
        TableView::new(Tab::Overview, String::new())
    }

    fn of(tab: Tab, sort: Option<usize>, filter: &str) -> TableView {
        TableView {
            sort,
            ..TableView::new(tab, filter.to_owned())
        }
    }

    #[test]
    fn everything_is_shown_where_there_is_room() {
        let lines = lines(&frame(2, 1, 2), &all(), WIDE);
        let text = lines.join("\n");
        for part in [
            "requests 1000/s  ru 1100/s  rejected 1.0/s",
            "get p50 0.12 ms  p99 -",
            "shop       listing:1  0xff  row   pinned,hot  1234",
            "caller-0  5.0   4.0         0",
            "1      available  10          11    0       7     2.0 MiB",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let mut off = frame(0, 0, 1);
        off.hot = None;
        assert_eq!(super::lines(&off, &all(), WIDE)[1], "hot keys are off");
    }

    #[test]
    fn no_frame_is_larger_than_its_screen() {
        for (lines_max, columns) in [(24, 80), (10, 20), (3, 5), (1, 1), (0, 0), (200, 300)] {
            let size = ScreenSize {
                columns,
                lines: lines_max,
            };
            for &tab in Tab::value_variants() {
                let drawn = lines(&frame(50, 50, 40), &of(tab, Some(1), ""), size);
                assert!(drawn.len() <= lines_max, "{lines_max}: {drawn:?}");
                let widest = drawn.iter().map(|line| line.chars().count()).max();
                assert!(widest.unwrap_or(0) <= columns.max(1), "{columns}");
            }
        }
        let drawn = lines(
            &frame(50, 2, 2),
            &all(),
            ScreenSize {
                columns: 200,
                lines: 40,
            },
        );
        assert!(drawn.contains(&"and 41 more".to_owned()), "{drawn:?}");
    }

    #[test]
    fn every_tab_has_its_rows_in_the_order_asked_for() {
        let frame = frame(3, 12, 3);
        let first = |view: &TableView| {
            let drawn = lines(&frame, view, WIDE);
            assert!(drawn[2].starts_with(columns(view.tab)[0]), "{drawn:?}");
            drawn[3]
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(first(&of(Tab::Callers, None, "")), "caller-0");
        assert_eq!(first(&of(Tab::Callers, None, "R-11")), "caller-11");
        assert_eq!(first(&of(Tab::Quotas, Some(0), "")), "policy-0");
        // Sizes are compared as what they are, not as texts.
        assert_eq!(first(&of(Tab::Shards, Some(6), "")), "2");
        assert_eq!(first(&of(Tab::Overload, Some(2), "")), "2");
        assert_eq!(first(&of(Tab::Overload, None, "overloaded")), "1");
        let mut smallest = of(Tab::Overload, Some(2), "");
        smallest.is_ascending = true;
        assert_eq!(first(&smallest), "0");
        assert_eq!(first(&of(Tab::Hot, None, "listing:2")), "shop");
        let none = lines(&frame, &of(Tab::Shards, None, "no such"), WIDE);
        assert_eq!((none.len(), none[1].as_str()), (3, "filter: no such"));
    }

    #[test]
    fn long_cells_are_cut_after_rows_were_chosen_by_them() {
        let mut frame = frame(1, 2, 0);
        let long = "c".repeat(CELL_LEN_MAX);
        for (caller, end) in frame.callers.iter_mut().zip(["1", "2"]) {
            caller.caller = long.clone() + end;
        }
        let drawn = lines(&frame, &of(Tab::Callers, None, "C2"), WIDE);
        assert_eq!(drawn.len(), 4, "{drawn:?}");
        assert!(
            drawn[3].starts_with(&(long[1..].to_owned() + "…  ")),
            "{drawn:?}"
        );
        let share = |caller: &str| HotCaller {
            caller: caller.to_owned(),
            share: 0.25,
        };
        frame.hot_keys[0].callers = ["first-caller", "second-caller", "third-caller"]
            .map(share)
            .to_vec();
        let drawn = lines(&frame, &of(Tab::Hot, None, ""), WIDE);
        assert!(drawn[3].ends_with("third-caller 25%"), "{drawn:?}");
    }

    #[test]
    fn the_tab_in_view_is_marked() {
        let line = tabs_line(&of(Tab::Quotas, None, ""), "http://a:1", 200);
        assert!(
            line.contains("[5 quotas]") && line.contains(" 1 overview "),
            "{line}"
        );
        let narrow = tabs_line(&of(Tab::Quotas, None, ""), "http://a:1", 20);
        assert_eq!(narrow, "[quotas] 1-6 tabs  …");
        let mut typing = of(Tab::Quotas, Some(1), "ab");
        typing.is_typing = true;
        assert_eq!(
            filter_line(&typing),
            "by UTILISATION, largest first  filter: ab_"
        );
    }
}
