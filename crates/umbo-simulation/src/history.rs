//! The oracle of rows: the operations of clients and their answers, and whether one store can have answered
//! so.
//!
//! Versions are the order in which a shard applied its writes, so no search is needed: what clients saw must
//! not contradict the order of versions, nor that order the order of time. The rules, each with the words of
//! its violation:
//! - a read returns the newest write that was acknowledged or read before the read began, or a newer one, and
//!   never a refused one;
//! - an absent row has a removal or an expiry that explains it;
//! - writes that followed one another have growing versions, and no version is assigned twice. A write of
//!   unknown outcome counts as over once its session continues: it may be applied or not, but not after a later
//!   one;
//! - a condition held for the version before;
//! - an atomic group has consecutive versions, so one visible member shows that all are applied;
//! - a crash may lose asynchronous writes that are younger than the flush bound, or were when their shard ceased to
//!   write, and of each shard only the last ones by version.

mod check;
mod crash;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use umbo_types::Timestamp;

use crate::chance::Chance;
use crate::simulation::{elapsed, violated};
use crate::value::{WriteId, head};

/// Number of writes of a row from which old ones are left out of the comparison.
const RECENT_MAX: usize = 64;
/// Number of the latest writes with a known version that are always compared.
const RECENT_KEPT: usize = 24;

/// Number of an event within a history: the order of time.
pub type EventNumber = u64;

/// A row by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowName {
    /// Namespace of the row; a namespace that was removed and created again is another one.
    pub namespace: u64,
    /// Partition key.
    pub partition: String,
    /// Sort key.
    pub sort: String,
}

/// The change of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Puts a unique value.
    Put {
        /// When the row expires.
        expires_at: Option<Timestamp>,
    },
    /// Removes the row.
    Delete,
    /// Removes the row as one of a range: the answer does not contain its version.
    DeleteInRange,
}

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnlyIf {
    /// None.
    Always,
    /// There is no row.
    Absent,
    /// There is a row.
    Present,
    /// The row has this version.
    Version(u64),
}

/// The known outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Not answered yet.
    Pending,
    /// The write was acknowledged.
    Acknowledged,
    /// Refused: it was not applied.
    Refused,
    /// Unknown.
    Unknown,
    /// Lost in a crash, or applied unseen at most: it must never be seen.
    Gone,
}

/// A write.
#[derive(Debug, Clone)]
pub struct WriteRecord {
    pub(crate) row: RowName,
    pub(crate) effect: Effect,
    only_if: OnlyIf,
    shard: u16,
    is_async: bool,
    session: u32,
    /// Writes of the same atomic group, in order.
    group: Range<WriteId>,
    invoked: EventNumber,
    completed: Option<EventNumber>,
    completed_at: Duration,
    pub(crate) status: Status,
    version: Option<u64>,
    /// Highest acknowledged version of the shard when the write was requested.
    shard_floor: u64,
}

/// A write operation of a client on a row.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The row.
    pub row: RowName,
    /// The shard of the row.
    pub shard: u16,
    /// The change.
    pub effect: Effect,
    /// The condition.
    pub only_if: OnlyIf,
}

/// The lowest version that a reader may see from an event on.
#[derive(Debug, Clone, Copy)]
struct Floor {
    from: EventNumber,
    version: u64,
    /// Whether a row must have at least that version because the previous row was removed.
    is_removal: bool,
}

#[derive(Debug, Default)]
struct RowHistory {
    writes: Vec<WriteId>,
    floors: Vec<Floor>,
}

/// All operations and answers.
#[derive(Debug, Default)]
pub struct OperationHistory {
    writes: Vec<WriteRecord>,
    rows: BTreeMap<RowName, RowHistory>,
    /// Highest version acknowledged or seen, by shard.
    given: BTreeMap<u16, u64>,
    /// Highest version acknowledged as durable, by shard.
    durable: BTreeMap<u16, u64>,
    by_version: BTreeMap<(u16, u64), WriteId>,
    /// Since when a shard does not write, for those that do not.
    failing: BTreeMap<u16, Duration>,
    /// Removed namespaces, and the event since which no row of theirs may be seen.
    fenced: BTreeMap<u64, EventNumber>,
    /// Rows that are not compared.
    tainted: BTreeSet<RowName>,
    events: EventNumber,
    /// Latest time of day that any process can have used.
    latest_wall: Timestamp,
    /// Reads that were checked.
    pub reads: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
}

