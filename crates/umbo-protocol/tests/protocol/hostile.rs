//! Any bytes are decoded or refused, within bounds.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use umbo_protocol::{
    ASSEMBLY_LEN_MAX, Answer, AnswerWriter, Assembly, Chunk, DecodeError, Decoder, DispatcherFrame,
    FRAME_LEN_MAX, MESSAGE_LEN_MAX, NodeFrame, NodeStamp, PREFACE, ReceiveWindow, Request,
    RequestWriter, WINDOW_LEN,
};
use umbo_types::limits;

use crate::peers::{NodeEnd, batch, frame};
use crate::values::{answer, request};

/// Decodes as both directions. Decoded messages can be sent again.
fn survive(bytes: &[u8]) {
    let (mut requests, mut answers) = (Decoder::of_dispatcher(), Decoder::of_node());
    requests.buffer().extend_from_slice(&PREFACE);
    requests.buffer().extend_from_slice(bytes);
    answers.buffer().extend_from_slice(bytes);
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    while let Ok(Some(frame)) = requests.next_frame() {
        match frame.body {
            DispatcherFrame::Requests(batch) => batch.flatten().for_each(|request: Request| {
                writer.push(&(&request).into());
            }),
            DispatcherFrame::Chunk(chunk) => {
                let _ = Request::decode(&chunk.bytes);
            }
            _ => {}
        }
    }
    let mut writer = AnswerWriter::new(WINDOW_LEN as u32);
    while let Ok(Some(frame)) = answers.next_frame() {
        match frame.body.1 {
            NodeFrame::Answers(batch) => batch
                .flatten()
                .for_each(|answer: Answer| writer.push(&answer)),
            NodeFrame::Chunk(chunk) => {
                let _ = Answer::decode(&chunk.bytes);
            }
            _ => {}
        }
    }
}

