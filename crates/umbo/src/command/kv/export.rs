//! `umbo kv export`: all rows of a namespace as NDJSON for import, in constant memory.
//!
//! Segments are scanned in parallel; one thread compresses and writes. A file appears under its name only
//! when it is complete; after a failure there is none.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use umbo_client::{RowReader, ScanOptions};
use umbo_types::Namespace;

use super::argument::namespace;
use super::import::progress::bar;
use crate::cli_error::CliError;
use crate::connection::Connection;
use crate::output::{self, Format, counted};

const HELP: &str = "\
With -o json or -o ndjson the summary is a JSON object, on stdout, or on stderr if the rows are on
stdout.";

/// Arguments of `umbo kv export`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Namespace
    #[arg(value_parser = namespace)]
    ns: Namespace,
    /// File to write; stdout where not given
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Segments of the namespace that are read in parallel
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    segments: u32,
    /// Compression; where not given, by the extension of the file (.gz, .zst)
    #[arg(long, value_enum)]
    compress: Option<Compression>,
}

/// How to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compression {
    /// gzip
    Gzip,
    /// zstd
    Zstd,
}

impl Arguments {
    /// Exports.
    pub(super) async fn run(self, connection: &Connection) -> Result<(), CliError> {
        let started = Instant::now();
        let client = connection.bulk_client()?;
        let (blocks, receiver) = mpsc::channel(2 * self.segments as usize);
        let mut segments = JoinSet::new();
        for segment in 0..self.segments {
            let options = ScanOptions {
                segment: Some((segment, self.segments)),
                ..ScanOptions::default()
            };
            let reader = client.scan(self.ns.as_str(), options);
            segments.spawn(read(reader, blocks.clone()));
        }
        drop(blocks);
        let part = self.file.as_deref().map(part_path);
        let written = start_writer(part.clone(), self.compression(), receiver)?;
        let result = finish(segments, written).await;
        let (rows, bytes) = match (result, part.zip(self.file.as_ref())) {
            (Ok(counts), Some((part, file))) => {
                std::fs::rename(&part, file).map_err(|error| write_failure(file, error))?;
                counts
            }
            (Ok(counts), None) => counts,
            (Err(failure), Some((part, _))) => {
                // A partial file is worse than none. If the file was never made, there is nothing to remove.
                let _ = std::fs::remove_file(part);
                return Err(failure);
            }
            (Err(failure), None) => return Err(failure),
        };
        let summary = ExportSummary {
            rows,
            bytes,
            seconds: started.elapsed().as_secs_f64(),
        };
        summary.report(connection.listing_format(), self.file.is_none())
    }

    fn compression(&self) -> Option<Compression> {
        let by_name = || match self.file.as_deref()?.extension()?.to_str()? {
            "gz" => Some(Compression::Gzip),
            "zst" => Some(Compression::Zstd),
            _ => None,
        };
        self.compress.or_else(by_name)
    }
}

/// Result of an export.
#[derive(Debug, Serialize)]
struct ExportSummary {
    rows: u64,
    bytes: u64,
    seconds: f64,
}

impl ExportSummary {
    /// Prints the summary: on stderr, unless JSON was requested and stdout is free.
    fn report(&self, format: Format, is_stdout_taken: bool) -> Result<(), CliError> {
        let (rows, bytes) = (counted(self.rows, "row"), counted(self.bytes, "byte"));
        let line = match format {
            Format::Json | Format::Ndjson if !is_stdout_taken => return output::write_json(self),
            Format::Json | Format::Ndjson => output::json_line(self)?,
            Format::Table => {
                format!("{rows} read, {bytes} in {:.1} s\n", self.seconds).into_bytes()
            }
        };
        // Without stderr there is nowhere to report an error.
        let _ = io::stderr().write_all(&line);
        Ok(())
    }
}

