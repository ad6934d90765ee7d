//! The slots of waiting requests, without any connection.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use umbo_protocol::{NodeError, Outcome};

use super::*;

fn an_answer(id: u64, outcome: Outcome, has_more: bool) -> Answer {
    Answer {
        id,
        service_time: Duration::ZERO,
        has_more,
        rows: 0,
        bytes: 0,
        outcome,
    }
}

fn absent(id: u64) -> Answer {
    an_answer(id, Outcome::Row(None), false)
}

fn part(id: u64, rows: usize, has_more: bool) -> Answer {
    let rows = std::iter::repeat_with(|| Ok(None)).take(rows);
    an_answer(id, Outcome::MultiGot(rows.collect()), has_more)
}

fn poll(waiting: &mut Waiting, id: u64) -> Option<Event> {
    waiting.poll(id, Waker::noop())
}

#[test]
fn an_answer_finds_the_one_who_waits() {
    let (mut waiting, now) = (Waiting::new(4), Instant::now());
    let one = waiting.open(Kind::SmallRead, 0, now).unwrap();
    let other = waiting.open(Kind::SmallRead, 0, now).unwrap();
    assert!(poll(&mut waiting, one).is_none() && poll(&mut waiting, other).is_none());
    let (waker, asked_at) = waiting.answer(absent(other)).unwrap();
    assert!(waker.is_some() && asked_at == Some(now));
    assert!(poll(&mut waiting, one).is_none());
    assert!(
        matches!(poll(&mut waiting, other), Some(Event::Answered(answer)) if answer.id == other)
    );
    assert_eq!(waiting.len(), 1);
}

#[test]
fn what_nobody_asked_for_harms_nobody() {
    let (mut waiting, now) = (Waiting::new(4), Instant::now());
    let gone = waiting.open(Kind::Read, 0, now).unwrap();
    assert!(waiting.leave(gone), "the node is to be told");
    for id in [0, 1, gone, u64::MAX, 1 << 16] {
        let (waker, asked_at) = waiting.answer(absent(id)).unwrap();
        assert!(waker.is_none() && asked_at.is_none());
    }
    let one = waiting.open(Kind::Read, 0, now).unwrap();
    let other = waiting.open(Kind::Read, 0, now).unwrap();
    assert_ne!(one % WAITING_MAX as u64, other % WAITING_MAX as u64);
    assert!(waiting.answer(absent(gone)).unwrap().0.is_none());
    assert!(
        poll(&mut waiting, one).is_none(),
        "an answer to who had the slot before"
    );
    // A second answer does not take the first away.
    waiting.answer(absent(one)).unwrap();
    waiting.answer(absent(one)).unwrap();
    assert!(matches!(poll(&mut waiting, one), Some(Event::Answered(_))));
    assert_eq!(waiting.len(), 1);
}

#[test]
fn slots_are_bounded_and_used_again() {
    let (mut waiting, now) = (Waiting::new(2), Instant::now());
    let one = waiting.open(Kind::Read, 0, now).unwrap();
    waiting.open(Kind::Write, 0, now).unwrap();
    assert!(waiting.open(Kind::Read, 0, now).is_none());
    waiting.leave(one);
    assert!(waiting.open(Kind::Read, 0, now).is_some());
}

#[test]
fn a_write_that_nobody_waits_for_keeps_its_slot_until_it_is_answered() {
    let (mut waiting, now) = (Waiting::new(1), Instant::now());
    let id = waiting.open(Kind::Write, 0, now).unwrap();
    assert!(!waiting.leave(id), "a write is not cancelled");
    assert_eq!(waiting.len(), 1);
    assert!(waiting.answer(absent(id)).unwrap().0.is_none());
    assert_eq!(waiting.len(), 0);
}

