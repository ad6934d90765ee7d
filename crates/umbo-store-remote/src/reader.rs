//! Reads a connection: answers to who waits for them, the word of the node about itself, and the
//! watch over its silence.
//!
//! The watch rests on probes: a node that owes an answer and is silent is asked for its state, which
//! it can tell whatever its store does; where not even that comes, the connection is given up. Time
//! in which this process itself was held up does not count against the node.

use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant as TokioInstant, sleep};
use tonic::codec::Streaming;
use umbo_protocol::{Answer, AnswerFrame, DecodeError, NodeError, Outcome};
use umbo_store::StoreError;

use crate::attempt::SHARD_UNKNOWN;
use crate::connection::{Connection, PROBE_ID};
use crate::counters::count;
use crate::dial::Dialled;
use crate::latency::Latency;
use crate::node::{Lane, Node};

/// How often a connection is looked at while something is in flight.
const TICK: Duration = Duration::from_millis(10);
/// How often it is while nothing is.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// How often the limit of slow reads is worked out.
const LATENCY_INTERVAL: Duration = Duration::from_secs(1);
/// Slowest line that is not taken for a silent node, in bytes a millisecond.
const LINE_MIN: usize = 4 << 10;

/// Reads one connection to its end.
#[derive(Debug)]
pub(crate) struct Reader {
    node: Arc<Node>,
    lane: Lane,
    connection: Arc<Connection>,
    latency: Latency,
    /// Emptied after each use; kept for its memory.
    wakers: Vec<Waker>,
    ticked_at: TokioInstant,
    /// When the next tick was to be, counted from the last.
    planned: Duration,
    /// Since the node was last heard.
    silent_for: Duration,
    /// Since the last probe was sent; none before the first.
    probed_for: Option<Duration>,
    is_probing: bool,
    /// Since the limit of slow reads was worked out.
    aged_for: Duration,
    draining_for: Duration,
}

impl Reader {
    pub(crate) fn new(node: Arc<Node>, lane: Lane, connection: Arc<Connection>) -> Self {
        Self {
            node,
            lane,
            connection,
            latency: Latency::default(),
            wakers: Vec::new(),
            ticked_at: TokioInstant::now(),
            planned: Duration::ZERO,
            silent_for: Duration::ZERO,
            probed_for: None,
            is_probing: false,
            aged_for: Duration::ZERO,
            draining_for: Duration::ZERO,
        }
    }

    /// Reads to the end, and moves the bytes of the connection meanwhile.
    pub(crate) async fn read(mut self, dialled: Dialled) {
        let Dialled {
            answers,
            first,
            mut transport,
            ..
        } = dialled;
        let End {
            reason,
            is_given_up,
        } = match self.take(first) {
            Ok(()) => transport.drive(self.read_all(answers)).await,
            Err(end) => end,
        };
        self.connection.end(&reason, is_given_up);
    }

