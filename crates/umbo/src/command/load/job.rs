//! Feeds a load: finds or creates it, uploads its parts, and seals it.
//!
//! Files are checked before their load is created. If a file cannot be read or is cut off later, the load is aborted.
//! After another interruption, the same command continues the load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use indicatif::HumanBytes;
use umbo_api::loads::LoadInfo;
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{Client, Error};
use umbo_rows::{Columns, RowFormat, RowReader};
use umbo_types::Namespace;

use super::progress::{PushProgress, Pushed};
use super::upload::PartUploads;
use crate::cli_error::{CliError, usage};
use crate::command::kv::bar::{bar, rate_text, with_bar};
use crate::command::kv::file_name::rows_failure;
use crate::command::kv::format::FileFormat;
use crate::command::kv::import::source;
use crate::command::kv::patience::SharedPatience;
use crate::connection::{create_namespace, with_nearest};
use crate::output::{self, counted, note};

/// A load to feed.
pub(in crate::command) struct LoadJob<'a> {
    pub(in crate::command) client: &'a Client,
    pub(in crate::command) ns: &'a Namespace,
    pub(in crate::command) pushed: Pushed,
    /// Parts sent in parallel.
    pub(in crate::command) connections: u8,
    /// How long to go on while nothing at all is taken.
    pub(in crate::command) patience: Arc<SharedPatience>,
    /// Whether an export may lack its end line.
    pub(in crate::command) is_part: bool,
    /// Whether to create the namespace if it is absent.
    pub(in crate::command) is_created: bool,
}

/// A load whose parts are uploaded.
pub(in crate::command) struct Uploaded {
    /// The load after the upload.
    pub(in crate::command) load: LoadInfo,
    /// Number of lines in the files, close to the number of rows. `None` if it is not known.
    pub(in crate::command) rows: Option<u64>,
    /// Number of lines of the file before each part; empty if not known.
    lines_before: BTreeMap<u16, u64>,
}

impl Uploaded {
    /// Describes a load whose parts an earlier run has sent.
    pub(in crate::command) const fn before(load: LoadInfo) -> Self {
        Self {
            load,
            rows: None,
            lines_before: BTreeMap::new(),
        }
    }

    /// Returns the number in the file of a line of a part. If the lines before the part are not known, returns the
    /// number in the part.
    pub(in crate::command) fn line_of(&self, part: u16, line: u64) -> u64 {
        line + self.lines_before.get(&part).copied().unwrap_or_default()
    }
}

