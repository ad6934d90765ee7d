//! Forty files as people have them: each is read right, or refused with the reason; nothing is altered, and nothing is
//! dropped without a count. The same bytes go through the reader of an import and of a part of a load, and through the
//! cutter of a push, whose parts hold the same rows.

use std::io::Cursor;

use umbo_api::columns::TableValue;
use umbo_rows::{Columns, PartCutter, RowFormat, RowReader, RowsError};

use super::{named, shown};

/// What becomes of a file: its rows and rejects, or why it is refused.
fn outcome(format: &RowFormat, bytes: &[u8]) -> Result<Vec<String>, RowsError> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let rows = RowReader::decoded(format, source)?.collect::<Result<Vec<_>, _>>()?;
    assert!(rows.iter().flatten().count() <= rows.len());
    Ok(shown(format, bytes))
}

/// Rows of all parts that a push makes of a file, each short.
fn pushed(format: &RowFormat, bytes: &[u8]) -> Result<Vec<String>, RowsError> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let mut cutter = PartCutter::new(format, source)?;
    let mut rows = Vec::new();
    while let Some(part) = cutter.next_part(1)? {
        rows.extend(outcome(format, &part)?);
    }
    Ok(rows)
}

/// The bytes of a file, and its rows and rejects or why it is refused.
type Case<'a> = (&'a [u8], Result<&'a [&'a str], &'a str>);

/// Says what is left of a row or reject when its line is taken away, which differs in a part.
fn without_line(row: &str) -> &str {
    row.split_once(": ")
        .filter(|(line, _)| line.parse::<u64>().is_ok())
        .map_or(row, |(_, reason)| reason)
}

#[track_caller]
fn check(media_type: &str, columns: &Columns, bytes: &[u8], expected: Result<&[&str], &str>) {
    let format = RowFormat::from_content_type(media_type, columns).unwrap();
    let text = String::from_utf8_lossy(bytes);
    match (outcome(&format, bytes), expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(found.len(), expected.len(), "{text:?}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    found.starts_with(expected),
                    "{text:?}: {found} is not {expected}"
                );
            }
            let cut = pushed(&format, bytes).unwrap();
            let reasons = |rows: &[String]| {
                rows.iter()
                    .map(|row| without_line(row).to_owned())
                    .collect::<Vec<_>>()
            };
            assert_eq!(reasons(&cut), reasons(&found), "{text:?}");
        }
        // A push looks at the first line of its file; in a part it may be one of many.
        (Ok(found), Err(says)) => {
            assert!(
                found.iter().all(|row| row.contains("it looks like")),
                "{text:?}: {found:?}"
            );
            let error = pushed(&format, bytes).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        (Err(error), Err(says)) => {
            assert!(
                error.to_string().contains(says) && error.is_of_content(),
                "{text:?}: {error}"
            );
            // A push meets it before or after the file is cut.
            assert!(pushed(&format, bytes).is_err(), "{text:?}");
        }
        (found, _) => panic!("{text:?}: {found:?}"),
    }
}

