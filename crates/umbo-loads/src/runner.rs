//! The runner of a dispatcher: finds loads that are sealed and that no other dispatcher works on, and applies them.
//!
//! A load with other rows than expected or too many rejects fails before any of them is visible. So a run of mode merge
//! *checks* all parts first: their bytes are those that were sent, and their rows are counted. Then it *applies* the
//! parts in order. An import, which never fails by its counts, is applied from the first part on, while others are
//! uploaded, and checked meanwhile. One of mode replace, whose rows no read returns before the activation, checks parts while it applies
//! them, and applies their rows in the order of their keys, from the first part on, while others are uploaded; it reads
//! the version back that it has built, before that can be activated. Whatever a run does may be repeated:
//! checked parts are counted once they are done, and a row that is applied again has the same `as_of` and the same
//! value. What is to wait is tried again; no row is left out because of it.

mod apply;
mod check;
mod merge;
mod open_batches;
mod parts;
mod remove;
mod sort;
mod take;
#[cfg(test)]
mod tests;
mod verify;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use umbo_api::loads::LoadState;

use self::work::{Parts, continues, wait};
use crate::host::{Host, HostError, LoadHost};
use crate::journal::{Journal, Stop};
use crate::layout::{self, PartRecord, RunRecord};
use crate::limits::{BEAT, FRUITLESS_RUNS_MAX, LEASE, RUNS_MAX};
use crate::record::{LoadRecord, LoadStep, LoadTarget, shortened};
use crate::stored_rows::read_json;

/// How often a runner looks for loads that have changed in other dispatchers.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often loads that ended long ago are looked for.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);
/// Finds and applies loads.
#[derive(Debug)]
pub struct LoadRunner {
    host: Host,
    /// Random number of this runner.
    number: u64,
    /// Loads that are run here.
    running: BTreeSet<String>,
    /// Runs of others, with the beat that was seen last and since when it stands.
    seen: BTreeMap<String, (u64, Instant)>,
    forgot: Option<Instant>,
    /// Whether something has changed here since a run ended.
    has_changed: bool,
}

impl LoadRunner {
    /// Makes the runner of a dispatcher.
    pub fn new(host: Arc<dyn LoadHost>) -> Self {
        Self {
            host: Host::new(host),
            number: fastrand::u64(1..),
            running: BTreeSet::new(),
            seen: BTreeMap::new(),
            forgot: None,
            has_changed: false,
        }
    }

    /// Finds and applies loads until the dispatcher is about to end and the runs have let their loads go. Dropping it ends
    /// the runs; another one continues them.
    pub async fn run(mut self) {
        let mut runs = JoinSet::new();
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(runs.is_empty() && self.host.is_ending()) {
            tokio::select! {
                _ = looks.tick() => self.look(&mut runs).await,
                () = self.host.changed() => {
                    self.has_changed = true;
                    self.look(&mut runs).await;
                }
                Some(ended) = runs.join_next_with_id(), if !runs.is_empty() => {
                    self.ended(ended);
                    // It may have ended just before a part was there.
                    if std::mem::take(&mut self.has_changed) {
                        self.look(&mut runs).await;
                    }
                }
            }
        }
    }

    fn ended(&mut self, ended: Result<(tokio::task::Id, String), tokio::task::JoinError>) {
        match ended {
            Ok((_, id)) => {
                self.running.remove(&id);
            }
            Err(error) => {
                // Which one it was is not known: each that still runs is found again by its beat.
                tracing::error!(%error, "the run of a load ended by a defect");
                self.running.clear();
            }
        }
    }

    async fn look(&mut self, runs: &mut JoinSet<String>) {
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
        let mut loads = self.host.loads();
        // Loads that have all their parts come first.
        loads.sort_by_key(|(_, load)| load.state == LoadState::Uploading);
        self.seen
            .retain(|id, _| loads.iter().any(|(other, _)| other == id));
        for (id, load) in loads {
            if runs.len() >= RUNS_MAX {
                return;
            }
            if !load.is_to_run() || self.running.contains(&id) || !self.may_run(&id, &load).await {
                continue;
            }
            self.running.insert(id.clone());
            runs.spawn(run(self.host.clone(), id, self.number));
        }
    }

    /// Returns whether there is work on a load that no other runner does. A load whose run cannot be read is looked at
    /// again.
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

    /// Returns whether no other runner works on a load: none has yet, the last one has let go, there is no other, or it
    /// has not been heard of for a lease. The lease doubles with each run that has ended without getting on: where the load
    /// ended them, the fleet loses one server at a time and more and more seldom; where something else did, the process
    /// has to live longer and longer to be blamed on the load.
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

/// Works on a load until it has ended, is paused, or is another runner's.
async fn run(host: Host, id: String, number: u64) -> String {
    work(&host, &id, number).await;
    id
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
    // Once the run is let go, other runners need not wait for the end of its lease.
    journal.run.runner = 0;
    drop(journal.write().await);
}

fn log_overtaken(id: &str) {
    tracing::info!(load = id, "another run has taken a load over");
}

/// Ends a load that cannot be applied. Not where another runner has gone on: it removes what this one was to read,
/// which is no failure of the load.
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

/// Brings a load to its end, or as far as it gets.
async fn advance(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<(), Stop> {
    // A load whose version is built reads no rows any more; it waits for its activation.
    let is_built = host
        .load(id)
        .is_some_and(|load| load.state == LoadState::Ready);
    if journal.run.fruitless >= FRUITLESS_RUNS_MAX && !is_built {
        let (runs, part) = (journal.run.fruitless, journal.run.part);
        return Err(Stop::Failed(format!(
            "{runs} runs in a row have ended without getting on, the last one at part {part}: rows of it may end the \
             server that reads them"
        )));
    }
    let load = apply_until_sealed(host, id, journal, tries).await?;
    // Parts of a load whose version is built are not needed, and may be gone.
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
        if !load.is_checked_first() {
            check::judge(&load, &journal.run).map_err(Stop::Failed)?;
        }
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

/// Applies parts of a load until it is sealed, and returns it then. Stops where the next part is not there or has to
/// wait for the seal.
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

/// Brings a version whose rows are all there to where it can be activated, and activates it if the load says so.
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