impl OperationHistory {
    /// Returns the next event.
    pub fn event(&mut self) -> EventNumber {
        self.events += 1;
        self.events
    }

    /// Records a time of day that a process may use.
    pub fn note_wall(&mut self, now: Timestamp) {
        self.latest_wall = self.latest_wall.max(now);
    }

    /// Begins writes that are requested together. Those of one atomic request form a group.
    pub fn begin(
        &mut self,
        session: u32,
        is_group: bool,
        is_async: bool,
        asked: &[Asked],
    ) -> Range<WriteId> {
        let invoked = self.event();
        let first = self.writes.len();
        let all = first..first + asked.len();
        for asked in asked {
            let id = self.writes.len();
            let group = if is_group { all.clone() } else { id..id + 1 };
            self.writes.push(WriteRecord {
                row: asked.row.clone(),
                effect: asked.effect,
                only_if: asked.only_if,
                shard: asked.shard,
                is_async,
                session,
                group,
                invoked,
                completed: None,
                completed_at: Duration::ZERO,
                status: Status::Pending,
                version: None,
                shard_floor: self.given.get(&asked.shard).copied().unwrap_or_default(),
            });
            let row = self.rows.entry(asked.row.clone()).or_default();
            row.writes.push(id);
            if row.writes.len() > RECENT_MAX {
                self.prune(&asked.row);
            }
        }
        all
    }

    /// Leaves old writes of a row out of the comparison: refused ones, and those that many others have
    /// followed.
    fn prune(&mut self, row: &RowName) {
        let row = self.rows.entry(row.clone()).or_default();
        let writes = &self.writes;
        let mut versions: Vec<u64> = row
            .writes
            .iter()
            .filter_map(|&id| writes[id].version)
            .collect();
        versions.sort_unstable();
        let oldest = versions
            .len()
            .checked_sub(RECENT_KEPT)
            .map(|at| versions[at]);
        row.writes.retain(|&id| {
            let write = &writes[id];
            let is_followed = write.status == Status::Acknowledged && write.version < oldest;
            write.status != Status::Refused && !(is_followed && write.version.is_some())
        });
    }

    /// Begins a write that is compared only within its row. Returns its number.
    pub fn begin_unordered(&mut self, session: u32, asked: Asked) -> WriteId {
        let id = self.begin(session, false, false, &[asked]).start;
        self.writes[id].shard_floor = 0;
        id
    }

    /// Returns whether a write was answered before an event.
    pub fn was_over_by(&self, id: WriteId, event: EventNumber) -> bool {
        let write = &self.writes[id];
        write.completed.is_some_and(|completed| completed < event)
            && write.status == Status::Acknowledged
    }

    /// Records whether a shard writes.
    pub fn note_shard(&mut self, shard: u16, writes: bool) {
        if writes {
            self.failing.remove(&shard);
        } else {
            self.failing.entry(shard).or_insert_with(elapsed);
        }
    }

    /// Returns whether a write may have been applied after an event.
    pub fn may_be_applied_after(&self, id: WriteId, event: EventNumber) -> bool {
        let write = &self.writes[id];
        let is_before = write.status == Status::Acknowledged
            && write.completed.is_some_and(|completed| completed < event);
        !is_before && write.status != Status::Refused
    }

    /// Excludes a row from the comparison: writes outside of this history may have changed it.
    pub fn taint(&mut self, row: &RowName) {
        self.tainted.insert(row.clone());
    }

    /// Records that a write was acknowledged, with its version if the answer contains it.
    pub fn acknowledge(&mut self, id: WriteId, version: Option<u64>) {
        let event = self.end(id, Status::Acknowledged);
        self.acknowledged += 1;
        if let Some(&since) = self.fenced.get(&self.writes[id].row.namespace)
            && self.writes[id].invoked > since
        {
            self.violate(id, "was acknowledged after its namespace was removed");
        }
        let Some(version) = version else {
            return self.remove_unversioned(id, event);
        };
        self.bind(id, version);
        self.raise(id, event);
    }

    /// Records that a write was refused: it was not applied.
    pub fn refuse(&mut self, id: WriteId) {
        self.end(id, Status::Refused);
        if self.writes[id].version.is_some() {
            self.violate(id, "was answered as not applied, and had been seen before");
        }
    }

