//! `umbo kv export`: all rows of a namespace as NDJSON, CSV or Parquet for import, in constant memory.
//!
//! Segments are read in parallel, page by page. A page counts only when it is complete: a page that was refused or cut
//! off is read again from its cursor, while any page of the export succeeds. One thread compresses, writes and makes
//! checkpoints ([`writer`]). Large values are read separately ([`large_rows`]). The last line of NDJSON is an `end`
//! line with the number of rows; without this line, import takes the export for incomplete. A file appears under its
//! name only when it is complete.

mod large_rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use umbo_api::time_to_live;
use umbo_client::{Client, PageReader, ScanOptions};
use umbo_types::Namespace;

use self::writer::{ExportProgress, ExportWriter, FileCompression, SegmentPage, SegmentPlace};
use super::bar::{bar, with_bar};
use super::file_name::check_new;
use super::format::FileFormat;
use super::patience::{SharedPatience, is_temporary};
use crate::cli_error::{CliError, usage};
use crate::command::location::is_object;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, counted, note};

/// Bytes after which a page ends, apart from large values. A reader holds one page.
const PAGE_BYTES: u64 = 1 << 20;

/// Arguments of `umbo kv export`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// File to write, or address of an object (s3://, gs://, az://, file://) [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "file")]
    overwrite: bool,
    /// Continue an export to the same file that was interrupted
    #[arg(long, requires = "file")]
    resume: bool,
    /// Segments of the namespace to read in parallel, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    segments: u32,
    /// Format [default: by the name of the file: .csv, .parquet, otherwise NDJSON]
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Compression [default: by the extension of the file: .gz, .zst]
    #[arg(long, value_enum)]
    compress: Option<FileCompression>,
    /// Leave out rows with large values (more than 1 MiB)
    #[arg(long)]
    without_large: bool,
    /// How long to go on while no row at all is read, in addition to the wait that the server asks for
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_to_live::span)]
    patience: Duration,
}

impl Arguments {
    /// Exports.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let started = Instant::now();
        let progress = self.progress()?;
        let source = ExportSource {
            client: connection.bulk_client()?,
            namespace: self.ns.clone(),
            patience: Arc::new(SharedPatience::new(self.patience)),
            leaves_out_large: self.without_large,
        };
        // Fails early if the server does not answer. Later, an absent server is waited for.
        source.client.reach().await?;
        let (pages, receiver) = mpsc::channel(2 * progress.places.len());
        let mut segments = JoinSet::new();
        for (segment, place) in progress.places.iter().enumerate() {
            let of = (segment, progress.places.len());
            let cursor = match place {
                SegmentPlace::Start => None,
                SegmentPlace::At(cursor) => Some(cursor.clone()),
                SegmentPlace::Done => continue,
            };
            segments.spawn(source.clone().read(of, cursor, pages.clone()));
        }
        drop(pages);
        let writer = ExportWriter::start(self.file.clone(), progress, receiver)?;
        let read = finish(&mut segments, &writer).await;
        segments.abort_all();
        while segments.join_next().await.is_some() {}
        // The writer ends after all readers, and keeps the pages that they have sent.
        let done = writer.finish(read.is_ok()).await;
        let progress = match (read, done) {
            (Ok(()), Ok(progress)) => progress,
            (Err(failure), Ok(progress)) => {
                self.say_how_to_go_on(&progress);
                return Err(failure);
            }
            (_, Err(failure)) => return Err(failure),
        };
        let summary = ExportSummary {
            rows: progress.rows,
            bytes: progress.text_bytes,
            seconds: started.elapsed().as_secs_f64(),
        };
        summary.report(connection.listing_format(), self.file.is_none())?;
        let left_out = format!(
            "{} with large values left out; 'umbo kv get --file' reads each",
            counted(progress.left_out, "row")
        );
        match progress.left_out {
            0 => Ok(()),
            _ if self.without_large => {
                output::print_note(&left_out);
                Ok(())
            }
            _ => Err(CliError::Incomplete(left_out)),
        }
    }

    /// Returns where to begin: at the start, or where the last run over this file ended.
    fn progress(&self) -> Result<ExportProgress, CliError> {
        let (format, compression) = (self.format()?, self.compression());
        let anew = || ExportProgress::begin(&self.ns, self.segments, format, compression);
        let Some(file) = &self.file else {
            return Ok(anew());
        };
        if is_object(file) {
            if self.resume {
                return Err(usage!(
                    "an export to an object begins anew; leave out --resume"
                ));
            }
            check_new(file, self.overwrite)?;
            return Ok(anew());
        }
        let before = ExportProgress::load(file)?;
        if self.resume {
            let resumed = before.ok_or_else(|| nothing_to_resume(file))?;
            resumed.check(file, &anew())?;
            return Ok(resumed);
        }
        check_new(file, self.overwrite)?;
        if let Some(before) = before {
            note!(
                "beginning anew; --resume would have continued after {}",
                counted(before.rows, "row")
            );
        }
        Ok(anew())
    }

    /// Returns the format. Refuses Parquet together with a compression or `--resume`.
    fn format(&self) -> Result<FileFormat, CliError> {
        let file = self.file.as_deref();
        let by_name = || file.map_or_else(FileFormat::default, FileFormat::of_name);
        let format = self.format.unwrap_or_else(by_name);
        let is_parquet = format == FileFormat::Parquet;
        if is_parquet && self.compression().is_some() {
            return Err(usage!(
                "Parquet is compressed within its columns; leave out --compress, .gz and .zst"
            ));
        }
        if is_parquet && self.resume {
            return Err(usage!(
                "an export to Parquet cannot be continued: it has no rows without its end; leave out --resume"
            ));
        }
        Ok(format)
    }

    fn compression(&self) -> Option<FileCompression> {
        let by_name = || match self.file.as_deref()?.extension()?.to_str()? {
            "gz" => Some(FileCompression::Gzip),
            "zst" => Some(FileCompression::Zstd),
            _ => None,
        };
        self.compress.or_else(by_name)
    }

    fn say_how_to_go_on(&self, progress: &ExportProgress) {
        let rows = counted(progress.rows, "row");
        match &self.file {
            Some(file) if progress.rows == 0 || !progress.is_resumable() || is_object(file) => {}
            Some(file) => {
                let (ns, file) = (&self.ns, file.display());
                note!(
                    "{rows} are in {file}.part; to continue: umbo kv export {ns} -f {file} --resume"
                );
            }
            None => note!("{rows} read, without an end line: not all of them"),
        }
    }
}

