//! The floor of a range: an axum handler that walks a redb table and writes each row as Umbo
//! would, byte for byte, without looking at the bytes: it knows that nothing must be escaped.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::dataset::{self, PARTITION_ROWS};
use crate::failure::Failure;

/// Partition key, a NUL, sort key → version as text, a NUL, value.
const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
/// Version of every row, as long as a real one.
const VERSION: &str = "1789000000000000";
/// Rows of one commit while the file is filled.
const COMMIT_ROWS: u64 = 100_000;

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Opens the file, fills it where it is new, and returns the router.
pub(super) fn router(file: &FilePath, rows: u64) -> Result<Router, Failure> {
    let is_new = !file.exists();
    let database = Database::create(file).map_err(Failure::redb)?;
    if is_new {
        fill(&database, rows)?;
    }
    let reading = database.begin_read().map_err(Failure::redb)?;
    let table: Rows = reading.open_table(ROWS).map_err(Failure::redb)?;
    let state = Arc::new((database, table));
    Ok(Router::new()
        .route("/v1/ns/{namespace}/range/{partition}", get(answer))
        .with_state(state))
}

fn fill(database: &Database, rows: u64) -> Result<(), Failure> {
    for first in (0..rows).step_by(COMMIT_ROWS as usize) {
        let transaction = database.begin_write().map_err(Failure::redb)?;
        {
            let mut table = transaction.open_table(ROWS).map_err(Failure::redb)?;
            for row in first..(first + COMMIT_ROWS).min(rows) {
                let key = format!("{}\0{}", dataset::partition(row), dataset::sort(row));
                let value = format!("{VERSION}\0{}", dataset::value(row));
                table
                    .insert(key.as_bytes(), value.as_bytes())
                    .map_err(Failure::redb)?;
            }
        }
        transaction.commit().map_err(Failure::redb)?;
    }
    Ok(())
}

async fn answer(
    State(state): State<Arc<(Database, Rows)>>,
    Path((_namespace, partition)): Path<(String, String)>,
) -> Response {
    match page(&state.1, &partition) {
        Ok(text) => ([("content-type", "application/x-ndjson")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn page(rows: &Rows, partition: &str) -> Result<Vec<u8>, redb::Error> {
    let first = format!("{partition}\0");
    let beyond = format!("{partition}\u{1}");
    let mut text = Vec::with_capacity(36 << 10);
    let (mut count, mut bytes) = (0, 0);
    for entry in rows.range::<&[u8]>(first.as_bytes()..beyond.as_bytes())? {
        let (key, row) = entry?;
        let sort = &key.value()[first.len()..];
        let (version, value) = row.value().split_at(VERSION.len());
        let value = &value[1..];
        text.extend_from_slice(b"{\"sk\":\"");
        text.extend_from_slice(sort);
        text.extend_from_slice(b"\",\"version\":");
        text.extend_from_slice(version);
        text.extend_from_slice(b",\"v\":\"");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\"}\n");
        count += 1;
        bytes += sort.len() + value.len();
        if count == PARTITION_ROWS {
            break;
        }
    }
    let end = format!(
        "{{\"end\":{{\"more\":false,\"why\":\"done\",\"rows\":{count},\"bytes\":{bytes}}}}}\n"
    );
    text.extend_from_slice(end.as_bytes());
    Ok(text)
}
