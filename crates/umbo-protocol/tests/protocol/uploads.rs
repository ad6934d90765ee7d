//! Large values and backups on the wire: steps of uploads, reads of chunks and of pieces, kept as bytes.

use bytes::Bytes;
use umbo_protocol::{
    Ask, DecodeError, Decoder, DispatcherFrame, Request, RequestWriter, WINDOW_LEN,
};
use umbo_store::{
    Atomicity, BackupRequest, Change, ChunkRequest, Condition, Durability, Mutation, UploadStep,
    WriteRequest,
};
use umbo_types::{
    Criticality, Key, LargeRef, NamespaceId, RequestUnits, ShardId, UploadId, Version,
};

const UPLOAD: UploadId = UploadId([5; UploadId::LEN]);

fn request(ask: Ask) -> Request {
    Request {
        id: 7,
        deadline_ns: None,
        criticality: Criticality::SheddablePlus,
        price: RequestUnits::ZERO,
        caller: Bytes::new(),
        ask,
        traceparent: Bytes::new(),
        placed_as: None,
    }
}

fn key() -> Key {
    Key::new("p", "s").expect("it is a key")
}

fn write(steps: Vec<UploadStep>) -> Ask {
    let mutation = |step| Mutation {
        key: key(),
        change: Change::Upload(step),
        condition: Condition::Always,
    };
    Ask::Write(WriteRequest {
        namespace: NamespaceId(3),
        epoch: 0,
        mutations: steps.into_iter().map(mutation).collect(),
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(9),
        idempotency: None,
        not_before: None,
        run: None,
    })
}

fn append(index: u32, len: usize) -> UploadStep {
    UploadStep::Append {
        upload: UPLOAD,
        index,
        bytes: vec![b'x'; len].into(),
    }
}

fn frame(ask: &Ask) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    writer.push(&(&request(ask.clone())).into());
    writer.fill(&mut out);
    out
}

fn read(frame: &[u8]) -> Result<Request, DecodeError> {
    let mut decoder = Decoder::of_dispatcher();
    decoder.buffer().extend_from_slice(&umbo_protocol::PREFACE);
    decoder.buffer().extend_from_slice(frame);
    let frame = decoder.next_frame()?.expect("it is whole");
    let DispatcherFrame::Requests(mut batch) = frame.body else {
        panic!("no requests")
    };
    let read = batch.next().expect("there is one");
    read.map_err(|refused| refused.error)
}

#[test]
fn uploads_and_chunks_come_out_as_they_went_in() {
    let large = LargeRef {
        upload: UPLOAD,
        len: 1 << 21,
        sha256: [9; LargeRef::DIGEST_LEN],
    };
    let chunk = ChunkRequest {
        namespace: NamespaceId(3),
        large,
        index: 8,
    };
    for ask in [
        write(vec![append(0, 100), append(1, 7)]),
        write(vec![UploadStep::Abandon(UPLOAD)]),
        Ask::Chunk(key(), Box::new(chunk)),
    ] {
        assert_eq!(read(&frame(&ask)).unwrap(), request(ask));
    }
}

/// A node that does not know uploads must not take a step for the removal of the row.
#[test]
fn a_peer_that_does_not_know_uploads_refuses_them() {
    for (step, tag) in [(append(0, 30), 0x83), (UploadStep::Abandon(UPLOAD), 0x84)] {
        let mut changed = frame(&write(vec![step]));
        let at = changed.iter().position(|byte| *byte == tag);
        changed[at.expect("it has the tag")] = 0xfe;
        let refused = read(&changed).unwrap_err();
        assert_eq!(refused, DecodeError::UnknownKind { id: 7 });
    }
}

#[test]
fn a_piece_of_a_backup_is_asked_for_with_these_bytes() {
    let ask = Ask::Backup(BackupRequest {
        shard: ShardId(300),
        backup: 0x0102_0304_0506_0708,
        piece: 5,
    });
    let frame = frame(&ask);
    // Kind 15, no criticality, deadline, price nor caller; the shard, the number of the backup, the piece.
    let tail = [15, 0, 0, 0, 0, 0xAC, 2, 8, 7, 6, 5, 4, 3, 2, 1, 5];
    assert!(frame.ends_with(&tail), "{frame:?}");
    assert_eq!(read(&frame).unwrap().ask, ask);
}
