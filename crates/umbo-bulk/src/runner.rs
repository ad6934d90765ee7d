//! The runner of a dispatcher: finds loads with work that no other dispatcher does, and applies them.
//!
//! A load with other rows than expected or too many rejects fails before any of them is visible. So a run of mode merge
//! *checks* all parts first: their digests are compared, and their rows are counted. Then it *applies* the parts in
//! order. An import, which never fails by its counts, is applied from the first part on while others are uploaded, and
//! is checked meanwhile. Rows of mode replace are not visible before the activation. So a run of mode replace checks
//! parts while it applies them, and applies their rows in the order of their keys, from the first part on while others
//! are uploaded. It reads the finished version back before the version can be activated. Everything that a run does may
//! be repeated: checked parts are counted once they are done, and a row that is applied again has the same `as_of` and
//! the same value. A refused write is repeated later; no row is left out because of it.

mod apply;
mod check;
mod dispatcher_host;
mod host;
mod journal;
mod long_values;
mod merge;
mod open_batches;
mod part_bytes;
mod parts;
mod places;
mod rows;
mod sort;
mod sort_buffer;
mod take;
#[cfg(test)]
mod tests;
mod verify;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};
use umbo_api::loads::LoadState;
use umbo_loads::layout::{self, PartRecord, RunRecord};
use umbo_loads::{LoadRecord, LoadStep, LoadTarget, shortened};
use umbo_types::NamespaceId;

pub(crate) use self::dispatcher_host::run_loads;
use self::host::{Host, LoadHost};
use self::journal::{Journal, Stop};
use self::places::HeldPlace;
pub(crate) use self::rows::check_format;
use self::work::{Parts, continues, wait};
use crate::host_error::HostError;
use crate::limits::{BEAT, FRUITLESS_RUNS_MAX, LEASE, RUNS_MAX};
use crate::stored_rows::read_json;

/// How often a runner looks for loads that have changed in other dispatchers.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often the runner looks for loads that ended long ago.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);
/// Most doublings of the pause after a run has waited and given its place back. The load is left alone for one beat,
/// and for twice as long after each further wait: up to half a minute, the longest wait of a run.
const WAIT_DOUBLINGS_MAX: u32 = 6;

/// Finds and applies loads.
#[derive(Debug)]
pub(crate) struct LoadRunner {
    host: Host,
    /// Random number of this runner.
    number: u64,
    /// Looks so far.
    looks: u64,
    /// The turns of the loads that are to be run.
    turns: BTreeMap<String, LoadTurn>,
    /// Runs of others, with the beat that was seen last and since when it stands.
    seen: BTreeMap<String, (u64, Instant)>,
    forgot: Option<Instant>,
    /// Whether something has changed here since a run ended.
    has_changed: bool,
}

/// When a load is looked at next.
#[derive(Debug, Default)]
struct LoadTurn {
    /// Number of the look at which it was looked at last.
    looked: u64,
    /// Until when it is left alone, because its run has waited and given its place back.
    not_before: Option<Instant>,
    /// How often in a row that happened.
    waits: u32,
    /// The namespace of its report, if the load is told to wait for a place.
    told: Option<NamespaceId>,
}

impl LoadRunner {
    /// Makes the runner of a dispatcher.
    pub(crate) fn new(host: Arc<dyn LoadHost>) -> Self {
        Self {
            host: Host::new(host),
            number: fastrand::u64(1..),
            turns: BTreeMap::new(),
            looks: 0,
            seen: BTreeMap::new(),
            forgot: None,
            has_changed: false,
        }
    }

    /// Finds and applies loads until the dispatcher is about to end and the runs have let their loads go. If this is
    /// dropped, the runs end, and another runner continues them.
    pub(crate) async fn run(mut self) {
        let mut runs = JoinSet::new();
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(runs.is_empty() && self.host.is_ending()) {
            tokio::select! {
                biased;
                Some(ended) = runs.join_next(), if !runs.is_empty() => {
                    let gave_way = self.ended(ended);
                    // It may have ended just before a part arrived.
                    if std::mem::take(&mut self.has_changed) || gave_way {
                        self.look(&mut runs).await;
                    }
                }
                _ = looks.tick() => self.look(&mut runs).await,
                () = self.host.changed() => {
                    self.has_changed = true;
                    self.look(&mut runs).await;
                }
            }
        }
    }

