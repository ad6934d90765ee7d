//! What commands print on stdout. A reader that goes away (`| head`) ends the program quietly:
//! every write goes through here, and a broken pipe is a [`Failure`] without words.

use std::io::Write as _;

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// Form of what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people and awk: one header line, fields apart by two or more spaces
    Table,
    /// One JSON document
    Json,
    /// One JSON object a line
    Ndjson,
}

/// Writes bytes as they are.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(Failure::from_output)
}

/// Writes one JSON document and a newline.
pub(crate) fn write_json(document: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(document).map_err(|error| Failure::Output(error.into()))?;
    line.push(b'\n');
    write_bytes(&line)
}
