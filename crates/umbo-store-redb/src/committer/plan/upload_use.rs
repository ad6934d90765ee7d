//! How the mutations of a commit use uploads. The uses are checked before the rows are decided, because a put of a
//! large value is refused if its bytes are missing.

use umbo_store::{Change, UploadStep};
use umbo_types::LargeRef;

/// How a mutation uses an upload.
#[derive(Debug)]
pub(crate) enum UploadUse<'a> {
    /// Changes it.
    Step(&'a UploadStep),
    /// Refers to it.
    Reference(LargeRef),
}

impl<'a> UploadUse<'a> {
    /// Returns the use of a change, or `None` if the change uses no upload.
    pub(super) fn of(change: &'a Change) -> Option<Self> {
        match change {
            Change::Upload(step) => Some(Self::Step(step)),
            Change::Put { value, .. } => value.large().map(Self::Reference),
            Change::Delete | Change::Increment { .. } => None,
        }
    }
}
