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
/// Most open messages to an owner. [`super::FleetQuota::tick`] makes no further one.
const OPEN_MAX: usize = 4;
/// How long the answer to a message is awaited, in milliseconds: a later one is worth less than the next.
const OPEN_MS: u64 = 250;

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
    /// Round of its owner when it was told last.
    round: Option<u64>,
    /// Whether it was told with a low balance.
    is_low: bool,
    /// Rounds without a request.
    idle: u64,
}

/// The messages to an owner.
#[derive(Debug, Default)]
struct OwnerLink {
    /// Each counter is told once a round, in as many messages as it takes.
    round: u64,
    begun: Option<Millis>,
    sent: Option<Millis>,
    /// When the first message without an answer was sent.
    waiting: Option<Millis>,
    is_silent: bool,
    /// Whether another dispatcher found it silent.
    is_suspected: bool,
    /// Revision of the row that it is known to know.
    revision: u64,
    open: VecDeque<AwaitedReport>,
}

/// A report whose answer is awaited: its counters, and the atoms that it told.
#[derive(Debug)]
struct AwaitedReport {
    sequence: u64,
    revision: u64,
    at: Millis,
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
            self.counters.entry(key).or_insert_with(|| {
                bucket.set_scale(fleet.equal_share());
                LocalCounter {
                    counter,
                    owner: row.owner_of(counter),
                    told: (0, 0),
                    round: None,
                    is_low: false,
                    idle: 0,
                    bucket,
                }
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
        let equal = equal_share(limiter);
        self.note_silence(equal, now);
        let is_any_silent = self.owners.values().any(|link| link.is_silent);
        let mut reports: BTreeMap<u64, (FleetReport, Vec<(u128, i64)>)> = BTreeMap::new();
        for (owner, link) in &mut self.owners {
            // Owners are told a new revision and silent owners, with or without counters.
            let is_news = link.revision < from.1 || is_any_silent || link.is_suspected;
            if link.begin_round(now) && is_news && *owner != from.0 {
                reports.entry(*owner).or_default();
            }
        }
        let owners = &self.owners;
        self.counters.retain(|key, one| {
            let Some((owner, link)) = one.owner.and_then(|owner| owners.get_key_value(&owner))
            else {
                // The next request begins it again.
                one.rest(equal);
                return false;
            };
            let is_turn = one.round != Some(link.round);
            if !link.has_room() || !(is_turn || one.is_early(now)) {
                return true;
            }
            if is_turn && one.is_over() {
                one.rest(equal);
                return false;
            }
            let (report, counters) = reports.entry(*owner).or_default();
            if report.counters.len() < COUNTERS_MAX {
                one.round = Some(link.round);
                report.counters.push(one.tell(now));
                counters.push((*key, one.told.0));
            }
            true
        });
        let silent = self.silent();
        let reports = reports.into_iter().map(|(owner, (mut report, counters))| {
            self.sequence += 1;
            let open = AwaitedReport {
                sequence: self.sequence,
                revision: from.1,
                at: now,
                counters,
            };
            self.owners.entry(owner).or_default().send(open);
            (report.sender, report.revision) = from;
            report.sequence = self.sequence;
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
        if reply.row.is_some() {
            // It counted nothing: this dispatcher does not know the row.
            return;
        }
        (link.waiting, link.is_silent, link.is_suspected) = (None, false, false);
        link.revision = link.revision.max(open.revision);
        if reply.counters.len() != open.counters.len() {
            return;
        }
        for ((key, spent), answer) in open.counters.iter().zip(&reply.counters) {
            let Some(one) = self.counters.get_mut(key) else {
                continue;
            };
            if one.owner == Some(owner) {
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
                (one.owner, one.round) = (owner, None);
            }
        }
    }

    /// Returns the owners that give no answer.
    pub(super) fn silent(&self) -> Vec<u64> {
        let silent = self.owners.iter().filter(|(_, link)| link.is_silent);
        silent.map(|(owner, _)| *owner).collect()
    }

    /// Takes the word of another dispatcher that an owner is silent: this one will see.
    pub(super) fn suspect(&mut self, owner: u64) {
        if let Some(link) = self.owners.get_mut(&owner) {
            link.is_suspected = true;
        }
    }

    /// Lets all counters go: no policy has the scope any more.
    pub(super) fn clear(&mut self, limiter: &Limiter) {
        for (_, one) in self.counters.drain() {
            one.rest(equal_share(limiter));
        }
        for link in self.owners.values_mut() {
            (link.waiting, link.is_silent) = (None, false);
        }
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

/// Returns the share of each dispatcher while an owner knows no better.
fn equal_share(limiter: &Limiter) -> Scale {
    let fleet = limiter.fleet.get();
    fleet.map_or(Scale::ONE, FleetCounters::equal_share)
}

impl LocalCounter {
    /// Returns whether the counter is told before its turn: it is new, or its balance became low.
    fn is_early(&self, now: Millis) -> bool {
        self.round.is_none() || (self.is_low_at(now) && !self.is_low)
    }

    fn is_low_at(&self, now: Millis) -> bool {
        self.bucket.balance(now) < self.bucket.limit().burst.cast_signed() / EARLY_PART
    }

    /// Returns whether the counter was idle for so long that it is let go, and its owner knows all; counts a round
    /// otherwise.
    fn is_over(&mut self) -> bool {
        let sums = (self.bucket.spent(), self.bucket.refused());
        let acked = self.bucket.share().map(FleetShare::acked);
        if self.round.is_some() && sums == self.told && acked == Some(sums.0) {
            self.idle += 1;
        }
        self.idle > IDLE_PERIODS
    }

    fn tell(&mut self, now: Millis) -> CounterReport {
        let sums = (self.bucket.spent(), self.bucket.refused());
        let share = self.bucket.share();
        if let Some(share) = share.filter(|_| sums.1 == self.told.1) {
            share.forget_refused();
        }
        if sums != self.told {
            self.idle = 0;
        }
        self.is_low = self.is_low_at(now);
        self.told = sums;
        let heard = share.and_then(FleetShare::heard);
        CounterReport {
            counter: self.counter,
            limit: self.bucket.limit(),
            bucket: share.map_or(0, |share| share.made),
            spent: sums.0,
            acked: share.map_or(0, FleetShare::acked),
            refused: sums.1,
            scale: self.bucket.scale(),
            heard: heard.map(|(balance, at)| HeardBalance {
                balance,
                age_ms: now.0.saturating_sub(at.0),
            }),
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
    /// Begins the next round if it is due: after a period, or after half of one while an answer is awaited, because it
    /// may be lost.
    fn begin_round(&mut self, now: Millis) -> bool {
        let is_open = |open: &AwaitedReport| now.0.saturating_sub(open.at.0) < OPEN_MS;
        self.open.retain(is_open);
        let parts = if self.waiting.is_some() { 2 } else { 1 };
        let is_due = |begun: Millis| now.0.saturating_sub(begun.0) >= PERIOD_MS / parts;
        if !self.begun.is_none_or(is_due) || !self.has_room() {
            return false;
        }
        self.round += 1;
        self.begun = Some(now);
        true
    }

    /// Returns whether another message may be sent.
    fn has_room(&self) -> bool {
        self.open.len() < OPEN_MAX
    }

    /// Notes a message.
    fn send(&mut self, report: AwaitedReport) {
        self.sent = Some(report.at);
        self.waiting.get_or_insert(report.at);
        self.open.push_back(report);
    }

    /// Takes an open report; earlier ones are closed, so that an answer that comes late changes nothing.
    fn take(&mut self, sequence: u64) -> Option<AwaitedReport> {
        let is_it = |open: &AwaitedReport| open.sequence == sequence;
        let at = self.open.iter().position(is_it)?;
        self.open.drain(..=at).next_back()
    }
}
