//! Negotiation: versions, clusters and nodes, and their encoding.

use proptest::prelude::*;
use umbo_protocol::{
    AnswerWriter, DecodeError, Decoder, DispatcherFrame, Hello, NodeFrame, NodeStamp, PREFACE,
    ProtocolVersion, Refusal, RequestWriter, WINDOW_LEN, Welcome,
};
use umbo_store::RecordsRevision;
use umbo_types::Timestamp;

use crate::golden::{STAMP, hex};
use crate::peers::frame;
use crate::values::stamp;

fn spoken(min: u32, max: u32) -> Hello {
    Hello {
        version_min: ProtocolVersion(min),
        version_max: ProtocolVersion(max),
        ..Hello::new("a", "n", 3, 1)
    }
}

#[test]
fn a_node_tells_its_time_of_day_behind_all_that_its_welcome_has_without() {
    let without = spoken(1, 1).welcome("a", "n", 4);
    let with = Welcome {
        wall: Some(Timestamp(7_000)),
        ..without.clone()
    };
    let [without, with] = [without, with].map(|welcome| {
        let mut out = Vec::new();
        AnswerWriter::welcome(&mut out, &STAMP, &welcome);
        // Behind the length of the frame.
        hex(&out[4..])
    });
    // Tag, length, and 7,000 as a varint.
    assert_eq!(with, without + "0202d836");
}

#[test]
fn the_highest_common_version_is_spoken() {
    let own = ProtocolVersion::MAX.0;
    for (min, max) in [(own, own), (own, own + 5), (0, own + 5), (0, own)] {
        let welcome = spoken(min, max).welcome("a", "n", 4);
        assert_eq!(
            (welcome.version, welcome.refusal),
            (ProtocolVersion::MAX, None)
        );
    }
    for (min, max) in [(own + 1, own + 2), (0, ProtocolVersion::MIN.0 - 1)] {
        let refusal = spoken(min, max).welcome("a", "n", 4).refusal;
        assert!(
            matches!(refusal, Some(Refusal::NoCommonVersion(_))),
            "{min} to {max}"
        );
    }
}

#[test]
fn another_cluster_or_node_is_refused() {
    let hello = Hello::new("a", "n", 3, 1);
    assert_eq!(hello.welcome("a", "n", 4).refusal, None);
    let other = hello.welcome("b", "n", 4).refusal;
    assert!(matches!(&other, Some(Refusal::OtherCluster(reason)) if reason.contains("\"b\"")));
    let other = hello.welcome("a", "m", 4).refusal;
    assert!(matches!(&other, Some(Refusal::OtherNode(reason)) if reason.contains("\"m\"")));
}

/// A reason that this version does not know is still a refusal, even beside an unknown field.
#[test]
fn an_unknown_refusal_refuses() {
    let window = [0x80, 0x80, 0x80, 0x08];
    let mut payload = vec![0; 11];
    payload.extend([1, 1, b'a', 1, b'n', 4]);
    payload.extend(window);
    payload.extend([0x20, 2, 1, 1]);
    payload.extend([1, 10, 99, 8]);
    payload.extend(b"too late");
    let mut decoder = Decoder::of_node();
    decoder.buffer().extend_from_slice(&frame(1, &payload));
    let (_, body) = decoder.next_frame().unwrap().unwrap().body;
    let NodeFrame::Welcome(welcome) = body else {
        panic!("{body:?}")
    };
    assert_eq!(welcome.refusal, Some(Refusal::Other("too late".to_owned())));
}

#[test]
fn a_connection_begins_with_the_preface() {
    for first in [
        *b"PRI * HT",
        *b"GET / HT",
        *b"UMBOHOP2",
        [0x16, 3, 1, 2, 0, 1, 0, 1],
    ] {
        let mut decoder = Decoder::of_dispatcher();
        decoder.buffer().extend_from_slice(&first[..7]);
        assert!(decoder.next_frame().unwrap().is_none());
        decoder.buffer().extend_from_slice(&first[7..]);
        assert_eq!(
            decoder.next_frame().unwrap_err(),
            DecodeError::WrongPreface(first)
        );
    }
    assert_eq!(PREFACE.len(), 8);
}

#[test]
fn a_window_in_which_no_frame_fits_is_refused() {
    let mut out = Vec::new();
    let hello = Hello {
        window: 100_000,
        ..spoken(1, 1)
    };
    RequestWriter::hello(&mut out, &hello);
    let mut decoder = Decoder::of_dispatcher();
    decoder.buffer().extend_from_slice(&out);
    let refused = decoder.next_frame().unwrap_err();
    assert!(matches!(
        refused,
        DecodeError::BadField {
            field: "window",
            ..
        }
    ));
}

proptest! {
    #[test]
    fn greetings_come_out_as_they_went_in(
        versions in any::<(u32, u32)>(), names in any::<[String; 3]>(), numbers in any::<[u64; 4]>(),
        which in 0..5_u8, stamp in stamp(),
    ) {
        let [cluster_id, node, text] = names;
        let [map_version, epoch, number, incarnation] = numbers;
        let hello = Hello {
            version_min: ProtocolVersion(versions.0),
            version_max: ProtocolVersion(versions.1),
            cluster_id: cluster_id.clone(),
            node: node.clone(),
            map_version,
            records: RecordsRevision { epoch, number },
            incarnation,
            window: WINDOW_LEN as u32,
            software: text.clone(),
        };
        let mut out = Vec::new();
        RequestWriter::hello(&mut out, &hello);
        let mut decoder = Decoder::of_dispatcher();
        decoder.buffer().extend_from_slice(&out);
        let body = decoder.next_frame().unwrap().unwrap().body;
        prop_assert!(matches!(body, DispatcherFrame::Hello(decoded) if decoded == hello));

        let welcome = Welcome {
            version: ProtocolVersion(versions.0),
            cluster_id,
            node,
            map_version,
            window: WINDOW_LEN as u32,
            wall: (map_version % 2 > 0).then_some(Timestamp(map_version)),
            program_version: (map_version % 3 > 0).then(|| text.clone()),
            refusal: match which {
                0 => None,
                1 => Some(Refusal::NoCommonVersion(text)),
                2 => Some(Refusal::OtherCluster(text)),
                3 => Some(Refusal::OtherNode(text)),
                _ => Some(Refusal::Other(text)),
            },
        };
        out.clear();
        AnswerWriter::welcome(&mut out, &stamp, &welcome);
        let mut decoder = Decoder::of_node();
        decoder.buffer().extend_from_slice(&out);
        let (found, body): (NodeStamp, _) = decoder.next_frame().unwrap().unwrap().body;
        prop_assert_eq!(found, stamp);
        prop_assert!(matches!(body, NodeFrame::Welcome(decoded) if decoded == welcome));
    }
}
