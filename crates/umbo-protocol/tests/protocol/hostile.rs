//! Whatever bytes come, they are decoded or refused, within bounds.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use umbo_protocol::{AnswerFrame, DecodeError, FRAME_LEN_MAX, RequestFrame};
use umbo_types::limits;

use crate::values::{answer, request};

/// Decodes as both kinds; what comes out of a request keeps to the limits of the data model.
fn survive(frame: &Bytes) {
    if let Ok(decoded) = RequestFrame::decode(frame.clone()) {
        for request in decoded.requests.into_iter().flatten() {
            // What was taken can be sent again.
            RequestFrame::push(&mut BytesMut::new(), &(&request).into());
        }
    }
    if let Ok(decoded) = AnswerFrame::decode(frame.clone()) {
        for answer in decoded.answers.into_iter().flatten() {
            AnswerFrame::push(&mut BytesMut::new(), answer);
        }
    }
}

/// A frame of requests and one of answers.
fn frames() -> impl Strategy<Value = [BytesMut; 2]> {
    (vec(request(), 1..5), vec(answer(), 1..5)).prop_map(|(requests, answers)| {
        let mut frames = [BytesMut::new(), BytesMut::new()];
        for request in requests {
            RequestFrame::push(&mut frames[0], &(&request).into());
        }
        for answer in answers {
            AnswerFrame::push(&mut frames[1], answer);
        }
        frames
    })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..600)) {
        survive(&bytes.into());
    }

    /// Frames that are almost right get further into the decoders.
    #[test]
    fn damaged_frames_are_survived(
        frames in frames(),
        damages in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in option_of_cut(),
    ) {
        for mut frame in frames {
            for (at, byte) in &damages {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            survive(&frame.freeze());
        }
    }

    /// A message of another kind or of a newer peer is told by its id and harms no other.
    #[test]
    fn unknown_kinds_harm_nobody_else(requests in vec(request(), 1..4), id in 1..u64::MAX, kind in 100_u32..1_000) {
        let mut frame = BytesMut::new();
        for request in &requests {
            RequestFrame::push(&mut frame, &request.into());
        }
        let mut unknown = BytesMut::new();
        prost::encoding::uint64::encode(1, &id, &mut unknown);
        prost::encoding::uint32::encode(kind, &7, &mut unknown);
        prost::encoding::bytes::encode(2, &unknown.freeze(), &mut frame);
        let decoded = RequestFrame::decode(frame.freeze()).unwrap();
        prop_assert_eq!(decoded.requests.len(), requests.len() + 1);
        let (last, known) = decoded.requests.split_last().unwrap();
        prop_assert_eq!(last, &Err((id, DecodeError::UnknownKind { id })));
        for (decoded, sent) in known.iter().zip(&requests) {
            prop_assert_eq!(decoded.as_ref().unwrap(), sent);
        }
    }
}

fn option_of_cut() -> impl Strategy<Value = Option<prop::sample::Index>> {
    prop::option::of(any::<prop::sample::Index>())
}

/// Wraps bytes as a field.
fn within(field: u32, bytes: &Bytes) -> Bytes {
    let mut wrapped = BytesMut::new();
    prost::encoding::bytes::encode(field, bytes, &mut wrapped);
    wrapped.freeze()
}

/// Many empty messages are two bytes each on the wire and far more in memory: they are refused
/// before they are decoded, on every level.
#[test]
fn a_bomb_of_empty_messages_is_refused_unopened() {
    let empty = |field: u8, len: usize| {
        let mut bytes = BytesMut::with_capacity(len);
        for _ in 0..len / 2 {
            bytes.put_slice(&[field << 3 | 2, 0]);
        }
        bytes.freeze()
    };
    let len = FRAME_LEN_MAX - 64;
    let request_bombs = [
        empty(2, len),
        within(2, &within(11, &empty(2, len))),
        within(2, &within(14, &empty(2, len))),
    ];
    for bomb in request_bombs {
        assert!(matches!(
            RequestFrame::decode(bomb),
            Err(DecodeError::BadField { .. })
        ));
    }
    let answer_bombs = [
        empty(2, len),
        within(2, &within(12, &empty(1, len))),
        within(2, &within(15, &empty(1, len))),
        within(2, &within(18, &empty(2, len))),
    ];
    for bomb in answer_bombs {
        assert!(matches!(
            AnswerFrame::decode(bomb),
            Err(DecodeError::BadField { .. })
        ));
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_unopened() {
    let frame = Bytes::from(vec![0; FRAME_LEN_MAX + 1]);
    let refused = DecodeError::TooLong {
        len: FRAME_LEN_MAX + 1,
        max: FRAME_LEN_MAX,
    };
    assert_eq!(RequestFrame::decode(frame.clone()).unwrap_err(), refused);
    assert_eq!(AnswerFrame::decode(frame).unwrap_err(), refused);
}

/// A request beyond the limits of the data model is refused by its id; the next one is served.
#[test]
fn what_breaks_a_limit_is_refused_alone() {
    let key = |partition: usize, sort: usize| {
        let mut get = BytesMut::new();
        prost::encoding::bytes::encode(2, &vec![b'p'; partition], &mut get);
        prost::encoding::bytes::encode(3, &vec![b's'; sort], &mut get);
        let mut request = BytesMut::new();
        prost::encoding::uint64::encode(1, &9, &mut request);
        prost::encoding::bytes::encode(10, &get.freeze(), &mut request);
        within(2, &request.freeze())
    };
    for (partition, sort, is_fine) in [
        (
            limits::PARTITION_KEY_LEN_MAX,
            limits::SORT_KEY_LEN_MAX,
            true,
        ),
        (limits::PARTITION_KEY_LEN_MAX + 1, 0, false),
        (1, limits::SORT_KEY_LEN_MAX + 1, false),
        (0, 1, false),
    ] {
        let frame = [key(partition, sort), key(1, 0)].concat();
        let decoded = RequestFrame::decode(frame.into()).unwrap().requests;
        assert_eq!(decoded[0].is_ok(), is_fine, "{partition} and {sort} bytes");
        assert!(
            decoded[0]
                .as_ref()
                .map_or_else(|(id, _)| *id, |request| request.id)
                == 9
        );
        assert!(decoded[1].is_ok());
    }
}
