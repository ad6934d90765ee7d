//! The table of requests in flight, without a connection.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn an_answer(id: u64, outcome: Outcome, has_more: bool) -> Answer {
    Answer {
        id,
        service_time: Duration::ZERO,
        busy_time: Duration::ZERO,
        has_more,
        rows: 0,
        bytes: 0,
        outcome,
    }
}

fn absent(id: u64) -> Answer {
    an_answer(id, Outcome::Row(None), false)
}

fn poll(in_flight: &mut InFlight, id: u64) -> Option<ReplyEvent> {
    in_flight.poll(id, Waker::noop())
}

#[test]
fn an_answer_finds_the_one_who_waits() {
    let mut in_flight = InFlight::new(4);
    let one = in_flight.open().unwrap();
    let other = in_flight.open().unwrap();
    assert!(poll(&mut in_flight, one).is_none() && poll(&mut in_flight, other).is_none());
    assert!(in_flight.answer(absent(other)).is_some());
    assert!(poll(&mut in_flight, one).is_none());
    assert!(
        matches!(poll(&mut in_flight, other), Some(ReplyEvent::Answered(answer)) if answer.id == other)
    );
    assert_eq!(in_flight.len(), 1);
}

#[test]
fn what_nobody_asked_for_harms_nobody() {
    let mut in_flight = InFlight::new(4);
    let gone = in_flight.open().unwrap();
    in_flight.queued(gone, Placed::Small(1));
    assert_eq!(in_flight.cancel(gone), Some(Placed::Small(1)));
    for id in [0, 1, gone, u64::MAX, 1 << 16] {
        assert!(in_flight.answer(absent(id)).is_none());
        assert_eq!(in_flight.cancel(id), None);
    }
    let one = in_flight.open().unwrap();
    let other = in_flight.open().unwrap();
    assert_ne!(one % IN_FLIGHT_MAX as u64, other % IN_FLIGHT_MAX as u64);
    assert!(in_flight.answer(absent(gone)).is_none());
    assert!(
        poll(&mut in_flight, one).is_none(),
        "an answer to who had the slot before"
    );
    // A second answer does not replace the first.
    in_flight.answer(absent(one));
    in_flight.answer(absent(one));
    assert!(matches!(
        poll(&mut in_flight, one),
        Some(ReplyEvent::Answered(_))
    ));
    assert_eq!(in_flight.len(), 1);
}

#[test]
fn slots_are_bounded_and_used_again() {
    let mut in_flight = InFlight::new(2);
    let one = in_flight.open().unwrap();
    in_flight.open().unwrap();
    assert!(in_flight.open().is_none());
    in_flight.cancel(one);
    assert!(in_flight.open().is_some());
}

#[test]
fn a_node_that_answers_in_parts_is_refused_by_name() {
    let mut in_flight = InFlight::new(2);
    let id = in_flight.open().unwrap();
    for has_more in [true, true, false] {
        let part = an_answer(id, Outcome::MultiGot(vec![Ok(None)]), has_more);
        in_flight.answer(part);
    }
    let Some(ReplyEvent::Answered(answer)) = poll(&mut in_flight, id) else {
        panic!("not answered");
    };
    let Outcome::Failed(NodeError::BadRequest(reason)) = answer.outcome else {
        panic!("not refused");
    };
    assert!(reason.contains("older release"), "{reason}");
}

#[test]
fn a_loss_tells_what_was_sent() {
    let mut in_flight = InFlight::new(8);
    let [sent, queued, large, begun, unqueued] = [1, 2, 3, 4, 5].map(|_| in_flight.open().unwrap());
    in_flight.queued(sent, Placed::Small(1));
    in_flight.queued(queued, Placed::Small(2));
    in_flight.queued(large, Placed::Large);
    in_flight.sent(large);
    in_flight.queued(begun, Placed::Large);
    in_flight.lose(1, &mut Vec::new());
    let mut was_sent = |id| match poll(&mut in_flight, id) {
        Some(ReplyEvent::Lost { was_sent }) => was_sent,
        other => panic!("{other:?}"),
    };
    assert!(was_sent(sent) && was_sent(large));
    assert!(!was_sent(queued) && !was_sent(begun) && !was_sent(unqueued));
    assert_eq!(in_flight.len(), 0);
}

proptest! {
    /// For any order of opening, answering, cancelling and loss: every entry is free or belongs to one
    /// waiting request, and every answered request gets its answer.
    #[test]
    fn slots_agree_with_a_twin(steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..200)) {
        let mut in_flight = InFlight::new(8);
        let mut open: Vec<(u64, bool)> = Vec::new();
        for (step, which) in steps {
            let at = (!open.is_empty()).then(|| which.index(open.len()));
            match (step, at) {
                (0, _) => {
                    let id = in_flight.open();
                    prop_assert_eq!(id.is_some(), open.len() < 8);
                    if let Some(id) = id {
                        in_flight.queued(id, Placed::Large);
                        open.push((id, false));
                    }
                }
                (1, Some(at)) => {
                    in_flight.answer(absent(open[at].0));
                    open[at].1 = true;
                }
                (2, Some(at)) => {
                    let (id, is_answered) = open[at];
                    prop_assert_eq!(poll(&mut in_flight, id).is_some(), is_answered);
                    if is_answered {
                        open.remove(at);
                    }
                }
                (3, Some(at)) => {
                    let (id, is_answered) = open.remove(at);
                    prop_assert_eq!(in_flight.cancel(id).is_some(), !is_answered);
                }
                (4, _) if which.index(8) == 0 => {
                    in_flight.lose(u64::MAX, &mut Vec::new());
                    for request in &mut open {
                        request.1 = true;
                    }
                }
                _ => {}
            }
            prop_assert_eq!(in_flight.len(), open.len());
        }
    }
}