    async fn read_all(&mut self, mut answers: Streaming<Bytes>) -> End {
        let mut tick = pin!(sleep(Duration::ZERO));
        loop {
            let outcome = tokio::select! {
                biased;
                message = answers.message() => match message {
                    Ok(Some(frame)) => self.receive(frame),
                    Ok(None) => Err(lost("the node ended the connection")),
                    Err(status) => Err(lost(status.message())),
                },
                () = tick.as_mut() => {
                    let awake = self.awake();
                    let next = self.tick(awake);
                    next.map(|wait| {
                        self.planned = wait;
                        tick.as_mut().reset(TokioInstant::now() + wait);
                    })
                }
            };
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    fn receive(&mut self, frame: Bytes) -> Result<(), End> {
        let frame = AnswerFrame::decode(frame).map_err(|error| garbage(&error))?;
        self.take(frame)
    }

    fn take(&mut self, frame: AnswerFrame) -> Result<(), End> {
        self.silent_for = Duration::ZERO;
        let common = &self.node.common;
        let now = common.clock.monotonic();
        count(&common.counters.answer_frames);
        let (mut answered, mut reads, mut told) = (0, 0, None);
        let answers = frame.answers.into_iter().filter_map(|answer| {
            let answer = answer.unwrap_or_else(unusable);
            if answer.id == PROBE_ID {
                told = Some(answer.outcome);
                return None;
            }
            answered += 1;
            Some(answer)
        });
        let latency = &mut self.latency;
        let handed = self
            .connection
            .answer(answers, &mut self.wakers, |asked_at| {
                reads += 1;
                latency.record(now.saturating_duration_since(asked_at));
            });
        self.wakers.drain(..).for_each(Waker::wake);
        handed.map_err(|_| given_up("the node answered more than it was asked"))?;
        if let Some(told) = told {
            self.is_probing = false;
            if let Outcome::Status(map_version, shards) = told {
                self.node.keep_status(shards);
                self.node.goes_by(map_version);
            }
        }
        common.retries.earn(answered);
        common.hedges.earn(reads);
        if frame.is_draining {
            self.connection.drain();
        }
        Ok(())
    }

    /// Returns the time since the last tick, without that in which this process was held up: what
    /// the node has said meanwhile may not have been read yet.
    fn awake(&mut self) -> Duration {
        let now = TokioInstant::now();
        let elapsed = now.duration_since(self.ticked_at);
        self.ticked_at = now;
        elapsed.min(self.planned + TICK)
    }

    /// Looks after what takes long. Returns when to look again.
    fn tick(&mut self, awake: Duration) -> Result<Duration, End> {
        let node = Arc::clone(&self.node);
        let settings = &node.common.settings;
        if !self.connection.is_open() {
            self.draining_for += awake;
            if self.draining_for >= settings.drain_timeout {
                return Err(given_up("the last answers did not come"));
            }
            return Ok(TICK);
        }
        self.look_for_slow_reads(awake);
        let load = self.connection.load();
        self.silent_for += awake;
        let probed_for = self.probed_for.map(|probed_for| probed_for + awake);
        self.probed_for = probed_for;
        if self.is_probing {
            let unanswered = self.silent_for.min(probed_for.unwrap_or_default());
            let on_the_line = Duration::from_millis((load.sent_unheard / LINE_MIN) as u64);
            if unanswered >= settings.probe_timeout + on_the_line {
                return Err(given_up("the node has been silent"));
            }
        } else {
            let is_owed = load.in_flight > 0 && self.silent_for >= settings.silence_max;
            if is_owed {
                self.node.suspect(self.lane);
            }
            let is_due = probed_for.is_none_or(|probed| probed >= settings.probe_interval);
            if is_due || is_owed || self.node.is_suspected(self.lane) {
                self.is_probing = true;
                self.probed_for = Some(Duration::ZERO);
                self.connection.probe();
            }
        }
        let is_idle = load.in_flight == 0;
        Ok(if is_idle {
            IDLE_TICK.min(settings.probe_interval)
        } else {
            TICK
        })
    }

    fn look_for_slow_reads(&mut self, awake: Duration) {
        self.aged_for += awake;
        let common = &self.node.common;
        if self.aged_for >= LATENCY_INTERVAL {
            self.aged_for = Duration::ZERO;
            let slow = self.latency.p95();
            let slow = slow.map(|p95| p95.max(common.settings.hedge_after_min));
            self.node.set_slow_after(self.lane, slow);
            self.latency.age();
        }
        let slow_after = self.node.slow_after(self.lane);
        let asked_before = |after| common.clock.monotonic().checked_sub(after);
        if let Some(asked_before) = slow_after.and_then(asked_before) {
            self.connection.mark_slow(asked_before, &mut self.wakers);
            self.wakers.drain(..).for_each(Waker::wake);
        }
    }
}

impl Drop for Reader {
    /// Nobody waits for what nobody reads.
    fn drop(&mut self) {
        self.connection.end("it is not read any more", true);
    }
}

/// How a connection ends.
struct End {
    reason: String,
    is_given_up: bool,
}

fn lost(reason: &str) -> End {
    End {
        reason: reason.to_owned(),
        is_given_up: false,
    }
}

fn given_up(reason: &str) -> End {
    End {
        reason: reason.to_owned(),
        is_given_up: true,
    }
}

fn garbage(error: &DecodeError) -> End {
    given_up(&format!("the node sent garbage: {error}"))
}

/// An answer that cannot be read says nothing about what was done.
fn unusable((id, error): (u64, DecodeError)) -> Answer {
    let error = StoreError::Unavailable {
        shard: SHARD_UNKNOWN,
        reason: format!("its node sent an answer that cannot be used: {error}"),
        outcome: umbo_store::Outcome::Unknown,
    };
    Answer {
        id,
        service_time: Duration::ZERO,
        has_more: false,
        rows: 0,
        bytes: 0,
        outcome: Outcome::Failed(NodeError::Store(error)),
    }
}
