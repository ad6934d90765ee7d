//! The counters that a dispatcher uses: their reports to the owners, and the answers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::message::{COUNTERS_MAX, CounterReport, FleetReport, HeardBalance, OwnerReply};
use super::period::{IDLE_PERIODS, PERIOD_MS, SILENT_PERIODS};
use super::row::OwnerRow;
use crate::bucket::Bucket;
use crate::fleet_counters::FleetCounters;
use crate::fleet_share::{FleetShare, Scale};
use crate::limiter::Limiter;
use crate::schedule::Millis;
use crate::striped_lru::ByHash;

/// A counter is reported early once less than a fifth of the balance is left: 80 % are spent.
const EARLY_PART: i64 = 5;
/// Messages to an owner whose answers are still taken.
const OPEN_MAX: usize = 4;

/// The counters in use, by the keys of their buckets.
#[derive(Debug, Default)]
pub(super) struct LocalCounters {
    counters: HashMap<u128, LocalCounter, ByHash>,
    owners: BTreeMap<u64, OwnerLink>,
    /// Sequence of the last message.
    sequence: u64,
}

#[derive(Debug)]
struct LocalCounter {
    bucket: Arc<Bucket>,
    counter: u128,
    owner: Option<u64>,
    /// Atoms charged and refused, as they were told last.
    told: (i64, u64),
    heard: Option<(i64, Millis)>,
    /// Whether it was told to its owner.
    is_told: bool,
    /// Whether it was told with a low balance.
    is_low: bool,
    /// Periods without a request.
    idle: u64,
}

/// The messages to an owner.
#[derive(Debug, Default)]
struct OwnerLink {
    sent: Option<Millis>,
    /// When the first message without an answer was sent.
    waiting: Option<Millis>,
    is_silent: bool,
    /// Revision of the row that it is known to know.
    revision: u64,
    open: VecDeque<AwaitedReport>,
}

/// A report whose answer is awaited: its counters, and the atoms that it told.
#[derive(Debug)]
struct AwaitedReport {
    sequence: u64,
    revision: u64,
    counters: Vec<(u128, i64)>,
}

impl LocalCounters {
    /// Takes the counters that were used since the last call.
    pub(super) fn begin(&mut self, limiter: &Limiter, row: &OwnerRow) {
        let Some(fleet) = limiter.fleet.get() else {
            return;
        };
        for key in fleet.used.take() {
            let bucket = limiter.buckets.get(key);
            let bucket = bucket.or_else(|| limiter.shadow_buckets.get(key));
            // The shared bucket of callers without room has no key: it keeps its equal share.
            let Some(bucket) = bucket else { continue };
            let Some(counter) = bucket.share().map(|share| share.counter) else {
                continue;
            };
            self.counters.entry(key).or_insert_with(|| LocalCounter {
                counter,
                owner: row.owner_of(counter),
                told: (0, 0),
                heard: None,
                is_told: false,
                is_low: false,
                idle: 0,
                bucket,
            });
        }
    }

    /// Returns the reports that are due, by owner. `from` is the id of this dispatcher and the revision of its row.
    pub(super) fn reports(
        &mut self,
        limiter: &Limiter,
        from: (u64, u64),
        now: Millis,
    ) -> Vec<(u64, FleetReport)> {
        let equal = limiter
            .fleet
            .get()
            .map_or(Scale::ONE, FleetCounters::equal_share);
        self.note_silence(equal, now);
        let is_due = |owners: &BTreeMap<u64, OwnerLink>, owner: u64| {
            let sent = owners.get(&owner).and_then(|link| link.sent);
            let period_ms = owners.get(&owner).map_or(PERIOD_MS, OwnerLink::period_ms);
            sent.is_none_or(|sent| now.0.saturating_sub(sent.0) >= period_ms)
        };
        let mut due: BTreeMap<u64, bool> = BTreeMap::new();
        let mut reports: BTreeMap<u64, (FleetReport, Vec<(u128, i64)>)> = BTreeMap::new();
        let owners = &self.owners;
        self.counters.retain(|key, one| {
            let is_period = one
                .owner
                .is_none_or(|owner| *due.entry(owner).or_insert_with(|| is_due(owners, owner)));
            if !one.look(is_period, now) {
                return true;
            }
            if one.is_over() {
                one.rest(equal);
                return false;
            }
            let Some(owner) = one.owner else { return true };
            let (report, counters) = reports.entry(owner).or_default();
            if report.counters.len() < COUNTERS_MAX {
                report.counters.push(one.tell(now));
                counters.push((*key, one.told.0));
            }
            true
        });
        let silent: Vec<u64> = self.silent();
        // Owners are told a new revision and silent owners, with or without counters.
        let greeted = self.owners.iter().filter(|(id, link)| {
            let is_news = link.revision < from.1 || !silent.is_empty();
            **id != from.0 && is_news && is_due(&self.owners, **id)
        });
        for owner in greeted.map(|(owner, _)| *owner) {
            reports.entry(owner).or_default();
        }
        let reports = reports.into_iter().map(|(owner, (mut report, counters))| {
            let link = self.owners.entry(owner).or_default();
            self.sequence += 1;
            report.sequence = self.sequence;
            let (sequence, revision) = (self.sequence, from.1);
            link.send(
                AwaitedReport {
                    sequence,
                    revision,
                    counters,
                },
                now,
            );
            (report.sender, report.revision) = from;
            report.silent.clone_from(&silent);
            (owner, report)
        });
        reports.collect()
    }

