//! The rows of a stored part.
//!
//! A separate thread reads the rows out of the bytes, since the readers of formats pull. It calls nothing of the
//! runtime: it asks for bytes and hands batches over, and a task fetches the bytes and queues the batches. The memory
//! holds two pieces of the part, and five batches at most: one each in the thread, under way, in the task, in the
//! queue, and in the consumer.
//!
//! The invariant: if all rows of a part were read, its bytes are the bytes that were sent.

use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use umbo_loads::LoadError;
use umbo_loads::LoadRecord;
use umbo_loads::digest::{PartDigest, hex};
use umbo_loads::layout::PartRecord;
use umbo_rows::{
    Coding, Columns, FormatError, InputChange, InputRow, ReadRow, RowFormat, RowsError,
};
use umbo_store::{GIVES_WAY_EVERY, give_way};

use super::part_bytes::{PartBytes, open_rows};
use crate::host_error::HostError;
use crate::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, BEAT};
use crate::stored_rows::{RowSource, read_piece};

/// Batches that wait while another one is applied.
const BATCHES_AHEAD: usize = 1;
/// Why the rows of a part cannot be read if no other reason is known.
const DEFECT: &str = "the reader of its rows failed because of a defect";

/// Rows of a part as they were read, in order, each with its line.
pub(crate) type NumberedRows = Vec<(u64, ReadRow)>;

fn format_of(
    load: &LoadRecord,
    content_type: &str,
    coding: &str,
) -> Result<(RowFormat, Coding), FormatError> {
    let format = RowFormat::from_content_type(content_type, &Columns::from(load.columns.clone()))?;
    Ok((format, Coding::from_content_encoding(coding)?))
}

/// Refuses a part with an unknown format or coding. Returns the stored names of both.
pub(crate) fn check_format(
    load: &LoadRecord,
    content_type: &str,
    coding: &str,
) -> Result<(String, String), LoadError> {
    let (format, coding) = format_of(load, content_type, coding)
        .map_err(|error| LoadError::Format(error.to_string()))?;
    let coding = coding.content_encoding().unwrap_or_default();
    Ok((format.content_type(), coding.to_owned()))
}

/// The rows of a part, batch after batch. Reading ends after the last row, with an error, or when this is dropped.
#[derive(Debug)]
pub(crate) struct PartRows {
    number: u16,
    batches: Receiver<Result<Option<NumberedRows>, HostError>>,
    /// Ends the task when it is dropped, and with it the thread.
    _feeding: JoinSet<()>,
}

impl PartRows {
    /// Begins to read a part.
    pub(crate) fn open(
        source: impl RowSource<Error = HostError> + Send + 'static,
        load: &LoadRecord,
        number: u16,
        part: &PartRecord,
    ) -> Result<Self, HostError> {
        let format = format_of(load, &part.content_type, &part.coding);
        let (format, coding) = format.map_err(|error| of_part(number, &error))?;
        let bytes = StoredBytes {
            load: load.clone(),
            number,
            upload: part.upload,
            len: part.len,
            sha256: part.sha256.clone(),
            is_read_in_order: format.is_read_in_order(),
        };
        let len = part.len;
        let work = move |to: Sender<Said>| {
            let end = read(&format, coding, len, &to);
            drop(to.blocking_send(Said::Ended(end)));
        };
        Self::begin(source, bytes, number, work)
    }

    /// Starts the thread and the task.
    fn begin(
        source: impl RowSource<Error = HostError> + Send + 'static,
        bytes: StoredBytes,
        number: u16,
        work: impl FnOnce(Sender<Said>) + Send + 'static,
    ) -> Result<Self, HostError> {
        let (say, said) = mpsc::channel(1);
        let thread = std::thread::Builder::new().name(format!("load-part-{number}"));
        let started = thread.spawn(move || work(say));
        started.map_err(|error| HostError::Wait {
            after: BEAT,
            reason: format!("no thread for the rows of a part: {error}"),
        })?;
        let (queue, batches) = mpsc::channel(BATCHES_AHEAD);
        let mut feeding = JoinSet::new();
        feeding.spawn(async move {
            let end = feed(source, bytes, said, &queue).await;
            let end = end.map_err(|error| match error {
                HostError::Never(reason) => of_part(number, &reason),
                other => other,
            });
            drop(queue.send(end.map(|()| None)).await);
        });
        Ok(Self {
            number,
            batches,
            _feeding: feeding,
        })
    }

