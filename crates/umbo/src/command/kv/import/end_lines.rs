//! The lines that end a stream of rows.

pub(in crate::command) use umbo_rows::{EndCheck, StreamPart};
