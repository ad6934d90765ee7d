//! Parquet of others: types that keys and values can be, and those that are refused by name.

use std::sync::Arc;

use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
    Int32Type, Int64Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use umbo_api::columns::TableValue;
use umbo_rows::{Coding, Columns, RowFormat, RowReader, RowsError};

use super::{named, read_all, shown};

/// A column: its values, and whether each row has one.
enum Column {
    Bytes(Vec<&'static [u8]>),
    Fixed(Vec<&'static [u8]>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Bool(Vec<bool>),
    /// Some rows have none.
    Optional(Vec<Option<&'static [u8]>>),
}

fn file(schema: &str, columns: Vec<Column>) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in columns {
        let mut out = group.next_column().unwrap().unwrap();
        match column {
            Column::Bytes(values) => {
                let values: Vec<ByteArray> = values.into_iter().map(ByteArray::from).collect();
                out.typed::<ByteArrayType>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Fixed(values) => {
                let values = values
                    .into_iter()
                    .map(|value| FixedLenByteArray::from(value.to_vec()));
                let values: Vec<_> = values.collect();
                out.typed::<FixedLenByteArrayType>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Int32(values) => {
                out.typed::<Int32Type>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Int64(values) => {
                out.typed::<Int64Type>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Double(values) => {
                out.typed::<DoubleType>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Bool(values) => {
                out.typed::<BoolType>()
                    .write_batch(&values, None, None)
                    .unwrap();
            }
            Column::Optional(values) => {
                let levels: Vec<i16> = values
                    .iter()
                    .map(|value| i16::from(value.is_some()))
                    .collect();
                let values: Vec<ByteArray> =
                    values.into_iter().flatten().map(ByteArray::from).collect();
                out.typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)
                    .unwrap();
            }
        }
        out.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn format(columns: Columns) -> RowFormat {
    RowFormat::Parquet(columns)
}

#[test]
fn keys_and_values_of_each_type_are_text_or_bytes() {
    let bytes = file(
        "message m {
            required int32 id (INTEGER(32, false));
            required int64 at (TIMESTAMP(MILLIS, true));
            required binary name (UTF8);
            required binary raw;
            required double share;
            required boolean open;
            required int32 day (DATE);
            required fixed_len_byte_array(16) uuid (UUID);
            required int64 number;
        }",
        vec![
            Column::Int32(vec![7, -1]),
            Column::Int64(vec![0, 1_700_000_000_001]),
            Column::Bytes(vec!["é".as_bytes(), b"\"b\""]),
            Column::Bytes(vec![b"\xff", b""]),
            Column::Double(vec![0.5, f64::INFINITY]),
            Column::Bool(vec![true, false]),
            Column::Int32(vec![0, 20_780]),
            Column::Fixed(vec![&[0; 16], &[0xab; 16]]),
            Column::Int64(vec![i64::MIN, 1]),
        ],
    );
    let rest = format(named("id", Some("at"), TableValue::Rest));
    assert_eq!(
        shown(&rest, &bytes),
        [
            r#"{"pk":"7","sk":"1970-01-01T00:00:00.000Z","v":"{\"name\":\"é\",\"raw\":\"_w\",\"share\":0.5,\"open\":true,\"day\":\"1970-01-01\",\"uuid\":\"00000000-0000-0000-0000-000000000000\",\"number\":-9223372036854775808}"}"#,
            r#"{"pk":"4294967295","sk":"2023-11-14T22:13:20.001Z","v":"{\"name\":\"\\\"b\\\"\",\"raw\":\"\",\"share\":\"inf\",\"open\":false,\"day\":\"2026-11-23\",\"uuid\":\"abababab-abab-abab-abab-abababababab\",\"number\":1}"}"#,
        ]
    );
    let column = format(named("name", None, TableValue::Column("raw".to_owned())));
    assert_eq!(
        shown(&column, &bytes)[0],
        r#"{"pk":"é","sk":"","v64":"_w"}"#
    );
    for key in ["share", "open"] {
        let columns = named(key, None, TableValue::Column("raw".to_owned()));
        let error = read_all(&format(columns), Coding::Identity, &bytes).unwrap_err();
        assert!(
            matches!(&error, RowsError::UnsupportedType { column, .. } if column == key),
            "{error}"
        );
    }
}

#[test]
fn rows_without_a_key_or_value_are_rejected_by_their_number() {
    let bytes = file(
        "message m { optional binary pk (UTF8); optional binary v; }",
        vec![
            Column::Optional(vec![Some(b"a"), None, Some(b"c"), Some(b"\xff")]),
            Column::Optional(vec![Some(b"1"), Some(b"2"), None, Some(b"4")]),
        ],
    );
    assert_eq!(
        shown(&format(Columns::default()), &bytes),
        [
            r#"{"pk":"a","sk":"","v":"1"}"#,
            "2: a row needs 'pk' or 'pk64'",
            "3: a row needs 'v' or 'v64'",
            "4: column 'pk' is not UTF-8 (write other bytes as base64url, in pk64, sk64 or v64)",
        ]
    );
}

/// Written by pyarrow 26 with brotli, deprecated INT96 time stamps and row groups of two rows.
pub(crate) const PYARROW: &[u8] = include_bytes!("../data/pyarrow.parquet");

#[test]
fn nested_columns_are_json_and_decimals_are_digits() {
    let column = |name: &str| {
        let column = TableValue::Column(name.to_owned());
        shown(&format(named("id", None, column)), PYARROW)
    };
    let value = |id: u8, value: &str| {
        let value = serde_json::to_string(value).unwrap();
        format!(r#"{{"pk":"{id}","sk":"","v":{value}}}"#)
    };
    let none = "3: a row needs 'v' or 'v64'".to_owned();
    for (name, first, second, third) in [
        ("price", "12.50", "-0.05", None),
        (
            "big",
            "12345678901234567890123456789012345678",
            "-1",
            Some("0"),
        ),
        (
            "seen",
            "2026-11-23T01:02:03.456789000Z",
            "1969-12-31T23:59:59.000000000Z",
            None,
        ),
        ("tags", r#"["a","b\""]"#, "[]", None),
        (
            "places",
            r#"[{"x":1,"y":[1,2]},{"x":null,"y":[]}]"#,
            "[null]",
            Some("[]"),
        ),
        (
            "person",
            r#"{"name":"é","raw":"_w"}"#,
            r#"{"name":null,"raw":""}"#,
            None,
        ),
        ("counts", r#"{"k":1,"l":null}"#, "{}", None),
    ] {
        let third = third.map_or_else(|| none.clone(), |third| value(3, third));
        let expected = [value(1, first), value(2, second), third];
        assert_eq!(column(name), expected, "{name}");
    }
    let chosen = TableValue::Columns(vec!["tags".to_owned(), "price".to_owned(), "id".to_owned()]);
    assert_eq!(
        shown(&format(named("id", None, chosen)), PYARROW)[1],
        value(2, r#"{"tags":[],"price":-0.05,"id":2}"#)
    );
    let by_price = named("price", None, TableValue::Column("id".to_owned()));
    assert_eq!(
        shown(&format(by_price), PYARROW)[0],
        r#"{"pk":"12.50","sk":"","v":"1"}"#
    );
}

#[test]
fn unsupported_types_are_named_where_their_column_is_read() {
    let schema = "message m {
        required binary pk (UTF8);
        required binary v;
        required fixed_len_byte_array(12) clock (INTERVAL);
        repeated int32 tags;
        required group place { required int32 x; required fixed_len_byte_array(12) y (INTERVAL); }
        required int64 late;
    }";
    let bytes = file(
        schema,
        vec![
            Column::Bytes(vec![]),
            Column::Bytes(vec![]),
            Column::Fixed(vec![]),
            Column::Int32(vec![]),
            Column::Int32(vec![]),
            Column::Fixed(vec![]),
            Column::Int64(vec![]),
        ],
    );
    let read = |pk: &str, value: TableValue| {
        let read = read_all(&format(named(pk, None, value)), Coding::Identity, &bytes);
        read.map(|rows| rows.len())
            .map_err(|error| error.to_string())
    };
    let column = |name: &str| TableValue::Column(name.to_owned());
    assert_eq!(read("pk", column("v")), Ok(0));
    assert_eq!(read("late", column("v")), Ok(0));
    assert_eq!(read("pk", column("tags")), Ok(0));
    assert!(read("tags", column("v")).unwrap_err().contains("a key"));
    for (value, says) in [
        (column("clock"), "column 'clock' has the type INTERVAL"),
        (column("place"), "column 'y' has the type INTERVAL"),
        (TableValue::Rest, "column 'clock'"),
        (
            column("none"),
            "no column 'none'; its columns are 'pk', 'v', 'clock', 'tags', 'place', 'late'",
        ),
    ] {
        let error = read("pk", value).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn files_that_are_not_parquet_are_refused() {
    let whole = file(
        "message m { required binary pk; required binary v; }",
        vec![Column::Bytes(vec![b"a"]), Column::Bytes(vec![b"1"])],
    );
    let mut long_footer = whole.clone();
    let at = long_footer.len() - 8;
    long_footer[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    for bytes in [
        &b""[..],
        b"PAR1",
        b"{\"pk\":\"a\"}\n{\"pk\":\"b\"}",
        &whole[..whole.len() - 1],
        &long_footer,
    ] {
        let error = read_all(&format(Columns::default()), Coding::Identity, bytes).unwrap_err();
        assert!(matches!(error, RowsError::Parquet(_)), "{error}");
    }
    let stream = RowReader::stream(
        &format(Columns::default()),
        Coding::Identity,
        Box::new(std::io::Cursor::new(whole)),
    );
    assert!(matches!(stream.unwrap_err(), RowsError::NeedsSeek));
}

#[test]
fn a_page_that_says_it_is_huge_is_refused_before_memory_is_taken() {
    let bytes = file(
        "message m { required binary pk; required binary v; }",
        vec![Column::Bytes(vec![b"a"]), Column::Bytes(vec![b"1"])],
    );
    // The first header of a page follows the magic: its type, then its length decompressed.
    assert_eq!(
        (&bytes[..4], bytes[4], bytes[6]),
        (&b"PAR1"[..], 0x15, 0x15)
    );
    let len = bytes[7];
    assert!(len < 0x80, "a length of one byte");
    let mut huge = bytes.clone();
    // A length of another number of bytes would move the rest: an unusual header is refused as well.
    huge[6] = 0x16;
    let error = read_all(&format(Columns::default()), Coding::Identity, &huge).unwrap_err();
    assert!(
        error.to_string().contains("a page has no header"),
        "{error}"
    );
    // A negative length, in zigzag.
    let mut negative = bytes;
    negative[7] |= 1;
    let error = read_all(&format(Columns::default()), Coding::Identity, &negative).unwrap_err();
    assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
}