impl LoadJob<'_> {
    /// Aborts the load of an earlier run with other files or options, and forgets it.
    pub(in crate::command) async fn abort_other(&self) -> Result<(), CliError> {
        let file = &self.pushed.files[0].path;
        let Some(other) = PushProgress::other(file, &self.pushed)? else {
            return Ok(());
        };
        let (ns, key) = (&other.pushed.namespace, &other.key);
        let found = || self.client.create_load(ns, &other.pushed.spec, key);
        match self.patience.call(self.client, found).await {
            Ok(load) if load.state.is_ended() => {}
            Ok(load) => {
                note!("aborting load {}: its file was another one", load.id);
                let aborted = || self.client.abort_load(ns, &load.id, false);
                self.patience.call(self.client, aborted).await?;
            }
            Err(error) if error.code() == Some(ErrorCode::NamespaceNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        PushProgress::remove(file)
    }

    /// Returns the load of an earlier run, or creates one.
    pub(in crate::command) async fn begin(&self) -> Result<LoadInfo, CliError> {
        let (ns, file) = (self.ns.as_str(), &self.pushed.files[0].path);
        let before = PushProgress::load(file, &self.pushed)?;
        let goes_on = before.is_some();
        let new = || PushProgress {
            key: self.client.new_idempotency_key(),
            pushed: self.pushed.clone(),
        };
        let begun = before.unwrap_or_else(new);
        if !goes_on {
            self.look_at_files()?;
            begun.save(file)?;
        }
        let load = match self.create(&begun.key).await {
            Ok(load) => load,
            Err(error) => {
                if !goes_on && error.outcome() == Outcome::NotApplied {
                    PushProgress::remove(file)?;
                }
                return Err(with_nearest(self.client, self.ns, error.into()).await);
            }
        };
        if !goes_on {
            return Ok(load);
        }
        note!("going on with load {}", load.id);
        // This answer lists the parts.
        let listed = || self.client.load(ns, &load.id);
        Ok(self.patience.call(self.client, listed).await?)
    }

    async fn create(&self, key: &str) -> Result<LoadInfo, Error> {
        let (ns, spec) = (self.ns.as_str(), &self.pushed.spec);
        let created = || self.client.create_load(ns, spec, key);
        match self.patience.call(self.client, created).await {
            Err(error) if self.is_created && error.code() == Some(ErrorCode::NamespaceNotFound) => {
                create_namespace(self.client, ns, output::print_note).await?;
                self.patience.call(self.client, created).await
            }
            created => created,
        }
    }

    /// Reads the first row of each file, so that no load is created for a file that does not contain rows.
    fn look_at_files(&self) -> Result<(), CliError> {
        for file in &self.pushed.files {
            let path = &file.path;
            let columns = Columns::from(self.pushed.spec.columns.clone());
            let format = match file.format {
                FileFormat::Ndjson => RowFormat::Lines,
                FileFormat::Csv => RowFormat::from_content_type(&self.pushed.csv, &columns)
                    .map_err(|error| usage!("{error}"))?,
                // Parquet is read from its end, and checked by the server as a whole.
                FileFormat::Parquet => continue,
            };
            let source = source::open(path).map_err(CliError::file("read", path))?;
            let rows = RowReader::decoded(&format, source.reader);
            let mut rows = rows.map_err(|error| rows_failure(path, error))?;
            match rows.next() {
                Some(Err(error)) => return Err(rows_failure(path, error)),
                Some(Ok(Err(row)))
                    if format == RowFormat::Lines && !row.bytes.starts_with(b"{") =>
                {
                    return Err(source::not_rows(row.line, &row.bytes));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Uploads the parts and seals the load.
    pub(in crate::command) async fn upload(
        &self,
        load: &LoadInfo,
        started: Instant,
    ) -> Result<Uploaded, CliError> {
        let upload = Arc::new(PartUploads::new(
            self.client.clone(),
            load,
            Arc::clone(&self.patience),
        ));
        let total = self.pushed.files.iter().map(|file| file.bytes).sum();
        let bar = bar(Some(total));
        let work = async {
            let cut = upload
                .run(&self.pushed, self.connections, self.is_part)
                .await?;
            bar.finish_and_clear();
            let sent = upload.sent_bytes.load(Ordering::Relaxed);
            let (sent, parts) = (counted(sent, "byte"), counted(cut.parts.into(), "part"));
            let seconds = started.elapsed().as_secs_f64();
            note!("{parts} uploaded, {sent} in {seconds:.1} s");
            Ok(Uploaded {
                load: upload.seal(cut.parts).await?,
                rows: cut.rows,
                lines_before: cut.lines_before,
            })
        };
        let draw = || {
            bar.set_position(upload.done_bytes.load(Ordering::Relaxed));
            let rate = rate_text(&bar, |bytes| HumanBytes(bytes).to_string());
            bar.set_message(format!("load {}{rate}", load.id));
        };
        match with_bar(&bar, work, draw).await {
            Err(error) => self.broken_off(load, error).await,
            uploaded => uploaded,
        }
    }

    /// Ends an upload that failed with `error`. Returns the load if it has ended meanwhile. Otherwise aborts the load
    /// if its files cannot be read, or says how to continue it.
    async fn broken_off(&self, load: &LoadInfo, error: CliError) -> Result<Uploaded, CliError> {
        let (ns, id) = (self.ns.as_str(), &load.id);
        // The server reads parts while others are sent, and may have ended the load because of one of them.
        if let CliError::Client(refused) = &error
            && refused.code() == Some(ErrorCode::LoadState)
            && let Ok(ended) = self.client.load(ns, id).await
            && ended.state.is_ended()
        {
            return Ok(Uploaded::before(ended));
        }
        let cannot_be_fed = matches!(
            &error,
            CliError::File { .. } | CliError::Incomplete(_) | CliError::Usage(_)
        );
        if cannot_be_fed && self.client.abort_load(ns, id, false).await.is_ok() {
            note!("load {id} is aborted: its files cannot be read");
            self.forget()?;
            return Err(error);
        }
        note!("load {id} is not sealed; to go on, run the same command again");
        Err(error)
    }

    /// Forgets the load: nothing is left to continue.
    pub(in crate::command) fn forget(&self) -> Result<(), CliError> {
        PushProgress::remove(&self.pushed.files[0].path)
    }
}
