//! The uploads of a shard in memory. Which rows refer to one is looked up in the rows themselves.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use umbo_types::{LargeRef, Timestamp, UploadId};

use crate::error::WriteError;
use crate::large::{ChunkRequest, UPLOAD_IDLE, UploadState, UploadStep};

#[derive(Debug, Default)]
struct MemoryUpload {
    state: UploadState,
    chunks: Vec<Bytes>,
    /// When it goes unless a row refers to it.
    due: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Uploads(BTreeMap<UploadId, MemoryUpload>);

impl Uploads {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Takes a step. `referred` are the uploads that rows refer to now, not all of which did at the last sweep.
    pub(super) fn step(
        &mut self,
        step: &UploadStep,
        mut referred: impl Iterator<Item = UploadId>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        if let Some(upload) = self.0.get_mut(step.upload())
            && referred.any(|id| id == *step.upload())
        {
            upload.state.references = 1;
        }
        match step {
            UploadStep::Append {
                upload,
                index,
                bytes,
            } => {
                let known = self.0.get(upload).map(|upload| upload.state);
                let state = UploadState::append(known, *index, bytes.len());
                let state = state.ok_or(WriteError::UploadGone)?;
                let upload = self.0.entry(*upload).or_default();
                upload.state = state;
                upload.due = now.saturating_add(UPLOAD_IDLE);
                match upload.chunks.get_mut(*index as usize) {
                    Some(chunk) => chunk.clone_from(bytes),
                    None => upload.chunks.push(bytes.clone()),
                }
            }
            UploadStep::Abandon(upload) => {
                if self
                    .0
                    .get(upload)
                    .is_some_and(|one| one.state.references == 0)
                {
                    self.0.remove(upload);
                }
            }
        }
        Ok(())
    }

    /// Refuses a reference to what is not there, or not whole.
    pub(super) fn check(&self, large: &LargeRef) -> Result<(), WriteError> {
        match self.0.get(&large.upload) {
            Some(upload) if upload.state.is_whole(large) => Ok(()),
            _ => Err(WriteError::UploadGone),
        }
    }

    pub(super) fn chunk(&self, request: &ChunkRequest) -> Option<Bytes> {
        let upload = self.0.get(&request.large.upload)?;
        upload.chunks.get(request.index as usize).cloned()
    }

    /// Removes the uploads that are of no use; `referred` are those that rows refer to.
    pub(super) fn sweep(&mut self, referred: impl Iterator<Item = UploadId>, now: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        let referred: BTreeSet<_> = referred.collect();
        self.0.retain(|id, upload| {
            let was_referred = upload.state.references > 0;
            upload.state.references = referred.contains(id).into();
            upload.state.references > 0 || (!was_referred && upload.due > now)
        });
    }
}