    /// Returns the next rows, or `None` at the end of the part; it is not called again then. If the call is dropped,
    /// nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<NumberedRows>, HostError> {
        let next = self.batches.recv().await;
        next.unwrap_or_else(|| Err(of_part(self.number, &DEFECT)))
    }
}

fn of_part(number: u16, error: &dyn std::fmt::Display) -> HostError {
    HostError::Never(format!("part {number}: {error}"))
}

/// A message of the thread.
enum Said {
    /// The thread needs bytes from an offset on, and waits for them. If the reading is given up, they do not come.
    Needs(u64, oneshot::Sender<Bytes>),
    /// The part has inflated to this number of bytes.
    Inflated(u64, oneshot::Sender<()>),
    /// The thread has read rows.
    Rows(NumberedRows),
    /// The thread has ended: there are no more rows, or they cannot be read.
    Ended(Result<(), RowsError>),
}

/// The stored bytes of a part, and their expected digest.
#[derive(Debug)]
struct StoredBytes {
    load: LoadRecord,
    number: u16,
    upload: u64,
    len: u64,
    /// SHA-256 of the bytes that were sent, in hexadecimal.
    sha256: String,
    /// Whether the thread asks for them in order.
    is_read_in_order: bool,
}

impl StoredBytes {
    /// Reads bytes from an offset on.
    async fn read(
        &self,
        source: &impl RowSource<Error = HostError>,
        at: u64,
    ) -> Result<Bytes, HostError> {
        let piece = read_piece(source, self.load.content_id(), self.upload, at).await?;
        let missing = || HostError::Never(format!("bytes are missing, from {at} on"));
        let mut piece = piece.ok_or_else(missing)?;
        piece.truncate(usize::try_from(self.len - at).unwrap_or(usize::MAX));
        Ok(piece)
    }
}

/// The digest of the first bytes of a part.
#[derive(Default)]
struct DigestSoFar {
    digest: PartDigest,
    len: u64,
}

impl DigestSoFar {
    /// Adds a piece if it follows the bytes so far; ignores any other piece.
    fn add(&mut self, at: u64, piece: &[u8]) {
        if at == self.len {
            self.digest.update(piece);
            self.len += piece.len() as u64;
            // A piece takes a tenth of a millisecond.
            give_way(0, 1);
        }
    }

    /// Adds all bytes that are left.
    async fn add_rest(
        &mut self,
        source: &impl RowSource<Error = HostError>,
        bytes: &StoredBytes,
    ) -> Result<(), HostError> {
        while self.len < bytes.len {
            let piece = bytes.read(source, self.len).await?;
            self.add(self.len, &piece);
        }
        Ok(())
    }
}

/// Fetches bytes for the thread and queues the rows that it has read, until it has ended. While the thread works on
/// one piece of a part that it reads in order, the next piece is fetched. Fails if the bytes have another digest than
/// the bytes that were sent: at the end, or, if they are not read in order, at the beginning.
async fn feed(
    source: impl RowSource<Error = HostError>,
    bytes: StoredBytes,
    mut said: Receiver<Said>,
    queue: &Sender<Result<Option<NumberedRows>, HostError>>,
) -> Result<(), HostError> {
    // A thread that is gone does not say that it has ended.
    let defect = || HostError::Never(DEFECT.to_owned());
    let mut digest = DigestSoFar::default();
    if !bytes.is_read_in_order {
        digest.add_rest(&source, &bytes).await?;
    }
    // The end of the last piece, and the piece that follows it.
    let (mut end, mut ahead) = (0, None);
    loop {
        match heard(&mut said).await.ok_or_else(defect)? {
            Said::Needs(at, answer) => {
                let is_next = at == end;
                let piece = match ahead.take().filter(|_| is_next) {
                    Some(piece) => piece,
                    None => bytes.read(&source, at).await?,
                };
                end = at + piece.len() as u64;
                drop(answer.send(piece.clone()));
                digest.add(at, &piece);
                if is_next && end < bytes.len {
                    // An error comes again, and is reported, when the bytes are needed.
                    ahead = bytes.read(&source, end).await.ok();
                }
            }
            Said::Inflated(len, answer) => {
                source.inflated(&bytes.load, bytes.number, len).await?;
                answer.send(()).unwrap_or_default();
            }
            // If the receiver is gone, this task is ended.
            Said::Rows(batch) => drop(queue.send(Ok(Some(batch))).await),
            Said::Ended(end) => {
                end.map_err(|error| HostError::Never(error.to_string()))?;
                // More bytes may follow the compressed data.
                digest.add_rest(&source, &bytes).await?;
                if hex(&digest.digest.finish()) != bytes.sha256 {
                    let differ = "the stored bytes differ from those that were sent";
                    return Err(HostError::Never(differ.to_owned()));
                }
                return Ok(());
            }
        }
    }
}

