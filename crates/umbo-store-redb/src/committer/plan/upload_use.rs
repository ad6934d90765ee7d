//! What the mutations of a commit want of uploads. It is asked before the rows are decided, because a put of a large value
//! is refused where its bytes are not there.

use umbo_store::{Change, UploadStep};
use umbo_types::LargeRef;

/// What a mutation wants of an upload.
#[derive(Debug)]
pub(crate) enum UploadUse<'a> {
    /// To change it.
    Step(&'a UploadStep),
    /// To refer to it.
    Reference(LargeRef),
}

impl<'a> UploadUse<'a> {
    /// Returns what a change wants; none where it is about no upload.
    pub(super) fn of(change: &'a Change) -> Option<Self> {
        match change {
            Change::Upload(step) => Some(Self::Step(step)),
            Change::Put { value, .. } => value.large().map(Self::Reference),
            Change::Delete | Change::Increment { .. } => None,
        }
    }
}