const A: &str = r#"{"pk":"a","sk":"","v":"1"}"#;
const B: &str = r#"{"pk":"b","sk":"","v":"2"}"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn ugly_csv_is_read_right_or_refused() {
    let columns = Columns::default();
    let cases: [Case<'_>; 27] = [
        (b"\xef\xbb\xbfpk,v\na,1\n", Ok(&[A])),
        (b"pk,v\r\na,1\r\nb,2\r\n", Ok(&[A, B])),
        (b"pk,v\ra,1\rb,2", Ok(&[A, B])),
        (b"pk,v\na,1\r\nb,2\n", Ok(&[A, B])),
        (b"\n\npk,v\n\n\na,1\n\r\nb,2\n\n", Ok(&[A, B])),
        (b"pk,v\na,1\nb,2", Ok(&[A, B])),
        (b"\"pk\",\"v\"\n\"a\",\"1\"\n", Ok(&[A])),
        (
            b"pk,v\na,\"x\ny\"\nb,2\n",
            Ok(&[r#"{"pk":"a","sk":"","v":"x\ny"}"#, B]),
        ),
        (
            b"pk,v\na,\"x\r\ny\"\nb,2\n",
            Ok(&[r#"{"pk":"a","sk":"","v":"x\r\ny"}"#, B]),
        ),
        (
            b"pk,v\na,\"say \"\"x\"\"\"\nb,2\n",
            Ok(&[r#"{"pk":"a","sk":"","v":"say \"x\""}"#, B]),
        ),
        (b"pk,v\na,\"\"\n", Ok(&[r#"{"pk":"a","sk":"","v":""}"#])),
        (
            b"pk,v\na,\"ab\"cd\nb,2\n",
            Ok(&[
                "2: cell 2 is not CSV: something follows its closing quote",
                B,
            ]),
        ),
        (
            b"pk,v\na,\"1\" \nb,2\n",
            Ok(&["2: cell 2 is not CSV: something follows", B]),
        ),
        (
            b"pk,v\na,5\" disk\nb,2\n",
            Ok(&["2: cell 2 is not CSV: it has a quote within", B]),
        ),
        (
            b"pk,v\na, \"1\"\nb,2\n",
            Ok(&["2: cell 2 is not CSV: it has a quote within", B]),
        ),
        (
            b"pk,v\na,x\ry\nb,2\n",
            Ok(&["2: cell 2 is not CSV: it has a line end outside", B]),
        ),
        (
            b"pk,v\na,1,2\nb\nb,2\n",
            Ok(&["2: it has 3 cells", "3: it has 1 cell,", B]),
        ),
        (
            b"pk,v\ncaf\xe9,1\nb,2\n",
            Ok(&["2: column 'pk' is not UTF-8", B]),
        ),
        (
            b"pk,v\n,1\nb,2\n",
            Ok(&["2: a partition key has at least one byte", B]),
        ),
        (
            b"pk,v\na,1\nb,\"2\nc,3\n",
            Err("begins in line 3 is not closed"),
        ),
        (b"", Err("it is empty")),
        (b"\xff\xfep\0k\0,\0v\0", Err("UTF-16")),
        (b"p\0k\0,\0v\0\n\0", Err("UTF-16")),
        (b"pk;v\na;1\n", Err("divided by semicolons")),
        (b"pk\tv\na\t1\n", Err("divided by tabs")),
        (
            b"PK,V\na,1\n",
            Err("write 'pk', without spaces and in small letters"),
        ),
        (
            b"pk,v\"x\na,1\n",
            Err("its first line names no columns: cell 2 is not CSV"),
        ),
    ];
    for (bytes, expected) in cases {
        if let Err(says) = expected
            && (says.contains("divided") || says.contains("small") || says.contains("first line"))
        {
            // The header is read where its rows are.
            let error = outcome(&RowFormat::Csv(columns.clone().into()), bytes).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            continue;
        }
        check("text/csv", &columns, bytes, expected);
    }
}

#[test]
fn csv_of_other_dialects_is_read_where_it_is_said() {
    let columns = Columns::default();
    let rest = named("pk", None, TableValue::Rest);
    check(
        "text/csv; delimiter=\";\"",
        &columns,
        b"pk;v\na;\"1\"\n",
        Ok(&[A]),
    );
    check(
        "text/csv; delimiter=tab",
        &columns,
        b"pk\tv\na\t1\n",
        Ok(&[A]),
    );
    check(
        "text/csv; delimiter=\"|\"; charset=utf-8",
        &columns,
        b"pk|v\na|1\n",
        Ok(&[A]),
    );
    check(
        "text/csv; columns=\"pk,v\"",
        &columns,
        b"a,1\nb,2\n",
        Ok(&[A, B]),
    );
    check(
        "text/csv; null=NULL",
        &rest,
        b"pk,x,y,z\na,NULL,\"NULL\",null\n",
        Ok(&[r#"{"pk":"a","sk":"","v":"{\"x\":null,\"y\":\"NULL\",\"z\":\"null\"}"}"#]),
    );
}

#[test]
fn ugly_ndjson_is_read_right_or_refused() {
    let columns = Columns::default();
    let exported = b"{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n{\"end\":{\"more\":false,\"why\":\"done\",\"rows\":1,\"bytes\":2}}\n";
    let cases: [Case<'_>; 14] = [
        (exported, Ok(&[A])),
        (&exported.repeat(2), Ok(&[A, A])),
        (
            b"\xef\xbb\xbf{\"pk\":\"a\",\"v\":\"1\"}\r\n\r\n{\"pk\":\"b\",\"v\":\"2\"}",
            Ok(&[A, B]),
        ),
        (
            b"{\"end\":\"2026-01-01\",\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"b\",\"v\":\"2\"}\n",
            Ok(&["1: unknown field `end`", B]),
        ),
        (
            b"{\"pk\":\"b\",\"v\":\"2\"}\nnull\n",
            Ok(&[B, "2: expected an object"]),
        ),
        (
            b"{\"pk\":\"a\",\"v\":{\"x\":1}}\n{\"pk\":\"a\",\"v\":5}\n",
            Ok(&[
                "1: 'v' is an object, expected text",
                "2: 'v' is a number, expected text",
            ]),
        ),
        (
            b"{\"pk\":\"a\",\"v\":\"1\"}{\"pk\":\"b\",\"v\":\"2\"}\n",
            Ok(&["1: something follows the object"]),
        ),
        (
            b"{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n",
            Err("there is no end line after its last row"),
        ),
        (
            b"{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n{\"end\":{\"rows\":2}}\n",
            Err("counts 2 rows, and 1 precede it"),
        ),
        (
            b"{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n{\"end\":{\"rows\":1,\"more\":true}}\n",
            Err("more rows follow"),
        ),
        (
            b"[{\"pk\":\"a\",\"v\":\"1\"}]\n",
            Err("a JSON array; convert it with"),
        ),
        (
            b"pk,v\na,1\n",
            Err("line 1 is not a JSON object: 'pk,v'. It looks like CSV"),
        ),
        (b"pk;v\na;1\n", Err("CSV with semicolons or tabs")),
        (b"{\0\"\0p\0k\0", Err("UTF-16")),
    ];
    for (bytes, expected) in cases {
        check("application/x-ndjson", &columns, bytes, expected);
    }
}
