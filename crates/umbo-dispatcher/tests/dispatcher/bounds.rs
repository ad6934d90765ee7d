//! The table of bounds is that of the operator's guide, and each row has its test.

use std::path::Path;

use umbo_dispatcher::bounds::{Bound, Pace, TABLE};

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 1 << 20 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{} KiB", bytes >> 10),
    }
}

fn row(bound: &Bound) -> String {
    let pace = match bound.pace {
        Pace::Whole => "all of it within `body_timeout`",
        Pace::Sent => "sent at 1 KiB/s",
        Pace::Taken => "taken at 1 KiB/s",
        Pace::None => "",
    };
    format!("| {} | {} | {pace} |\n", bound.what, size(bound.bytes_max))
}

#[test]
fn the_guide_has_the_table() {
    let table: String = TABLE.iter().map(row).collect();
    let guide = text("config/README.md");
    assert!(
        guide.contains(&table),
        "config/README.md is to have:\n{table}"
    );
}

#[test]
fn each_row_has_its_test() {
    for bound in TABLE {
        let (path, name) = bound.test.split_once(' ').unwrap();
        let named = [format!("fn {name}("), format!("def {name}(")];
        let text = text(path);
        assert!(
            named.iter().any(|named| text.contains(named)),
            "{}: {path} has no test {name}",
            bound.what
        );
    }
}
