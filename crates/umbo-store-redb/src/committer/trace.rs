//! The current step of a transaction, so that a failed read can be attributed to the change that needed it.
//!
//! Written before each step and read after the transaction was given up. The invariant: the next attempt leaves out
//! everything that the failed step was for.

use std::cell::{Cell, RefCell};

use umbo_types::NamespaceId;

/// A step of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CommitStep {
    #[default]
    Shared,
    Removal(usize),
    Row,
    Pack,
    Purge(NamespaceId),
    Sweep,
}

/// The purpose of the step that a failed read belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// Every commit: each needs the page that cannot be read.
    Shared,
    /// The removal of a range, by its index in the work.
    Removal(usize),
    /// A change of the row with this physical key.
    Row(Vec<u8>),
    /// Packed new rows. One of them needs the page.
    Pack,
    /// The purge of a namespace.
    Purge(NamespaceId),
    /// The sweeper, with the entry of the expiry index, or `None` if the index itself cannot be read.
    Sweep(Option<Vec<u8>>),
}

impl Culprit {
    /// Returns the key of the row whose change it is.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        match self {
            Self::Row(key) => Some(key),
            _ => None,
        }
    }
}

/// The current step of a transaction.
#[derive(Debug, Default)]
pub(crate) struct CommitTrace {
    step: Cell<CommitStep>,
    /// Key or entry of the step, in a reused buffer.
    key: RefCell<Vec<u8>>,
}

impl CommitTrace {
    /// Begins a step that every commit needs.
    pub(crate) fn shared(&self) {
        self.step.set(CommitStep::Shared);
    }

    /// Begins a piece of work: a write, whose rows are traced one by one, or other work.
    pub(crate) fn work(&self, index: usize, is_write: bool) {
        self.step.set(if is_write {
            CommitStep::Shared
        } else {
            CommitStep::Removal(index)
        });
    }

    /// Begins to reclaim rows of a namespace.
    pub(crate) fn purge(&self, namespace: NamespaceId) {
        self.step.set(CommitStep::Purge(namespace));
    }

    /// Begins to put new rows together.
    pub(crate) fn pack(&self) {
        self.step.set(CommitStep::Pack);
    }

    /// Begins a change of a row, unless it is part of another step.
    pub(crate) fn row(&self, key: &[u8]) {
        let step = self.step.get();
        if matches!(
            step,
            CommitStep::Shared | CommitStep::Row | CommitStep::Pack
        ) {
            self.step.set(CommitStep::Row);
            self.set_key(key);
        }
    }

    /// Begins to sweep: the index, or one entry of it.
    pub(crate) fn sweep(&self, entry: &[u8]) {
        self.step.set(CommitStep::Sweep);
        self.set_key(entry);
    }

    /// Returns the purpose of the current step.
    pub(crate) fn culprit(&self) -> Culprit {
        match self.step.get() {
            CommitStep::Shared => Culprit::Shared,
            CommitStep::Removal(index) => Culprit::Removal(index),
            CommitStep::Row => Culprit::Row(self.key.borrow().clone()),
            CommitStep::Pack => Culprit::Pack,
            CommitStep::Purge(namespace) => Culprit::Purge(namespace),
            CommitStep::Sweep => {
                let entry = self.key.borrow().clone();
                Culprit::Sweep((!entry.is_empty()).then_some(entry))
            }
        }
    }

    fn set_key(&self, key: &[u8]) {
        let mut current = self.key.borrow_mut();
        current.clear();
        current.extend_from_slice(key);
    }
}
