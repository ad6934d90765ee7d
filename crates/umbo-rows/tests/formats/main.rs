//! Rows in every format, and files that are none.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod parquet;
mod ugly;

use std::io::{Cursor, Write as _};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use umbo_api::columns::{TableColumns, TableValue};
use umbo_rows::{
    Coding, Columns, Expiry, InputChange, InputRow, LINE_LEN_MAX, ReadRow, RowFormat, RowReader,
    RowsError, TableFormat, TableWriter, line,
};
use umbo_types::{Key, Timestamp, Value};

fn csv() -> RowFormat {
    RowFormat::Csv(Columns::default().into())
}

fn read_all(format: &RowFormat, coding: Coding, bytes: &[u8]) -> Result<Vec<ReadRow>, RowsError> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    RowReader::open(format, coding, source)?.collect()
}

/// The rows of a file, each as its line of NDJSON, or its line number and why it is rejected.
fn shown(format: &RowFormat, bytes: &[u8]) -> Vec<String> {
    let rows = read_all(format, Coding::Identity, bytes).unwrap();
    let show = |row: ReadRow| match row {
        Ok(row) => line_of(&row),
        Err(rejected) => format!("{}: {}", rejected.line, rejected.reason),
    };
    rows.into_iter().map(show).collect()
}

fn line_of(row: &InputRow) -> String {
    let mut out = BytesMut::new();
    line::write(row, &mut out);
    String::from_utf8(out.trim_ascii().to_vec()).unwrap()
}

fn rows_of(lines: &[u8]) -> Vec<InputRow> {
    let rows = read_all(&RowFormat::Lines, Coding::Identity, lines).unwrap();
    rows.into_iter().map(Result::unwrap).collect()
}

fn written(format: TableFormat, lines: &[u8]) -> Vec<u8> {
    let mut writer = TableWriter::new(format, Coding::Identity, Vec::new(), false).unwrap();
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        writer.write_lines(line).unwrap();
    }
    writer.finish().unwrap()
}

fn named(pk: &str, sk: Option<&str>, value: TableValue) -> Columns {
    Columns::Named(TableColumns {
        pk: pk.to_owned(),
        sk: sk.map(str::to_owned),
        value,
    })
}

const SAMPLE: &str = include_str!("../../../../tests/data/cities-sample.ndjson");

#[test]
fn the_cities_are_the_same_in_every_format_and_coding() {
    let expected = rows_of(SAMPLE.as_bytes());
    assert_eq!(expected.len(), 500);
    let mut files = vec![
        (RowFormat::Lines, SAMPLE.as_bytes().to_vec()),
        (csv(), written(TableFormat::Csv, SAMPLE.as_bytes())),
    ];
    files.push((
        RowFormat::Parquet(Columns::default()),
        written(TableFormat::Parquet, SAMPLE.as_bytes()),
    ));
    for (format, bytes) in files.drain(..) {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        for (coding, coded) in [
            (Coding::Identity, bytes.clone()),
            (Coding::Gzip, gzip.finish().unwrap()),
            (Coding::Zstd, zstd::encode_all(&bytes[..], 1).unwrap()),
        ] {
            let rows = read_all(&format, coding, &coded);
            if matches!(format, RowFormat::Parquet(_)) && coding != Coding::Identity {
                assert!(matches!(rows, Err(RowsError::CodedParquet(found)) if found == coding));
                continue;
            }
            let rows: Vec<InputRow> = rows.unwrap().into_iter().map(Result::unwrap).collect();
            assert!(rows == expected, "{format:?} {coding}");
        }
    }
}

