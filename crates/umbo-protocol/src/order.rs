//! The order of writes of a partition while some of them are sent in chunks.
//!
//! A message enters with the hashes of its partitions. It is blocked until all messages that entered earlier with one
//! of these hashes have left. Only messages that wait or are being sent are recorded, so it is nearly always empty.

use std::collections::{HashMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct PartitionOrder {
    /// Ids by partition, in the order of entry; never empty.
    queues: HashMap<u64, VecDeque<u64>>,
}

impl PartitionOrder {
    /// Returns whether a message with these partitions would be blocked.
    pub(crate) fn is_blocked(&self, partitions: impl IntoIterator<Item = u64>) -> bool {
        !self.queues.is_empty()
            && partitions
                .into_iter()
                .any(|one| self.queues.contains_key(&one))
    }

    /// Enters a message; `partitions` has no duplicates. Returns the number of other messages before it.
    pub(crate) fn enter(&mut self, id: u64, partitions: &[u64]) -> usize {
        let mut blocked = 0;
        for &partition in partitions {
            let queue = self.queues.entry(partition).or_default();
            blocked += usize::from(!queue.is_empty());
            queue.push_back(id);
        }
        blocked
    }

    /// Ends a message, sent or not. Calls `unblock` with each message that now has one fewer before it.
    pub(crate) fn leave(&mut self, id: u64, partitions: &[u64], mut unblock: impl FnMut(u64)) {
        for partition in partitions {
            let Some(queue) = self.queues.get_mut(partition) else {
                continue;
            };
            let was_first = queue.front() == Some(&id);
            queue.retain(|&other| other != id);
            match queue.front() {
                None => {
                    self.queues.remove(partition);
                }
                Some(&next) if was_first => unblock(next),
                Some(_) => {}
            }
        }
    }
}
