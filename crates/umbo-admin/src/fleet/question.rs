//! Questions and answers on the wire, and their signatures.
//!
//! A question is an HTTP request for a route of the admin API. Two fields say who asks whom, and when. The permissions
//! of the caller travel as its grants, its token never does. A question and its answer are signed with keyed BLAKE3 and a
//! key that all dispatchers of a cluster derive from their shared secret. So the question of a stranger is refused
//! without certificates too. A signature is valid for one dispatcher and for half a minute by the clock of the home.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blake3::Hash;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use serde::{Deserialize, Serialize};
use umbo_api::fleet::FLEET_ROUTES;
use umbo_types::{Caller, CallerId, Criticality, Grant, Timestamp};

/// Target of the messages about quotas.
const MESSAGE_TARGET: &str = "/fleet/v1/quotas";
/// Field with the [`Asker`] of a question, or the [`Envelope`] of a message.
const QUESTION: &str = "umbo-fleet-question";
/// Field with the signature of a question or an answer.
const SIGNATURE: &str = "umbo-fleet-signature";
/// Greatest difference between the time of a question and now. Clocks differ by less, because all of them are estimates
/// of the clock of the home; a recorded question is worthless after it.
const AGE_MAX: Duration = Duration::from_secs(30);

/// Why a question is not answered: a status, and the reason in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuestionRefusal(pub(super) u16, pub(super) &'static str);

pub(super) const WRONG_ROLE: QuestionRefusal = QuestionRefusal(
    403,
    "the certificate of the asker does not carry the name umbo-dispatcher",
);
pub(super) const NOT_A_QUESTION: QuestionRefusal =
    QuestionRefusal(405, "dispatchers ask one another with GET only");
pub(super) const BUSY: QuestionRefusal = QuestionRefusal(503, "too many questions are open");
const UNSIGNED: QuestionRefusal =
    QuestionRefusal(401, "no signature: clients are served at server.listen");
pub(super) const WRONG_SIGNATURE: QuestionRefusal =
    QuestionRefusal(401, "wrong signature: the asker is of another cluster");
const WRONG_TIME: QuestionRefusal =
    QuestionRefusal(401, "its time is more than 30 s from that of the home");
pub(super) const OTHER_PROCESS: QuestionRefusal =
    QuestionRefusal(421, "it is for a process that had this address before");
const NO_ROUTE: QuestionRefusal = QuestionRefusal(404, "it is no route of the fleet");
pub(super) const UNREADABLE: QuestionRefusal =
    QuestionRefusal(400, "it cannot be read: the asker is of a newer version");

/// Who asks whom, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Asker {
    /// Id of the dispatcher that is asked.
    to: u64,
    at_ms: u64,
    caller: String,
    grants: Vec<String>,
}

/// Who a message about quotas is for, when it was sent, and the hash of its body. The signature is of the head, so that
/// no body of a stranger is read.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    to: u64,
    at_ms: u64,
    /// BLAKE3, in hexadecimal digits.
    digest: String,
}

/// Key of the signatures.
pub(super) struct QuestionKey([u8; 32]);

impl std::fmt::Debug for QuestionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuestionKey(hidden)")
    }
}

