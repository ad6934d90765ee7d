//! The order of sending: in turn, in the order of each partition, within the window.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use umbo_protocol::{Ask, Placed, Request, RequestRef, RequestWriter, WINDOW_LEN};
use umbo_store::{Atomicity, Change, Condition, Durability, Mutation, WriteRequest};
use umbo_types::{Criticality, Key, NamespaceId, RequestUnits, Value, Version};

use crate::peers::NodeEnd;

pub(crate) fn request(id: u64, ask: Ask) -> Request {
    Request {
        id,
        deadline_ns: None,
        criticality: Criticality::default(),
        caller: Bytes::new(),
        price: RequestUnits::ZERO,
        traceparent: Bytes::new(),
        placed_as: None,
        ask,
    }
}

fn get(id: u64) -> Request {
    request(
        id,
        Ask::Get(NamespaceId(1), Key::new("p", "").expect("it is valid")),
    )
}

/// A write of a value of this length to each of some partitions.
fn write(id: u64, partitions: &[u8], len: usize) -> Request {
    let mutation = |partition: &u8| Mutation {
        key: Key::new(vec![*partition], "").expect("it is valid"),
        change: Change::Put {
            value: Value::new(vec![0; len], "", "").expect("it is valid"),
            expires_at: None,
        },
        condition: Condition::Always,
    };
    let write = WriteRequest {
        namespace: NamespaceId(1),
        epoch: 0,
        mutations: partitions.iter().map(mutation).collect(),
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    };
    request(id, Ask::Write(write))
}

fn push(writer: &mut RequestWriter, request: &Request) -> Placed {
    writer.push(&RequestRef::from(request))
}

fn filled(writer: &mut RequestWriter) -> Vec<u8> {
    let mut out = Vec::new();
    writer.fill(&mut out);
    out
}

/// Takes everything out of a writer, and grants credit as the node does. Returns ids in order of arrival.
fn drained(writer: &mut RequestWriter, node: &mut NodeEnd) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        let out = filled(writer);
        if out.is_empty() {
            return ids;
        }
        let (requests, granted) = node.take(&out).expect("it is valid");
        writer.granted(granted).expect("it is valid");
        ids.extend(
            requests
                .into_iter()
                .map(|request| request.expect("it is valid").id),
        );
    }
}

fn writer() -> RequestWriter {
    RequestWriter::new(WINDOW_LEN as u32)
}

#[test]
fn requests_that_wait_together_leave_in_one_frame() {
    let mut writer = writer();
    for id in 1..=100 {
        assert_eq!(push(&mut writer, &get(id)), Placed::Small(id));
    }
    let out = filled(&mut writer);
    let (len, _) = out.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_le_bytes(*len) as usize, out.len() - 4);
    assert!(out.len() < 100 * 20, "{} bytes", out.len());
    assert_eq!((writer.handed(), writer.queued_len()), (100, 0));
    assert!(filled(&mut writer).is_empty());
    assert_eq!(NodeEnd::new().take(&out).unwrap().0.len(), 100);
}

#[test]
fn a_get_waits_for_a_few_chunks_at_most() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    assert_eq!(push(&mut writer, &write(1, b"a", 1 << 20)), Placed::Large);
    let out = filled(&mut writer);
    assert!(out.len() <= 96 << 10, "{} bytes", out.len());
    node.take(&out).unwrap();
    let before = node.chunks;
    push(&mut writer, &get(2));
    let (requests, _) = node.take(&filled(&mut writer)).unwrap();
    assert_eq!(requests[0].as_ref().unwrap().id, 2);
    assert!(node.chunks <= before + 3);
    assert_eq!(drained(&mut writer, &mut node), [1]);
    assert_eq!(writer.take_finished().collect::<Vec<_>>(), [1]);
}

#[test]
fn large_requests_take_turns() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    push(&mut writer, &write(1, b"a", 1 << 20));
    push(&mut writer, &write(2, b"b", 100_000));
    push(&mut writer, &get(3));
    assert_eq!(drained(&mut writer, &mut node), [3, 2, 1]);
}

#[test]
fn a_small_write_waits_for_a_large_one_of_its_partition() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    push(&mut writer, &write(1, b"a", 200_000));
    assert_eq!(push(&mut writer, &write(2, b"a", 1)), Placed::Large);
    assert_eq!(push(&mut writer, &write(3, b"ba", 1)), Placed::Large);
    // A message behind another blocked message.
    assert_eq!(push(&mut writer, &write(4, b"b", 1)), Placed::Large);
    assert_eq!(push(&mut writer, &write(5, b"c", 1)), Placed::Small(1));
    assert_eq!(push(&mut writer, &get(6)), Placed::Small(2));
    assert_eq!(drained(&mut writer, &mut node), [5, 6, 1, 2, 3, 4]);
    assert_eq!(push(&mut writer, &write(7, b"a", 1)), Placed::Small(3));
}

#[test]
fn what_is_withdrawn_before_it_left_is_never_sent_and_frees_what_waits_for_it() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    let large = push(&mut writer, &write(1, b"ab", 200_000));
    let held = push(&mut writer, &write(2, b"a", 1));
    push(&mut writer, &write(3, b"a", 1));
    push(&mut writer, &write(4, b"b", 1));
    writer.cancel(2, held);
    writer.cancel(1, large);
    assert_eq!(drained(&mut writer, &mut node), [3, 4]);
    assert!(node.cancelled.is_empty());
    assert_eq!(writer.queued_len(), 0);
}

