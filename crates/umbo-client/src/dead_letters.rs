//! Dead letters of a service: the writes that a client has given up, with the reason, so that they can be sent again.
//!
//! Owns the form of a letter, an entry of the files of failed rows that `umbo kv import` reads, and two places for
//! letters: a file, or a function of the service. A letter is written when a call ends, never for an attempt that is
//! repeated. A decision of the server by its stored rows (a false condition, for example) is an answer and makes no
//! letter.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::value::RawValue;
use umbo_api::Outcome;
use umbo_api::batch::WriteRowError;

use crate::error::Error;

/// Who gave a write up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadLetterReason {
    /// The client, before it sent the write: the server refused too many recent requests, or the client was ended.
    GivenUp,
    /// The client, because the write cannot be sent.
    Malformed,
    /// The server refused it, as often as the client sent it.
    Refused,
    /// No attempt had an answer that tells its outcome.
    Unanswered,
}

impl DeadLetterReason {
    /// Returns who gave up a write that ended with this error.
    pub const fn of(error: &Error) -> Self {
        match error {
            Error::GivenUp { .. }
            | Error::WaitEnded
            | Error::BadUrl { .. }
            | Error::BadOption(_) => Self::GivenUp,
            Error::Problem { .. } | Error::Foreign { .. } => Self::Refused,
            Error::Unreachable { .. }
            | Error::Tls(_)
            | Error::Transport(_)
            | Error::Timeout(_)
            | Error::Unconfirmed { .. }
            | Error::TruncatedStream { .. }
            | Error::Malformed(_) => Self::Unanswered,
        }
    }

    /// Returns the name in a letter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GivenUp => "given-up",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A write that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Namespace of the write.
    pub namespace: String,
    /// When it was given up.
    pub at: SystemTime,
    /// Who gave it up.
    pub reason: DeadLetterReason,
    /// Whether it took effect, or that this is unknown.
    pub outcome: Outcome,
    /// HTTP status; 0 if there was no answer.
    pub status: u16,
    /// Code, as the `type` of a problem; empty if there was no answer.
    pub type_uri: String,
    /// The failure in words.
    pub detail: String,
    /// The write, as a line of a batch. A condition of it stays: a row that has changed since is not overwritten.
    pub line: String,
}

impl DeadLetter {
    /// Returns the letter as an entry of a file of failed rows, without a newline. A line that is not JSON, or more
    /// than one, is kept as text.
    pub fn to_entry(&self) -> String {
        #[derive(Serialize)]
        struct Failed<'a> {
            namespace: &'a str,
            at: u64,
            line: u64,
            status: u16,
            #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
            type_uri: &'a str,
            detail: &'a str,
            reason: DeadLetterReason,
            outcome: Outcome,
        }
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let failed = Failed {
            namespace: &self.namespace,
            at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            line: 1,
            status: self.status,
            type_uri: &self.type_uri,
            detail: &self.detail,
            reason: self.reason,
            outcome: self.outcome,
        };
        failed_entry(&failed, self.line.as_bytes())
    }
}

/// Returns an entry of a file of failed rows, without a newline: the facts of a failure, and the line that failed. A line
/// that is not a JSON object is kept as text.
pub fn failed_entry(failed: &impl Serialize, line: &[u8]) -> String {
    #[derive(Serialize)]
    struct Entry<'a, F> {
        failed: F,
        #[serde(skip_serializing_if = "Option::is_none")]
        row: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<Cow<'a, str>>,
    }
    let line = line.trim_ascii();
    let row = line.starts_with(b"{").then(|| serde_json::from_slice(line));
    let row = row.and_then(Result::ok);
    let text = row.is_none().then(|| String::from_utf8_lossy(line));
    let entry = Entry { failed, row, text };
    serde_json::to_string(&entry).expect("texts, numbers and JSON are JSON")
}

/// A receiver of the dead letters of a client. Clones are the same receiver.
#[derive(Clone)]
pub struct DeadLetters {
    put: Arc<dyn Fn(&DeadLetter) + Send + Sync>,
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadLetters")
    }
}

impl DeadLetters {
    /// Passes each letter to a function, on the thread of the call that ended; it must not block for long.
    pub fn to(put: impl Fn(&DeadLetter) + Send + Sync + 'static) -> Self {
        Self { put: Arc::new(put) }
    }

    /// Appends each letter to a file that `umbo kv import` reads, and creates the file if it does not exist. A letter
    /// that cannot be written is passed to `lost` with the error, because the call already returns the error of its
    /// write.
    pub fn file(
        path: &Path,
        lost: impl Fn(&DeadLetter, io::Error) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let file = Mutex::new(file);
        Ok(Self::to(move |letter| {
            if let Err(error) = append(&file, letter) {
                lost(letter, error);
            }
        }))
    }

    pub(crate) fn put(&self, letter: &DeadLetter) {
        (self.put)(letter);
    }
}

/// One write of the system, so that letters of several processes do not run into one another.
fn append(file: &Mutex<File>, letter: &DeadLetter) -> io::Result<()> {
    let entry = letter.to_entry() + "\n";
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.write_all(entry.as_bytes())
}

/// Returns the letter of a write that ended with an error, or `None` if the error is an answer.
pub(crate) fn letter(namespace: &str, error: &Error, line: String) -> Option<DeadLetter> {
    if error.is_decision() {
        return None;
    }
    let problem = error.problem();
    Some(DeadLetter {
        namespace: namespace.to_owned(),
        at: SystemTime::now(),
        reason: DeadLetterReason::of(error),
        outcome: error.outcome(),
        status: error.status().unwrap_or_default(),
        type_uri: problem.map_or_else(String::new, |problem| problem.type_uri.clone()),
        detail: problem.map_or_else(|| error.to_string(), |problem| problem.detail.clone()),
        line,
    })
}

/// Returns the letter of a row of a batch that was refused, or `None` if the refusal is an answer.
pub(crate) fn letter_of_row(
    namespace: &str,
    status: u16,
    error: &WriteRowError,
    line: String,
) -> Option<DeadLetter> {
    if matches!(status, 409 | 412) {
        return None;
    }
    Some(DeadLetter {
        namespace: namespace.to_owned(),
        at: SystemTime::now(),
        reason: DeadLetterReason::Refused,
        outcome: error.outcome,
        status,
        type_uri: error.type_uri.clone(),
        detail: error.detail.clone(),
        line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_entry_holds_its_line_as_json_or_as_text() {
        let of = |line: &str| DeadLetter {
            namespace: "ns".to_owned(),
            at: UNIX_EPOCH + Duration::from_millis(7),
            reason: DeadLetterReason::GivenUp,
            outcome: Outcome::NotApplied,
            status: 429,
            type_uri: "/v1/errors/quota-exceeded".to_owned(),
            detail: "d".to_owned(),
            line: line.to_owned(),
        };
        let head = r#"{"failed":{"namespace":"ns","at":7,"line":1,"status":429,"type":"/v1/errors/quota-exceeded","detail":"d","reason":"given-up","outcome":"not-applied"},"#;
        for (line, rest) in [
            (r#"{"pk":"a","v":"é"}"#, r#""row":{"pk":"a","v":"é"}}"#),
            ("7", r#""text":"7"}"#),
            ("{\"pk", r#""text":"{\"pk"}"#),
        ] {
            assert_eq!(of(line).to_entry(), format!("{head}{rest}"));
        }
    }
}
