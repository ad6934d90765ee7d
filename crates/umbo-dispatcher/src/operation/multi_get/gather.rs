//! Rows of a multi-get: the shards are read side by side, the rows of each shard piece by piece.
//!
//! A stalled shard delays only its own rows: at the end of the time they are late, and all others are there. The
//! keys that are asked for at once are bounded, and so are the bytes held for the answer. If the rows have more
//! bytes, the last rows of the request are dropped from the answer.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep_until;
use umbo_edge::memory::MemoryPermit;
use umbo_http::RequestError;
use umbo_quota::ActualUsage;
use umbo_store::{compression, give_way};
use umbo_types::{Key, NamespaceId, Row, ShardId, limits};

use crate::dispatcher::Dispatcher;
use crate::operation::stored_form::damaged;
use crate::phase::read_through::{CostedRow, RequestRows};
use crate::store_call::{StoreTime, Timed};

/// Keys asked of the store at once, so that the bytes held beyond the answer are bounded.
pub(super) const KEYS_AT_ONCE: usize = 64;

/// The rows of a multi-get that have been read so far.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// In the order of the keys; `None` while a row is not known yet.
    pub(super) rows: Vec<Option<Result<Option<Row>, RequestError>>>,
    /// The work done for them.
    pub(super) done: ActualUsage,
    /// How many cost no read of the store.
    pub(super) hits: u64,
    /// Bytes of their values.
    held: usize,
    /// Memory that they hold.
    pub(super) permit: MemoryPermit,
}

/// The keys of one shard.
struct Lane {
    shard: ShardId,
    /// In the request.
    indexes: Vec<usize>,
    /// How many of them have been asked for.
    asked: usize,
}

impl Gathered {
    /// Begins without any row.
    pub(super) fn new(keys: usize, permit: MemoryPermit) -> Self {
        let mut rows = Vec::new();
        rows.resize_with(keys, || None);
        Self {
            rows,
            done: ActualUsage {
                reads: keys as u64,
                ..ActualUsage::default()
            },
            hits: 0,
            held: 0,
            permit,
        }
    }

    /// Returns the bytes of the values that are there.
    pub(super) const fn value_bytes(&self) -> usize {
        self.held
    }

    fn take(&mut self, index: usize, key: &Key, shard: ShardId, read: CostedRow) {
        let CostedRow {
            mut row, is_hit, ..
        } = read;
        if row.as_ref().is_err_and(is_free) {
            // A row refused before anything was done costs nothing, and neither does a request of only such rows.
            self.done.reads -= 1;
        } else {
            self.hits += u64::from(is_hit);
        }
        // A row that is absent was looked up too.
        self.done.rows += u64::from(row.is_ok() && !is_hit);
        if let Ok(Some(found)) = &mut row {
            if !is_hit {
                self.done.read_bytes += bytes_of(key, found);
            }
            match compression::plain(std::mem::take(&mut found.value)) {
                Ok(value) => {
                    self.held += value.bytes.len();
                    found.value = value;
                }
                Err(_) => row = Err(damaged(shard)),
            }
        }
        self.rows[index] = Some(row);
        if let Err(full) = self.permit.try_grow(self.held) {
            self.let_go(index, RequestError::AnswerMemoryFull(full));
        }
        while self.held > limits::MULTI_GET_BYTES_MAX {
            self.let_go_of_last();
        }
    }

    fn let_go_of_last(&mut self) {
        let is_held = |row: &Option<_>| matches!(row, Some(Ok(Some(_))));
        let last = self.rows.iter().rposition(is_held);
        self.let_go(
            last.expect("what is held is of rows"),
            RequestError::AnswerFull,
        );
    }

    fn let_go(&mut self, index: usize, failure: RequestError) {
        if let Some(Ok(Some(row))) = self.rows[index].replace(Err(failure)) {
            self.held -= row.value.bytes.len();
        }
    }
}

/// Returns whether a row was refused before anything was done about it.
fn is_free(failure: &RequestError) -> bool {
    matches!(failure, RequestError::KeyBlocked | RequestError::AnswerFull) || failure.is_unbegun()
}

/// Returns the bytes of a row with both of its keys.
fn bytes_of(key: &Key, row: &Row) -> u64 {
    let keys = key.partition.as_bytes().len() + key.sort.as_bytes().len();
    (keys + row.value.bytes.len()) as u64
}