impl QuestionKey {
    /// Derives the key from the secret that all dispatchers of a store share.
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(
            "umbo 2026 questions of dispatchers",
            secret,
        ))
    }

    /// Makes a question to a dispatcher, on behalf of a caller, and returns its signature too.
    pub(super) fn ask(
        &self,
        caller: &Caller,
        target: &str,
        to: u64,
        now: Timestamp,
    ) -> Option<(Request<Bytes>, Hash)> {
        let asker = Asker {
            to,
            at_ms: now.as_millis(),
            caller: caller.id.as_str().to_owned(),
            grants: caller.grants.iter().map(Grant::to_string).collect(),
        };
        self.request(Method::GET, target, &asker, Bytes::new())
    }

    /// Makes a message about quotas to a dispatcher, and returns its signature too.
    pub(super) fn write(
        &self,
        body: Bytes,
        to: u64,
        now: Timestamp,
    ) -> Option<(Request<Bytes>, Hash)> {
        let envelope = Envelope {
            to,
            at_ms: now.as_millis(),
            digest: blake3::hash(&body).to_hex().to_string(),
        };
        self.request(Method::POST, MESSAGE_TARGET, &envelope, body)
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        asker: &impl Serialize,
        body: Bytes,
    ) -> Option<(Request<Bytes>, Hash)> {
        let asker = URL_SAFE_NO_PAD.encode(serde_json::to_vec(asker).ok()?);
        let signature = self.sign_question(&method, target, asker.as_bytes());
        // HTTP/2 names the scheme and the authority; the other end does not use them.
        let request = Request::builder()
            .method(method)
            .uri(format!("http://umbo-dispatcher{target}"))
            .header(QUESTION, asker)
            .header(SIGNATURE, signature.to_hex().as_str())
            .body(body);
        Some((request.ok()?, signature))
    }

    /// Checks a question to this dispatcher. Returns its caller, its target and its signature.
    pub(super) fn open(
        &self,
        head: &Parts,
        to: u64,
        now: Timestamp,
    ) -> Result<(Arc<Caller>, String, Hash), QuestionRefusal> {
        let (target, asker, brought) = self.signed(head)?;
        let asker: Asker = serde_json::from_slice(&asker).map_err(|_| UNREADABLE)?;
        check_addressee((asker.to, asker.at_ms), to, now)?;
        if !is_of_fleet(target) {
            return Err(NO_ROUTE);
        }
        // A caller with fewer grants would get another answer.
        let grants = asker.grants.iter().map(|grant| grant.parse());
        let grants: Result<_, _> = grants.collect();
        let caller = Caller {
            id: CallerId::new(&asker.caller),
            grants: grants.map_err(|_| UNREADABLE)?,
            criticality_max: Criticality::Sheddable,
        };
        Ok((Arc::new(caller), target.to_owned(), brought))
    }

    /// Checks the head of a message to this dispatcher. Returns the hash that its body has, and its signature.
    pub(super) fn open_message(
        &self,
        head: &Parts,
        to: u64,
        now: Timestamp,
    ) -> Result<(Hash, Hash), QuestionRefusal> {
        let (_, envelope, brought) = self.signed(head)?;
        let envelope: Envelope = serde_json::from_slice(&envelope).map_err(|_| UNREADABLE)?;
        check_addressee((envelope.to, envelope.at_ms), to, now)?;
        let digest = Hash::from_hex(envelope.digest).map_err(|_| UNREADABLE)?;
        Ok((digest, brought))
    }

    /// Checks the signature of a head. Returns its target, its asker or envelope as JSON, and the signature.
    fn signed<'a>(&self, head: &'a Parts) -> Result<(&'a str, Vec<u8>, Hash), QuestionRefusal> {
        let target = head.uri.path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let asker = head.headers.get(QUESTION).ok_or(UNSIGNED)?;
        let brought = signature_of(&head.headers).ok_or(UNSIGNED)?;
        // Hashes are compared in constant time.
        if brought != self.sign_question(&head.method, target, asker.as_bytes()) {
            return Err(WRONG_SIGNATURE);
        }
        let json = URL_SAFE_NO_PAD.decode(asker).unwrap_or_default();
        Ok((target, json, brought))
    }

    /// Returns the field of an answer to a question.
    pub(super) fn seal(
        &self,
        question: &Hash,
        status: u16,
        body: &[u8],
    ) -> (&'static str, HeaderValue) {
        let signature = self.sign_answer(question, status, body).to_hex();
        let value = HeaderValue::from_str(&signature).expect("hexadecimal digits are visible");
        (SIGNATURE, value)
    }

    /// Returns whether an answer is of a dispatcher that has the key, and to this question.
    pub(super) fn is_answer(
        &self,
        question: &Hash,
        head: &http::response::Parts,
        body: &[u8],
    ) -> bool {
        signature_of(&head.headers) == Some(self.sign_answer(question, head.status.as_u16(), body))
    }

    fn sign_question(&self, method: &Method, target: &str, asker: &[u8]) -> Hash {
        self.sign([
            b"question",
            method.as_str().as_bytes(),
            target.as_bytes(),
            asker,
        ])
    }

    fn sign_answer(&self, question: &Hash, status: u16, body: &[u8]) -> Hash {
        self.sign([b"answer", question.as_bytes(), &status.to_be_bytes(), body])
    }

    /// Signs parts, each with its length, so that no byte can pass from one part into the next.
    fn sign(&self, parts: [&[u8]; 4]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher
                .update(&(part.len() as u64).to_be_bytes())
                .update(part);
        }
        hasher.finalize()
    }
}