    /// Records that a write was refused because the row had this version.
    pub fn refuse_condition(&mut self, id: WriteId, current: Option<u64>) {
        let write = &self.writes[id];
        let is_contradiction = match (write.only_if, current) {
            (OnlyIf::Always, _) | (OnlyIf::Absent, None) | (OnlyIf::Present, Some(_)) => true,
            (OnlyIf::Version(wanted), Some(found)) => wanted == found,
            _ => false,
        };
        let (row, invoked) = (write.row.clone(), write.invoked);
        if is_contradiction {
            self.violate(id, &format!("its condition was refused at {current:?}"));
        }
        self.check(&row, invoked, current.map(|version| (None, version)));
        self.refuse(id);
    }

    /// Records that the outcome of a write is unknown.
    pub fn doubt(&mut self, id: WriteId) {
        self.end(id, Status::Unknown);
    }

    /// Records that a namespace is removed: no row of it may be seen or written from now on.
    pub fn fence(&mut self, namespace: u64) {
        let event = self.event();
        self.fenced.entry(namespace).or_insert(event);
    }

    /// Returns whether a namespace is removed.
    pub fn is_fenced(&self, namespace: u64) -> bool {
        self.fenced.contains_key(&namespace)
    }

    /// Returns a write.
    pub fn write(&self, id: WriteId) -> &WriteRecord {
        &self.writes[id]
    }

    /// Returns the first bytes of the value of some acknowledged write.
    pub fn some_value(&self, chance: &mut Chance) -> Option<Vec<u8>> {
        for _ in 0..20 {
            let id = chance.index(self.writes.len());
            let write = self.writes.get(id)?;
            if write.status == Status::Acknowledged && matches!(write.effect, Effect::Put { .. }) {
                return Some(head(id));
            }
        }
        None
    }

    /// Returns all rows that were ever written, except those of removed namespaces.
    pub fn rows(&self) -> Vec<RowName> {
        let live = |row: &&RowName| !self.fenced.contains_key(&row.namespace);
        self.rows.keys().filter(live).cloned().collect()
    }

    fn end(&mut self, id: WriteId, status: Status) -> EventNumber {
        let event = self.event();
        let write = &mut self.writes[id];
        write.status = status;
        write.completed = Some(event);
        write.completed_at = elapsed();
        event
    }

    /// A removal without a version was acknowledged: the rows from before its request are gone.
    fn remove_unversioned(&mut self, id: WriteId, event: EventNumber) {
        let invoked = self.writes[id].invoked;
        let row = self.writes[id].row.clone();
        let row = self.rows.entry(row).or_default();
        let before = floor_at(&row.floors, invoked).version;
        let now = floor_at(&row.floors, event).version;
        // Without a row nothing was removed, and no version was assigned.
        let is_removed = floor_at(&row.floors, event).is_removal;
        if before > 0 && before == now && !is_removed {
            row.floors.push(Floor {
                from: event,
                version: before + 1,
                is_removal: true,
            });
        }
    }

    /// Records that readers may see nothing older than this write from an event on.
    fn raise(&mut self, id: WriteId, event: EventNumber) {
        let write = &self.writes[id];
        let Some(version) = write.version else {
            return;
        };
        let floor = Floor {
            from: event,
            version,
            is_removal: !matches!(write.effect, Effect::Put { .. }),
        };
        let row = self.rows.entry(write.row.clone()).or_default();
        if floor_at(&row.floors, event).version < version {
            row.floors.push(floor);
        }
    }

    fn violate(&self, id: WriteId, what: &str) {
        let write = &self.writes[id];
        self.tell(&write.row);
        violated(&format!(
            "write {id} of {}: {what} ({:?} {:?} by session {}, version {:?}, {:?})",
            name(&write.row),
            write.effect,
            write.only_if,
            write.session,
            write.version,
            write.status,
        ));
    }
}

/// Returns the name of a row as text.
pub fn name(row: &RowName) -> String {
    format!("{}/{}/{}", row.namespace, row.partition, row.sort)
}

fn floor_at(floors: &[Floor], event: EventNumber) -> Floor {
    let after = floors.partition_point(|floor| floor.from <= event);
    let none = Floor {
        from: 0,
        version: 0,
        is_removal: true,
    };
    after.checked_sub(1).map_or(none, |at| floors[at])
}

/// Rows that a reader saw, by name: the write by its value, and the version.
pub type SeenRows = BTreeMap<RowName, (WriteId, u64)>;

/// Returns the names in `rows` that a reader of a range must have seen.
pub fn names_within(rows: &[RowName], within: impl Fn(&RowName) -> bool) -> BTreeSet<RowName> {
    rows.iter().filter(|row| within(row)).cloned().collect()
}
