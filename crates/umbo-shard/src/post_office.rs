//! The mail of dispatchers: the questions that they ask one another, and the replies.
//!
//! Holds the connected dispatchers, by their incarnations, and interprets no letter. All of it is bounded: the
//! dispatchers by the limit on connections, the questions that wait for each, the questions that are open, and the
//! bytes of their replies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use umbo_protocol::{LETTERS_MAX, Letter, MailRequest, QuestionRequest};

use crate::connection_signals::ConnectionSignals;

/// Most questions that wait for a dispatcher. Beyond this the oldest one is dropped, and stays without a reply.
const WAITING_MAX: usize = 64;
/// Most questions that are open. A further question is answered without replies.
const OPEN_MAX: usize = 256;
/// Most bytes of replies that are held; a reply beyond them is dropped.
const REPLIES_LEN_MAX: usize = 64 << 20;

/// The mail of the dispatchers of a node.
#[derive(Debug, Default)]
pub(crate) struct PostOffice {
    state: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    members: BTreeMap<u64, Member>,
    open: BTreeMap<u64, OpenQuestion>,
    /// Number of the last question.
    last: u64,
    /// Bytes of the replies of open questions.
    replies_len: usize,
}

/// A dispatcher that has introduced itself.
#[derive(Debug)]
struct Member {
    about: Bytes,
    /// Number of the dispatcher's connection.
    connection: u64,
    signals: Arc<ConnectionSignals>,
    waiting: VecDeque<Letter>,
}

#[derive(Debug)]
struct OpenQuestion {
    /// Dispatchers that have not replied.
    unanswered: BTreeSet<u64>,
    replies: Vec<Letter>,
    is_answered: Arc<Notify>,
}

/// A question that was put to dispatchers. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct AskedQuestion {
    office: Arc<PostOffice>,
    number: Option<u64>,
    is_answered: Arc<Notify>,
}

impl PostOffice {
    /// Introduces the dispatcher of a connection, takes its replies, and returns the questions that wait for it.
    pub(crate) fn exchange(
        &self,
        (incarnation, connection): (u64, u64),
        signals: &Arc<ConnectionSignals>,
        mail: MailRequest,
    ) -> Vec<Letter> {
        let mut state = self.lock();
        for (number, reply) in mail.replies {
            state.reply(number, incarnation, reply);
        }
        let member = state.members.entry(incarnation).or_insert_with(|| Member {
            about: Bytes::new(),
            connection,
            signals: Arc::clone(signals),
            waiting: VecDeque::new(),
        });
        if member.connection != connection {
            // A message over the older connection may be lost.
            (member.connection, member.signals) = (connection, Arc::clone(signals));
        }
        member.about = mail.about;
        member.waiting.drain(..).collect()
    }

    /// Returns the dispatchers by their incarnations, with their descriptions.
    pub(crate) fn members(&self) -> Vec<Letter> {
        let state = self.lock();
        let members = state.members.iter();
        let letter = |(&incarnation, member): (&u64, &Member)| (incarnation, member.about.clone());
        members.map(letter).take(LETTERS_MAX).collect()
    }

    /// Puts a question to the requested dispatchers that are connected.
    pub(crate) fn ask(self: &Arc<Self>, request: QuestionRequest) -> AskedQuestion {
        let mut state = self.lock();
        let is_answered = Arc::new(Notify::new());
        let mut asked = AskedQuestion {
            office: Arc::clone(self),
            number: None,
            is_answered: Arc::clone(&is_answered),
        };
        if state.open.len() >= OPEN_MAX {
            is_answered.notify_one();
            return asked;
        }
        state.last += 1;
        let number = state.last;
        asked.number = Some(number);
        let mut unanswered = BTreeSet::new();
        for incarnation in request.to {
            let Some(member) = state.members.get_mut(&incarnation) else {
                continue;
            };
            if member.waiting.len() >= WAITING_MAX {
                member.waiting.pop_front();
            }
            member.waiting.push_back((number, request.question.clone()));
            member.signals.bring_mail();
            unanswered.insert(incarnation);
        }
        if unanswered.is_empty() {
            is_answered.notify_one();
        }
        let open = OpenQuestion {
            unanswered,
            replies: Vec::new(),
            is_answered,
        };
        state.open.insert(number, open);
        drop(state);
        asked
    }