#[test]
fn lines_are_rows_rejects_and_nothing() {
    let text = "\u{feff}{\"pk\":\"a\",\"v\":\"1\"}\r\n\n  \nno\n{\"op\":\"del\",\"pk\":\"a\"}\n\
        {\"pk\":\"b\",\"v\":\"2\",\"if_match\":7}\n{\"pk\":\"c\",\"v\":\"3\",\"ttl\":\"5m\",\"version\":4}\n\
        {\"end\":{\"more\":false,\"why\":\"done\",\"rows\":5,\"bytes\":2}}\n{\"error\":{}}\n{\"pk\":\"d\",\"v64\":\"_w\"}";
    assert_eq!(
        shown(&RowFormat::Lines, text.as_bytes()),
        [
            r#"{"pk":"a","sk":"","v":"1"}"#,
            "4: expected an object, but it looks like text",
            r#"{"op":"del","pk":"a","sk":""}"#,
            "6: a row of a load cannot have a condition",
            r#"{"ttl":300,"pk":"c","sk":"","v":"3"}"#,
            "9: unknown field `error`, expected one of `op`, `pk`, `pk64`, `sk`, `sk64`, `v`, `v64`, `ttl`, `expires_at`, \
             `content_type`, `content_encoding`, `by`, `if_match`, `if_none_match`, `version` at column 8",
            r#"{"pk":"d","sk":"","v64":"_w"}"#,
        ]
    );
}

#[test]
fn a_line_that_is_too_long_is_rejected_and_the_next_one_read() {
    for len in [LINE_LEN_MAX - 9, LINE_LEN_MAX + 1, LINE_LEN_MAX + (3 << 20)] {
        let mut text = vec![b'x'; len];
        text[0] = b'{';
        text.extend_from_slice(b"\n{\"pk\":\"a\",\"v\":\"1\"}\n");
        let rows = read_all(&RowFormat::Lines, Coding::Identity, &text).unwrap();
        let [Err(rejected), Ok(_)] = &rows[..] else {
            panic!("{len}: {}", rows.len());
        };
        assert_eq!((rejected.line, rejected.bytes.len()), (1, 4 << 10), "{len}");
        let says = rejected.reason.to_string();
        assert_eq!(
            says.contains("longer than"),
            len > LINE_LEN_MAX,
            "{len}: {says}"
        );
    }
}

#[test]
fn columns_are_the_fields_of_a_row() {
    let text = b"v,pk,sk,pk64,v64,op,ttl,expires_at,content_type,version\r\n\
        1,a,,,,,,,,\n\
        \"x,\"\"y\n\",b,s,,,put,5m,,text/plain,9\n\
        ,,,AP8,_w,,,1800000000000,,\n\
        ,c,,,,del,,,,\n\
        1,c,,,,del,,,,\n\
        1,,,,,,,,,\n\
        1,d,,AA,,,,,,\n\
        1,d,,,,upsert,,,,\n\
        1,d,,,,,0,,,\n\
        1,d,,,,,,soon,,\n\
        1,d\n\
        \xff,d,,,,,,,,\n\
        2,e,,,,,,,,\n";
    assert_eq!(
        shown(&csv(), text),
        [
            r#"{"pk":"a","sk":"","v":"1"}"#,
            r#"{"ttl":300,"pk":"b","sk":"s","content_type":"text/plain","v":"x,\"y\n"}"#,
            r#"{"pk64":"AP8","sk":"","expires_at":1800000000000,"v64":"_w"}"#,
            r#"{"op":"del","pk":"c","sk":""}"#,
            "7: a 'del' has no value and no expiry",
            "8: a partition key has at least one byte",
            "9: a row has 'pk' or 'pk64', not both",
            "10: column 'op': expected put, del or nothing",
            "11: column 'ttl': expected 1 to 315360000 seconds, as a number or with units (60, 60s, 5m, 30d)",
            "12: column 'expires_at': expected milliseconds since the Unix epoch, 1000000000000 or more (for a \
             number of seconds: times 1000)",
            "13: it has 2 cells, but the header has 10 columns",
            "14: column 'v' is not UTF-8 (write other bytes as base64url, in pk64, sk64 or v64)",
            r#"{"pk":"e","sk":"","v":"2"}"#,
        ]
    );
}

