//! The rules for reads, versions, conditions and groups.

use std::collections::BTreeMap;

use umbo_types::Timestamp;

use super::{
    Effect, EventNumber, OnlyIf, OperationHistory, RowName, SeenRows, Status, WriteId, floor_at,
    name,
};
use crate::simulation::{note, violated};

impl OperationHistory {
    /// Checks a read of a row that began at `invoked`. The observation is the write, if the value contains
    /// it, and the version; none if there was no row.
    pub fn check(
        &mut self,
        row: &RowName,
        invoked: EventNumber,
        seen: Option<(Option<WriteId>, u64)>,
    ) {
        if self.tainted.contains(row) {
            return;
        }
        self.reads += 1;
        if let Some(&since) = self.fenced.get(&row.namespace)
            && seen.is_some()
            && invoked > since
        {
            violated(&format!(
                "{}: seen after its namespace was removed",
                name(row)
            ));
        }
        let event = self.event();
        match seen {
            Some((Some(id), version)) => self.check_row(row, invoked, event, id, version),
            Some((None, version)) => {
                let floors = &self.rows.entry(row.clone()).or_default().floors;
                let floor = floor_at(floors, invoked).version;
                if version < floor {
                    self.tell(row);
                    violated(&format!(
                        "{}: version {version} is told after version {floor} was seen or \
                         acknowledged",
                        name(row)
                    ));
                }
            }
            None => self.check_absence(row, invoked),
        }
    }

    /// Checks a reader that saw all of `rows` in one snapshot: if a member of a group is visible, no other
    /// member is missing.
    pub fn check_snapshot(&mut self, rows: &[RowName], invoked: EventNumber, seen: &SeenRows) {
        for row in rows {
            let seen = seen.get(row).map(|&(id, version)| (Some(id), version));
            self.check(row, invoked, seen);
        }
        let by_row: BTreeMap<&RowName, u64> = seen
            .iter()
            .map(|(row, &(_, version))| (row, version))
            .collect();
        for &(id, _) in seen.values() {
            let Some(write) = self.writes.get(id) else {
                continue;
            };
            for member in write.group.clone() {
                let other = &self.writes[member];
                let (Some(version), true) = (other.version, rows.contains(&other.row)) else {
                    continue;
                };
                if self.tainted.contains(&other.row) {
                    continue;
                }
                let is_there = match by_row.get(&other.row) {
                    Some(&found) => found >= version,
                    None if !matches!(other.effect, Effect::Put { .. }) => true,
                    None => {
                        // A removal of unknown outcome counts as over once a crash has shown it.
                        let floors = &self.rows[&other.row].floors;
                        let floor = floor_at(floors, invoked);
                        floor.is_removal && floor.version >= version
                            || self.absence_of(&other.row, version, other.invoked)
                    }
                };
                if !is_there {
                    self.violate(member, "is missing in a snapshot with others of its group");
                }
            }
        }
    }

    fn check_row(
        &mut self,
        row: &RowName,
        invoked: EventNumber,
        event: EventNumber,
        id: WriteId,
        version: u64,
    ) {
        let Some(write) = self.writes.get(id).filter(|write| write.row == *row) else {
            violated(&format!(
                "{}: holds a value that nobody wrote there",
                name(row)
            ));
            return;
        };
        match write.status {
            Status::Refused => self.violate(id, "was refused, and is seen"),
            Status::Gone => self.violate(id, "was gone after a crash, and is seen again"),
            Status::Pending | Status::Acknowledged | Status::Unknown => {}
        }
        let floors = &self.rows.entry(row.clone()).or_default().floors;
        let floor = floor_at(floors, invoked).version;
        if version < floor {
            self.violate(
                id,
                &format!("seen as {version} after {floor} was seen or acknowledged"),
            );
        }
        self.bind(id, version);
        self.raise(id, event);
    }

    fn check_absence(&mut self, row: &RowName, invoked: EventNumber) {
        let floor = floor_at(&self.rows.entry(row.clone()).or_default().floors, invoked);
        if floor.is_removal || self.fenced.contains_key(&row.namespace) {
            return;
        }
        if !self.absence_of(row, floor.version, 0) {
            self.tell(row);
            violated(&format!(
                "{}: version {} was seen or acknowledged, and there is no row",
                name(row),
                floor.version
            ));
        }
    }

    /// Adds the known writes of a row to the trace.
    pub(super) fn tell(&self, row: &RowName) {
        for &id in self.rows.get(row).map_or(&[][..], |row| &row.writes) {
            let write = &self.writes[id];
            note!(
                "  write {id}: {:?} {:?} version {:?} {:?} asked {} over {:?} session {}",
                write.effect,
                write.only_if,
                write.version,
                write.status,
                write.invoked,
                write.completed,
                write.session
            );
        }
    }

    /// Returns whether there may be no row although one of this version existed: it has expired, or a removal
    /// may have come later.
    fn absence_of(&self, row: &RowName, version: u64, since: EventNumber) -> bool {
        let Some(history) = self.rows.get(row) else {
            return true;
        };
        let there = self.write_of(row, version);
        history.writes.iter().any(|&id| {
            let write = &self.writes[id];
            if matches!(write.status, Status::Refused | Status::Gone) {
                return false;
            }
            if write.version.is_some_and(|other| other < version) {
                return false;
            }
            // A removal that was over before the row was requested cannot have removed it.
            let is_over = write.version.is_none()
                && match there {
                    Some(there) => self.is_over_before(id, there),
                    None => {
                        write.status == Status::Acknowledged
                            && write.completed.is_some_and(|completed| completed < since)
                    }
                };
            let removes = match write.effect {
                Effect::Put { expires_at } => self.may_have_expired(expires_at),
                Effect::Delete | Effect::DeleteInRange => Some(id) != there,
            };
            removes && !is_over
        })
    }

