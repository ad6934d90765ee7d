//! Both ends of a connection without a socket.

use bytes::BytesMut;
use umbo_protocol::{
    Answer, AnswerWriter, Assembly, DecodeError, Decoder, DispatcherFrame, NodeFrame, NodeStamp,
    ReceiveWindow, Refused, Request, WINDOW_LEN,
};

/// The receiving half of a node, for the bytes of a dispatcher.
pub(crate) struct NodeEnd {
    decoder: Decoder<DispatcherFrame>,
    assembly: Assembly,
    window: ReceiveWindow,
    pub(crate) cancelled: Vec<u64>,
    /// Longest run of bytes between two frames of small requests, in chunks.
    pub(crate) chunks: usize,
}

impl NodeEnd {
    pub(crate) fn new() -> Self {
        let mut decoder = Decoder::of_dispatcher();
        decoder.buffer().extend_from_slice(&umbo_protocol::PREFACE);
        Self {
            decoder,
            assembly: Assembly::default(),
            window: ReceiveWindow::new(WINDOW_LEN as u32),
            cancelled: Vec::new(),
            chunks: 0,
        }
    }

    /// Returns the complete requests, and the credit to grant for their bytes.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
    ) -> Result<(Vec<Result<Request, Refused>>, u32), DecodeError> {
        self.decoder.buffer().extend_from_slice(bytes);
        let (mut requests, mut granted) = (Vec::new(), 0);
        while let Some(frame) = self.decoder.next_frame()? {
            self.window.received(frame.counted)?;
            match frame.body {
                DispatcherFrame::Requests(batch) => requests.extend(batch),
                DispatcherFrame::Chunk(chunk) => {
                    self.chunks += 1;
                    if let Some(message) = self.assembly.push(chunk)? {
                        requests.push(Request::decode(&message));
                    }
                }
                DispatcherFrame::Cancel(ids) => {
                    for &id in &ids {
                        self.assembly.remove(id);
                    }
                    self.cancelled.extend(ids);
                }
                _ => {}
            }
            granted += self.window.taken_over(frame.counted).unwrap_or(0);
        }
        Ok((requests, granted))
    }
}

/// Sends answers and returns them as a dispatcher decodes them.
pub(crate) fn answered(
    answers: &[Answer],
    stamp: &NodeStamp,
) -> Result<Vec<Result<Answer, Refused>>, DecodeError> {
    let mut writer = AnswerWriter::new(WINDOW_LEN as u32);
    for answer in answers {
        writer.push(answer);
    }
    let (mut decoder, mut assembly) = (Decoder::of_node(), Assembly::default());
    let mut window = ReceiveWindow::new(WINDOW_LEN as u32);
    let mut taken = Vec::new();
    loop {
        let mut out = Vec::new();
        writer.fill(&mut out, || *stamp);
        if out.is_empty() {
            return Ok(taken);
        }
        decoder.buffer().extend_from_slice(&out);
        while let Some(frame) = decoder.next_frame()? {
            let (found, body) = frame.body;
            assert_eq!(found, *stamp);
            window.received(frame.counted)?;
            match body {
                NodeFrame::Answers(batch) => taken.extend(batch),
                NodeFrame::Chunk(chunk) => {
                    if let Some(message) = assembly.push(chunk)? {
                        taken.push(Answer::decode(&message));
                    }
                }
                other => panic!("{other:?}"),
            }
            if let Some(len) = window.taken_over(frame.counted) {
                writer.granted(len)?;
            }
        }
    }
}

/// A frame of this kind and payload.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&(payload.len() as u32 + 1).to_le_bytes());
    frame.extend_from_slice(&[kind]);
    frame.extend_from_slice(payload);
    frame
}

/// A frame of requests: each preceded by its length.
pub(crate) fn batch(messages: &[Vec<u8>]) -> BytesMut {
    let mut payload = Vec::new();
    for message in messages {
        payload.extend_from_slice(&(message.len() as u16).to_le_bytes());
        payload.extend_from_slice(message);
    }
    frame(2, &payload)
}