    /// Records the end of a run. Returns whether it gave its place back for another load.
    fn ended(&mut self, ended: Result<Ended, JoinError>) -> bool {
        let Ended {
            id,
            waited,
            gave_way,
        } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "the run of a load failed because of a defect");
                return false;
            }
        };
        if let Some(turn) = self.turns.get_mut(&id) {
            turn.waits = if waited && gave_way {
                turn.waits + 1
            } else {
                0
            };
            let wait = BEAT.saturating_mul(1 << turn.waits.min(WAIT_DOUBLINGS_MAX)) / 2;
            turn.not_before = (turn.waits > 0).then(|| self.host.monotonic() + wait);
        }
        gave_way
    }

    async fn look(&mut self, runs: &mut JoinSet<Ended>) {
        if self.host.is_ending() {
            return;
        }
        let now = self.host.monotonic();
        let is_due = |at: Instant| now.saturating_duration_since(at) >= FORGET_INTERVAL;
        if self.forgot.is_none_or(is_due) {
            self.forgot = Some(now);
            if let Err(error) = self.host.forget_loads().await {
                tracing::debug!(%error, "loads that have ended could not be forgotten; trying again");
            }
        }
        self.looks += 1;
        let loads = self.candidates();
        let mut left = RUNS_MAX;
        for (id, load) in loads {
            let places = Arc::clone(&self.host.places);
            let has_place = places.len() < RUNS_MAX;
            if !has_place && left == 0 {
                return;
            }
            let may_run = self.may_run(&id, &load).await;
            let turn = self.turns.entry(id.clone()).or_default();
            turn.looked = self.looks;
            let waits = (may_run && !has_place).then(|| load.report_id());
            if waits != turn.told {
                let reason = waits
                    .map(|_| format!("{RUNS_MAX} other loads are applied; it waits for its turn"));
                self.host.waits_for(load.report_id(), reason);
                turn.told = waits;
            }
            if may_run && has_place {
                let place = places.take(&id, &load);
                runs.spawn(run(self.host.clone(), id, self.number, place));
                continue;
            }
            left -= usize::from(!has_place);
            if may_run {
                places.ask_for(&id, &load);
            }
        }
    }

    /// Returns the loads that are to be run and have no run here. Loads whose namespace and payer have the fewest
    /// places come first. Among these, loads that have all their parts come first, and then the load that was looked at
    /// longest ago.
    fn candidates(&mut self) -> Vec<(String, Arc<LoadRecord>)> {
        let (now, places) = (self.host.monotonic(), Arc::clone(&self.host.places));
        let mut loads = self.host.loads();
        loads.retain(|(_, load)| load.is_to_run());
        let is_there = |id: &String| loads.binary_search_by(|(other, _)| other.cmp(id)).is_ok();
        self.seen.retain(|id, _| is_there(id));
        self.turns.retain(|id, turn| {
            let is_there = is_there(id);
            if let Some(report) = turn.told.filter(|_| !is_there) {
                self.host.waits_for(report, None);
            }
            is_there
        });
        let turn_of = |id: &String| self.turns.get(id);
        loads.retain(|(id, _)| {
            let is_due = |turn: &LoadTurn| turn.not_before.is_none_or(|at| at <= now);
            !places.has(id) && turn_of(id).is_none_or(is_due)
        });
        loads.sort_by_cached_key(|(id, load)| {
            let looked = turn_of(id).map_or(0, |turn| turn.looked);
            (places.of(load), load.state == LoadState::Uploading, looked)
        });
        loads
    }

    /// Returns whether a load has work that no other runner does. A load whose run cannot be read is looked at again.
    async fn may_run(&mut self, id: &str, load: &LoadRecord) -> bool {
        let key = layout::run_key();
        let found = read_json::<_, RunRecord>(&self.host, load.report_id(), &key).await;
        let Ok(found) = found else {
            return false;
        };
        let run = found.map(|(run, _)| run).unwrap_or_default();
        let has_work = load.state != LoadState::Uploading || self.has_part(load, &run).await;
        has_work && self.is_free(id, &run)
    }

    /// Returns whether the next part can be applied before the load is sealed.
    async fn has_part(&self, load: &LoadRecord, run: &RunRecord) -> bool {
        let Some(next) = u16::try_from(run.part).ok().filter(|_| !run.unordered) else {
            return false;
        };
        let key = layout::part_key(layout::PARTS, next);
        let found = read_json::<_, PartRecord>(&self.host, load.report_id(), &key).await;
        matches!(found, Ok(Some(_)))
    }

    /// Returns whether no other runner works on a load: it never had a runner, the last one has let it go, this process
    /// is the only one with the store, or the last runner has shown no sign of life for a lease. The lease doubles with
    /// each run after the first that has ended without progress. If the load ends its servers, the fleet loses one
    /// server at a time and more and more seldom. If something else ends them, a process has to live longer and longer
    /// before the load is blamed.
    fn is_free(&mut self, id: &str, run: &RunRecord) -> bool {
        let is_alone = self.host.is_alone() && run.fruitless == 0;
        if [0, self.number].contains(&run.runner) || is_alone {
            return true;
        }
        let doublings = run.fruitless.clamp(1, FRUITLESS_RUNS_MAX) - 1;
        let now = self.host.monotonic();
        let (beat, since) = self.seen.entry(id.to_owned()).or_insert((run.beat, now));
        if *beat != run.beat {
            (*beat, *since) = (run.beat, now);
        }
        now.saturating_duration_since(*since) >= LEASE * (1 << doublings)
    }
}

