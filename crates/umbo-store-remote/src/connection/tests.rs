//! What a connection sends, and in how many messages, without any socket.

use futures_util::FutureExt;
use futures_util::task::noop_waker_ref;
use umbo_store::{Atomicity, Change, Condition, Durability, Mutation, WriteRequest};
use umbo_types::{Key, NamespaceId, Value, Version};

use super::*;

const NS: NamespaceId = NamespaceId(1);

fn connection() -> Arc<Connection> {
    let hello = Hello::new("c", "n", 1);
    let connection = Connection::new(&hello, Arc::default(), 4_096, 64 << 20);
    let first = sent(&connection).remove(0);
    assert_eq!(first.hello, Some(hello));
    connection
}

fn key(n: usize) -> Key {
    Key::new(format!("key-{n}"), "").unwrap()
}

fn get(n: usize) -> Ask {
    Ask::Get(NS, key(n))
}

fn put(n: usize, len: usize) -> Ask {
    let mutation = Mutation {
        key: key(n),
        change: Change::Put {
            value: Value::new(vec![7; len], "", "").unwrap(),
            expires_at: None,
        },
        condition: Condition::Always,
    };
    let request = WriteRequest {
        namespace: NS,
        mutations: vec![mutation],
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
    };
    Ask::Write(request)
}

fn ask(connection: &Arc<Connection>, ask: &Ask) -> Asked {
    let request = without_call(0, ask);
    connection.ask(request, Kind::Read, Instant::now()).unwrap()
}

/// Returns the messages that go out now.
fn sent(connection: &Arc<Connection>) -> Vec<RequestFrame> {
    let mut frames = connection.frames();
    let mut context = Context::from_waker(noop_waker_ref());
    let mut sent = Vec::new();
    let mut has_waited = false;
    loop {
        match Pin::new(&mut frames).poll_next(&mut context) {
            Poll::Ready(Some(frame)) => sent.push(RequestFrame::decode(frame).unwrap()),
            Poll::Pending if !has_waited => has_waited = true,
            Poll::Pending | Poll::Ready(None) => return sent,
        }
    }
}

fn ids(frame: &RequestFrame) -> Vec<u64> {
    let requests = frame.requests.iter();
    requests
        .map(|request| request.as_ref().unwrap().id)
        .collect()
}

#[test]
fn what_has_gathered_goes_out_as_one_message() {
    let connection = connection();
    let asked: Vec<_> = (0..100).map(|n| ask(&connection, &get(n))).collect();
    let frames = sent(&connection);
    assert_eq!(frames.len(), 1);
    assert_eq!(
        ids(&frames[0]),
        asked.iter().map(|it| it.id).collect::<Vec<_>>()
    );
    assert!(sent(&connection).is_empty());
    assert_eq!(connection.load().in_flight, 100);
    assert_eq!(connection.lock().len, 0);
}

#[test]
fn others_have_a_turn_before_a_message_goes_out_where_there_are_any() {
    let connection = connection();
    let mut frames = connection.frames();
    let mut context = Context::from_waker(noop_waker_ref());
    let mut next = || match Pin::new(&mut frames).poll_next(&mut context) {
        Poll::Ready(frame) => Some(ids(&RequestFrame::decode(frame.unwrap()).unwrap())),
        Poll::Pending => None,
    };
    let mut asked = Vec::new();
    for n in 1..BUSY_FROM {
        asked.push(ask(&connection, &get(n)));
        assert_eq!(next().unwrap(), [asked[n - 1].id], "hardly anybody asks");
    }
    let one = ask(&connection, &get(90));
    assert_eq!(next(), None);
    let other = ask(&connection, &get(91));
    assert_eq!(next().unwrap(), [one.id, other.id]);
}

