//! Uploads the parts of a load: one thread reads and cuts, each connection compresses and sends.
//!
//! Holds one part for each connection, and two more. The server keeps the received bytes of a part, so only the missing
//! bytes are sent again.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinSet;
use umbo_api::ErrorCode;
use umbo_api::loads::{LoadInfo, PART_LEN_MAX, PART_NUMBER_MAX, PartInfo};
use umbo_client::{Client, Error, LoadPart, PartOffset};
use umbo_rows::{Columns, PartCutter, RowFormat};

use super::progress::{Pushed, PushedFile};
use crate::cli_error::{CliError, usage};
use crate::command::kv::file_name::rows_failure;
use crate::command::kv::format::FileFormat;
use crate::command::kv::import::source;
use crate::command::kv::patience::{SharedPatience, is_temporary};

/// Level of zstd: faster than level 1 by half, and several times as fast as a network.
const ZSTD_LEVEL: i32 = -1;

/// A part as it was cut.
struct CutPart {
    number: u16,
    content_type: String,
    bytes: Bytes,
    /// Bytes of the input it was cut from.
    input_bytes: u64,
}

/// The result of cutting files.
#[derive(Debug, Default)]
pub(super) struct CutFiles {
    /// Number of parts.
    pub(super) parts: u32,
    /// Number of lines with rows, without headers. `None` if a file is Parquet.
    pub(super) rows: Option<u64>,
    /// Number of lines of the file before each part, minus the header that the part begins with.
    pub(super) lines_before: BTreeMap<u16, u64>,
}

/// The state that the connections share.
pub(super) struct PartUploads {
    client: Client,
    namespace: String,
    load: String,
    /// The parts that the server had when the push began.
    before: BTreeMap<u16, PartInfo>,
    patience: Arc<SharedPatience>,
    /// SHA-256 of the parts.
    sent: Mutex<BTreeMap<u16, String>>,
    /// Bytes of the input whose parts the server has.
    pub(super) done_bytes: AtomicU64,
    /// Bytes of the parts that were sent completely.
    pub(super) sent_bytes: AtomicU64,
}