/// Frames of requests and of answers.
fn frames() -> impl Strategy<Value = [Vec<u8>; 2]> {
    (vec(request(), 1..5), vec(answer(), 1..5)).prop_map(|(requests, answers)| {
        let mut frames = [Vec::new(), Vec::new()];
        let mut writer = RequestWriter::new(WINDOW_LEN as u32);
        for request in requests {
            writer.push(&(&request).into());
        }
        writer.fill(&mut frames[0]);
        let mut writer = AnswerWriter::new(WINDOW_LEN as u32);
        for answer in answers {
            writer.push(&answer);
        }
        writer.fill(&mut frames[1], NodeStamp::default);
        frames
    })
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..600)) {
        survive(&bytes);
    }

    /// Frames with a valid length get further into the decoders.
    #[test]
    fn any_frames_are_survived(kind in 0..8_u8, payload in vec(any::<u8>(), 0..600)) {
        survive(&frame(kind, &payload));
        survive(&batch(&[payload]));
    }

    /// Frames that are almost valid get furthest.
    #[test]
    fn damaged_frames_are_survived(
        frames in frames(),
        damages in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        for mut frame in frames {
            for (at, byte) in &damages {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            survive(&frame);
        }
    }

    /// A request of another kind or of a newer peer is refused by its id; other requests are not affected.
    #[test]
    fn unknown_kinds_harm_nobody_else(id in 0..0x80_u8, kind in 100..=255_u8, field in 0x8a..=255_u8) {
        let unknown = vec![id, kind, 0, 0, 0, 0];
        let probe = vec![id, 7, 0, 0, 0, 0];
        let required = [&probe[..], &[field, 0]].concat();
        let optional = [&probe[..], &[field - 0x80, 0]].concat();
        let frame = batch(&[unknown, required, optional, probe]);
        let decoded = NodeEnd::new().take(&frame).unwrap().0;
        let unknown = DecodeError::UnknownKind { id: id.into() };
        for refused in &decoded[..2] {
            let refused = refused.as_ref().unwrap_err();
            prop_assert_eq!((refused.id, &refused.error), (Some(id.into()), &unknown));
        }
        prop_assert!(decoded[2].is_ok() && decoded[3].is_ok() && decoded.len() == 4);
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_it_has_come() {
    let mut decoder = Decoder::of_node();
    let len = FRAME_LEN_MAX + 1;
    decoder
        .buffer()
        .extend_from_slice(&(len as u32).to_le_bytes());
    let refused = decoder.next_frame().unwrap_err();
    assert!(matches!(refused, DecodeError::TooLong { len: found, .. } if found == len));
}

#[test]
fn unknown_frames_end_the_connection_unless_they_are_optional() {
    let mut node = NodeEnd::new();
    assert!(node.take(&frame(0x80, b"new")).unwrap().0.is_empty());
    assert!(node.take(&frame(0xff, b"")).unwrap().0.is_empty());
    let refused = node.take(&frame(0x7f, b"new")).unwrap_err();
    assert_eq!(refused, DecodeError::UnknownFrame(0x7f));
    assert!(NodeEnd::new().take(&[0; 4]).is_err());
}

/// A number of rows that are not present reserves no memory.
#[test]
fn a_count_without_its_bytes_is_refused() {
    let key_count = [0xff, 0xff, 0xff, 0x7f];
    let many = [&[1, 2, 0, 0, 0, 0, 1][..], &key_count].concat();
    let write = [&[2, 5, 0, 0, 0, 0, 1, 0][..], &[0; 8], &key_count].concat();
    let decoded = NodeEnd::new().take(&batch(&[many, write])).unwrap().0;
    for refused in decoded {
        assert!(matches!(
            refused.unwrap_err().error,
            DecodeError::BadField { .. }
        ));
    }
}

/// A request beyond the limits of the data model is refused by its id; the next one is served.
#[test]
fn what_breaks_a_limit_is_refused_alone() {
    let get = |partition: usize, sort: usize| {
        let mut get = vec![9, 1, 0, 0, 0, 0, 1];
        for (len, byte) in [(partition, b'p'), (sort, b's')] {
            get.extend([len as u8 | 0x80, (len >> 7) as u8]);
            get.resize(get.len() + len, byte);
        }
        get
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
        let frame = batch(&[get(partition, sort), get(1, 0)]);
        let decoded = NodeEnd::new().take(&frame).unwrap().0;
        assert_eq!(decoded[0].is_ok(), is_fine, "{partition} and {sort} bytes");
        let id = decoded[0]
            .as_ref()
            .map_or_else(|refused| refused.id, |request| Some(request.id));
        assert_eq!(id, Some(9));
        assert!(decoded[1].is_ok());
    }
}

fn chunk(id: u64, len: usize, is_last: bool) -> Chunk {
    Chunk {
        id,
        is_last,
        bytes: Bytes::from(vec![0; len]),
    }
}

#[test]
fn chunks_are_held_within_bounds() {
    let len = 32 << 10;
    let mut assembly = Assembly::default();
    let fitting = MESSAGE_LEN_MAX / len;
    for _ in 0..fitting {
        assert_eq!(assembly.push(chunk(1, len, false)), Ok(None));
    }
    let refused = assembly.push(chunk(1, len, true)).unwrap_err();
    assert!(matches!(
        refused,
        DecodeError::TooLong {
            what: "message",
            ..
        }
    ));
    for _ in fitting..ASSEMBLY_LEN_MAX / len {
        assert_eq!(assembly.push(chunk(2, len, false)), Ok(None));
    }
    assert!(assembly.push(chunk(2, 1, false)).is_err());
    assembly.remove(1);
    assert_eq!(assembly.held(), ASSEMBLY_LEN_MAX - fitting * len);
    let whole = assembly.push(chunk(2, 1, true)).unwrap().unwrap();
    assert_eq!(
        (whole.len(), assembly.held()),
        (ASSEMBLY_LEN_MAX - fitting * len + 1, 0)
    );
}

#[test]
fn many_small_unfinished_messages_are_refused() {
    let mut assembly = Assembly::default();
    let refused = (0..1_000).find_map(|id| assembly.push(chunk(id, 1, false)).err());
    assert_eq!(
        refused,
        Some(DecodeError::Malformed("too many unfinished messages"))
    );
    let empty = Assembly::default().push(chunk(1, 0, false));
    assert!(empty.is_err());
}

#[test]
fn who_sends_more_than_was_granted_is_refused() {
    let mut window = ReceiveWindow::new(1 << 20);
    assert_eq!(window.received(1 << 20), Ok(()));
    let exceeded = DecodeError::WindowExceeded { len: 1, left: 0 };
    assert_eq!(window.received(1), Err(exceeded));
    assert_eq!(window.taken_over(60_000), None);
    assert_eq!(window.taken_over(10_000), Some(70_000));
    assert_eq!(window.received(70_000), Ok(()));
    // A peer that grants credit for bytes that were never sent.
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    assert!(writer.granted(1).is_err());
}

/// Bytes that come one by one give the same frames.
#[test]
fn frames_may_come_in_any_pieces() {
    let probe = vec![5, 7, 0, 0, 0, 0];
    let bytes: BytesMut = batch(&[probe]).repeat(2)[..].into();
    let mut node = NodeEnd::new();
    let mut found = 0;
    for byte in bytes {
        found += node.take(&[byte]).unwrap().0.len();
    }
    assert_eq!(found, 2);
}