/// Waits for a message of the thread. Returns `None` if the thread has ended by a defect.
///
/// On a runtime of one thread, as in simulations, it waits in place: no simulated time passes and nothing else runs
/// until the message comes, so that the order of events does not depend on the speed of the thread.
async fn heard(said: &mut Receiver<Said>) -> Option<Said> {
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        return said.recv().await;
    }
    loop {
        match said.try_recv() {
            Ok(said) => return Some(said),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
}

/// Reads the rows of a part, on the thread.
fn read(format: &RowFormat, coding: Coding, len: u64, to: &Sender<Said>) -> Result<(), RowsError> {
    let asked = to.clone();
    let ask = move |at| {
        let (answer, bytes) = oneshot::channel();
        asked.blocking_send(Said::Needs(at, answer)).ok()?;
        bytes.blocking_recv().ok()
    };
    let told = to.clone();
    let tell = move |len| {
        let (answer, charged) = oneshot::channel();
        told.blocking_send(Said::Inflated(len, answer)).ok()?;
        charged.blocking_recv().ok()
    };
    let bytes = PartBytes::new(len, Box::new(ask));
    let mut rows = open_rows(format, coding, bytes, Box::new(tell))?;
    let (mut batch, mut bytes) = (NumberedRows::new(), 0);
    while let Some(row) = rows.next() {
        give_way(batch.len(), GIVES_WAY_EVERY);
        let row = row?;
        bytes += row.as_ref().map_or(0, len_of);
        batch.push((rows.line(), row));
        if batch.len() >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX {
            bytes = 0;
            let whole = std::mem::take(&mut batch);
            if to.blocking_send(Said::Rows(whole)).is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        drop(to.blocking_send(Said::Rows(batch)));
    }
    Ok(())
}

/// Returns the bytes of keys and value.
fn len_of(row: &InputRow) -> usize {
    let value_len = match &row.change {
        InputChange::Put { value, .. } => value.bytes.len(),
        InputChange::Delete => 0,
    };
    row.key.partition.as_bytes().len() + row.key.sort.as_bytes().len() + value_len
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::stored_rows::tests::{CONTENT, Rows, UPLOAD};
    use umbo_api::loads::LoadSpec;
    use umbo_loads::limits::PIECE_LEN;
    use umbo_store::{Page, RangeRequest};
    use umbo_types::Timestamp;

    fn load() -> LoadRecord {
        let ids = (CONTENT.0, CONTENT.0 + 1);
        let spec = LoadSpec::default();
        LoadRecord::create(&spec, ("a", 3), ids, (6, 2), "x", Timestamp(0)).unwrap()
    }

    /// Stores a part in pieces of this length.
    async fn part(rows: &Rows, content_type: &str, bytes: &[u8], piece_len: u64) -> PartRecord {
        for (at, piece) in bytes.chunks(piece_len as usize).enumerate() {
            rows.put(at as u64 * piece_len, piece).await;
        }
        let mut digest = PartDigest::default();
        digest.update(bytes);
        PartRecord {
            upload: UPLOAD,
            len: bytes.len() as u64,
            sha256: hex(&digest.finish()),
            content_type: content_type.to_owned(),
            coding: String::new(),
        }
    }

    fn lines(count: u64) -> Vec<u8> {
        let line = |number| format!("{{\"pk\":\"p{number}\",\"v\":\"{number:0200}\"}}\n");
        (0..count)
            .flat_map(|number| line(number).into_bytes())
            .collect()
    }

    async fn all(mut rows: PartRows) -> Result<Vec<u64>, HostError> {
        let mut read = Vec::new();
        while let Some(batch) = rows.next().await? {
            assert!(!batch.is_empty() && batch.len() <= BATCH_ROWS_MAX);
            for (line, row) in batch {
                let key = row.unwrap().key.partition;
                assert_eq!(key.as_bytes(), format!("p{}", line - 1).as_bytes());
                read.push(line);
            }
        }
        Ok(read)
    }

    fn no_bytes() -> StoredBytes {
        StoredBytes {
            load: load(),
            number: 7,
            upload: UPLOAD,
            len: 0,
            sha256: String::new(),
            is_read_in_order: true,
        }
    }

    async fn check_lines() {
        let rows = Rows::new();
        let part = part(&rows, "application/x-ndjson", &lines(4_500), 100_000).await;
        let read = all(PartRows::open(rows, &load(), 7, &part).unwrap()).await;
        assert_eq!(read, Ok((1..=4_500).collect()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_come_in_their_order_on_several_threads() {
        check_lines().await;
    }

    #[tokio::test(start_paused = true)]
    async fn no_simulated_time_passes_while_rows_are_read() {
        let began = tokio::time::Instant::now();
        let other = tokio::spawn(tokio::time::sleep(Duration::from_hours(1)));
        check_lines().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        other.abort();
    }

    #[tokio::test]
    async fn a_table_is_read_in_pieces() {
        let rows = Rows::new();
        let table = "pk,v\np0,\"a,\nb\"\n";
        let part = part(&rows, "text/csv", table.as_bytes(), 3).await;
        let mut rows = PartRows::open(rows, &load(), 7, &part).unwrap();
        let batch = rows.next().await.unwrap().unwrap();
        assert_eq!(batch.len(), 1);
        assert!(batch[0].1.is_ok(), "{batch:?}");
        assert_eq!(rows.next().await, Ok(None));
    }

    #[tokio::test]
    async fn a_part_whose_bytes_are_missing_is_an_error_and_no_end() {
        let rows = Rows::new();
        let mut part = part(&rows, "application/x-ndjson", &lines(9), PIECE_LEN).await;
        let end = part.len;
        part.len += 1;
        let read = all(PartRows::open(rows, &load(), 7, &part).unwrap()).await;
        let reason = format!("part 7: bytes are missing, from {end} on");
        assert_eq!(read, Err(HostError::Never(reason)));
    }

    #[tokio::test]
    async fn bytes_that_are_not_those_that_were_sent_are_an_error_and_no_end() {
        let rows = Rows::new();
        let mut part = part(&rows, "application/x-ndjson", &lines(9), PIECE_LEN).await;
        part.sha256 = "00".repeat(32);
        let mut rows = PartRows::open(rows, &load(), 7, &part).unwrap();
        assert_eq!(rows.next().await.unwrap().unwrap().len(), 9);
        let reason = "part 7: the stored bytes differ from those that were sent";
        assert_eq!(rows.next().await, Err(HostError::Never(reason.to_owned())));
    }

    #[tokio::test]
    async fn a_reader_that_ends_by_a_defect_is_an_error_and_no_end() {
        let work = |to: Sender<Said>| {
            to.blocking_send(Said::Rows(NumberedRows::new()))
                .unwrap_or_default();
        };
        let mut rows = PartRows::begin(Rows::new(), no_bytes(), 7, work).unwrap();
        assert_eq!(rows.next().await, Ok(Some(NumberedRows::new())));
        let reason = format!("part 7: {DEFECT}");
        assert_eq!(rows.next().await, Err(HostError::Never(reason)));
    }

    #[tokio::test]
    async fn an_error_of_the_store_is_told_as_it_is() {
        struct Away;
        #[async_trait::async_trait]
        impl RowSource for Away {
            type Error = HostError;

            async fn range(&self, _: &RangeRequest) -> Result<Page, HostError> {
                Err(away())
            }

            fn damaged(&self, what: &str) -> HostError {
                panic!("{what}")
            }
        }
        fn away() -> HostError {
            HostError::Wait {
                after: Duration::from_secs(3),
                reason: "shard 2 is unavailable".to_owned(),
            }
        }
        let part = part(&Rows::new(), "application/x-ndjson", &lines(9), PIECE_LEN).await;
        let read = all(PartRows::open(Away, &load(), 7, &part).unwrap()).await;
        assert_eq!(read, Err(away()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_reading_that_is_given_up_ends_its_thread() {
        let thread = Arc::new(());
        let runs = Arc::clone(&thread);
        let (ended, end) = std::sync::mpsc::channel();
        let work = move |to: Sender<Said>| {
            while to.blocking_send(Said::Rows(NumberedRows::new())).is_ok() {}
            drop(runs);
            ended.send(()).unwrap();
        };
        let mut rows = PartRows::begin(Rows::new(), no_bytes(), 7, work).unwrap();
        assert_eq!(rows.next().await, Ok(Some(NumberedRows::new())));
        assert_eq!(Arc::strong_count(&thread), 2);
        drop(rows);
        tokio::task::spawn_blocking(move || end.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(Arc::strong_count(&thread), 1);
    }
}