impl PartUploads {
    /// Begins or continues the upload of a load.
    pub(super) fn new(client: Client, load: &LoadInfo, patience: Arc<SharedPatience>) -> Self {
        let before = load.parts.iter().map(|part| (part.number, part.clone()));
        Self {
            client,
            namespace: load.namespace.clone(),
            load: load.id.clone(),
            before: before.collect(),
            patience,
            sent: Mutex::default(),
            done_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// Uploads all parts. Refuses an export without its end line unless `is_part` is set.
    pub(super) async fn run(
        self: &Arc<Self>,
        pushed: &Pushed,
        connections: u8,
        is_part: bool,
    ) -> Result<CutFiles, CliError> {
        let (sender, receiver) = mpsc::channel(1);
        let receiver = Arc::new(AsyncMutex::new(receiver));
        let mut uploads: JoinSet<Result<(), CliError>> = JoinSet::new();
        for _ in 0..connections {
            let (upload, receiver) = (Arc::clone(self), Arc::clone(&receiver));
            uploads.spawn(async move {
                loop {
                    let part = receiver.lock().await.recv().await;
                    let Some(part) = part else { return Ok(()) };
                    upload.upload(part).await?;
                }
            });
        }
        drop(receiver);
        let pushed = pushed.clone();
        let cutting = tokio::task::spawn_blocking(move || cut(&pushed, is_part, &sender));
        while let Some(ended) = uploads.join_next().await {
            // The others, and the cutting thread, end with the set and its channel.
            ended.map_err(CliError::start)??;
        }
        let cut = cutting.await.map_err(CliError::start)??;
        self.check(cut.parts).await?;
        Ok(cut)
    }

    /// Sends a part until the server has all of it.
    async fn upload(&self, cut: CutPart) -> Result<(), CliError> {
        let input_bytes = cut.input_bytes;
        let part = tokio::task::spawn_blocking(move || prepare(cut));
        let part = part.await.map_err(CliError::start)?;
        let before = self.before.get(&part.number);
        if let Some(before) = before.filter(|before| before.complete) {
            // The bytes are also checked at the end; this check saves the rest of the upload.
            if before.sha256.is_some() && before.sha256 != Some(part.sha256()) {
                return Err(self.differs(part.number));
            }
            self.is_sent(&part, input_bytes);
            return Ok(());
        }
        let is_begun = before.is_some();
        let may_pass =
            |error: &Error| is_temporary(error) || error.code() == Some(ErrorCode::OffsetMismatch);
        let sent = self.patience.repeat(&self.client, may_pass, |attempts| {
            self.send(&part, is_begun || attempts > 0)
        });
        sent.await?;
        self.is_sent(&part, input_bytes);
        Ok(())
    }

    async fn send(&self, part: &LoadPart, is_begun: bool) -> Result<(), Error> {
        let (client, ns, load) = (&self.client, &self.namespace, &self.load);
        let offset = if is_begun {
            client.load_part_offset(ns, load, part.number).await?
        } else {
            None
        };
        match offset {
            Some(PartOffset {
                is_complete: true, ..
            }) => Ok(()),
            Some(PartOffset { kept, .. }) if kept > 0 && kept <= part.body.len() as u64 => {
                client.continue_load_part(ns, load, part, kept).await?;
                Ok(())
            }
            _ => client.put_load_part(ns, load, part).await.map(drop),
        }
    }

    fn is_sent(&self, part: &LoadPart, input_bytes: u64) {
        lock(&self.sent).insert(part.number, part.sha256());
        let len = part.body.len() as u64;
        self.sent_bytes.fetch_add(len, Ordering::Relaxed);
        self.done_bytes.fetch_add(input_bytes, Ordering::Relaxed);
    }

    /// Seals the load. If an earlier call or run has sealed it already, returns the load as it is.
    pub(super) async fn seal(&self, parts: u32) -> Result<LoadInfo, Error> {
        let (client, ns, load) = (&self.client, &self.namespace, &self.load);
        let sealed = || client.seal_load(ns, load, parts);
        match self.patience.call(client, sealed).await {
            Err(error) if error.code() == Some(ErrorCode::LoadState) => {
                let found = || client.load(ns, load);
                self.patience.call(client, found).await
            }
            sealed => sealed,
        }
    }

    /// Checks that the server has the bytes of each part.
    async fn check(&self, parts: u32) -> Result<(), CliError> {
        let found = || self.client.load(&self.namespace, &self.load);
        let load = self.patience.call(&self.client, found).await?;
        if !load.state.takes_parts() {
            return Ok(());
        }
        let sent = lock(&self.sent);
        let differs = |part: &&PartInfo| {
            let is_known = u32::from(part.number) < parts && part.sha256.is_some();
            is_known && part.sha256.as_ref() != sent.get(&part.number)
        };
        let found = load.parts.iter().find(differs);
        found.map_or(Ok(()), |part| Err(self.differs(part.number)))
    }

    fn differs(&self, number: u16) -> CliError {
        let (ns, load) = (&self.namespace, &self.load);
        CliError::Incomplete(format!(
            "part {number} of load {load} has other bytes than the file: it was changed, or cut by another version of \
             this program. Abort the load with 'umbo load abort {ns} {load}', and push again"
        ))
    }
}

/// Compresses a part if that makes it shorter, and computes its digest.
fn prepare(cut: CutPart) -> LoadPart {
    // Parquet is compressed internally.
    let is_plain = cut.content_type != FileFormat::Parquet.content_type();
    let compressed = is_plain.then(|| zstd::bulk::compress(&cut.bytes, ZSTD_LEVEL).ok());
    let shorter = compressed
        .flatten()
        .filter(|bytes| bytes.len() < cut.bytes.len());
    let (coding, bytes) = match shorter {
        Some(bytes) => (Some("zstd"), bytes.into()),
        None => (None, cut.bytes),
    };
    LoadPart::new(cut.number, &cut.content_type, coding, bytes)
}

/// Reads the files and cuts them. Ends early if no connection takes parts.
fn cut(
    pushed: &Pushed,
    is_part: bool,
    parts: &mpsc::Sender<CutPart>,
) -> Result<CutFiles, CliError> {
    let mut cut = CutFiles {
        rows: Some(0),
        ..CutFiles::default()
    };
    let csv = RowFormat::from_content_type(&pushed.csv, &Columns::default());
    let csv = csv.map_err(|error| usage!("{error}"))?;
    for file in &pushed.files {
        // Parts of an earlier run were cut from the file as it was then.
        if PushedFile::of(&file.path, file.format)? != *file {
            let path = file.path.display();
            return Err(CliError::Incomplete(format!(
                "{path} has changed since the load began"
            )));
        }
        let mut push = |bytes: Bytes, input_bytes: u64, lines: Option<Range<u64>>| {
            if cut.parts > u32::from(PART_NUMBER_MAX) {
                return Err(usage!(
                    "a load has at most {} parts; make them longer with --part-mib",
                    u32::from(PART_NUMBER_MAX) + 1
                ));
            }
            let number = cut.parts as u16;
            cut.parts += 1;
            let rows = lines.as_ref().map(|lines| lines.end - lines.start);
            cut.rows = cut.rows.zip(rows).map(|(all, rows)| all + rows);
            if let Some(lines) = lines {
                cut.lines_before.insert(number, lines.start);
            }
            let part = CutPart {
                number,
                content_type: match file.format {
                    FileFormat::Csv => pushed.csv.clone(),
                    format => format.content_type().to_owned(),
                },
                bytes,
                input_bytes,
            };
            Ok(parts.blocking_send(part).is_ok())
        };
        let len = pushed.part_bytes;
        let goes_on = match file.format {
            FileFormat::Parquet => push(read_whole(file)?, file.bytes, None)?,
            FileFormat::Ndjson => cut_text(file, &RowFormat::Lines, (len, is_part), &mut push)?,
            FileFormat::Csv => cut_text(file, &csv, (len, is_part), &mut push)?,
        };
        if !goes_on {
            break;
        }
    }
    Ok(cut)
}

fn read_whole(file: &PushedFile) -> Result<Bytes, CliError> {
    let path = &file.path;
    if file.bytes > PART_LEN_MAX {
        let (path, mib) = (path.display(), PART_LEN_MAX >> 20);
        return Err(usage!(
            "{path} is longer than {mib} MiB, and Parquet cannot be cut: write it as several files"
        ));
    }
    let mut bytes = Vec::with_capacity(file.bytes as usize);
    let read = source::open_counted(path, &Arc::default())
        .and_then(|mut source| source.read_to_end(&mut bytes));
    read.map_err(CliError::file("read", path))?;
    Ok(bytes.into())
}

fn cut_text(
    file: &PushedFile,
    format: &RowFormat,
    (part_bytes, is_part): (u64, bool),
    push: &mut impl FnMut(Bytes, u64, Option<Range<u64>>) -> Result<bool, CliError>,
) -> Result<bool, CliError> {
    let path = &file.path;
    let failed = |error| rows_failure(path, error);
    let source = source::open(path).map_err(CliError::file("read", path))?;
    let read = Arc::clone(&source.read);
    let mut cutter = PartCutter::new(format, source.reader).map_err(failed)?;
    if is_part {
        cutter = cutter.without_end();
    }
    // Each part begins with the header, if there is one.
    let headers = u64::from(cutter.has_header());
    let (mut before, mut line) = (0, cutter.line());
    while let Some(part) = cutter.next_part(part_bytes as usize).map_err(failed)? {
        let (at, end) = (read.load(Ordering::Relaxed), cutter.line());
        if !push(part, at - before, Some(line - headers..end - headers))? {
            return Ok(false);
        }
        (before, line) = (at, end);
    }
    Ok(true)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::load::progress::PushedFile;

    #[test]
    fn parts_share_the_bytes_of_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.ndjson");
        let row = format!("{{\"pk\":\"a\",\"v\":\"{}\"}}\n", "x".repeat(1_000));
        std::fs::write(&path, row.repeat(3_000)).unwrap();
        let file = PushedFile::of(&path, FileFormat::Ndjson).unwrap();
        let pushed = Pushed {
            namespace: "n".to_owned(),
            spec: serde_json::from_str(r#"{"mode":"merge"}"#).unwrap(),
            files: vec![file],
            part_bytes: 256 << 10,
            csv: "text/csv".to_owned(),
        };
        let (sender, mut parts) = mpsc::channel(100);
        let cut_files = cut(&pushed, false, &sender).unwrap();
        assert!(cut_files.parts > 3 && cut_files.rows == Some(3_000));
        assert!(cut_files.lines_before[&0] == 0 && cut_files.lines_before[&1] > 200);
        let mut input_bytes = 0;
        while let Ok(part) = parts.try_recv() {
            assert!(part.input_bytes < pushed.files[0].bytes / 2);
            input_bytes += part.input_bytes;
        }
        assert_eq!(input_bytes, pushed.files[0].bytes);
        // Parts of two files are no load.
        std::fs::write(&path, row.repeat(2_999)).unwrap();
        let changed = cut(&pushed, false, &sender).unwrap_err();
        assert!(changed.to_string().contains("has changed"), "{changed}");
    }
}