/// The result of a run.
#[derive(Debug)]
struct Ended {
    /// The load.
    id: String,
    /// Whether the run waited.
    waited: bool,
    /// Whether it gave its place back for another load.
    gave_way: bool,
}

/// Works on a load until it has ended, is paused, belongs to another runner, or its place is for another load.
async fn run(host: Host, id: String, number: u64, place: HeldPlace) -> Ended {
    work(&host, &id, number).await;
    let (waited, gave_way) = place.give_back();
    Ended {
        id,
        waited,
        gave_way,
    }
}

async fn work(host: &Host, id: &str, number: u64) {
    let Some(load) = host.load(id) else {
        return;
    };
    let mut journal = match Journal::take_over(host, &load, number).await {
        Ok(journal) => journal,
        Err(stop) => {
            tracing::debug!(
                load = id,
                ?stop,
                "a load could not be taken over; trying again"
            );
            return;
        }
    };
    if load.state != LoadState::Uploading {
        tracing::info!(load = id, namespace = load.name, "applying a load");
    }
    let host = &journal.host();
    let mut tries = 0;
    loop {
        let Err(stop) = advance(host, id, &mut journal, &mut tries).await else {
            // The load has ended, or its version is ready to be activated.
            return;
        };
        match stop {
            Stop::LetGo => break,
            Stop::Overtaken => return log_overtaken(id),
            Stop::Failed(reason) => match fail(host, id, &mut journal, &reason).await {
                Ok(()) => return,
                Err(Stop::Later { after, .. }) => sleep(after).await,
                Err(Stop::Overtaken) => return log_overtaken(id),
                Err(Stop::LetGo | Stop::Failed(_)) => break,
            },
            Stop::Later { after, reason } => {
                match wait(host, id, &mut journal, after, &reason, &mut tries).await {
                    Ok(()) => {}
                    Err(Stop::Overtaken) => return log_overtaken(id),
                    Err(_) => break,
                }
            }
        }
    }
    // Once the load is let go, other runners need not wait for the end of its lease.
    journal.run.runner = 0;
    drop(journal.write().await);
}

