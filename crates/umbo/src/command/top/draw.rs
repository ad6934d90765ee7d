//! A frame as lines of text. Owns the tables of each tab, the order of their rows, and the choice of lines for a small
//! screen.

use std::cmp::{Ordering, Reverse};

use bytesize::ByteSize;
use clap::{Args, ValueEnum};

use super::frame::{CallerFrame, PolicyFrame, ScreenFrame, ServerFrame, ShardFrame};
use crate::cli_error::{CliError, usage};
use crate::command::hot;
use crate::output::{self, Listing, rate, table};

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

/// Most lines for hot keys and for callers in the overview; shards get the rest.
const PART_LINES_MAX: usize = 10;
/// Columns of a cell that are shown at most; rows are sorted and filtered by all of it.
const CELL_WIDTH_MAX: usize = 40;

/// A tab: one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Tab {
    /// A little of everything.
    Overview,
    /// Callers by request units.
    Callers,
    /// Keys that are hot, pinned or blocked.
    Hot,
    /// Shards: load and files.
    Shards,
    /// Policies: utilisation and rejections.
    Quotas,
    /// Shards: pressure and queues.
    Overload,
}

/// The choice of tables and rows.
#[derive(Debug, Clone, Args)]
pub(super) struct TopView {
    /// Subject to show
    #[arg(long, value_enum, value_name = "TAB", default_value = "overview")]
    tab: Tab,
    /// Column to sort by, the largest first [default: hot keys by reads, callers by units, quotas by use]
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Turn the order round
    #[arg(long)]
    reverse: bool,
    /// Show only rows that contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

impl TopView {
    /// Refuses a column that no table of the tab has.
    pub(super) fn check(&self) -> Result<(), CliError> {
        let tabs = self.tables().iter();
        let columns: Vec<_> = tabs.flat_map(|&tab| table::columns(header(tab))).collect();
        match &self.sort {
            Some(sort) if position(&columns, sort).is_none() => Err(usage!(
                "there is no column '{sort}' to sort by; the columns are {}",
                columns.join(", ")
            )),
            _ => Ok(()),
        }
    }

    /// Draws a frame.
    pub(super) fn lines(&self, frame: &ScreenFrame, size: ScreenSize) -> Vec<String> {
        let mut lines = vec![server_line(&frame.pod)];
        if self.tab == Tab::Overview {
            lines.push(hot_line(frame));
        }
        let part_max = PART_LINES_MAX.min(size.lines.saturating_sub(lines.len() + 1) / 3);
        for &tab in self.tables() {
            lines.push(String::new());
            // The header is a line too.
            let rest = size.lines.saturating_sub(lines.len() + 1);
            let is_last = Some(&tab) == self.tables().last();
            let rows_max = if is_last { rest } else { part_max };
            lines.extend(part(header(tab), &self.rows(frame, tab), rows_max));
        }
        lines.truncate(size.lines);
        let fitting = lines.iter().map(|line| table::cut(line, size.columns));
        fitting.collect()
    }

    /// Returns the tabs whose tables are shown.
    fn tables(&self) -> &[Tab] {
        match self.tab {
            Tab::Overview => &[Tab::Hot, Tab::Callers, Tab::Shards],
            _ => std::slice::from_ref(&self.tab),
        }
    }

