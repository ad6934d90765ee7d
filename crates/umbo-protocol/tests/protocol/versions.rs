//! Who is welcome: versions, clusters and nodes, and how it is said on the wire.

use bytes::Bytes;
use proptest::prelude::*;
use umbo_protocol::{
    AnswerFrame, Ask, Hello, NodeError, Outcome, ProtocolVersion, Refusal, RequestFrame, Welcome,
};
use umbo_store::StoreError;

fn spoken(min: u32, max: u32) -> Hello {
    Hello {
        version_min: ProtocolVersion(min),
        version_max: ProtocolVersion(max),
        ..Hello::new("a", "n", 3)
    }
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
    let hello = Hello::new("a", "n", 3);
    assert_eq!(hello.welcome("a", "n", 4).refusal, None);
    let other = hello.welcome("b", "n", 4).refusal;
    assert!(matches!(&other, Some(Refusal::OtherCluster(reason)) if reason.contains("\"b\"")));
    let other = hello.welcome("a", "m", 4).refusal;
    assert!(matches!(&other, Some(Refusal::OtherNode(reason)) if reason.contains("\"m\"")));
}

/// A reason that this version does not know is a refusal all the same.
#[test]
fn an_unknown_refusal_refuses() {
    let mut welcome = Vec::new();
    prost::encoding::string::encode(5, &"too late".to_owned(), &mut welcome);
    prost::encoding::uint32::encode(6, &99, &mut welcome);
    let mut frame = Vec::new();
    prost::encoding::bytes::encode(1, &Bytes::from(welcome), &mut frame);
    let welcome = AnswerFrame::decode(frame.into()).unwrap().welcome.unwrap();
    assert_eq!(welcome.refusal, Some(Refusal::Other("too late".to_owned())));
}

/// What an older peer does not say is what it meant: each request is one, and for nobody else.
#[test]
fn what_an_older_peer_leaves_out_has_a_meaning() {
    use prost::encoding::{bytes, uint32, uint64};

    let (mut request, mut frame) = (Vec::new(), Vec::new());
    uint64::encode(1, &5, &mut request);
    uint64::encode(17, &4, &mut request);
    bytes::encode(2, &Bytes::from(request), &mut frame);
    let mut requests = RequestFrame::decode(frame.into()).unwrap().requests;
    let request = requests.remove(0).unwrap();
    assert_eq!((request.id, request.ask), (5, Ask::Cancel(4)));
    assert!(!request.is_continued && request.names.is_none());

    let (mut error, mut answer, mut frame) = (Vec::new(), Vec::new(), Vec::new());
    uint32::encode(1, &7, &mut error);
    bytes::encode(20, &Bytes::from(error), &mut answer);
    bytes::encode(2, &Bytes::from(answer), &mut frame);
    let mut answers = AnswerFrame::decode(frame.into()).unwrap().answers;
    let Outcome::Failed(NodeError::Store(error)) = answers.remove(0).unwrap().outcome else {
        panic!("no error")
    };
    let is_unobserved = |error| matches!(error, StoreError::QuotaExceeded { observed: None, .. });
    assert!(is_unobserved(error));
}

#[test]
fn draining_is_told_alone() {
    let frame = AnswerFrame::decode(AnswerFrame::draining()).unwrap();
    assert!(frame.is_draining && frame.welcome.is_none() && frame.answers.is_empty());
}

proptest! {
    #[test]
    fn greetings_come_out_as_they_went_in(
        versions in any::<(u32, u32)>(), names in any::<[String; 3]>(), map_version in any::<u64>(),
        which in 0..5_u8,
    ) {
        let [cluster_id, node, text] = names;
        let hello = Hello {
            version_min: ProtocolVersion(versions.0),
            version_max: ProtocolVersion(versions.1),
            cluster_id: cluster_id.clone(),
            node: node.clone(),
            map_version,
            software: text.clone(),
        };
        let decoded = RequestFrame::decode(RequestFrame::hello(&hello)).unwrap();
        prop_assert_eq!(decoded.hello, Some(hello));
        let welcome = Welcome {
            version: ProtocolVersion(versions.0),
            cluster_id,
            node,
            map_version,
            refusal: match which {
                0 => None,
                1 => Some(Refusal::NoCommonVersion(text)),
                2 => Some(Refusal::OtherCluster(text)),
                3 => Some(Refusal::OtherNode(text)),
                _ => Some(Refusal::Other(text)),
            },
        };
        let decoded = AnswerFrame::decode(AnswerFrame::welcome(&welcome)).unwrap();
        prop_assert_eq!(decoded.welcome, Some(welcome));
    }
}
