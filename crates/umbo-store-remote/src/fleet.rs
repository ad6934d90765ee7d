//! Questions to the other dispatchers of the cluster.
//!
//! Each of them is asked through one node that it is connected to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;
use umbo_protocol::{Ask, LETTERS_MAX, Letter, Outcome, QuestionRequest};
use umbo_store::{AnswerQuestion, CallContext, Fleet, FleetMember};
use umbo_types::Deadline;

use crate::membership::Membership;
use crate::node::Node;
use crate::store::RemoteStore;

/// Longest wait for a node to say which dispatchers are connected to it.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that replies may take from the node to here, beyond the time that the dispatchers have.
const WAY_BACK: Duration = Duration::from_millis(500);

/// A dispatcher, and a node that it is connected to.
struct Found {
    about: Bytes,
    node: Arc<Node>,
}

impl RemoteStore {
    /// Returns the connected dispatchers by incarnation.
    async fn find_members(&self) -> BTreeMap<u64, Found> {
        let nodes = self.topology().nodes.clone();
        let asked = nodes
            .iter()
            .map(|node| self.letters(node, Ask::Members, MEMBERS_TIMEOUT));
        let mut found = BTreeMap::new();
        for (node, letters) in nodes.iter().zip(join_all(asked).await) {
            for (incarnation, about) in letters {
                found.entry(incarnation).or_insert_with(|| Found {
                    about,
                    node: Arc::clone(node),
                });
            }
        }
        found
    }

    fn member(&self, (incarnation, found): (u64, Found)) -> FleetMember {
        FleetMember {
            incarnation,
            about: found.about,
            is_self: incarnation == self.common.incarnation,
        }
    }

    /// Asks a node for letters. Returns no letters if the node does not answer in time.
    async fn letters(&self, node: &Node, ask: Ask, within: Duration) -> Vec<Letter> {
        let mut call = CallContext::internal();
        call.deadline = Some(Deadline::after(self.common.clock.monotonic(), within));
        let answered = timeout(within + WAY_BACK, self.attempt(node, &call, &ask)).await;
        match answered {
            Ok(Ok(Outcome::Letters(letters))) => letters,
            _ => Vec::new(),
        }
    }
}

#[async_trait]
impl Fleet for RemoteStore {
    fn join(&self, about: Bytes, answer: Arc<dyn AnswerQuestion>) {
        // The first one stays.
        let _ = self.common.membership.set(Membership { about, answer });
    }

    async fn members(&self) -> Vec<FleetMember> {
        let found = self.find_members().await;
        found.into_iter().map(|one| self.member(one)).collect()
    }

    async fn ask(&self, question: Bytes, within: Duration) -> Vec<(FleetMember, Option<Bytes>)> {
        let found = self.find_members().await;
        let mut by_node: BTreeMap<&str, (&Arc<Node>, Vec<u64>)> = BTreeMap::new();
        let others = found.iter();
        for (member, Found { node, .. }) in
            others.filter(|(member, _)| **member != self.common.incarnation)
        {
            let (_, to) = by_node.entry(node.name()).or_insert((node, Vec::new()));
            if to.len() < LETTERS_MAX {
                to.push(*member);
            }
        }
        let asked = by_node.into_values().map(|(node, to)| {
            let question = question.clone();
            self.letters(
                node,
                Ask::Question(QuestionRequest { to, question }),
                within,
            )
        });
        let replies: Vec<Vec<Letter>> = join_all(asked).await;
        let mut replies: BTreeMap<u64, Bytes> = replies.into_iter().flatten().collect();
        let with_reply = |one| {
            let member = self.member(one);
            let reply = replies.remove(&member.incarnation);
            (member, reply)
        };
        found.into_iter().map(with_reply).collect()
    }
}
