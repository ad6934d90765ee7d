//! The finding of a check.

use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// The check found nothing wrong.
    Ok,
    /// The checked part works, but needs attention.
    Warning,
    /// The checked part has to be repaired.
    Problem,
    /// The check could not be made, or there is nothing to check.
    Skipped,
}

/// The finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) health: Severity,
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            health: Severity::Ok,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            health: Severity::Skipped,
            ..Self::ok(check, found)
        }
    }

    pub(super) fn warning(check: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self {
            health: Severity::Warning,
            advice: Some(advice.to_owned()),
            ..Self::ok(check, found)
        }
    }

    pub(super) fn problem(check: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self {
            health: Severity::Problem,
            ..Self::warning(check, found, advice)
        }
    }

    /// Makes a finding that is a problem, else a warning, else ok.
    pub(super) fn judged(
        check: &'static str,
        found: String,
        [is_problem, is_warning]: [bool; 2],
        advice: &str,
    ) -> Self {
        match (is_problem, is_warning) {
            (true, _) => Self::problem(check, found, advice),
            (_, true) => Self::warning(check, found, advice),
            _ => Self::ok(check, found),
        }
    }
}