    /// Returns the cells of the rows to show, in their order.
    fn rows(&self, frame: &ScreenFrame, tab: Tab) -> Vec<Vec<String>> {
        let mut rows = rows(frame, tab);
        let wanted = self.filter.as_deref().unwrap_or_default();
        let wanted = wanted.to_lowercase();
        let is_wanted = |cell: &String| cell.to_lowercase().contains(&wanted);
        rows.retain(|cells| cells.iter().any(is_wanted));
        let sort = self.sort.as_deref();
        if let Some(at) = sort.and_then(|sort| position(&table::columns(header(tab)), sort)) {
            // A cell without a number is less than a cell with one. Texts are in the order of the alphabet.
            let key = |cells: &[String]| (number(&cells[at]), Reverse(cells[at].clone()));
            rows.sort_by(|one, other| {
                let order = key(other).partial_cmp(&key(one));
                order.unwrap_or(Ordering::Equal)
            });
        }
        if self.reverse {
            rows.reverse();
        }
        rows
    }
}

/// Returns the position of a column, in upper or lower case.
fn position(columns: &[&str], name: &str) -> Option<usize> {
    let mut columns = columns.iter();
    columns.position(|column| column.eq_ignore_ascii_case(name))
}

/// Reads a cell as a number: plain, in percent, or a size like `1.0 MiB`.
#[expect(clippy::cast_precision_loss)] // a size to sort by
fn number(cell: &str) -> Option<f64> {
    let plain = cell.trim_end_matches('%').parse().ok();
    let size = || Some(cell.parse::<ByteSize>().ok()?.as_u64() as f64);
    plain.or_else(size)
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
            _ => table::cut(cell, CELL_WIDTH_MAX),
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
                p50_ms: None,
                p99_ms: None,
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

    fn of(tab: Tab, sort: Option<&str>, filter: &str) -> TopView {
        TopView {
            tab,
            sort: sort.map(str::to_owned),
            reverse: false,
            filter: Some(filter.to_owned()),
        }
    }

    fn all() -> TopView {
        of(Tab::Overview, None, "")
    }

    #[test]
    fn everything_is_shown_where_there_is_room() {
        let lines = all().lines(&frame(2, 1, 2), WIDE);
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
        assert_eq!(all().lines(&off, WIDE)[1], "hot keys are off");
    }

    #[test]
    fn no_frame_is_larger_than_its_screen() {
        for (lines_max, columns) in [(24, 80), (10, 20), (3, 5), (1, 1), (0, 0), (200, 300)] {
            let size = ScreenSize {
                columns,
                lines: lines_max,
            };
            for &tab in Tab::value_variants() {
                let drawn = of(tab, Some("SHARD"), "").lines(&frame(50, 50, 40), size);
                assert!(drawn.len() <= lines_max, "{lines_max}: {drawn:?}");
                let widest = drawn.iter().map(|line| line.chars().count()).max();
                assert!(widest.unwrap_or(0) <= columns.max(1), "{columns}");
            }
        }
        let size = ScreenSize {
            columns: 200,
            lines: 40,
        };
        let drawn = all().lines(&frame(50, 2, 2), size);
        assert!(drawn.contains(&"and 41 more".to_owned()), "{drawn:?}");
    }

    #[test]
    fn every_tab_has_its_rows_in_the_order_asked_for() {
        let frame = frame(3, 12, 3);
        let first = |view: &TopView| {
            let drawn = view.lines(&frame, WIDE);
            let header = table::columns(header(view.tab));
            assert!(drawn[2].starts_with(header[0]), "{drawn:?}");
            drawn[3]
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(first(&of(Tab::Callers, None, "")), "caller-0");
        assert_eq!(first(&of(Tab::Callers, None, "R-11")), "caller-11");
        assert_eq!(first(&of(Tab::Quotas, Some("policy"), "")), "policy-0");
        // Sizes are compared as what they are, not as texts.
        assert_eq!(first(&of(Tab::Shards, Some("FILE"), "")), "2");
        assert_eq!(first(&of(Tab::Overload, Some("PRESSURE"), "")), "2");
        assert_eq!(first(&of(Tab::Overload, None, "overloaded")), "1");
        let mut smallest = of(Tab::Overload, Some("PRESSURE"), "");
        smallest.reverse = true;
        assert_eq!(first(&smallest), "0");
        assert_eq!(first(&of(Tab::Hot, None, "listing:2")), "shop");
        let none = of(Tab::Shards, None, "no such").lines(&frame, WIDE);
        assert_eq!(none.len(), 3, "{none:?}");
    }

    #[test]
    fn long_cells_are_cut_after_rows_were_chosen_by_them() {
        let mut frame = frame(1, 2, 0);
        let long = "c".repeat(CELL_WIDTH_MAX);
        for (caller, end) in frame.callers.iter_mut().zip(["1", "2"]) {
            caller.caller = long.clone() + end;
        }
        let drawn = of(Tab::Callers, None, "C2").lines(&frame, WIDE);
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
        let drawn = of(Tab::Hot, None, "").lines(&frame, WIDE);
        assert!(drawn[3].ends_with("third-caller 25%"), "{drawn:?}");
    }

    #[test]
    fn a_column_is_named_in_any_case_and_has_to_be_there() {
        of(Tab::Quotas, Some("would-reject/s"), "").check().unwrap();
        of(Tab::Overview, Some("QUEUED"), "").check().unwrap();
        let refused = of(Tab::Quotas, Some("QUEUED"), "").check().unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("POLICY, UTILISATION, "), "{text}");
    }
}
