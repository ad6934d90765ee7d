//! How fast rows are read: nanoseconds a row of 256 bytes, sorted, in memory.
//! Run: `cargo run --release -p umbo-rows --example read_speed`

use std::fmt::Write as _;
use std::io::Cursor;
use std::time::Instant;

use umbo_rows::{Coding, Columns, RowFormat, RowReader};

const ROWS: u32 = 1_000_000;
const RUNS: u32 = 3;

fn main() {
    let value = "x".repeat(200);
    let json = format!("{{\\\"name\\\":\\\"{}\\\"}}", "x".repeat(180));
    let (mut plain, mut escaped, mut csv) = (String::new(), String::new(), "pk,sk,v\n".to_owned());
    for row in 0..ROWS {
        let (pk, sk) = (row / 100, row % 100);
        for (text, value) in [(&mut plain, &value), (&mut escaped, &json)] {
            let _ = writeln!(
                text,
                "{{\"pk\":\"p{pk:08}\",\"sk\":\"s{sk:08}\",\"v\":\"{value}\"}}"
            );
        }
        let _ = writeln!(csv, "p{pk:08},s{sk:08},{value}");
    }
    let columns = Columns::default();
    for (name, format, coding, bytes) in [
        (
            "NDJSON",
            RowFormat::Lines,
            Coding::Identity,
            plain.clone().into_bytes(),
        ),
        (
            "NDJSON, escaped values",
            RowFormat::Lines,
            Coding::Identity,
            escaped.into_bytes(),
        ),
        (
            "CSV",
            RowFormat::Csv(columns.into()),
            Coding::Identity,
            csv.into_bytes(),
        ),
        (
            "NDJSON in zstd",
            RowFormat::Lines,
            Coding::Zstd,
            zstd::encode_all(plain.as_bytes(), 1).unwrap_or_default(),
        ),
    ] {
        let fastest = (0..RUNS).map(|_| {
            let (source, begin) = (Box::new(Cursor::new(bytes.clone())), Instant::now());
            let rows = RowReader::open(&format, coding, source)
                .into_iter()
                .flatten();
            let rows = rows.filter(|row| matches!(row, Ok(Ok(_)))).count();
            assert_eq!(rows, ROWS as usize, "every row is one");
            begin.elapsed() / ROWS
        });
        let nanos = fastest.min().unwrap_or_default().as_nanos();
        println!("{name}: {nanos} ns a row");
    }
}