#[test]
fn what_has_begun_is_cancelled_and_its_rest_not_sent() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    let large = push(&mut writer, &write(1, b"a", 500_000));
    push(&mut writer, &write(2, b"a", 1));
    node.take(&filled(&mut writer)).unwrap();
    writer.cancel(1, large);
    assert_eq!(drained(&mut writer, &mut node), [2]);
    assert_eq!(node.cancelled, [1]);
}

/// A cancellation that overtook its request would find nothing, and the request be served.
#[test]
fn a_cancellation_never_overtakes_its_request() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    let mut placed = Vec::new();
    for id in 1..=20 {
        placed.push(push(&mut writer, &write(id, &[id as u8], 30_000)));
    }
    let (first, _) = node.take(&filled(&mut writer)).unwrap();
    writer.cancel(1, placed[0]);
    writer.cancel(20, placed[19]);
    let out = filled(&mut writer);
    let (_, granted) = node.take(&out).unwrap();
    // The cancellation of the first, which was sent, goes before the messages that still wait.
    assert_eq!(
        (first[0].as_ref().unwrap().id, &node.cancelled[..], granted),
        (1, &[1][..], 0)
    );
    let rest = drained(&mut writer, &mut node);
    assert_eq!(
        (rest.last(), &node.cancelled[..]),
        (Some(&20), &[1, 20][..])
    );
}

#[test]
fn nothing_is_sent_beyond_the_window() {
    let mut writer = RequestWriter::new(1 << 20);
    for id in 1..=8 {
        push(&mut writer, &write(id, &[id as u8], 1 << 20));
    }
    for id in 10..=13 {
        push(&mut writer, &write(id, &[id as u8], 30_000));
    }
    let mut sent = 0;
    loop {
        let out = filled(&mut writer);
        if out.is_empty() {
            break;
        }
        sent += out.len();
    }
    assert!(
        sent <= 1 << 20 && sent > (1 << 20) - (70 << 10),
        "{sent} bytes"
    );
    // Frames that are not counted are sent nevertheless.
    writer.ping();
    writer.ping();
    writer.grant(5);
    let out = filled(&mut writer);
    assert_eq!(out, [1, 0, 0, 0, 6, 2, 0, 0, 0, 5, 5]);
    writer.granted(100_000).unwrap();
    let out = filled(&mut writer).len();
    assert!(out > 0 && out <= 100_000);
}

/// The longest messages together are more than a receiver may assemble at once: they take turns, so that its
/// bound holds.
#[test]
fn many_of_the_longest_requests_are_survived() {
    let (mut writer, mut node) = (writer(), NodeEnd::new());
    for id in 1..=4 {
        let partitions: Vec<u8> = (0..16).collect();
        push(&mut writer, &write(id, &partitions, 1 << 20));
    }
    assert_eq!(drained(&mut writer, &mut node), [1, 2, 3, 4]);
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<u8>, usize),
    Cancel(prop::sample::Index),
    Fill,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![3 => 0..100_usize, 2 => 20_000..40_000_usize, 1 => 60_000..200_000_usize];
    prop_oneof![
        6 => (vec(0..6_u8, 1..4), len).prop_map(|(partitions, len)| Step::Write(partitions, len)),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        2 => Just(Step::Fill),
    ]
}

proptest! {
    /// Of two writes of a partition the one that was pushed first arrives first, and each arrives once unless
    /// it was cancelled.
    #[test]
    fn writes_of_a_partition_arrive_in_order(steps in vec(step(), 1..40)) {
        let (mut writer, mut node) = (writer(), NodeEnd::new());
        let (mut written, mut arrived, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Write(partitions, len) => {
                    let id = written.len() as u64 + 1;
                    let placed = push(&mut writer, &write(id, &partitions, len));
                    written.push((partitions, placed));
                }
                Step::Cancel(which) if !written.is_empty() => {
                    let at = which.index(written.len());
                    let id = at as u64 + 1;
                    if !cancelled.contains(&id) && !arrived.contains(&id) {
                        writer.cancel(id, written[at].1);
                        cancelled.push(id);
                    }
                }
                Step::Cancel(_) => {}
                Step::Fill => {
                    let (requests, granted) = node.take(&filled(&mut writer)).unwrap();
                    writer.granted(granted).unwrap();
                    arrived.extend(requests.into_iter().map(|request| request.unwrap().id));
                }
            }
        }
        arrived.extend(drained(&mut writer, &mut node));
        prop_assert_eq!(writer.queued_len(), 0);
        for partition in 0..6 {
            let of_partition = arrived.iter().filter(|&&id| {
                written[id as usize - 1].0.contains(&partition)
            });
            prop_assert!(of_partition.is_sorted(), "{:?} of {}", arrived, partition);
        }
        for id in 1..=written.len() as u64 {
            let times = arrived.iter().filter(|&&other| other == id).count();
            prop_assert!(times == 1 || times == 0 && cancelled.contains(&id));
            prop_assert!(times == 0 || !cancelled.contains(&id) || node.cancelled.contains(&id));
        }
    }
}