/// Reads rows until each is known or there is no more time. Many rows are read on the threads of long reads.
pub(super) async fn gather_all(
    reader: RequestRows,
    keys: Vec<Key>,
    mut gathered: Gathered,
) -> Timed<(Vec<Key>, Gathered)> {
    let dispatcher = Arc::clone(reader.dispatcher());
    let is_long = keys.len() > KEYS_AT_ONCE;
    let gathering = async move {
        let Timed { time, .. } = gather(reader, &keys, &mut gathered).await;
        Timed {
            answer: (keys, gathered),
            time,
        }
    };
    if is_long {
        dispatcher.long_reads.run(gathering).await
    } else {
        gathering.await
    }
}

/// Reads rows until each is known or there is no more time.
async fn gather(mut reader: RequestRows, keys: &[Key], gathered: &mut Gathered) -> Timed<()> {
    let dispatcher = Arc::clone(reader.dispatcher());
    let mut lanes = lanes(&dispatcher, reader.namespace(), keys);
    let at_once = match keys.len() {
        0..=KEYS_AT_ONCE => KEYS_AT_ONCE,
        _ => (KEYS_AT_ONCE / lanes.len()).max(1),
    };
    let is_only = lanes.len() == 1 && keys.len() <= at_once;
    let until = reader.until(is_only);
    let mut over = pin!(sleep_until(until.into()));
    let mut asked = FuturesUnordered::new();
    let ask = |number: usize, lane: &mut Lane| {
        let rest = &lane.indexes[lane.asked..];
        let piece = rest[..rest.len().min(at_once)].to_vec();
        lane.asked += piece.len();
        read(&reader, lane.shard, keys, number, piece)
    };
    asked.extend(lanes.iter_mut().enumerate().map(|(at, lane)| ask(at, lane)));
    let (mut time, mut unyielded) = (StoreTime::default(), 0);
    loop {
        let answered = tokio::select! {
            biased;
            answered = asked.next() => answered,
            () = over.as_mut() => None,
        };
        let Some((number, piece, rows)) = answered else {
            break;
        };
        unyielded += piece.len();
        let lane = &mut lanes[number];
        let shard = lane.shard;
        for (index, row) in piece.into_iter().zip(rows) {
            time += row.time;
            gathered.take(index, &keys[index], shard, row);
        }
        if lane.asked < lane.indexes.len() {
            asked.push(ask(number, lane));
        }
        if unyielded >= KEYS_AT_ONCE {
            // Many rows must keep neither the thread from other requests, nor the core from other threads.
            unyielded = 0;
            give_way(0, 1);
            tokio::task::yield_now().await;
            // A store that always has an answer never lets the timer speak.
            if dispatcher.clock.monotonic() >= until {
                break;
            }
        }
    }
    drop(asked);
    for lane in &lanes {
        give_up(lane, &reader, gathered);
    }
    Timed { answer: (), time }
}

async fn read(
    reader: &RequestRows,
    shard: ShardId,
    keys: &[Key],
    number: usize,
    piece: Vec<usize>,
) -> (usize, Vec<usize>, Vec<CostedRow>) {
    let wanted: Vec<&Key> = piece.iter().map(|&index| &keys[index]).collect();
    let rows = reader.read(shard, &wanted).await;
    (number, piece, rows)
}

/// Answers for the rows that have not come: the store was asked for some of them.
fn give_up(lane: &Lane, reader: &RequestRows, gathered: &mut Gathered) {
    let (shard, timeout) = (Some(lane.shard), reader.timeout());
    for (at, &index) in lane.indexes.iter().enumerate() {
        if gathered.rows[index].is_some() {
            continue;
        }
        gathered.rows[index] = Some(Err(if at < lane.asked {
            RequestError::DeadlineInStore {
                shard,
                is_write: false,
                timeout,
            }
        } else {
            gathered.done.reads -= 1;
            RequestError::DeadlineBeforeStore { shard, timeout }
        }));
    }
}

fn lanes(dispatcher: &Dispatcher, namespace: NamespaceId, keys: &[Key]) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let shard = dispatcher.shard_map.locate(namespace, &key.partition);
        match lanes.iter_mut().find(|lane| lane.shard == shard) {
            Some(lane) => lane.indexes.push(index),
            None => lanes.push(Lane {
                shard,
                indexes: vec![index],
                asked: 0,
            }),
        }
    }
    lanes
}
