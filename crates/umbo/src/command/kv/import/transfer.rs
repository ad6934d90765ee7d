//! Reader and lanes of an import, from the first line to the last answer; and the trials of shards that are
//! away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use umbo_api::time_to_live;
use umbo_types::limits::BATCH_ROWS_MAX;

use super::batch::{BatchLimits, ImportBatch};
use super::held::HeldRow;
use super::lane::{self, ImportTarget};
use super::progress::ImportState;
use super::reader::{LineReader, ReaderOptions};
use crate::cli_error::CliError;
use crate::command::kv::put::DurabilityOption;
use crate::signals::Interrupts;

/// Batches queued for a lane, besides the one it writes.
const LANE_QUEUE: usize = 1;
const TICK: Duration = Duration::from_millis(100);

/// Options for sending rows.
#[derive(Debug, Clone, Args)]
pub(super) struct TransferOptions {
    /// Connections that write in parallel
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    connections: u8,
    /// Most rows of a request
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(1..=BATCH_ROWS_MAX as i64))]
    batch_rows: u16,
    /// Most bytes of a request, in KiB; a larger row is a request of its own
    #[arg(long, value_name = "KIB", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=8_192))]
    batch_kib: u32,
    /// Memory in which lines are sorted by key before they are sent, in MiB; 0 for no sorting
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=2_048))]
    sort_window: u32,
    /// Most rows to send in a second, whatever the server allows
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// How long to go on while no row at all is written, in addition to the wait that the server asks for
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_to_live::span)]
    pub(super) patience: Duration,
    /// When a batch is acknowledged
    #[arg(long, value_enum)]
    pub(super) durability: Option<DurabilityOption>,
}

impl TransferOptions {
    /// Runs reader and lanes to their end; returns whether Ctrl-C ended them. `read` feeds the reader, on a
    /// thread of its own, and `tick` is called periodically.
    pub(super) async fn run(
        &self,
        target: &Arc<ImportTarget>,
        read: impl FnOnce(LineReader<'_>) -> Result<(), CliError> + Send + 'static,
        mut tick: impl FnMut(),
    ) -> Result<bool, CliError> {
        let (mut lanes, mut senders) = (JoinSet::new(), Vec::new());
        for _ in 0..self.connections {
            let (sender, receiver) = mpsc::channel(LANE_QUEUE);
            senders.push(sender);
            lanes.spawn(lane::run(Arc::clone(target), receiver));
        }
        let reading = self.start_reader(read, senders, Arc::clone(&target.shared))?;
        let trials = tokio::spawn(try_shards(Arc::clone(target)));
        let mut ticks = tokio::time::interval(TICK);
        let mut interrupts = Interrupts::begin()?;
        let mut is_interrupted = false;
        loop {
            tokio::select! {
                lane = lanes.join_next() => {
                    if lane.is_none() {
                        break;
                    }
                }
                () = interrupts.next() => {
                    if is_interrupted {
                        return Ok(true);
                    }
                    is_interrupted = true;
                    target.stop();
                }
                _ = ticks.tick() => tick(),
            }
        }
        trials.abort();
        // A reader that was stopped may still wait for its source; only one of a file is waited for.
        if (target.is_resumable || !target.shared.is_stopped())
            && let Ok(Err(failure)) = reading.await
        {
            target.shared.abort(failure);
        }
        tick();
        Ok(is_interrupted)
    }

    fn start_reader(
        &self,
        read: impl FnOnce(LineReader<'_>) -> Result<(), CliError> + Send + 'static,
        lanes: Vec<mpsc::Sender<ImportBatch>>,
        shared: Arc<ImportState>,
    ) -> Result<oneshot::Receiver<Result<(), CliError>>, CliError> {
        let options = ReaderOptions {
            limits: BatchLimits {
                // No batch takes longer than a second to be due.
                rows: u32::from(self.batch_rows).min(self.rate.unwrap_or(u32::MAX)) as usize,
                bytes: self.batch_kib as usize * 1_024,
            },
            window_bytes: self.sort_window as usize * 1_024 * 1_024,
        };
        let (done, reading) = oneshot::channel();
        std::thread::Builder::new()
            .name("umbo-import-reader".to_owned())
            .spawn(move || {
                let result = read(LineReader::new(options, lanes, &shared));
                // If the receiver is gone, the import was interrupted.
                let _ = done.send(result);
            })
            .map_err(CliError::start)?;
        Ok(reading)
    }
}

/// Sends from time to time the first row that waits for a shard, until the shard has answered.
async fn try_shards(target: Arc<ImportTarget>) {
    let mut attempts = 1;
    loop {
        tokio::time::sleep(TICK).await;
        let due = target
            .shared
            .held()
            .map(|mut held| held.due(Instant::now()));
        let due = match due {
            Some(Ok(due)) if !target.shared.is_stopped() => due,
            Some(Err(failure)) => return target.shared.abort(failure),
            _ => continue,
        };
        attempts += u32::from(!due.is_empty());
        for (shard, row) in due {
            if let Err(failure) = try_shard(&target, shard, &row, attempts).await {
                return target.shared.abort(failure);
            }
        }
    }
}

async fn try_shard(
    target: &ImportTarget,
    number: u32,
    row: &HeldRow,
    attempts: u32,
) -> Result<(), CliError> {
    let (failures, retry) = target.try_row(row.number, &row.line, attempts).await?;
    let shared = &target.shared;
    if let Some((reason, wait)) = retry.of_single() {
        let wait = wait.unwrap_or_else(|| {
            lane::UNNAMED_WAIT / 2 + target.client.jitter(lane::UNNAMED_WAIT / 2)
        });
        if let Some(mut held) = shared.held() {
            held.is_still_away(number, Instant::now() + wait, reason);
        }
        return Ok(());
    }
    if let Some(mut held) = shared.held() {
        held.is_back(number, row);
    }
    shared.progress();
    if let Some((_, reason)) = failures.into_iter().next() {
        return shared.fail(&row.line, &reason);
    }
    shared.count(1, row.line.len() as u64 + 1);
    Ok(())
}
