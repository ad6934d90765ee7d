//! Rows in files: NDJSON, CSV and Parquet, plain or compressed, read and written in constant memory.
//!
//! Owns the meaning of a line, a record or a column for a row, and the texts of their errors. Deliberately knows
//! no store, no HTTP and no clock: a time to live stays one until the row is stored.
//!
//! The invariant: every row of a file is read, rejected with its line and reason, or named in the error that ends
//! the file. No input panics.
//!
//! Start with [`RowReader`].

mod csv_rows;
mod cut;
mod dialect;
mod end_lines;
mod error;
mod export_columns;
mod format;
pub mod line;
mod line_error;
mod lines;
mod parquet_nested;
mod parquet_pages;
mod parquet_rows;
mod parquet_type;
mod parquet_writer;
mod reader;
mod records;
mod row;
mod scan;
pub mod source;
mod table;
mod text_lines;
mod writer;

pub use cut::PartCutter;
pub use dialect::{Dialect, DialectError};
pub use end_lines::{EndCheck, StreamPart};
pub use error::RowsError;
pub use format::{Coding, Columns, Csv, FormatError, MEDIA_TYPES, RowFormat};
pub use line::{LineChange, ParsedLine};
pub use line_error::LineError;
pub use lines::RawLines;
pub use reader::RowReader;
pub use row::{
    EXCERPT_LEN_MAX, Expiry, InputChange, InputRow, LINE_LEN_MAX, ReadRow, RejectReason,
    RejectedRow,
};
pub use source::ReadSeek;
pub use writer::{TableFormat, TableWriter};
