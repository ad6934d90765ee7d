//! `umbo kv get`: the bytes of a row on stdout, unchanged except for a line end on a terminal; with `-o
//! json`, the row with its version, expiry and content type. With `--file`, the bytes go to a file as they come.

use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use umbo_api::batch::KeyFields;
use umbo_api::hot::text_or_base64;
use umbo_api::row::JsonRow;
use umbo_client::ValueStream;

use super::argument::RowKey;
use super::file_name::{check_new, with_suffix};
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format};

/// Arguments of `umbo kv get`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    key: RowKey,
    /// File for the value, of any length; it appears once it is complete
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "file")]
    overwrite: bool,
}

impl Arguments {
    /// Prints the value.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        if let Some(file) = &self.file {
            return self.save(connection, file).await;
        }
        let (partition, sort) = (&*self.key.pk.0, self.key.sort());
        let value = connection
            .client()?
            .get(self.key.ns.as_str(), partition, sort)
            .await?
            .ok_or(CliError::RowNotFound)?;
        if connection.listing_format() == Format::Table {
            output::write_bytes(&value.bytes)?;
            if std::io::stdout().is_terminal() && lacks_line_end(&value.bytes) {
                output::write_bytes(b"\n")?;
            }
            return Ok(());
        }
        let key = KeyFields::of(partition, sort);
        let (v, v64) = text_or_base64(&value.bytes);
        output::write_json(&JsonRow {
            pk: key.pk,
            pk64: key.pk64,
            sk: key.sk,
            sk64: key.sk64,
            version: Some(value.version),
            expires_at: value.expires_at,
            content_type: value.content_type,
            content_encoding: value.content_encoding,
            v,
            v64,
            ..JsonRow::default()
        })
    }

    /// Writes the value to a file. An incomplete value is in `FILE.part`, which a failure removes.
    async fn save(&self, connection: &ConnectionArgs, path: &Path) -> Result<(), CliError> {
        check_new(path, self.overwrite)?;
        let (partition, sort) = (&*self.key.pk.0, self.key.sort());
        let client = connection.client()?;
        let value = client.get_stream(self.key.ns.as_str(), partition, sort);
        let value = value.await?.ok_or(CliError::RowNotFound)?;
        let part = with_suffix(path, ".part");
        let saved = write_all(value, &part, path).await;
        if saved.is_err() {
            // The error of the value says more than an error of the removal.
            let _ = fs::remove_file(&part);
        }
        saved
    }
}

async fn write_all(mut value: ValueStream, part: &Path, path: &Path) -> Result<(), CliError> {
    let failed = CliError::file("write", path);
    let mut file = File::create(part).map_err(&failed)?;
    while let Some(piece) = value.next().await? {
        file.write_all(&piece).map_err(&failed)?;
    }
    file.sync_all().map_err(&failed)?;
    fs::rename(part, path).map_err(&failed)
}

/// Returns whether a prompt that follows would stand on the last line of the value.
fn lacks_line_end(value: &[u8]) -> bool {
    value.last().is_some_and(|&byte| byte != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_was_begun_is_ended() {
        assert!(lacks_line_end(b"Ada") && lacks_line_end(b"a\nb"));
        assert!(!lacks_line_end(b"Ada\n") && !lacks_line_end(b""));
    }
}
