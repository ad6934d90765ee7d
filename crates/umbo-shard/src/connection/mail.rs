//! Mail of the dispatcher of a connection.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::time::timeout;
use umbo_protocol::{Answer, MailRequest, NodeError, Outcome, QuestionRequest};
use umbo_types::{Criticality, ShardId};

use super::call::RequestCall;
use super::mailbox::Mailbox;
use super::stream::ShardStream;
use crate::reads::since;

/// Longest wait for the replies to a question.
const REPLIES_TIMEOUT: Duration = Duration::from_secs(10);

impl ShardStream {
    /// Takes the replies of the dispatcher, and answers with the questions that wait for it.
    pub(super) fn exchange_mail(&mut self, call: &RequestCall, mail: MailRequest) {
        let Mailbox {
            incarnation,
            connection,
            signals,
        } = &self.mailbox;
        let office = self.node.connections().post_office();
        let questions = office.exchange((*incarnation, *connection), signals, mail);
        let outcome = Outcome::Letters(questions);
        self.answer(
            call.kind,
            &Answer::without_rows(call.id, Duration::ZERO, outcome),
        );
    }

    /// Puts a question of the dispatcher to others, and answers with their replies. At the deadline it answers with the
    /// replies received so far.
    pub(super) fn question(
        &mut self,
        call: &RequestCall,
        question: QuestionRequest,
        context: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        let taken = self.take(Criticality::CriticalPlus, ShardId(0))?;
        let node = Arc::clone(&self.node);
        let asked = node.connections().post_office().ask(question);
        let (kind, id, begun) = (call.kind, call.id, call.begun);
        let left = call
            .context
            .deadline
            .map(|deadline| deadline.remaining(begun));
        let wait = left.map_or(REPLIES_TIMEOUT, |left| left.min(REPLIES_TIMEOUT));
        let work = async move {
            // A part of the replies is better than no reply.
            let _ = timeout(wait, asked.answered()).await;
            drop(taken);
            let outcome = Outcome::Letters(asked.replies());
            let took = since(begun, node.clock().monotonic());
            Answer::without_rows(id, took, outcome)
        };
        self.wait_for(kind, id, Box::pin(work), context);
        Ok(())
    }
}