/// Returns whether a request is a message about quotas. An earlier version answers 405.
pub(super) fn is_message(head: &Parts) -> bool {
    head.method == Method::POST && head.uri.path() == MESSAGE_TARGET
}

fn check_addressee(
    (addressee, at_ms): (u64, u64),
    to: u64,
    now: Timestamp,
) -> Result<(), QuestionRefusal> {
    if at_ms.abs_diff(now.as_millis()) > AGE_MAX.as_millis() as u64 {
        return Err(WRONG_TIME);
    }
    if addressee == to {
        Ok(())
    } else {
        Err(OTHER_PROCESS)
    }
}

/// Returns whether a target is one of the routes of the admin API that can be asked of a whole fleet.
pub(crate) fn is_of_fleet(target: &str) -> bool {
    let route = target.strip_prefix("/admin/v1/").unwrap_or_default();
    let route = route.split(['/', '?']).next().unwrap_or_default();
    FLEET_ROUTES.contains(&route)
}

fn signature_of(headers: &HeaderMap) -> Option<Hash> {
    Hash::from_hex(headers.get(SIGNATURE)?).ok()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn caller() -> Caller {
        Caller {
            grants: vec!["observe:*".parse().unwrap(), "read:a-*".parse().unwrap()],
            ..Caller::anonymous()
        }
    }

    fn key() -> QuestionKey {
        QuestionKey::new(&[7; 32])
    }

    fn asked(target: &str) -> (Parts, Hash) {
        let (request, signature) = key().ask(&caller(), target, 5, NOW).unwrap();
        (request.into_parts().0, signature)
    }

    #[test]
    fn a_question_is_heard_by_its_dispatcher_in_time() {
        let target = "/admin/v1/why/a%20b?x=1";
        let (head, signature) = asked(target);
        let (asker, path, brought) = key().open(&head, 5, NOW).unwrap();
        assert_eq!((&asker.id, &asker.grants), (&caller().id, &caller().grants));
        assert_eq!((path.as_str(), brought), (target, signature));
        let at = |ms: u64| Timestamp::from_millis(NOW.as_millis() + ms);
        assert!(key().open(&head, 5, at(30_000)).is_ok());
        let early = Timestamp::from_millis(NOW.as_millis() - 30_001);
        for late in [at(30_001), early] {
            assert_eq!(key().open(&head, 5, late).unwrap_err(), WRONG_TIME);
        }
        assert_eq!(key().open(&head, 6, NOW).unwrap_err(), OTHER_PROCESS);
    }

    #[test]
    fn a_question_that_was_changed_or_made_by_a_stranger_is_refused() {
        let (head, _) = asked("/admin/v1/hot");
        let refused = |head: &Parts| key().open(head, 5, NOW).unwrap_err();
        let other = QuestionKey::new(&[8; 32]);
        assert_eq!(other.open(&head, 5, NOW).unwrap_err(), WRONG_SIGNATURE);
        let mut changed = head.clone();
        changed.uri = "/admin/v1/tokens".parse().unwrap();
        assert_eq!(refused(&changed), WRONG_SIGNATURE);
        changed = head.clone();
        changed.method = Method::DELETE;
        assert_eq!(refused(&changed), WRONG_SIGNATURE);
        changed = head.clone();
        let rich = URL_SAFE_NO_PAD.encode(br#"{"to":5,"at_ms":0,"caller":"x","grants":["*:*"]}"#);
        changed.headers.insert(QUESTION, rich.parse().unwrap());
        assert_eq!(refused(&changed), WRONG_SIGNATURE);
        for name in [QUESTION, SIGNATURE] {
            changed = head.clone();
            changed.headers.remove(name);
            assert_eq!(refused(&changed), UNSIGNED);
            changed.headers.insert(name, HeaderValue::from_static("?"));
            assert_ne!(refused(&changed), UNREADABLE);
        }
    }

    #[test]
    fn a_question_with_a_grant_that_cannot_be_read_is_not_answered() {
        let (mut head, _) = asked("/admin/v1/hot");
        for asker in [
            format!(
                r#"{{"to":5,"at_ms":{},"caller":"x","grants":["fly:*"]}}"#,
                NOW.as_millis()
            ),
            "{}".to_owned(),
        ] {
            let asker = URL_SAFE_NO_PAD.encode(asker);
            let signed = key().sign_question(&head.method, "/admin/v1/hot", asker.as_bytes());
            head.headers.insert(QUESTION, asker.parse().unwrap());
            head.headers
                .insert(SIGNATURE, signed.to_hex().parse().unwrap());
            assert_eq!(key().open(&head, 5, NOW).unwrap_err(), UNREADABLE);
        }
    }

    #[test]
    fn a_message_is_heard_by_its_dispatcher_in_time_with_its_body() {
        let body = Bytes::from_static(b"units");
        let (request, signature) = key().write(body.clone(), 5, NOW).unwrap();
        let (head, sent) = request.into_parts();
        assert!(is_message(&head) && sent == body);
        let opened = key().open_message(&head, 5, NOW);
        assert_eq!(opened, Ok((blake3::hash(&body), signature)));
        assert_eq!(key().open_message(&head, 6, NOW), Err(OTHER_PROCESS));
        let late = Timestamp::from_millis(NOW.as_millis() + 30_001);
        assert_eq!(key().open_message(&head, 5, late), Err(WRONG_TIME));
        let other = QuestionKey::new(&[8; 32]);
        assert_eq!(other.open_message(&head, 5, NOW), Err(WRONG_SIGNATURE));
        // The body that it names is signed, too.
        let (other, _) = key().write(Bytes::from_static(b"more"), 5, NOW).unwrap();
        let mut changed = head.clone();
        let envelope = other.headers()[QUESTION].clone();
        changed.headers.insert(QUESTION, envelope);
        assert_eq!(key().open_message(&changed, 5, NOW), Err(WRONG_SIGNATURE));
    }

    #[test]
    fn a_question_is_no_message_and_a_message_no_question() {
        let (head, _) = asked("/admin/v1/hot");
        assert!(!is_message(&head));
        assert_eq!(key().open_message(&head, 5, NOW), Err(UNREADABLE));
        let (request, _) = key().write(Bytes::new(), 5, NOW).unwrap();
        let (head, _) = request.into_parts();
        assert_eq!(key().open(&head, 5, NOW).unwrap_err(), UNREADABLE);
    }

    #[test]
    fn an_answer_is_of_its_question_and_whole() {
        let (_, question) = asked("/admin/v1/hot");
        let (name, value) = key().seal(&question, 200, b"{}");
        let response = http::Response::builder()
            .header(name, value)
            .body(())
            .unwrap();
        let (head, ()) = response.into_parts();
        assert!(key().is_answer(&question, &head, b"{}"));
        assert!(!key().is_answer(&question, &head, b"{ }"));
        assert!(!key().is_answer(&asked("/admin/v1/shed").1, &head, b"{}"));
        let mut other = head.clone();
        other.status = StatusCode::NOT_FOUND;
        assert!(!key().is_answer(&question, &other, b"{}"));
    }

    #[test]
    fn only_routes_of_the_fleet_are_answered() {
        for target in [
            "/admin/v1/tokens",
            "/metrics",
            "/page",
            "/admin/v1/fleet/hot",
            "/hot",
        ] {
            let (head, _) = asked(target);
            assert_eq!(key().open(&head, 5, NOW).unwrap_err(), NO_ROUTE, "{target}");
        }
        let (head, _) = asked("/admin/v1/hot/busy?x=1");
        assert!(key().open(&head, 5, NOW).is_ok());
    }
}
