//! Losses that a crash may cause: asynchronous writes within the flush bound, of each shard the last ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Effect, Floor, OperationHistory, RowName, SeenRows, Status, WriteId, name};
use crate::simulation::{elapsed, violated};

impl OperationHistory {
    /// Checks the rows after a crash against everything that was acknowledged. `seen` is every row that was
    /// found, except the `unreadable` ones; `flush_bound` is how long an asynchronous write may be missing.
    /// Afterwards the found rows are the current state, and a write that may have been applied and is not
    /// visible must never appear.
    pub fn audit(
        &mut self,
        crashed_at: Duration,
        flush_bound: Duration,
        seen: &SeenRows,
        unreadable: &BTreeSet<RowName>,
    ) {
        let is_at_risk = |history: &Self, id: WriteId| {
            let write = &history.writes[id];
            let failing_since = history.failing.get(&write.shard).copied();
            let is_young = write.status != Status::Acknowledged
                || write.completed_at + flush_bound >= failing_since.unwrap_or(crashed_at);
            let durable = history.durable.get(&write.shard).copied();
            let is_newest = write
                .version
                .is_some_and(|version| version > durable.unwrap_or_default());
            write.is_async && is_young && is_newest && write.status != Status::Gone
        };
        let at_risk: Vec<WriteId> = (0..self.writes.len())
            .filter(|&id| is_at_risk(self, id))
            .collect();
        // Of each shard the newest surviving one: all before it survived, too.
        let mut survived: BTreeMap<u16, u64> = BTreeMap::new();
        for &(id, version) in seen.values() {
            if let Some(write) = self.writes.get(id) {
                let newest = survived.entry(write.shard).or_default();
                *newest = version.max(*newest);
            }
        }
        let (mut lost, mut unseen) = (0, Vec::new());
        for &id in &at_risk {
            let write = &self.writes[id];
            if write.version > survived.get(&write.shard).copied() {
                lost += 1;
                self.forget(id);
                let leaves_a_row = match self.writes[id].effect {
                    Effect::Put { expires_at } => expires_at.is_none_or(|at| at > self.latest_wall),
                    _ => false,
                };
                if !leaves_a_row {
                    // A removal or an expired row leaves nothing to see: it may have been applied nevertheless.
                    self.writes[id].status = Status::Unknown;
                    unseen.push(id);
                }
            }
        }
        if lost > 0 {
            crate::simulation::met("asynchronous write lost with the power");
        }
        let invoked = self.event();
        for row in self.rows().iter().filter(|row| !unreadable.contains(row)) {
            let found = seen.get(row).map(|&(id, version)| (Some(id), version));
            self.check(row, invoked, found);
        }
        for row in seen.keys() {
            if !self.rows.contains_key(row) {
                violated(&format!("{}: nobody wrote that row", name(row)));
            }
        }
        for id in unseen {
            let write = &mut self.writes[id];
            write.status = if seen.contains_key(&write.row) {
                Status::Gone
            } else {
                Status::Acknowledged
            };
        }
        self.settle(seen, unreadable);
        self.failing.clear();
    }

    /// Takes the found rows as the current state: a write that may have been applied and is not visible
    /// counts as over, and must not appear.
    fn settle(&mut self, seen: &SeenRows, unreadable: &BTreeSet<RowName>) {
        let event = self.event();
        for id in 0..self.writes.len() {
            let write = &mut self.writes[id];
            if !matches!(write.status, Status::Pending | Status::Unknown) {
                continue;
            }
            if unreadable.contains(&write.row) {
                continue;
            }
            let is_seen = seen.get(&write.row).is_some_and(|&(found, _)| found == id);
            write.completed.get_or_insert(event);
            write.completed_at = elapsed();
            if !is_seen && matches!(write.effect, Effect::Put { .. }) && write.version.is_none() {
                write.status = Status::Gone;
            } else if !is_seen && write.version.is_none() {
                // A possible removal: the found rows show whether it was applied.
                write.status = Status::Gone;
            } else if is_seen {
                write.status = Status::Acknowledged;
            }
        }
        let rows: Vec<RowName> = self.rows.keys().cloned().collect();
        for row in rows {
            if seen.contains_key(&row) || unreadable.contains(&row) {
                continue;
            }
            let writes = self.rows[&row].writes.iter();
            let known = writes.filter_map(|&id| self.writes[id].version).max();
            let history = self.rows.entry(row).or_default();
            let version = known.unwrap_or_default();
            let floors = &mut history.floors;
            if floors.last().is_some_and(|floor| floor.version > version) {
                continue;
            }
            floors.push(Floor {
                from: event,
                version,
                is_removal: true,
            });
        }
    }

    /// A crash has lost a write: it has no effect, but its version must not be assigned again.
    fn forget(&mut self, id: WriteId) {
        self.writes[id].status = Status::Gone;
        let row = self.writes[id].row.clone();
        let version = self.writes[id].version;
        let history = self.rows.entry(row).or_default();
        history
            .floors
            .retain(|floor| Some(floor.version) != version);
    }
}
