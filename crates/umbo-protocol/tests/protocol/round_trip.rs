//! Messages survive a round trip.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use umbo_protocol::{NodeStamp, RequestWriter, WINDOW_LEN};

use crate::peers::{NodeEnd, answered};
use crate::values::{answer, request, stamp};

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(mut requests in vec(request(), 0..8)) {
        let mut writer = RequestWriter::new(WINDOW_LEN as u32);
        for (id, request) in (1..).zip(&mut requests) {
            request.id = id;
            writer.push(&(&*request).into());
        }
        let (mut node, mut decoded) = (NodeEnd::new(), Vec::new());
        loop {
            let mut out = Vec::new();
            writer.fill(&mut out);
            if out.is_empty() {
                break;
            }
            decoded.extend(node.take(&out).unwrap().0);
        }
        let decoded = decoded.into_iter().map(Result::unwrap);
        let mut decoded: HashMap<_, _> = decoded.map(|request| (request.id, request)).collect();
        prop_assert_eq!(decoded.len(), requests.len());
        for request in requests {
            prop_assert_eq!(decoded.remove(&request.id), Some(request));
        }
    }

    #[test]
    fn answers_come_out_as_they_went_in(mut answers in vec(answer(), 0..8), stamp in stamp()) {
        for (id, answer) in (1..).zip(&mut answers) {
            answer.id = id;
        }
        let decoded = answered(&answers, &stamp).unwrap().into_iter().map(Result::unwrap);
        let mut decoded: HashMap<_, _> = decoded.map(|answer| (answer.id, answer)).collect();
        prop_assert_eq!(decoded.len(), answers.len());
        for answer in answers {
            prop_assert_eq!(decoded.remove(&answer.id), Some(answer));
        }
    }

    /// Ids are chosen by the dispatcher.
    #[test]
    fn one_request_keeps_its_id(request in request()) {
        let mut writer = RequestWriter::new(WINDOW_LEN as u32);
        writer.push(&(&request).into());
        let (mut node, mut decoded) = (NodeEnd::new(), Vec::new());
        loop {
            // Bytes that are already in the buffer count against the limit of one call.
            let mut out = Vec::new();
            writer.fill(&mut out);
            if out.is_empty() {
                break;
            }
            decoded.extend(node.take(&out).unwrap().0);
        }
        prop_assert_eq!(decoded, [Ok(request)]);
    }

    #[test]
    fn one_answer_keeps_its_id(answer in answer()) {
        let decoded = answered(std::slice::from_ref(&answer), &NodeStamp::default()).unwrap();
        prop_assert_eq!(decoded, [Ok(answer)]);
    }
}