fn log_overtaken(id: &str) {
    tracing::info!(load = id, "another run has taken a load over");
}

/// Ends a load that cannot be applied. Does nothing if another runner has gone on: that runner removes bytes that this
/// one was to read, which is no failure of the load.
async fn fail(host: &Host, id: &str, journal: &mut Journal, reason: &str) -> Result<(), Stop> {
    journal.write().await?;
    tracing::warn!(load = id, reason, "a load failed");
    match host.step(id, LoadStep::Fail(shortened(reason))).await {
        Ok(()) => host.ended(true),
        Err(HostError::Wait { reason, .. }) => {
            return Err(Stop::Later {
                after: BEAT,
                reason,
            });
        }
        // The load has ended otherwise.
        Err(HostError::Gone | HostError::Overtaken | HostError::Never(_)) => {}
    }
    Ok(())
}

/// Applies a load to its end, or until it has to stop.
async fn advance(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    // A load with a finished version reads no more rows; it waits for its activation.
    let is_built = host
        .load(id)
        .is_some_and(|load| load.state == LoadState::Ready);
    if journal.run.fruitless >= FRUITLESS_RUNS_MAX && !is_built {
        let (runs, part) = (journal.run.fruitless, journal.run.part);
        return Err(Stop::Failed(format!(
            "{runs} runs in a row made no progress, the last one at part {part}: a row of this part may \
             crash the server"
        )));
    }
    let load = apply_until_sealed(host, id, journal, tries).await?;
    // Parts of a load with a finished version are not needed, and may be gone.
    let parts = if load.state == LoadState::Ready {
        Parts::none()
    } else {
        Parts::read(host, &load, &journal.run).await?
    };
    if load.state == LoadState::Sealed {
        if load.is_checked_first() {
            check::check_parts(host, id, &load, &parts, journal, tries).await?;
            check::judge(&load, &journal.run).map_err(Stop::Failed)?;
        }
        journal.waits_for(None);
        journal.write().await?;
        host.step(id, LoadStep::Begin).await?;
    }
    if load.state != LoadState::Ready && load.state != LoadState::Verifying {
        parts::apply_parts(host, id, &parts, journal, tries).await?;
        // Rows may have been rejected since the parts were checked.
        check::judge(&load, &journal.run).map_err(Stop::Failed)?;
        journal.waits_for(None);
        journal.write().await?;
    }
    match &load.target {
        None => host.step(id, LoadStep::Finish).await?,
        Some(target) => build_version(host, id, &load, target, journal, tries).await?,
    }
    host.ended(false);
    tracing::info!(
        load = id,
        applied = journal.run.applied,
        skipped = journal.run.skipped,
        rejected = journal.run.rejected,
        "the rows of a load are applied"
    );
    Ok(())
}

/// Applies parts of a load until it is sealed, and returns it then. Stops if the next part is missing or has to wait
/// for the seal.
async fn apply_until_sealed(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<Arc<LoadRecord>, Stop> {
    loop {
        let load = continues(host, id)?;
        if load.state != LoadState::Uploading {
            return Ok(load);
        }
        let parts = Parts::read(host, &load, &journal.run).await?;
        let end = parts.end().filter(|_| !journal.run.unordered);
        journal.run.begun = end.ok_or(Stop::LetGo)?;
        journal.write().await?;
        parts::apply_parts(host, id, &parts, journal, tries).await?;
    }
}

/// Makes a version that has all its rows ready for activation, and activates it if the load says so.
async fn build_version(
    host: &Host,
    id: &str,
    load: &LoadRecord,
    target: &LoadTarget,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    if load.state != LoadState::Ready {
        if load.state != LoadState::Verifying {
            host.step(id, LoadStep::Verify).await?;
        }
        let shards = verify::verify(host, id, load, target, journal, tries).await?;
        host.step(id, LoadStep::Ready(shards)).await?;
    }
    if target.activate {
        host.activate(id).await?;
    }
    Ok(())
}