#[test]
fn the_rest_of_the_columns_is_a_json_object() {
    let text =
        "\u{feff}country,city,name,inhabitants\nDE,b/1,Berlin \"\"an der Spree\"\",\nFR,,,3\n";
    let columns = named("country", Some("city"), TableValue::Rest);
    assert_eq!(
        shown(&RowFormat::Csv(columns.into()), text.as_bytes())[1],
        r#"{"pk":"FR","sk":"","v":"{\"name\":\"\",\"inhabitants\":\"3\"}"}"#
    );
    let columns = named("country", None, TableValue::Column("name".to_owned()));
    assert_eq!(
        shown(&RowFormat::Csv(columns.into()), text.as_bytes())[1],
        r#"{"pk":"FR","sk":"","v":""}"#
    );
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let refused = |format: &RowFormat, bytes: &[u8]| {
        let read = read_all(format, Coding::Identity, bytes);
        read.map(|rows| rows.len()).unwrap_err()
    };
    assert!(matches!(refused(&csv(), b""), RowsError::NoHeader));
    assert!(matches!(
        refused(&csv(), b"\xff,v\n"),
        RowsError::HeaderNotText
    ));
    assert!(matches!(
        refused(&csv(), b"a,b\n"),
        RowsError::UnknownColumn { .. }
    ));
    let mut endless = b"pk,v\na,1\nb,\"".to_vec();
    endless.resize(LINE_LEN_MAX + (1 << 20), b'x');
    let error = refused(&csv(), &endless);
    assert!(
        matches!(error, RowsError::RecordTooLong { line: 3 }),
        "{error}"
    );
    for coding in [Coding::Gzip, Coding::Zstd] {
        let error = read_all(&csv(), coding, b"pk,v\na,1\n").unwrap_err();
        assert!(error.is_of_content(), "{coding}: {error}");
    }
}

#[test]
fn a_quote_that_is_not_closed_is_refused_and_swallows_no_row() {
    let unclosed = [
        ("pk,v\na,1\nb,\"2\nc,3\n", 3),
        ("pk,v\na,1\nb,\"2\nc,3", 3),
        ("pk,v\na,1\nb,\"2\n.\n", 3),
        ("pk,v\nb,\"2\"\"", 2),
        ("pk,v\nb,\"", 2),
        ("pk,\"v\n", 1),
    ];
    for (text, begins) in unclosed {
        let error = read_all(&csv(), Coding::Identity, text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, RowsError::UnclosedQuote { line } if line == begins),
            "{text:?}: {error}"
        );
        assert!(error.is_of_content(), "{text:?}: {error}");
    }
}

#[test]
fn lines_of_csv_are_counted_whatever_ends_them() {
    // Records of one cell, each as its line says where it begins.
    let lines = [
        "pk,v",
        "2",
        "3",
        "",
        "5",
        "\"6\n\n\"",
        "9",
        "\"10\n\"",
        "",
        "13",
    ];
    for ends in [&["\n"][..], &["\r\n"], &["\n", "\r\n"], &["\r\n", "\n"]] {
        let ended = lines.iter().zip(ends.iter().cycle());
        let text: String = ended.flat_map(|(line, end)| [*line, *end]).collect();
        let rows = read_all(&csv(), Coding::Identity, text.as_bytes()).unwrap();
        let found: Vec<u64> = rows.into_iter().map(|row| row.unwrap_err().line).collect();
        assert_eq!(found, [2, 3, 5, 6, 9, 10, 13], "{text:?}");
        let unclosed = format!("{text}a,1{}b,\"", ends[0]);
        let error = read_all(&csv(), Coding::Identity, unclosed.as_bytes()).unwrap_err();
        assert!(
            matches!(error, RowsError::UnclosedQuote { line: 15 }),
            "{unclosed:?}: {error}"
        );
    }
}

#[test]
fn the_end_of_csv_is_where_its_bytes_end() {
    let row = r#"{"pk":"a","sk":"","v":"1"}"#;
    for text in [
        "pk,v\na,1",
        "pk,v\na,1\n",
        "pk,v\r\na,1\r\n",
        "pk,v\na,1\n\n\r\n",
        "pk,v\na,\"1\"",
        "pk,v\na,1\r",
    ] {
        assert_eq!(shown(&csv(), text.as_bytes()), [row], "{text:?}");
    }
    for text in ["pk,v", "pk,v\n", "pk,v\r\n\r\n"] {
        assert!(shown(&csv(), text.as_bytes()).is_empty(), "{text:?}");
    }
    // What the reader puts behind the last record may be a record of the file too.
    for text in ["pk\n.\n", "pk\n."] {
        let rows = shown(
            &RowFormat::Csv(named("pk", None, TableValue::Rest).into()),
            text.as_bytes(),
        );
        assert_eq!(rows.len(), 1, "{rows:?}");
    }
    let ragged = shown(&csv(), b"pk,v\n.\n.\n");
    assert_eq!(ragged.len(), 2, "{ragged:?}");
}

