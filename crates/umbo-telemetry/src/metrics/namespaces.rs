//! Which namespaces have series, and the requests of each that were not served.
//!
//! The first [`NAMESPACES_MAX`] namespaces that are used have series until the process ends, and all others share one:
//! a shared sum that loses a namespace would look like a restart. A served request touches nothing here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::outcome::RequestOutcome;
use super::visit::Families;
use crate::metric_names as names;

/// Most namespaces with series.
pub const NAMESPACES_MAX: usize = 50;
/// Stands for all other namespaces. It holds a space, so that no namespace can be named so.
pub const OTHER_NAMESPACES: &str = "(all others)";

/// Requests by what became of them.
type Outcomes = [u64; RequestOutcome::ALL.len()];

/// The namespaces that have series.
#[derive(Debug, Default)]
pub(super) struct NamespaceErrors(Mutex<BTreeMap<Box<str>, Outcomes>>);

impl NamespaceErrors {
    fn known(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Outcomes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name that a namespace has in series: its own, or [`OTHER_NAMESPACES`].
    pub(super) fn label<'a>(&self, namespace: &'a str) -> &'a str {
        label_in(&mut self.known(), namespace)
    }

    /// Counts a request that was not served.
    pub(super) fn record(&self, namespace: &str, outcome: RequestOutcome) {
        let mut known = self.known();
        let label = label_in(&mut known, namespace);
        if !known.contains_key(label) {
            known.insert(label.into(), Outcomes::default());
        }
        if let Some(counts) = known.get_mut(label) {
            counts[outcome as usize] += 1;
        }
    }

    pub(super) fn visit(&self, families: &mut Families<'_>) {
        families.head(&names::NAMESPACE_ERRORS);
        for (namespace, counts) in &*self.known() {
            for outcome in RequestOutcome::ALL {
                if outcome != RequestOutcome::Served {
                    let labels = [&**namespace, outcome.as_str()];
                    families.sample(&names::NAMESPACE_ERRORS, &labels, counts[outcome as usize]);
                }
            }
        }
    }
}

fn label_in<'a>(known: &mut BTreeMap<Box<str>, Outcomes>, namespace: &'a str) -> &'a str {
    if !known.contains_key(namespace) {
        if known.len() >= NAMESPACES_MAX {
            return OTHER_NAMESPACES;
        }
        known.insert(namespace.into(), Outcomes::default());
    }
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsText;

    #[test]
    fn namespaces_beyond_the_bound_share_a_series() {
        let errors = NamespaceErrors::default();
        for at in 0..NAMESPACES_MAX {
            let name = format!("n{at:02}");
            assert_eq!(errors.label(&name), name);
        }
        errors.record("late", RequestOutcome::Shed);
        errors.record("later", RequestOutcome::Shed);
        errors.record("n49", RequestOutcome::Rejected);
        assert_eq!(errors.label("n00"), "n00");
        let text = MetricsText::render(|visitor| errors.visit(&mut Families::new(visitor)));
        let of = |namespace: &str, outcome: &str| {
            format!(
                "umbo_namespace_errors_total{{namespace=\"{namespace}\",outcome=\"{outcome}\"}}"
            )
        };
        for line in [
            of(OTHER_NAMESPACES, "shed") + " 2",
            of("n49", "rejected") + " 1",
            // A rate over a series that begins with an event does not see it.
            of("n00", "failed") + " 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(lines, (NAMESPACES_MAX + 1) * 4);
    }
}