    /// Forgets the dispatcher of a connection that has ended.
    pub(crate) fn leave(&self, connection: u64) {
        let mut state = self.lock();
        let mut gone = BTreeSet::new();
        state.members.retain(|&incarnation, member| {
            let stays = member.connection != connection;
            if !stays {
                gone.insert(incarnation);
            }
            stays
        });
        for question in state.open.values_mut() {
            for incarnation in &gone {
                question.settle(*incarnation);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mail {
    fn reply(&mut self, number: u64, incarnation: u64, reply: Bytes) {
        let Some(question) = self.open.get_mut(&number) else {
            return;
        };
        let is_wanted = question.unanswered.contains(&incarnation);
        if is_wanted && self.replies_len + reply.len() <= REPLIES_LEN_MAX {
            self.replies_len += reply.len();
            question.replies.push((incarnation, reply));
        }
        question.settle(incarnation);
    }
}

impl OpenQuestion {
    /// Stops waiting for the reply of a dispatcher.
    fn settle(&mut self, incarnation: u64) {
        if self.unanswered.remove(&incarnation) && self.unanswered.is_empty() {
            self.is_answered.notify_one();
        }
    }
}

impl AskedQuestion {
    /// Waits until every dispatcher has replied or is gone.
    pub(crate) async fn answered(&self) {
        self.is_answered.notified().await;
    }

    /// Returns the replies so far, by incarnation.
    pub(crate) fn replies(self) -> Vec<Letter> {
        let mut state = self.office.lock();
        let question = self.number.and_then(|number| state.open.get_mut(&number));
        let replies =
            question.map_or_else(Vec::new, |question| std::mem::take(&mut question.replies));
        state.replies_len -= len_of(&replies);
        replies
    }
}

impl Drop for AskedQuestion {
    fn drop(&mut self) {
        let mut state = self.office.lock();
        let Some(question) = self.number.and_then(|number| state.open.remove(&number)) else {
            return;
        };
        state.replies_len -= len_of(&question.replies);
        let number = self.number;
        for member in state.members.values_mut() {
            member.waiting.retain(|(other, _)| Some(*other) != number);
        }
    }
}

fn len_of(letters: &[Letter]) -> usize {
    letters.iter().map(|(_, bytes)| bytes.len()).sum()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn exchange(office: &PostOffice, who: u64, replies: Vec<Letter>) -> Vec<Letter> {
        let signals = Arc::new(ConnectionSignals::default());
        let about = Bytes::from(format!("about {who}"));
        office.exchange((who, who * 10), &signals, MailRequest { about, replies })
    }

    fn ask(office: &Arc<PostOffice>, to: &[u64]) -> AskedQuestion {
        office.ask(QuestionRequest {
            to: to.to_vec(),
            question: Bytes::from_static(b"?"),
        })
    }

    #[test]
    fn a_question_goes_to_those_it_names_and_their_replies_come_back() {
        let office = Arc::new(PostOffice::default());
        for who in [1, 2, 3] {
            assert!(exchange(&office, who, Vec::new()).is_empty());
        }
        assert_eq!(office.members().len(), 3);
        let asked = ask(&office, &[1, 2, 9]);
        let questions = exchange(&office, 1, Vec::new());
        let (number, question) = questions[0].clone();
        assert_eq!((questions.len(), &question[..]), (1, &b"?"[..]));
        assert!(
            exchange(&office, 3, Vec::new()).is_empty(),
            "it was not asked"
        );
        exchange(&office, 1, vec![(number, Bytes::from_static(b"one"))]);
        exchange(&office, 3, vec![(number, Bytes::from_static(b"forged"))]);
        assert!(asked.answered().now_or_never().is_none());
        exchange(&office, 2, vec![(number, Bytes::from_static(b"two"))]);
        assert!(asked.answered().now_or_never().is_some());
        let replies = asked.replies();
        let expected = [
            (1, Bytes::from_static(b"one")),
            (2, Bytes::from_static(b"two")),
        ];
        assert_eq!(replies, expected);
        assert_eq!(office.lock().replies_len, 0);
        assert!(office.lock().open.is_empty());
    }

    #[test]
    fn a_dispatcher_that_leaves_is_not_waited_for() {
        let office = Arc::new(PostOffice::default());
        exchange(&office, 1, Vec::new());
        let asked = ask(&office, &[1]);
        assert!(asked.answered().now_or_never().is_none());
        office.leave(10);
        assert!(asked.answered().now_or_never().is_some());
        assert!(asked.replies().is_empty() && office.members().is_empty());
        let nobody = ask(&office, &[1]);
        assert!(nobody.answered().now_or_never().is_some());
    }

    #[test]
    fn questions_and_replies_are_bounded_and_a_question_that_is_dropped_leaves_nothing() {
        let office = Arc::new(PostOffice::default());
        exchange(&office, 1, Vec::new());
        let asked: Vec<_> = (0..OPEN_MAX).map(|_| ask(&office, &[1])).collect();
        let beyond = ask(&office, &[1]);
        assert!(beyond.answered().now_or_never().is_some());
        assert!(beyond.replies().is_empty());
        assert_eq!(office.lock().members[&1].waiting.len(), WAITING_MAX);
        let large = Bytes::from(vec![0; REPLIES_LEN_MAX / 2 + 1]);
        let numbers: Vec<u64> = office.lock().open.keys().copied().take(2).collect();
        for number in numbers {
            exchange(&office, 1, vec![(number, large.clone())]);
        }
        assert_eq!(
            office.lock().replies_len,
            large.len(),
            "the second was dropped"
        );
        drop(asked);
        let state = office.lock();
        assert!(state.open.is_empty() && state.members[&1].waiting.is_empty());
        assert_eq!(state.replies_len, 0);
    }
}
