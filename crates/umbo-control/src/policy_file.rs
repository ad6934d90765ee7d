//! The policy file: `[[policy]]` entries in TOML, each of the shape that the admin API takes as JSON.
//!
//! Deliberately decides nothing about values; `umbo-quota` decides which values go together. Invariant: a file is read
//! as a whole or refused with the line that is wrong.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use umbo_api::quota::{PolicySource, PolicySpec};
use umbo_quota::{Policy, PolicyError, nearest};

/// The line of a policy file that is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct PolicyFileError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: PolicyFileProblem,
}

/// A problem of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileProblem {
    /// The file is no TOML, or has something that no policy has.
    #[error("{0}")]
    Syntax(String),
    /// A policy in single brackets, which allow only one.
    #[error("a policy begins with [[policy]], in two brackets")]
    OneBracket,
    /// A policy that makes no sense.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// Two policies have one name.
    #[error("two policies are named '{name}': this one, and the one in line {first_line}")]
    Twice {
        /// The name.
        name: String,
        /// Line of the first of them.
        first_line: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    policy: Vec<PolicySpec>,
}

/// Reads the text of a policy file. One without policies is fine.
///
/// The error is the first problem of the file. The limit on the number of policies is checked when
/// policies are combined into a set.
pub fn read_policies(text: &str) -> Result<Vec<Policy>, PolicyFileError> {
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let error = |at, problem| {
        let line = line_of(at);
        PolicyFileError { line, problem }
    };
    let syntax = |cause: toml::de::Error| {
        let message = with_nearest(cause.message());
        let at = cause.span().map_or(0, |span| span.start.min(text.len()));
        error(at, PolicyFileProblem::Syntax(message))
    };
    let places = DeTable::parse(text).map_err(syntax)?;
    let written = places.get_ref().get("policy");
    if let Some(one) = written.filter(|one| one.get_ref().is_table()) {
        return Err(error(one.span().start, PolicyFileProblem::OneBracket));
    }
    let entries: Entries = toml::from_str(text).map_err(syntax)?;
    let mut policies: Vec<Policy> = Vec::with_capacity(entries.policy.len());
    let place = |index: usize| written.and_then(|list| list.get_ref().get(index));
    let start = |index: usize| place(index).map_or(0, |entry| entry.span().start);
    for (index, spec) in entries.policy.iter().enumerate() {
        let policy = Policy::parse(spec, PolicySource::File).map_err(|cause| {
            let at = place(index).map_or(0, |entry| start_of(entry, &cause.place));
            error(at, cause.into())
        })?;
        if let Some(first) = policies.iter().position(|other| other.name == policy.name) {
            let first_line = line_of(start(first));
            let name = policy.name.to_string();
            let problem = PolicyFileProblem::Twice { name, first_line };
            return Err(error(start(index), problem));
        }
        policies.push(policy);
    }
    Ok(policies)
}

/// Returns the position of a place like `overrides[2].rate` in the text, or of its nearest existing
/// parent.
fn start_of(entry: &Spanned<DeValue<'_>>, place: &str) -> usize {
    let mut at = entry.span().start;
    let mut value = entry;
    for step in place.split(['.', '[']) {
        let next = match step.strip_suffix(']') {
            Some(index) => index
                .parse()
                .ok()
                .and_then(|index: usize| value.get_ref().get(index)),
            None => value.get_ref().get(step),
        };
        let Some(next) = next else { break };
        (at, value) = (next.span().start, next);
    }
    at
}

/// Adds a suggestion to serde's message about an unknown field: the known field that was probably
/// meant.
pub fn with_nearest(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let suggestion = message
        .starts_with("unknown field `")
        .then(|| names.next())
        .flatten()
        .and_then(|name| nearest(name, &names.collect::<Vec<_>>()));
    match suggestion {
        Some(name) => format!("{message}; did you mean `{name}`?"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
