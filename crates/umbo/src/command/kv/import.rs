//! `umbo kv import`: a file of any size into a namespace, with flat memory.
//!
//! A thread reads, sorts and cuts ([`reader`]); lanes, one a connection, write ([`lane`]), at the
//! pace that quotas allow. Every line ends as a row written or as a line in the file of failed rows
//! ([`failed`]), from which [`redrive`] sends it again.

mod batch;
mod checkpoint;
pub(in crate::command) mod dead_letters;
mod failed;
mod lane;
mod line;
mod patience;
pub(super) mod progress;
mod reader;
pub(in crate::command) mod redrive;
mod source;
mod transfer;
mod window;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::Args;
use tokio::sync::OnceCell;
use umbo_types::Namespace;

use self::failed::{Existing, FailedFile};
use self::lane::Target;
use self::progress::{Shared, Summary, bar, describe};
use self::transfer::Transfer;
use super::namespace;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Format};

const HELP: &str = "\
The file has one row a line, {\"pk\":…,\"sk\":…,\"v\":…}, as 'umbo kv export' writes them; plain, or
compressed with gzip or zstd. A line may say \"op\":\"del\", \"ttl\", \"expires_at\" and \"content_type\".
Of two lines with the same key the later one wins.

Under a quota the import keeps to the pace that the server advertises, and waits as told where it is
rejected or shed. Lines that fail go to FILE.failed.ndjson, one JSON object each: why it failed, and
the line in \"row\" (in \"text\" where it is no JSON). 'umbo dlq ls' sums them up; put the rows right
there, and 'umbo dlq redrive' sends them again.
An import that is refused as a whole (not allowed, no server) stops at once; import the file again.";

/// Arguments of `umbo kv import`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Namespace; created where it is absent
    #[arg(value_parser = namespace)]
    ns: Namespace,
    /// File to read; - for stdin
    file: PathBuf,
    /// Do not create the namespace
    #[arg(long)]
    no_create: bool,
    /// Where failed rows go; FILE.failed.ndjson where not given
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    #[command(flatten)]
    transfer: Transfer,
}

impl Arguments {
    /// Imports, reports, and fails if any row did.
    pub(super) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let started = Instant::now();
        let failed_path = self.failed_path()?;
        let mut source =
            source::open(&self.file).map_err(|error| file_failure(&self.file, error))?;
        let failed = FailedFile::new(failed_path, Existing::Replace);
        let shared = Arc::new(Shared::new(self.ns.clone(), Arc::new(Mutex::new(failed))));
        let target = Arc::new(Target {
            client: connection.bulk_client()?,
            namespace: self.ns.clone(),
            durability: self.transfer.durability.map(Into::into),
            is_created: !self.no_create,
            creation: OnceCell::new(),
            patience: self.transfer.patience,
            shared: Arc::clone(&shared),
        });
        let (bar, position, path) = (bar(source.size), Arc::clone(&source.read), self.file);
        let read = move |reader: reader::Reader<'_>| {
            reader.run(&mut *source.reader, |error| file_failure(&path, error))
        };
        let tick = || {
            bar.set_position(position.load(Ordering::Relaxed));
            bar.set_message(describe(
                shared.written(),
                started.elapsed(),
                &target.client,
            ));
        };
        let is_interrupted = self.transfer.run(&target, read, tick).await?;
        bar.finish_and_clear();
        let summary = Summary::new(&shared, target.client.pace(), started.elapsed())?;
        summary.report();
        let format = connection.listing_format();
        if format != Format::Table {
            output::write_json(&summary)?;
        }
        outcome(&shared, &summary, is_interrupted)
    }

    fn failed_path(&self) -> Result<PathBuf, Failure> {
        let path = match &self.failed {
            Some(path) => path.clone(),
            None if self.file.as_os_str() == "-" => PathBuf::from("stdin.failed.ndjson"),
            None => with_suffix(&self.file, ".failed.ndjson"),
        };
        if path == self.file {
            let message = "failed rows cannot go to the file they are read from";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(path)
    }
}

fn outcome(shared: &Shared, summary: &Summary, is_interrupted: bool) -> Result<(), Failure> {
    if let Some(failure) = shared.take_failure() {
        return Err(failure);
    }
    if is_interrupted {
        return Err(Failure::Interrupted);
    }
    match &summary.failed_file {
        None => Ok(()),
        Some(file) => Err(Failure::Partial {
            failed: summary.failed,
            rows: summary.rows + summary.failed,
            hint: format!("; they are in {file}, with the reason of each"),
        }),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

fn file_failure(path: &Path, source: std::io::Error) -> Failure {
    Failure::File {
        verb: "read",
        path: path.to_owned(),
        source,
    }
}