fn nothing_to_resume(file: &Path) -> CliError {
    let file = file.display();
    usage!(
        "there is no {file}.progress, so no export to {file} was interrupted; leave out --resume"
    )
}

/// Where rows come from, and how long to go on without any. Clones share their patience.
#[derive(Debug, Clone)]
struct ExportSource {
    client: Client,
    namespace: Namespace,
    patience: Arc<SharedPatience>,
    leaves_out_large: bool,
}

impl ExportSource {
    /// Returns a reader of a segment from a cursor on.
    fn reader(
        &self,
        (segment, segments): (usize, usize),
        cursor: Option<&String>,
        page_bytes: u64,
    ) -> PageReader {
        let options = ScanOptions {
            segment: Some((segment as u32, segments as u32)),
            page_bytes: Some(page_bytes),
            ..ScanOptions::default()
        };
        let reader = self.client.scan(self.namespace.as_str(), options);
        match cursor {
            None => reader,
            Some(cursor) => reader.starting_at(cursor.clone()),
        }
    }

    /// Reads a segment to its end.
    async fn read(
        self,
        of: (usize, usize),
        mut cursor: Option<String>,
        pages: mpsc::Sender<SegmentPage>,
    ) -> Result<(), CliError> {
        let mut page_bytes = PAGE_BYTES;
        loop {
            let (patience, client) = (&self.patience, &self.client);
            let page = patience.repeat(client, is_temporary, |_| async {
                let mut reader = self.reader(of, cursor.as_ref(), page_bytes);
                reader.next_page().await
            });
            let page = page.await?.unwrap_or_default();
            let fewer = large_rows::fewer(&page)?.filter(|_| !self.leaves_out_large);
            if let Some(fewer) = fewer.filter(|_| page_bytes > 1) {
                // The server counts fewer bytes than the lines have, so the page may be the same once more.
                page_bytes = fewer.min(page_bytes / 2);
                continue;
            }
            let filled = patience.repeat(client, is_temporary, |_| {
                large_rows::filled(client, &self.namespace, &page, self.leaves_out_large)
            });
            let (page, left_out) = filled.await?;
            (cursor, page_bytes) = (page.cursor.clone(), PAGE_BYTES);
            let segment = of.0;
            let filled = SegmentPage {
                segment,
                page,
                left_out,
            };
            // A writer that has ended reports its error itself.
            if pages.send(filled).await.is_err() || cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// Waits for all segments, for the first failure, or for Ctrl-C.
async fn finish(
    segments: &mut JoinSet<Result<(), CliError>>,
    writer: &ExportWriter,
) -> Result<(), CliError> {
    let bar = bar(None);
    let all = async {
        while let Some(segment) = segments.join_next().await {
            segment.map_err(CliError::start)??;
        }
        Ok(())
    };
    let draw = || {
        let (rows, bytes) = writer.counts();
        bar.set_position(bytes);
        bar.set_message(counted(rows, "row"));
    };
    with_bar(&bar, all, draw).await
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
        match format {
            Format::Table => note!("{rows} read, {bytes} in {:.1} s", self.seconds),
            Format::Json | Format::Ndjson if !is_stdout_taken => return output::write_json(self),
            Format::Json | Format::Ndjson => {
                let line = output::json_line(self)?;
                output::print_note(String::from_utf8_lossy(&line).trim_end());
            }
        }
        Ok(())
    }
}
