//! A frame as lines of text. Owns the layout, and what is omitted on a small screen.

use bytesize::ByteSize;
use umbo_api::hot::HotKeyInfo;

use super::frame::{CallerFrame, Frame, ServerFrame, ShardFrame};
use crate::command::hot::{callers_text, key_cells, rate, standing_text, summary};
use crate::output::table::Table;

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
/// Most characters of a key that are shown.
const KEY_LEN_MAX: usize = 40;

/// Draws a frame.
pub(super) fn lines(frame: &Frame, size: ScreenSize) -> Vec<String> {
    let mut lines = vec![server_line(&frame.pod), hot_line(frame), String::new()];
    let part_max = PART_LINES_MAX.min(size.lines.saturating_sub(lines.len()) / 3);
    lines.extend(part(&HOT_HEADER, &frame.hot_keys, part_max, hot_cells));
    lines.push(String::new());
    lines.extend(part(&CALLER_HEADER, &frame.callers, part_max, caller_cells));
    lines.push(String::new());
    let rest = size.lines.saturating_sub(lines.len() + 1);
    lines.extend(part(&SHARD_HEADER, &frame.shards, rest, shard_cells));
    lines.truncate(size.lines);
    for line in &mut lines {
        *line = cut(line, size.columns);
    }
    lines
}

/// Draws a table of at most this many rows, and the number of further ones.
fn part<T>(
    header: &[&str],
    rows: &[T],
    rows_max: usize,
    cells: impl Fn(&T) -> Vec<String>,
) -> Vec<String> {
    let mut table = Table::new(header);
    let shown = if rows.len() > rows_max {
        rows_max.saturating_sub(1)
    } else {
        rows.len()
    };
    for row in &rows[..shown] {
        table.push(cells(row));
    }
    let mut lines: Vec<String> = table.finish().lines().map(str::to_owned).collect();
    if shown < rows.len() {
        lines.push(format!("and {} more", rows.len() - shown));
    }
    lines
}

fn server_line(pod: &ServerFrame) -> String {
    let milliseconds =
        |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2} ms"));
    format!(
        "requests {}/s  ru {}/s  rejected {}/s  shed {}/s  failed {}/s  p50 {}  p99 {}  connections {:.0}",
        rate(pod.requests_rate),
        rate(pod.ru_rate),
        rate(pod.rejected_rate),
        rate(pod.shed_rate),
        rate(pod.failed_rate),
        milliseconds(pod.p50_ms),
        milliseconds(pod.p99_ms),
        pod.connections,
    )
}

fn hot_line(frame: &Frame) -> String {
    let Some(hot) = &frame.hot else {
        return "hot keys are off".to_owned();
    };
    format!(
        "hot keys: {}; saved {}/s, led {}/s",
        summary(hot),
        rate(frame.pod.saved_rate),
        rate(frame.pod.leaders_rate),
    )
}

const HOT_HEADER: [&str; 10] = [
    "NAMESPACE",
    "PK",
    "SK",
    "KIND",
    "STANDING",
    "READS/S",
    "ERROR",
    "RU/S",
    "HITS",
    "CALLERS",
];

fn hot_cells(info: &HotKeyInfo) -> Vec<String> {
    let mut cells = key_cells(&info.key).unwrap_or_else(|_| vec![String::new(); 4]);
    for cell in &mut cells {
        *cell = cut(cell, KEY_LEN_MAX);
    }
    cells.extend([
        standing_text(info.standing, info.is_hot),
        rate(info.rate_now),
        rate(info.rate_error),
        rate(info.ru_rate),
        format!("{:.1}%", info.hit_ratio * 100.0),
        callers_text(&info.callers, 3),
    ]);
    cells
}

const CALLER_HEADER: [&str; 2] = ["CALLER", "RU/S"];

fn caller_cells(caller: &CallerFrame) -> Vec<String> {
    vec![cut(&caller.caller, KEY_LEN_MAX), rate(caller.ru_rate)]
}

const SHARD_HEADER: [&str; 7] = [
    "SHARD",
    "STATE",
    "REQUESTS/S",
    "RU/S",
    "QUEUED",
    "ROWS",
    "FILE",
];

fn shard_cells(shard: &ShardFrame) -> Vec<String> {
    vec![
        shard.shard.to_string(),
        shard.state.clone(),
        rate(shard.requests_rate),
        rate(shard.ru_rate),
        shard.queued.to_string(),
        shard.rows.to_string(),
        ByteSize(shard.file_bytes).display().iec().to_string(),
    ]
}

/// Returns the part of a text that fits.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::hot::{HotKeyName, HotKind, HotPod, HotStanding};

    fn frame(keys: usize, callers: usize, shards: u16) -> Frame {
        let key = |at: usize| HotKeyInfo {
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
        };
        let caller = |at: usize| CallerFrame {
            caller: format!("caller-{at}"),
            ru_rate: 5.0,
        };
        let shard = |shard: u16| ShardFrame {
            shard,
            state: "available".to_owned(),
            requests_rate: 10.0,
            ru_rate: 11.0,
            queued: 0,
            rows: 7,
            file_bytes: 1 << 20,
        };
        Frame {
            seconds: 1.0,
            pod: ServerFrame {
                requests_rate: 1_000.0,
                rejected_rate: 1.0,
                shed_rate: 0.0,
                failed_rate: 0.0,
                ru_rate: 1_100.0,
                p50_ms: Some(0.125),
                p99_ms: None,
                saved_rate: 900.0,
                leaders_rate: 1.0,
                connections: 4.0,
            },
            hot_keys: (0..keys).map(key).collect(),
            hot: Some(HotPod::default()),
            callers: (0..callers).map(caller).collect(),
            shards: (0..shards).map(shard).collect(),
        }
    }

    #[test]
    fn everything_is_shown_where_there_is_room() {
        let lines = lines(&frame(2, 1, 2), WIDE);
        let text = lines.join("\n");
        for part in [
            "requests 1000/s  ru 1100/s  rejected 1.0/s",
            "p50 0.12 ms  p99 -",
            "shop       listing:1  0xff  row   pinned,hot  1234",
            "caller-0  5.0",
            "1      available  10          11    0       7     1.0 MiB",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let mut off = frame(0, 0, 1);
        off.hot = None;
        assert_eq!(super::lines(&off, WIDE)[1], "hot keys are off");
    }

    #[test]
    fn no_frame_is_larger_than_its_screen() {
        for (lines_max, columns) in [(24, 80), (10, 20), (3, 5), (1, 1), (0, 0), (200, 300)] {
            let size = ScreenSize {
                columns,
                lines: lines_max,
            };
            let drawn = lines(&frame(50, 50, 50), size);
            assert!(drawn.len() <= lines_max, "{lines_max}: {drawn:?}");
            let widest = drawn.iter().map(|line| line.chars().count()).max();
            assert!(widest.unwrap_or(0) <= columns.max(1), "{columns}");
        }
        let drawn = lines(
            &frame(50, 2, 2),
            ScreenSize {
                columns: 200,
                lines: 40,
            },
        );
        assert!(drawn.contains(&"and 41 more".to_owned()), "{drawn:?}");
    }
}
