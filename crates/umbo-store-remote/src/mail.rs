//! The mail of this dispatcher at one node: it introduces itself, takes questions, and leaves its replies.
//!
//! One task for each connection. It does nothing until a node says that there is mail.

use std::sync::Arc;

use tokio::task::JoinSet;
use umbo_protocol::{Ask, Letter, MailRequest, Outcome, REPLY_LEN_MAX, RequestRef};
use umbo_types::{Criticality, RequestUnits};

use crate::connection::NodeConnection;
use crate::in_flight::ReplyEvent;
use crate::node::Node;

/// Exchanges mail over a connection, once the dispatcher has joined the fleet, until the connection ends or the
/// node knows no mail.
pub(crate) async fn keep(node: Arc<Node>, connection: Arc<NodeConnection>) {
    let membership = node.common.membership.wait().await;
    let mut replies: Vec<Letter> = Vec::new();
    let mut replying: JoinSet<Letter> = JoinSet::new();
    loop {
        let mail = MailRequest {
            about: membership.about.clone(),
            replies: some_of(&mut replies),
        };
        let Some(questions) = exchange(&connection, mail).await else {
            return;
        };
        for (number, question) in questions {
            let answer = Arc::clone(&membership.answer);
            replying.spawn(async move {
                let mut reply = answer.answer(question).await;
                // A reply that is too long for a node is replaced with an empty one.
                reply.truncate(if reply.len() > REPLY_LEN_MAX {
                    0
                } else {
                    reply.len()
                });
                (number, reply)
            });
        }
        if replies.is_empty() {
            tokio::select! {
                biased;
                () = node.has_mail.notified() => {}
                Some(reply) = replying.join_next() => replies.extend(reply.ok()),
            }
        }
        while let Some(reply) = replying.try_join_next() {
            replies.extend(reply.ok());
        }
    }
}

/// Takes the replies that fit in one message.
fn some_of(replies: &mut Vec<Letter>) -> Vec<Letter> {
    let mut len = 0;
    let fitting = replies.iter().take_while(|(_, reply)| {
        len += reply.len();
        len <= REPLY_LEN_MAX
    });
    let count = fitting.count();
    replies.drain(..count).collect()
}

/// Returns the questions that wait at the node.
async fn exchange(connection: &Arc<NodeConnection>, mail: MailRequest) -> Option<Vec<Letter>> {
    let ask = Ask::Mail(mail);
    let request = RequestRef {
        id: 0,
        deadline_ns: None,
        criticality: Criticality::CriticalPlus,
        caller: &[],
        price: RequestUnits::ZERO,
        traceparent: &[],
        is_continued: false,
        attributes: None,
        placed_as: None,
        ask: &ask,
    };
    let mut reply = connection.ask(request, None).ok()?;
    match reply.event().await {
        ReplyEvent::Answered(answer) => match answer.outcome {
            Outcome::Letters(questions) => Some(questions),
            _ => None,
        },
        ReplyEvent::Lost { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn replies_leave_in_order_and_no_more_than_fit() {
        let letter = |number, len| (number, Bytes::from(vec![0; len]));
        let mut replies = vec![
            letter(1, REPLY_LEN_MAX / 2),
            letter(2, REPLY_LEN_MAX / 2),
            letter(3, 1),
            letter(4, REPLY_LEN_MAX),
        ];
        let numbers = |letters: Vec<Letter>| -> Vec<u64> {
            letters.into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(some_of(&mut replies)), [1, 2]);
        assert_eq!(numbers(some_of(&mut replies)), [3]);
        assert_eq!(numbers(some_of(&mut replies)), [4]);
        assert!(some_of(&mut replies).is_empty());
    }
}
