//! What a connection accepts, and what it reports when it ends, without a socket.

use futures_util::FutureExt;
use umbo_protocol::{Decoder, DispatcherFrame, PREFACE, WINDOW_LEN};
use umbo_store::{Atomicity, Change, Condition, Durability, Mutation, WriteRequest};
use umbo_types::{Criticality, Key, NamespaceId, RequestUnits, Value, Version};

use super::*;

const NS: NamespaceId = NamespaceId(1);

fn connection(in_flight_max: usize, queued_len_max: usize) -> Arc<NodeConnection> {
    let offset = ClockOffset::new(1, Instant::now());
    NodeConnection::new(WINDOW_LEN as u32, offset, in_flight_max, queued_len_max)
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
        epoch: 0,
        mutations: vec![mutation],
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    };
    Ask::Write(request)
}

fn ask(connection: &Arc<NodeConnection>, ask: &Ask) -> Result<PendingReply, SendRefusal> {
    let request = RequestRef {
        id: 0,
        deadline_ns: None,
        criticality: Criticality::Critical,
        caller: &[],
        price: RequestUnits::ZERO,
        traceparent: &[],
        placed_as: None,
        ask,
    };
    connection.ask(request, None)
}

/// Takes the bytes to send: the number of requests that they complete, and their frames.
fn sent(connection: &Arc<NodeConnection>) -> (u64, Vec<DispatcherFrame>) {
    let mut out = Vec::new();
    let finished = connection.fill(&mut out, Waker::noop());
    let mut decoder = Decoder::of_dispatcher();
    decoder.buffer().extend_from_slice(&PREFACE);
    decoder.buffer().extend_from_slice(&out);
    let frames = std::iter::from_fn(|| decoder.next_frame().unwrap());
    (finished, frames.map(|frame| frame.body).collect())
}

#[test]
fn what_has_gathered_goes_out_as_one_frame() {
    let connection = connection(4_096, 64 << 20);
    let replies: Vec<_> = (0..100)
        .map(|n| ask(&connection, &get(n)).unwrap())
        .collect();
    let (finished, frames) = sent(&connection);
    assert_eq!((finished, frames.len()), (100, 1));
    assert!(sent(&connection).1.is_empty());
    assert_eq!(connection.load().in_flight, 100);
    drop(replies);
    assert_eq!(connection.load().in_flight, 0);
    let (finished, frames) = sent(&connection);
    assert!(
        finished == 0 && matches!(&frames[..], [DispatcherFrame::Cancel(ids)] if ids.len() == 100)
    );
}

#[test]
fn others_have_a_turn_before_a_frame_goes_out_where_there_are_any() {
    let connection = connection(4_096, 64 << 20);
    let mut replies = Vec::new();
    for n in 0..3 {
        replies.push(ask(&connection, &get(n)).unwrap());
        assert!(!connection.is_gathering(), "few requests come");
    }
    replies.push(ask(&connection, &get(3)).unwrap());
    assert!(connection.is_gathering());
    sent(&connection);
    assert!(!connection.is_gathering(), "nothing waits");
    replies.push(ask(&connection, &put(4, 100_000)).unwrap());
    assert!(!connection.is_gathering(), "it is worth a frame");
}

#[test]
fn what_was_not_sent_is_told_from_what_was() {
    let connection = connection(4_096, 64 << 20);
    let mut first = ask(&connection, &put(1, 10)).unwrap();
    let mut chunked = ask(&connection, &put(2, 30_000)).unwrap();
    let mut whole = ask(&connection, &put(3, 40_000)).unwrap();
    while !sent(&connection).1.is_empty() {}
    let mut begun = ask(&connection, &put(4, 1 << 20)).unwrap();
    sent(&connection);
    let mut queued = ask(&connection, &get(5)).unwrap();
    connection.end("gone", false);
    let was_sent = |reply: &mut PendingReply| match reply.event().now_or_never() {
        Some(ReplyEvent::Lost { was_sent }) => was_sent,
        other => panic!("{other:?}"),
    };
    assert!(was_sent(&mut first) && was_sent(&mut chunked) && was_sent(&mut whole));
    assert!(!was_sent(&mut begun) && !was_sent(&mut queued));
    assert_eq!(first.loss(), "gone");
    assert_eq!(
        ask(&connection, &get(6)).unwrap_err(),
        SendRefusal::NotInUse
    );
    assert_eq!(connection.load().in_flight, 0);
}

#[test]
fn a_draining_connection_sends_what_it_has() {
    let connection = connection(4_096, 64 << 20);
    let reply = ask(&connection, &get(1)).unwrap();
    connection.drain();
    assert_eq!(
        ask(&connection, &get(2)).unwrap_err(),
        SendRefusal::NotInUse
    );
    assert_eq!(sent(&connection).0, 1);
    assert!(!connection.is_drained() && connection.ended().is_none());
    drop(reply);
    assert!(connection.is_drained());
}

#[test]
fn what_waits_is_bounded_in_number_and_bytes() {
    let connection = connection(3, 1 << 20);
    let first = ask(&connection, &put(1, 1 << 19)).unwrap();
    let second = ask(&connection, &put(2, 1 << 20)).unwrap();
    assert_eq!(ask(&connection, &get(3)).unwrap_err(), SendRefusal::Busy);
    drop(second);
    let third = ask(&connection, &get(3)).unwrap();
    let fourth = ask(&connection, &get(4)).unwrap();
    assert_eq!(ask(&connection, &get(5)).unwrap_err(), SendRefusal::Busy);
    drop((first, third, fourth));
    ask(&connection, &get(5)).unwrap();
}
