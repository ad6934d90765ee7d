//! The progress of a run of a load, and the sign that the run goes on.
//!
//! One row, replaced on the condition that it is as this runner left it. So of two runners of a load one learns at its
//! next write that it was overtaken. The row is written at least every [`BEAT`](crate::limits::BEAT). If it does not
//! change for a [`LEASE`](crate::limits::LEASE), its run has ended. An observer compares only times of its own clock.

use std::collections::BTreeMap;

use serde::Serialize;
use umbo_loads::LoadRecord;
use umbo_loads::layout::{self, RunPosition, RunRecord};
use umbo_store::{Change, Condition, FencingToken, Mutation, WriteError};
use umbo_types::{Key, NamespaceId, ShardId, Value, Version};

use super::host::{Host, LoadHost, RowCounts};
use crate::host_error::HostError;
use crate::stored_rows::read_json;

/// Why a run ends before its load does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The load is paused, has ended or was forgotten, or the dispatcher is about to end.
    LetGo,
    /// Another runner has it.
    Overtaken,
    /// The load cannot be applied.
    Failed(String),
    /// The load cannot be applied now. A later try continues it.
    Later {
        /// When.
        after: std::time::Duration,
        /// Why.
        reason: String,
    },
}

impl From<HostError> for Stop {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Wait { after, reason } => Self::Later { after, reason },
            HostError::Gone => Self::LetGo,
            HostError::Overtaken => Self::Overtaken,
            HostError::Never(reason) => Self::Failed(reason),
        }
    }
}

/// The row of a run, as this runner left it.
#[derive(Debug)]
pub(crate) struct Journal {
    host: Host,
    report: NamespaceId,
    pub(crate) run: RunRecord,
    version: Option<Version>,
    /// Progress of the load when the run began.
    begun_at: RunPosition,
    /// Progress of the load when the row was last written.
    written_at: RunPosition,
}

impl Journal {
    /// Takes a load over, as its next run. Refused if the row changes meanwhile.
    pub(crate) async fn take_over(
        host: &Host,
        load: &LoadRecord,
        runner: u64,
    ) -> Result<Self, Stop> {
        let report = load.report_id();
        let found = read_json::<_, RunRecord>(host, report, &layout::run_key()).await?;
        let (run, version) = found.map_or_else(Default::default, |(run, at)| (run, Some(at)));
        // It grows with every write, also of versions that know no numbers of runs. Five a second use up 27 years.
        let number = u32::try_from(run.beat + 1).unwrap_or(u32::MAX);
        let mut journal = Self {
            host: host.of_run(
                FencingToken {
                    load: load.content_id(),
                    number,
                },
                run.inflated.clone(),
            ),
            report,
            begun_at: run.place(),
            written_at: run.place(),
            run,
            version,
        };
        // The process of the run before has ended, or it was not heard of for a lease.
        if ![0, runner].contains(&journal.run.runner) {
            journal.run.fruitless += 1;
        }
        (journal.run.runner, journal.run.waits) = (runner, None);
        journal.write().await?;
        Ok(journal)
    }

    /// Returns the dispatcher as this run uses it.
    pub(crate) fn host(&self) -> Host {
        self.host.clone()
    }

    /// Records that the run makes progress: the rows of the load are not what ended the runs before.
    pub(crate) const fn gets_on(&mut self) {
        self.run.fruitless = 0;
    }

    /// Records why the run waits, or `None` if it goes on. The host is told at once, and the row has it with the next
    /// write.
    pub(crate) fn waits_for(&mut self, reason: Option<String>) {
        self.host.waits_for(self.report, reason.clone());
        self.run.waits = reason;
    }

    /// Writes the row.
    pub(crate) async fn write(&mut self) -> Result<(), Stop> {
        self.run.beat += 1;
        self.run.inflated = self.host.inflated.from(self.run.checked);
        let place = self.run.place();
        if self.run.waits.is_some() || place != self.begun_at {
            self.gets_on();
        }
        if std::mem::replace(&mut self.written_at, place) != place {
            self.host.got_on(self.report);
        }
        let condition = self.version.map_or(Condition::Absent, |version| {
            Condition::VersionIn(vec![version])
        });
        let mutation = json_row(layout::run_key(), &self.run, condition);
        // The condition is all that decides: the row is also written once the bytes of the load are gone.
        let written = LoadHost::write(&*self.host, self.report, vec![mutation], None).await?;
        match written.into_iter().next() {
            Some(Ok(written)) => {
                self.version = Some(written.version);
                Ok(())
            }
            Some(Err(WriteError::Store(error))) => Err(HostError::from(error).into()),
            Some(Err(_)) | None => Err(Stop::Overtaken),
        }
    }

    /// Counts applied, skipped and rejected rows.
    pub(crate) fn count(
        &mut self,
        skipped: u64,
        rejected: u64,
        by_shard: &BTreeMap<ShardId, RowCounts>,
    ) {
        let mut all = RowCounts {
            skipped,
            rejected,
            ..RowCounts::default()
        };
        for (shard, counts) in by_shard {
            all += *counts;
            if counts.applied > 0 {
                *self.run.shards.entry(shard.0).or_default() += counts.applied;
            }
        }
        self.run.applied += all.applied;
        self.run.skipped += all.skipped;
        self.run.rejected += all.rejected;
        self.host.counted(all);
    }

    /// Writes other rows of the report than the run's own, each alone.
    pub(crate) async fn put_rows(&self, rows: Vec<Mutation>) -> Result<(), Stop> {
        if rows.is_empty() {
            return Ok(());
        }
        Ok(self.host.store(self.report, rows).await?)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.host.waits_for(self.report, None);
    }
}

/// Returns a row of JSON.
pub(crate) fn json_row(key: Key, content: &impl Serialize, condition: Condition) -> Mutation {
    let bytes = serde_json::to_vec(content).expect("a record is made of numbers and texts");
    Mutation {
        key,
        change: Change::Put {
            value: Value {
                bytes: bytes.into(),
                ..Value::default()
            },
            expires_at: None,
        },
        condition,
    }
}