#[test]
fn nothing_follows_an_error() {
    // Lines of several blocks, of which the last is cut off.
    let lines = SAMPLE.repeat(40);
    let zstd = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    let source = Box::new(Cursor::new(zstd[..zstd.len() - 9].to_vec()));
    let rows = RowReader::stream(&RowFormat::Lines, Coding::Zstd, source).unwrap();
    let rows: Vec<_> = rows.collect();
    let errors = rows.iter().filter(|row| row.is_err()).count();
    assert!(errors == 1 && rows.len() > 500 && rows.last().unwrap().is_err());
}

fn any_row() -> impl Strategy<Value = InputRow> {
    let text = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..9),
            "[\\PC\"\\\\\n\r,]{1,9}".prop_map(String::into_bytes),
        ]
    };
    let expiry = prop::option::of(1_600_000_000_000_u64..1_900_000_000_000);
    let rest = (
        prop::option::of(text()),
        prop::option::of("[a-z/]{1,9}"),
        expiry,
    );
    (text(), text(), rest).prop_map(|(pk, v, (sk, content_type, expires_at))| InputRow {
        key: Key::new(pk, sk.unwrap_or_default()).unwrap(),
        change: InputChange::Put {
            value: Value::new(v, content_type.unwrap_or_default(), "").unwrap(),
            expiry: expires_at.map(|at| Expiry::At(Timestamp::from_millis(at))),
        },
        version: None,
    })
}

fn lines_of(rows: &[InputRow]) -> Bytes {
    let mut lines = BytesMut::new();
    for row in rows {
        line::write(row, &mut lines);
    }
    lines.freeze()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_reads_back(rows in prop::collection::vec(any_row(), 0..12)) {
        let lines = lines_of(&rows);
        prop_assert_eq!(&rows_of(&lines), &rows);
        let text = written(TableFormat::Csv, &lines);
        let read: Result<Vec<_>, _> =
            read_all(&csv(), Coding::Identity, &text).unwrap().into_iter().collect();
        prop_assert_eq!(read.as_ref(), Ok(&rows));
        {
            let file = written(TableFormat::Parquet, &lines);
            let read = read_all(&RowFormat::Parquet(Columns::default()), Coding::Identity, &file);
            let read: Result<Vec<_>, _> = read.unwrap().into_iter().collect();
            prop_assert_eq!(read.as_ref(), Ok(&rows));
        }
    }

    #[test]
    fn any_bytes_are_rows_rejects_or_an_error(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[{}\"pkv:,ab\n\r]{0,99}".prop_map(String::into_bytes),
            "pk,v\n[\"ab,\n\r]{0,99}".prop_map(String::into_bytes),
        ],
        coding in prop_oneof![Just(Coding::Identity), Just(Coding::Gzip), Just(Coding::Zstd)],
    ) {
        for format in [RowFormat::Lines, csv(), RowFormat::Csv(named("pk", None, TableValue::Rest).into())] {
            let _ = read_all(&format, coding, &bytes);
        }
    }

    #[test]
    fn damaged_files_are_rows_rejects_or_an_error(at in 0_usize..40_000, byte: u8, cut in prop::option::of(0_usize..40_000)) {
        let text = written(TableFormat::Csv, SAMPLE.as_bytes());
        let files = [
            (RowFormat::Lines, Coding::Zstd, zstd::encode_all(SAMPLE.as_bytes(), 1).unwrap()),
            (csv(), Coding::Identity, text),
            (
                RowFormat::Parquet(Columns::default()), Coding::Identity,
                written(TableFormat::Parquet, SAMPLE.as_bytes()),
            ),
            (
                RowFormat::Parquet(named("id", None, TableValue::Column("places".to_owned()))),
                Coding::Identity, parquet::PYARROW.to_vec(),
            ),
        ];
        for (format, coding, mut bytes) in files {
            let at = at % bytes.len();
            bytes[at] ^= byte;
            if let Some(cut) = cut {
                bytes.truncate(cut % bytes.len());
            }
            let _ = read_all(&format, coding, &bytes);
        }
    }
}
