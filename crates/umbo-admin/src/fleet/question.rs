//! Questions and replies as bytes.
//!
//! The permissions of a caller travel as its grants. A dispatcher believes another one of its cluster: both are known
//! to the nodes between them, by their certificates where these are required.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use serde::{Deserialize, Serialize};
use umbo_types::{Caller, CallerId, Criticality, Grant};

use super::answer::ServerAnswer;

/// A route of the admin API, and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    path: String,
    caller: String,
    grants: Vec<String>,
}

impl Question {
    pub(super) fn new(caller: &Caller, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            caller: caller.id.as_str().to_owned(),
            grants: caller.grants.iter().map(Grant::to_string).collect(),
        }
    }

    /// Reads a question, or returns `None` if this version does not know it.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Returns the caller and the request, or `None` if a grant or the path cannot be read: a caller with fewer grants
    /// would get another answer.
    pub(super) fn request(&self) -> Option<(Arc<Caller>, Request<Body>)> {
        let grants = self.grants.iter().map(|grant| grant.parse());
        let caller = Caller {
            id: CallerId::new(&self.caller),
            grants: grants.collect::<Result<_, _>>().ok()?,
            criticality_max: Criticality::Sheddable,
        };
        let request = Request::get(&self.path).body(Body::empty()).ok()?;
        Some((Arc::new(caller), request))
    }
}

/// Writes a reply: its status and a space, then its body.
pub(super) fn reply((status, body): &ServerAnswer) -> Bytes {
    [format!("{status} ").as_bytes(), body].concat().into()
}

/// Reads a reply, or returns `None` if it is empty or invalid.
pub(super) fn read_reply(reply: &Bytes) -> Option<ServerAnswer> {
    let end = reply.iter().position(|byte| *byte == b' ')?;
    let status = std::str::from_utf8(&reply[..end]).ok()?.parse().ok()?;
    Some((status, reply.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_replies_read_back() {
        let caller = Caller {
            grants: vec!["observe:*".parse().unwrap(), "read:a-*".parse().unwrap()],
            ..Caller::anonymous()
        };
        let question = Question::new(&caller, "/admin/v1/why/a%20b?x=1");
        assert_eq!(Question::read(&question.to_bytes()), Some(question.clone()));
        let (asker, request) = question.request().unwrap();
        assert_eq!((&asker.id, &asker.grants), (&caller.id, &caller.grants));
        assert_eq!(request.uri(), "/admin/v1/why/a%20b?x=1");
        let answer = (404, Bytes::from_static(b"{\"a\": 1}"));
        assert_eq!(read_reply(&reply(&answer)), Some(answer));
        for garbage in ["", "200", "x {}", "-1 {}"] {
            assert_eq!(read_reply(&Bytes::from_static(garbage.as_bytes())), None);
        }
    }

    #[test]
    fn a_question_with_a_grant_that_cannot_be_read_is_not_answered() {
        let mut question = Question::new(&Caller::anonymous(), "/admin/v1/hot");
        question.grants.push("fly:*".to_owned());
        assert!(question.request().is_none());
        assert!(Question::read(b"{}").is_none() && Question::read(b"\xff").is_none());
    }
}