    fn may_have_expired(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|at| at <= self.latest_wall)
    }

    fn write_of(&self, row: &RowName, version: u64) -> Option<WriteId> {
        let writes = &self.rows.get(row)?.writes;
        let is_it = |&&id: &&WriteId| self.writes[id].version == Some(version);
        writes.iter().find(is_it).copied()
    }

    /// Records the version of a write, and of the others of its group.
    pub(super) fn bind(&mut self, id: WriteId, version: u64) {
        let group = self.writes[id].group.clone();
        for member in group {
            let of_member = (version + member as u64).checked_sub(id as u64);
            self.bind_one(member, of_member.unwrap_or_default());
        }
    }

    fn bind_one(&mut self, id: WriteId, version: u64) {
        let (shard, known) = (self.writes[id].shard, self.writes[id].version);
        if known == Some(version) {
            return;
        }
        if known.is_some() {
            self.violate(id, &format!("is seen with version {version} as well"));
            return;
        }
        if let Some(&other) = self.by_version.get(&(shard, version)) {
            self.violate(id, &format!("has version {version}, as has write {other}"));
            return;
        }
        self.writes[id].version = Some(version);
        self.by_version.insert((shard, version), id);
        if version <= self.writes[id].shard_floor {
            let floor = self.writes[id].shard_floor;
            self.violate(
                id,
                &format!("has version {version}, and {floor} was given on its shard before"),
            );
        }
        let given = self.given.entry(shard).or_default();
        *given = version.max(*given);
        if !self.writes[id].is_async {
            // A visible durable commit is on the disk, with everything before it.
            let durable = self.durable.entry(shard).or_default();
            *durable = version.max(*durable);
        }
        self.check_order(id, version);
        self.check_condition(id, version);
    }

    /// Versions must not contradict the order of time.
    fn check_order(&self, id: WriteId, version: u64) {
        let write = &self.writes[id];
        for &other_id in &self.rows[&write.row].writes {
            let other = &self.writes[other_id];
            let Some(other_version) = other.version.filter(|_| other_id != id) else {
                continue;
            };
            let is_late = self.is_over_before(other_id, id) && other_version > version;
            let is_early = self.is_over_before(id, other_id) && other_version < version;
            if is_late || is_early {
                let (first, second) = if is_late {
                    (other_id, id)
                } else {
                    (id, other_id)
                };
                self.violate(
                    first,
                    &format!("was applied after write {second}, which was asked for later"),
                );
            }
        }
    }

    /// Returns whether a write was over before another was requested. One of unknown outcome is over for its
    /// own session.
    fn is_over_before(&self, first: WriteId, second: WriteId) -> bool {
        let (first, second) = (&self.writes[first], &self.writes[second]);
        let is_before = first.completed.is_some_and(|at| at < second.invoked);
        let counts = match first.status {
            Status::Acknowledged | Status::Gone => true,
            Status::Unknown => first.session == second.session,
            Status::Pending | Status::Refused => false,
        };
        is_before && counts
    }

    /// A condition must have held for the version before, if that is known.
    fn check_condition(&self, id: WriteId, version: u64) {
        let write = &self.writes[id];
        if self.tainted.contains(&write.row) {
            return;
        }
        let mut before: Option<WriteId> = None;
        let mut after: Option<WriteId> = None;
        for &other in &self.rows[&write.row].writes {
            let Some(at) = self.writes[other].version else {
                continue;
            };
            if other == id || self.writes[other].status == Status::Gone {
                continue;
            }
            let of = |id: Option<WriteId>| id.and_then(|id| self.writes[id].version);
            if at < version && of(before).is_none_or(|best| at > best) {
                before = Some(other);
            }
            if at > version && of(after).is_none_or(|best| at < best) {
                after = Some(other);
            }
        }
        self.check_neighbours(before, id);
        if let Some(after) = after {
            self.check_neighbours(Some(id), after);
        }
    }

    /// Of two writes of a row whose versions follow one another as far as known, the second must have had a
    /// true condition.
    fn check_neighbours(&self, first: Option<WriteId>, second: WriteId) {
        let found = first.map(|id| &self.writes[id]);
        let version = found.and_then(|write| write.version);
        let is_row = found.is_some_and(|write| matches!(write.effect, Effect::Put { .. }));
        let is_broken = match self.writes[second].only_if {
            OnlyIf::Always | OnlyIf::Present => false,
            OnlyIf::Version(wanted) => version.is_some_and(|version| version > wanted),
            OnlyIf::Absent => {
                let (row, since) = (&self.writes[second].row, self.writes[second].invoked);
                let floor = floor_at(&self.rows[row].floors, since);
                let was_removed = floor.is_removal && Some(floor.version) >= version;
                is_row
                    && !was_removed
                    && version.is_some_and(|version| !self.absence_of(row, version, since))
            }
        };
        if is_broken {
            self.violate(
                second,
                &format!(
                    "its condition was false: write {first:?} was there (version {version:?})"
                ),
            );
        }
    }
}
