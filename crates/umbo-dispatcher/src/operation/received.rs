//! A body that was received: its bytes, or the upload that they are in.
//!
//! It is kept while its request may have to be repeated. An upload waits for the put of the row that refers to it. It
//! is given up when its last user drops it. If that fails, the shard gives it up once no step has come for a while. The
//! invariant: the steps of an upload are written under the dataset that is live at the time, because the dataset at the
//! start of the request may be dropped before its body has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use umbo_http::RequestError;
use umbo_store::{Change, Condition, Mutation, StoreError, UploadStep};
use umbo_types::{Key, LargeRef, NamespaceId, RequestUnits, UploadId};

use crate::dispatcher::Dispatcher;
use crate::paid_write::patient_write;
use crate::phase::identify::Identified;

/// How long a write waits for quotas or for its shard before the upload is refused. It is shorter than the time after
/// which a shard gives up an upload without steps.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A body that was received.
#[derive(Debug, Clone)]
pub(crate) enum Received {
    /// The body is in memory as a whole: a value that fits into a row, or a text for the server itself.
    Small(Bytes),
    /// The bytes of the body are in an upload, in the same shard as the row.
    Large(Arc<LargeUpload>),
}

/// An upload that is whole. It is given up when this is dropped, unless a row refers to it.
#[derive(Debug)]
pub(crate) struct LargeUpload {
    large: LargeRef,
    giving_up: GivingUp,
}

impl LargeUpload {
    pub(super) const fn new(large: LargeRef, giving_up: GivingUp) -> Self {
        Self { large, giving_up }
    }

    /// Returns the reference that the row holds in place of the bytes.
    pub(super) const fn reference(&self) -> &LargeRef {
        &self.large
    }

    /// Returns the id of the namespace whose rows may refer to the upload. Another namespace may have the partition in
    /// another shard.
    pub(super) fn namespace_id(&self) -> NamespaceId {
        self.giving_up.target.payer.namespace.id
    }

    /// Records that a row refers to the upload.
    pub(super) fn keep(&self) {
        self.giving_up.is_due.store(false, Ordering::Relaxed);
    }
}

/// Gives an upload up when it is dropped.
#[derive(Debug)]
pub(super) struct GivingUp {
    target: Target,
    upload: UploadId,
    /// Whether anything was written that nothing refers to.
    is_due: AtomicBool,
}

impl GivingUp {
    pub(super) fn new(target: &Target, upload: UploadId) -> Self {
        Self {
            target: target.clone(),
            upload,
            is_due: AtomicBool::new(true),
        }
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        if !*self.is_due.get_mut() {
            return;
        }
        let (target, upload) = (self.target.clone(), self.upload);
        let dispatcher = Arc::clone(&target.dispatcher);
        dispatcher.go_on(async move {
            let steps = vec![UploadStep::Abandon(upload)];
            if let Err(failure) = target.write(steps, PATIENCE).await {
                tracing::debug!(%upload, %failure, "an upload is left to its shard");
            }
        });
    }
}

/// The place of an upload, and its payer.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) payer: Identified,
    pub(super) key: Key,
}

impl Target {
    /// Takes steps of the upload. A temporary refusal is retried until `patience` runs out. If the dataset was dropped,
    /// the steps are repeated under the live dataset.
    pub(super) async fn write(
        &self,
        steps: Vec<UploadStep>,
        patience: Duration,
    ) -> Result<RequestUnits, RequestError> {
        let mutation = |step| Mutation {
            key: self.key.clone(),
            change: Change::Upload(step),
            condition: Condition::Always,
        };
        let mutations: Vec<Mutation> = steps.into_iter().map(mutation).collect();
        let control = &self.dispatcher.control;
        let mut payer = self.payer.clone();
        payer.namespace = control.namespaces.current(&payer.namespace);
        loop {
            let dataset = payer.namespace.dataset;
            let written =
                patient_write(&self.dispatcher, &payer, dataset, &mutations, patience).await;
            let Err(RequestError::Store(StoreError::NamespaceGone { namespace, .. })) = written
            else {
                return written;
            };
            let found = Box::pin(control.find_after_drop(namespace, &payer.namespace)).await?;
            match found {
                Some(found) => payer.namespace = found,
                None => return written,
            }
        }
    }
}