#[test]
fn parts_are_joined_and_bounded() {
    let (mut waiting, now) = (Waiting::new(2), Instant::now());
    let id = waiting.open(Kind::Read, 5, now).unwrap();
    waiting.answer(part(id, 2, true)).unwrap();
    assert!(poll(&mut waiting, id).is_none());
    waiting.answer(part(id, 3, false)).unwrap();
    let Some(Event::Answered(answer)) = poll(&mut waiting, id) else {
        panic!("not answered");
    };
    assert!(matches!(answer.outcome, Outcome::MultiGot(rows) if rows.len() == 5));
    let id = waiting.open(Kind::Read, 5, now).unwrap();
    waiting.answer(part(id, 5, true)).unwrap();
    assert_eq!(waiting.answer(part(id, 1, true)).unwrap_err(), TooMuch);
    let id = waiting.open(Kind::Read, 5, now).unwrap();
    waiting.answer(part(id, 1, true)).unwrap();
    let failed = Outcome::Failed(NodeError::Unsupported);
    waiting.answer(an_answer(id, failed, false)).unwrap();
    let Some(Event::Answered(answer)) = poll(&mut waiting, id) else {
        panic!("not answered");
    };
    assert!(matches!(answer.outcome, Outcome::Failed(_)));
}

#[test]
fn slowness_is_told_once_and_only_to_small_reads() {
    let (mut waiting, now) = (Waiting::new(3), Instant::now());
    let later = now + Duration::from_millis(10);
    let read = waiting.open(Kind::SmallRead, 0, now).unwrap();
    let late = waiting.open(Kind::SmallRead, 0, later).unwrap();
    let write = waiting.open(Kind::Write, 0, now).unwrap();
    for id in [read, late, write] {
        assert!(poll(&mut waiting, id).is_none());
    }
    let mut wakers = Vec::new();
    waiting.mark_slow(later, &mut wakers);
    assert_eq!(wakers.len(), 1);
    assert!(matches!(poll(&mut waiting, read), Some(Event::Slow)));
    waiting.mark_slow(later, &mut wakers);
    for id in [read, late, write] {
        assert!(poll(&mut waiting, id).is_none());
    }
}

#[test]
fn a_loss_tells_what_was_sent() {
    let (mut waiting, now) = (Waiting::new(3), Instant::now());
    let [sent, queued, unqueued] = [1, 2, 0].map(|position| {
        let id = waiting.open(Kind::Write, 0, now).unwrap();
        if position > 0 {
            waiting.queued(id, position);
        }
        id
    });
    waiting.lose(1, &mut Vec::new());
    let mut was_sent = |id| match poll(&mut waiting, id) {
        Some(Event::Lost { was_sent }) => was_sent,
        other => panic!("{other:?}"),
    };
    assert!(was_sent(sent) && !was_sent(queued) && !was_sent(unqueued));
    assert_eq!(waiting.len(), 0);
}

proptest! {
    /// Whatever is opened, answered, left and lost in whatever order: every slot is free or held by
    /// one request that waits, and every request that was answered is told so.
    #[test]
    fn slots_agree_with_a_twin(steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..200)) {
        let (mut waiting, now) = (Waiting::new(8), Instant::now());
        let mut open: Vec<(u64, bool)> = Vec::new();
        for (step, which) in steps {
            let at = (!open.is_empty()).then(|| which.index(open.len()));
            match (step, at) {
                (0, _) => {
                    let id = waiting.open(Kind::Read, 0, now);
                    prop_assert_eq!(id.is_some(), open.len() < 8);
                    open.extend(id.map(|id| (id, false)));
                }
                (1, Some(at)) => {
                    waiting.answer(absent(open[at].0)).unwrap();
                    open[at].1 = true;
                }
                (2, Some(at)) => {
                    let (id, is_answered) = open[at];
                    prop_assert_eq!(poll(&mut waiting, id).is_some(), is_answered);
                    if is_answered {
                        open.remove(at);
                    }
                }
                (3, Some(at)) => {
                    let (id, is_answered) = open.remove(at);
                    prop_assert_eq!(waiting.leave(id), !is_answered);
                }
                (4, _) if which.index(8) == 0 => {
                    waiting.lose(u64::MAX, &mut Vec::new());
                    for request in &mut open {
                        request.1 = true;
                    }
                }
                _ => {}
            }
            prop_assert_eq!(waiting.len(), open.len());
        }
    }
}
