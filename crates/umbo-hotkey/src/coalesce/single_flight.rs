//! Single-flight: one read of the store for all readers that want the same at the same time.
//!
//! Owns the protocol of leader and follower. The request that asked for the leader's read polls it. If its client
//! leaves, the read goes on in a separate task, so that no client can cancel a read that others wait for. Each reader
//! brings the read along, so that a follower can lead when the leader has failed.

use std::sync::Arc;

use super::fetched::{AnswerSource, FlightError, Payload, Served};
use super::flight::LeaderToken;
use super::follower::{Followed, Follower};
use super::in_flight::{FlightRole, ReadContext};
use super::key::KeyRef;
use super::leader::{Leader, LeaderRead};
use super::shared_reads::{SharedReads, StoreRead};

/// A reader that has joined or entered an in-flight read.
enum Joined<V: Payload, E: Payload> {
    Leader(Leader<V, E>),
    Follower(Follower<V, E>),
}

impl<V: Payload, E: Payload> SharedReads<V, E> {
    /// Follows the in-flight read of the key, or leads one.
    ///
    /// Dropping the future gives up the wait and nothing else.
    pub(crate) async fn read<F>(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        is_hot: bool,
        context: &ReadContext,
        fetch: F,
    ) -> Result<Served<V>, FlightError<E>>
    where
        F: FnOnce(LeaderToken) -> StoreRead<V, E>,
    {
        let leader = match self.join_or_lead(key, is_hot, context) {
            Err(error) => return Err(error),
            Ok(Joined::Leader(leader)) => leader,
            Ok(Joined::Follower(follower)) => {
                let read_at = follower.followed.started;
                match follower.await {
                    Followed::Ended(result) => {
                        return Ok(Served::new(result?, AnswerSource::Follower, read_at));
                    }
                    Followed::Elected(leader) => leader,
                }
            }
        };
        let token = leader.token;
        let fetched = LeaderRead::new(leader, fetch(token)).await?;
        Ok(Served::new(fetched, AnswerSource::Leader, token.started))
    }

    fn join_or_lead(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        is_hot: bool,
        context: &ReadContext,
    ) -> Result<Joined<V, E>, FlightError<E>> {
        let mut stripe = self.in_flight.stripe(key.hash());
        let stamp = self.generations.stamp(key);
        let role = self
            .in_flight
            .join_or_lead(&mut stripe, key, stamp, is_hot, context);
        drop(stripe);
        match role {
            FlightRole::Leader(token) => Ok(Joined::Leader(Leader::new(self, token))),
            FlightRole::Follower(flight, token, id) => {
                Ok(Joined::Follower(Follower::new(self, flight, token, id)))
            }
            FlightRole::Refused => Err(FlightError::Full),
        }
    }

    /// Reads in a separate task, unless the key is being read already.
    pub(crate) fn refresh<F>(self: &Arc<Self>, key: &KeyRef<'_>, context: &ReadContext, fetch: F)
    where
        F: FnOnce(LeaderToken) -> StoreRead<V, E>,
    {
        if let Ok(Joined::Leader(leader)) = self.join_or_lead(key, true, context) {
            let read = fetch(leader.token);
            leader.spawn(read);
        }
    }
}