    /// Takes the answer of an owner.
    pub(super) fn answered(&mut self, owner: u64, reply: &OwnerReply, now: Millis) {
        let Some(link) = self.owners.get_mut(&owner) else {
            return;
        };
        let Some(open) = link.take(reply.sequence) else {
            return;
        };
        (link.waiting, link.is_silent) = (None, false);
        link.revision = link.revision.max(open.revision);
        if reply.counters.len() != open.counters.len() {
            return;
        }
        for ((key, spent), answer) in open.counters.iter().zip(&reply.counters) {
            let Some(one) = self.counters.get_mut(key) else {
                continue;
            };
            if one.owner == Some(owner) {
                one.heard = Some((answer.balance, now));
                one.bucket.take_answer(answer, *spent, now);
            }
        }
    }

    /// Takes other owners. Each of them is told the new revision, with or without counters.
    pub(super) fn set_owners(&mut self, row: &OwnerRow) {
        self.owners.retain(|owner, _| row.has(*owner));
        for owner in &row.owners {
            self.owners.entry(*owner).or_default();
        }
        for one in self.counters.values_mut() {
            let owner = row.owner_of(one.counter);
            if owner != one.owner {
                (one.owner, one.is_told) = (owner, false);
            }
        }
    }

    /// Returns the owners that give no answer.
    pub(super) fn silent(&self) -> Vec<u64> {
        let silent = self.owners.iter().filter(|(_, link)| link.is_silent);
        silent.map(|(owner, _)| *owner).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    /// Gives the counters of an owner that became silent their equal share.
    fn note_silence(&mut self, equal: Scale, now: Millis) {
        let limit_ms = SILENT_PERIODS * PERIOD_MS;
        let mut is_any_silent = false;
        for link in self.owners.values_mut() {
            let is_asked = |sent: Millis| now.0.saturating_sub(sent.0) < 2 * PERIOD_MS;
            if !link.sent.is_some_and(is_asked) {
                // There is nothing to tell it: its last answer may be lost.
                link.waiting = None;
            }
            let waits_ms = link
                .waiting
                .map_or(0, |since| now.0.saturating_sub(since.0));
            link.is_silent = waits_ms > limit_ms;
            is_any_silent |= link.is_silent;
        }
        if is_any_silent {
            for one in self.counters.values() {
                let link = one.owner.and_then(|owner| self.owners.get(&owner));
                if link.is_some_and(|link| link.is_silent) {
                    one.bucket.set_scale(equal);
                }
            }
        }
    }
}

impl LocalCounter {
    /// Returns whether the counter has to be told now.
    fn look(&mut self, is_period: bool, now: Millis) -> bool {
        let balance = self.bucket.balance(now);
        let is_low = balance < self.bucket.limit().burst.cast_signed() / EARLY_PART;
        let is_early = !self.is_told || (is_low && !self.is_low);
        self.is_low = is_low;
        is_period || is_early
    }

    /// Returns whether the counter was idle for so long that it is let go; counts a period otherwise.
    fn is_over(&mut self) -> bool {
        let sums = (self.bucket.spent(), self.bucket.refused());
        if self.is_told && sums == self.told {
            self.idle += 1;
        } else {
            self.idle = 0;
        }
        self.idle > IDLE_PERIODS
    }

    fn tell(&mut self, now: Millis) -> CounterReport {
        self.told = (self.bucket.spent(), self.bucket.refused());
        self.is_told = true;
        let heard = self.heard.map(|(balance, at)| HeardBalance {
            balance,
            age_ms: now.0.saturating_sub(at.0),
        });
        CounterReport {
            counter: self.counter,
            limit: self.bucket.limit(),
            bucket: self.bucket.share().map_or(0, |share| share.made),
            spent: self.told.0,
            acked: self.bucket.share().map_or(0, FleetShare::acked),
            refused: self.told.1,
            scale: self.bucket.scale(),
            heard,
        }
    }

    /// Lets the counter go: the next request begins with an equal share.
    fn rest(&self, equal: Scale) {
        self.bucket.set_scale(equal);
        if let Some(share) = self.bucket.share() {
            share.rest();
        }
    }
}

impl OwnerLink {
    /// Returns the time between two messages: half a period while an answer is awaited, because it may be lost.
    fn period_ms(&self) -> u64 {
        if self.waiting.is_some() {
            PERIOD_MS / 2
        } else {
            PERIOD_MS
        }
    }

    /// Notes a message.
    fn send(&mut self, report: AwaitedReport, now: Millis) {
        self.sent = Some(now);
        self.waiting.get_or_insert(now);
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(report);
    }

    /// Takes an open report; earlier ones are closed, so that an answer that comes late changes nothing.
    fn take(&mut self, sequence: u64) -> Option<AwaitedReport> {
        let at = self
            .open
            .iter()
            .position(|open| open.sequence == sequence)?;
        self.open.drain(..=at).next_back()
    }
}
