//! What goes in comes out.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use umbo_protocol::{AnswerFrame, RequestFrame};

use crate::values::{answer, request};

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(requests in vec(request(), 0..8)) {
        let mut frame = BytesMut::new();
        for request in &requests {
            RequestFrame::push(&mut frame, &request.into());
        }
        let decoded = RequestFrame::decode(frame.freeze()).unwrap();
        prop_assert!(decoded.hello.is_none());
        let decoded: Vec<_> = decoded.requests.into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, requests);
    }

    #[test]
    fn answers_come_out_as_they_went_in(answers in vec(answer(), 0..8)) {
        let mut frame = BytesMut::new();
        for answer in &answers {
            AnswerFrame::push(&mut frame, answer.clone());
        }
        let decoded = AnswerFrame::decode(frame.freeze()).unwrap();
        prop_assert!(decoded.welcome.is_none() && !decoded.is_draining);
        let decoded: Vec<_> = decoded.answers.into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, answers);
    }
}