async fn read(mut reader: RowReader, blocks: mpsc::Sender<Bytes>) -> Result<u64, CliError> {
    while let Some(block) = reader.next_block().await? {
        if blocks.send(block).await.is_err() {
            // The writer has ended, and reports its error itself.
            break;
        }
    }
    Ok(reader.rows())
}

type ExportedFile = oneshot::Receiver<Result<(), CliError>>;

/// Waits for all segments and for the writer. Returns rows and bytes.
async fn finish(
    mut segments: JoinSet<Result<u64, CliError>>,
    (mut written, progress): (ExportedFile, mpsc::UnboundedReceiver<u64>),
) -> Result<(u64, u64), CliError> {
    let bar = bar(None);
    let mut rows = 0;
    let mut progress = progress;
    let mut bytes = 0;
    loop {
        tokio::select! {
            Some(len) = progress.recv() => {
                bytes += len;
                bar.set_position(bytes);
            }
            Some(segment) = segments.join_next() => {
                rows += segment.map_err(CliError::start)??;
                bar.set_message(counted(rows, "row"));
            }
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(CliError::start)?;
                return Err(CliError::Interrupted);
            }
            result = &mut written => {
                bar.finish_and_clear();
                result.map_err(|_| CliError::start("the writing thread has ended"))??;
                while let Some(segment) = segments.join_next().await {
                    rows += segment.map_err(CliError::start)??;
                }
                while let Ok(len) = progress.try_recv() {
                    bytes += len;
                }
                return Ok((rows, bytes));
            }
        }
    }
}

/// Starts the thread that compresses and writes.
fn start_writer(
    part: Option<PathBuf>,
    compression: Option<Compression>,
    mut blocks: mpsc::Receiver<Bytes>,
) -> Result<(ExportedFile, mpsc::UnboundedReceiver<u64>), CliError> {
    let (done, written) = oneshot::channel();
    let (count, progress) = mpsc::unbounded_channel();
    std::thread::Builder::new()
        .name("umbo-export-writer".to_owned())
        .spawn(move || {
            let result = write(part.as_deref(), compression, &mut blocks, &count);
            let failed = |error| match &part {
                Some(part) => write_failure(part, error),
                None => CliError::from_output(error),
            };
            // If the receiver is gone, the export was interrupted.
            let _ = done.send(result.map_err(failed));
        })
        .map_err(CliError::start)?;
    Ok((written, progress))
}

fn write(
    part: Option<&Path>,
    compression: Option<Compression>,
    blocks: &mut mpsc::Receiver<Bytes>,
    count: &mpsc::UnboundedSender<u64>,
) -> io::Result<()> {
    let file = part.map(File::create).transpose()?;
    let out: Box<dyn Write> = match &file {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout()),
    };
    let out = BufWriter::with_capacity(256 << 10, out);
    match compression {
        None => copy(out, blocks, count)?.flush()?,
        Some(Compression::Gzip) => {
            let encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            copy(encoder, blocks, count)?.finish()?.flush()?;
        }
        Some(Compression::Zstd) => {
            let encoder = zstd::stream::write::Encoder::new(out, 3)?;
            copy(encoder, blocks, count)?.finish()?.flush()?;
        }
    }
    file.map_or(Ok(()), |file| file.sync_all())
}

fn copy<W: Write>(
    mut out: W,
    blocks: &mut mpsc::Receiver<Bytes>,
    count: &mpsc::UnboundedSender<u64>,
) -> io::Result<W> {
    while let Some(block) = blocks.blocking_recv() {
        out.write_all(&block)?;
        // Only the progress bar receives this.
        let _ = count.send(block.len() as u64);
    }
    Ok(out)
}

fn part_path(file: &Path) -> PathBuf {
    let mut part = file.to_owned().into_os_string();
    part.push(".part");
    part.into()
}

fn write_failure(path: &Path, source: io::Error) -> CliError {
    CliError::File {
        verb: "write",
        path: path.to_owned(),
        source,
    }
}