#[test]
fn a_large_request_is_a_message_of_its_own_and_keeps_its_place() {
    let connection = connection();
    let before = ask(&connection, &get(1));
    let large = ask(&connection, &put(2, 1 << 20));
    let after = ask(&connection, &get(3));
    let frames: Vec<_> = sent(&connection).iter().map(ids).collect();
    assert_eq!(frames, [[before.id], [large.id], [after.id]]);
}

#[test]
fn messages_end_where_they_are_long_enough() {
    let connection = connection();
    let _asked: Vec<_> = (0..50).map(|n| ask(&connection, &put(n, 4_000))).collect();
    let frames = sent(&connection);
    let counts: Vec<_> = frames.iter().map(|frame| frame.requests.len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 50);
    assert!(counts.iter().all(|&count| count <= 17), "{counts:?}");
}

#[test]
fn what_was_not_sent_is_told_from_what_was() {
    let connection = connection();
    let mut first = ask(&connection, &get(1));
    sent(&connection);
    let mut second = ask(&connection, &get(2));
    let mut large = ask(&connection, &put(3, 1 << 20));
    connection.end("gone", false);
    let was_sent = |asked: &mut Asked| match asked.event().now_or_never() {
        Some(Event::Lost { was_sent }) => was_sent,
        other => panic!("{other:?}"),
    };
    assert!(was_sent(&mut first) && !was_sent(&mut second) && !was_sent(&mut large));
    assert_eq!(first.loss(), "gone");
    let refused = connection.ask(without_call(0, &get(4)), Kind::Read, Instant::now());
    assert_eq!(refused.unwrap_err(), NotTaken::Left);
    assert_eq!(connection.load().in_flight, 0);
}

#[test]
fn a_draining_connection_sends_what_it_has_and_ends() {
    let connection = connection();
    let asked = ask(&connection, &get(1));
    connection.drain();
    let refused = connection.ask(without_call(0, &get(2)), Kind::Read, Instant::now());
    assert_eq!(refused.unwrap_err(), NotTaken::Left);
    assert_eq!(ids(&sent(&connection)[0]), [asked.id]);
    let mut context = Context::from_waker(noop_waker_ref());
    let end = Pin::new(&mut connection.frames()).poll_next(&mut context);
    assert!(matches!(end, Poll::Ready(None)));
    assert!(connection.left().now_or_never().is_some());
    assert!(connection.ended().is_none(), "it is still to be answered");
}

#[test]
fn a_read_that_is_dropped_is_cancelled_and_a_write_is_not() {
    let connection = connection();
    let read = ask(&connection, &get(1));
    let id = read.id;
    let write = connection
        .ask(without_call(0, &put(2, 10)), Kind::Write, Instant::now())
        .unwrap();
    sent(&connection);
    drop(read);
    drop(write);
    let frames = sent(&connection);
    assert_eq!(frames.len(), 1);
    let [Ok(cancel)] = &frames[0].requests[..] else {
        panic!("{frames:?}");
    };
    assert!(matches!(cancel.ask, Ask::Cancel(cancelled) if cancelled == id));
    assert_eq!(
        connection.load().in_flight,
        1,
        "the write is answered some time"
    );
}

#[test]
fn what_waits_is_bounded_in_number_and_bytes() {
    let hello = Hello::new("c", "n", 1);
    let connection = Connection::new(&hello, Arc::default(), 2, 1 << 20);
    let now = Instant::now();
    let first = connection
        .ask(without_call(0, &put(1, 1 << 19)), Kind::Write, now)
        .unwrap();
    let busy = connection.ask(without_call(0, &put(2, 1 << 20)), Kind::Write, now);
    assert_eq!(busy.unwrap_err(), NotTaken::Busy);
    let second = connection
        .ask(without_call(0, &get(2)), Kind::Read, now)
        .unwrap();
    let busy = connection.ask(without_call(0, &get(3)), Kind::Read, now);
    assert_eq!(busy.unwrap_err(), NotTaken::Busy);
    drop((first, second));
    connection
        .ask(without_call(0, &get(3)), Kind::Read, now)
        .unwrap();
}
