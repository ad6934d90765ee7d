//! Writes that a client sends again because it is unknown what became of them, and that the store recognises.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use umbo_store::{
    ByKey as _, CallContext, DIGEST_LEN, Idempotency, WriteError, WriteRequest, Written,
};
use umbo_types::Clock;

use super::{PATIENCE, SimulatedClient};
use crate::simulation::met;
use crate::store_world::world::World;
use crate::value::WriteId;

/// The answers to the mutations of a write.
type MutationResults = Vec<Result<Written, WriteError>>;

impl SimulatedClient {
    /// Sends a write again that the store recognises, through any host, while it is unknown what became of it. The
    /// oracle would see a write that was applied twice, by its two versions.
    pub(super) async fn repeat(
        &mut self,
        request: &WriteRequest,
        answers: &mut Option<MutationResults>,
    ) {
        const REPETITIONS_MAX: usize = 3;
        for _ in 0..REPETITIONS_MAX {
            let is_unknown = |answer: &Result<Written, WriteError>| {
                let outcome = answer.as_ref().err().map(WriteError::outcome);
                outcome == Some(umbo_store::Outcome::Unknown)
            };
            if answers
                .as_ref()
                .is_some_and(|all| !all.iter().any(is_unknown))
            {
                return;
            }
            met("write repeated with its key");
            let world = Rc::clone(&self.world);
            let again = world.endpoints[self.some_host()].ask(async |store| {
                let call = CallContext::internal();
                let writing = store.write_rows(&call, request.clone());
                tokio::time::timeout(PATIENCE, writing).await
            });
            let again = again.await.and_then(Result::ok);
            world.note_wall();
            let unknown = || request.mutations.iter().map(|_| Err(lost())).collect();
            let again: MutationResults = again.unwrap_or_else(unknown);
            let first = answers.get_or_insert_with(unknown);
            for at in 0..first.len() {
                if is_decided(first, at) {
                    continue;
                }
                if is_decided(&again, at) {
                    first[at] = again[at].clone().map_err(|error| error.into_first().0);
                } else if is_unknown(&again[at]) {
                    // The repetition may have applied what the first attempt did not.
                    first[at].clone_from(&again[at]);
                }
                // A repetition that was refused says nothing of the first attempt.
            }
        }
    }

    /// Returns the idempotency of these writes, which no others have. It is in effect for as long as a world lasts.
    pub(super) fn idempotency_of(world: &World, ids: Range<WriteId>) -> Idempotency {
        let mut id = [0; DIGEST_LEN];
        id[..8].copy_from_slice(&(ids.start as u64).to_be_bytes());
        Idempotency {
            id,
            request: id,
            keep_until: world
                .clock
                .wall()
                .saturating_add(Duration::from_hours(24 * 365)),
            keeps_refusals: true,
            lines: (0..ids.count() as u32).collect(),
        }
    }
}

/// Returns whether an answer is that of all repetitions too. The store records no failure of its own, so a group that
/// was aborted by one may be applied by a repetition.
fn is_decided(answers: &[Result<Written, WriteError>], at: usize) -> bool {
    match &answers[at] {
        Err(WriteError::Store(_)) => false,
        Err(WriteError::GroupAborted { index }) => {
            !matches!(answers.get(*index), Some(Err(WriteError::Store(_))))
        }
        _ => true,
    }
}

/// The error of a mutation whose answer was lost.
fn lost() -> WriteError {
    let shard = umbo_types::ShardId(0);
    let (reason, outcome) = (String::new(), umbo_store::Outcome::Unknown);
    WriteError::Store(umbo_store::StoreError::Unavailable {
        shard,
        reason,
        outcome,
    })
}
