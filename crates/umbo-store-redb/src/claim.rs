//! Claiming a shard's file for a node, and giving it away.
//!
//! Owns the commits that change the owner of a file. The invariant: each change of owner is one durable commit of the
//! file itself, so that after a crash the file has either the old owner or the new one.

use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::file_error::{FileError, guarded};
use crate::shard_file::{OpenedFile, ShardFile, begin_write, close, record};
use crate::shard_ownership::{
    FileOwnership, HandOverStamp, META_OWNER, META_STAMP, OwnerRecord, Remembered,
};
use crate::snapshot::ShardSnapshot;
use crate::tables::{META, ShardProgress};

/// Outcome of giving a file away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Giving {
    /// The file has the stamp now.
    Given,
    /// The file was given away before, with this stamp.
    GivenBefore(HandOverStamp),
    /// This node may not give the file away, for this reason.
    Kept(String),
}

/// How certain it is that a file is the newest file of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// The records of the file and of the map say so.
    ByRecords,
    /// The node has had the file open until now, or an operator vouches for it.
    Certain,
}

impl ShardFile {
    /// Records in an opened file that this node owns and uses it. Refuses a file that is not the newest file of its
    /// shard.
    pub(crate) fn claim(&self, opened: &mut OpenedFile) -> Result<(), FileError> {
        let Some(ownership) = &self.ownership else {
            return Ok(());
        };
        guarded(|| {
            let database = &opened.database;
            self.check_owner(&database.begin_read()?)?;
            opened.progress = ShardProgress {
                sequence: opened.progress.sequence + 1,
                is_closed: false,
                ..opened.progress
            };
            let transaction = begin_write(database)?;
            {
                let mut meta = transaction.open_table(META)?;
                meta.insert(META_OWNER, &ownership.owner_record().encode()[..])?;
                meta.remove(META_STAMP)?;
                opened.progress.write(&mut meta)?;
            }
            transaction.commit()?;
            opened.snapshot = ShardSnapshot::of(&database.begin_read()?, &opened.fences)?;
            Ok(())
        })
    }

    /// Checks that this node owns the file.
    pub(crate) fn check_owner(&self, transaction: &ReadTransaction) -> Result<(), FileError> {
        let Some(ownership) = &self.ownership else {
            return Ok(());
        };
        let checked = ownership.check(&owner_records(transaction)?);
        checked.map_err(|refused| FileError::Damaged(refused.to_string()))
    }

    /// Stamps a file that node `giver` has closed, or was killed over: it opens only at the owner that the stamp names.
    /// If necessary, the file is recovered first. The stamp is on the disk when this returns.
    pub(crate) fn give(
        &self,
        giver: &str,
        stamp: &HandOverStamp,
        remembered: Remembered,
        last: Last,
    ) -> Result<Giving, FileError> {
        guarded(|| {
            let OpenedFile {
                database, progress, ..
            } = self.recovered()?;
            let FileOwnership {
                last_owner,
                stamp: before,
            } = owner_records(&database.begin_read()?)?;
            // A stamped file that was copied here and never opened is handed on.
            let owner = before.as_ref().map_or(&last_owner, |before| &before.owner);
            if owner.node != giver {
                return Ok(match before {
                    Some(before) => Giving::GivenBefore(before),
                    None => Giving::Kept(format!("node '{}' had it last", last_owner.node)),
                });
            }
            let is_older = match before {
                Some(_) => remembered.claimed >= Some(owner.moves),
                None => remembered.given > Some(owner.moves),
            };
            if is_older {
                let reason = "this folder has opened a newer file of the shard since";
                return Ok(Giving::Kept(reason.to_owned()));
            }
            let has_counted = match last {
                Last::Certain => owner.moves < stamp.owner.moves,
                Last::ByRecords => owner.moves.checked_add(1) == Some(stamp.owner.moves),
            };
            if !has_counted {
                return Ok(Giving::Kept(format!(
                    "the shard has moved {} times by the file, and {} times by the map",
                    owner.moves, stamp.owner.moves
                )));
            }
            put_stamp(database, progress, stamp)?;
            Ok(Giving::Given)
        })
    }

    /// Replaces the stamp of a file that node `giver` has given away, so that it opens at the owner of
    /// `stamp`. Returns the previous stamp, which `allows` must accept.
    pub(crate) fn take_back(
        &self,
        giver: &str,
        stamp: &HandOverStamp,
        allows: impl FnOnce(&HandOverStamp) -> Result<(), String>,
    ) -> Result<HandOverStamp, FileError> {
        guarded(|| {
            let OpenedFile {
                database, progress, ..
            } = self.recovered()?;
            let found = owner_records(&database.begin_read()?)?;
            let refused = |reason: String| FileError::Damaged(reason);
            if found.last_owner.node != giver {
                let owner = found.last_owner.node;
                return Err(refused(format!(
                    "node '{owner}' had it last, not '{giver}'"
                )));
            }
            let before = found
                .stamp
                .ok_or_else(|| refused("it was not given away: it has no stamp".to_owned()))?;
            allows(&before).map_err(refused)?;
            put_stamp(database, progress, stamp)?;
            Ok(before)
        })
    }

    /// Returns the stamp of a file that was given away, or `None` if the file was not given away.
    pub(crate) fn stamp(&self) -> Result<Option<HandOverStamp>, FileError> {
        guarded(|| {
            let opened = self.recovered()?;
            Ok(owner_records(&opened.database.begin_read()?)?.stamp)
        })
    }
}

/// Stamps a file and closes it.
fn put_stamp(
    database: Database,
    progress: ShardProgress,
    stamp: &HandOverStamp,
) -> Result<(), FileError> {
    let progress = ShardProgress {
        sequence: progress.sequence + 1,
        ..progress
    };
    let transaction = begin_write(&database)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(META_STAMP, &stamp.encode()[..])?;
        progress.write(&mut meta)?;
    }
    transaction.commit()?;
    close(database)
}

/// Reads the owner records of a file.
fn owner_records(transaction: &ReadTransaction) -> Result<FileOwnership, FileError> {
    let undecodable =
        |what| FileError::Damaged(format!("the record of its {what} cannot be decoded"));
    let last_owner = OwnerRecord::decode(&record(transaction, META_OWNER)?);
    let stamp = transaction.open_table(META)?.get_owned(META_STAMP)?;
    let stamp = stamp
        .map(|stamp| HandOverStamp::decode(stamp.value()).ok_or_else(|| undecodable("next owner")));
    Ok(FileOwnership {
        last_owner: last_owner.ok_or_else(|| undecodable("owner"))?,
        stamp: stamp.transpose()?,
    })
}
