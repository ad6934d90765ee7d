//! Removals of namespaces, which the shards must keep.

use std::rc::Rc;
use std::sync::Arc;

use umbo_store::{IdRange, RecordsCopy, RecordsRevision, Store};
use umbo_types::NamespaceId;

use super::world::World;
use crate::chance::Chance;
use crate::simulation::{met, note, violated};

/// Namespaces that were removed.
#[derive(Debug, Default)]
pub(super) struct NamespaceRemovals {
    number: u64,
    fenced: Vec<NamespaceId>,
    last: u32,
}

impl NamespaceRemovals {
    /// Removes a namespace and begins another one.
    pub(super) async fn raise(&mut self, world: &Rc<World>, chance: &mut Chance) {
        let namespaces = world.namespaces.borrow().clone();
        let victim = namespaces[chance.index(namespaces.len())];
        if !self.fenced.contains(&victim) {
            self.fenced.push(victim);
            self.fenced.sort_unstable();
            self.number += 1;
        }
        if self.keep(world).await != Some(0) {
            return;
        }
        // Clients use the old id a little longer.
        self.last += 1;
        let mut namespaces = world.namespaces.borrow_mut();
        if namespaces.len() >= 4 {
            namespaces.remove(0);
        }
        namespaces.push(NamespaceId(100 + self.last));
    }

    /// Has the shards keep the removals; returns how many of them failed. A removal is in effect for
    /// certain when none did.
    async fn keep(&self, world: &Rc<World>) -> Option<usize> {
        let copy = Arc::new(RecordsCopy {
            revision: RecordsRevision {
                epoch: 0,
                number: self.number,
            },
            fenced: IdRange::joined(self.fenced.iter().map(|&id| id.into()).collect()),
            datasets: Vec::new(),
            content: bytes::Bytes::from(format!("records {}", self.number)),
        });
        let keep = async |store: Arc<dyn Store>| store.keep_records(copy).await;
        let kept = world.endpoints[0].ask(keep).await?;
        if kept.is_empty() {
            return None;
        }
        let failed = kept.iter().filter(|(_, kept)| kept.is_err()).count();
        note!(
            "namespaces {:?} are fenced, {failed} shards failed",
            self.fenced
        );
        if failed > 0 {
            met("fence refused");
            return Some(failed);
        }
        met("fence");
        let mut history = world.history.borrow_mut();
        for id in &self.fenced {
            history.fence(u64::from(id.0));
        }
        Some(0)
    }

    /// Asks again for the removals that a shard has not confirmed, as a dispatcher does until all have.
    pub(super) async fn complete(&self, world: &Rc<World>) {
        if !self.fenced.is_empty() && self.keep(world).await != Some(0) {
            violated("a removal is not confirmed although all faults are over");
        }
    }
}
