//! The diagnosis of a dispatcher: faults and unusual loads, with their begin, their cause and advice.
//!
//! Two kinds of findings, each with its keeper in the dispatcher. **States** hold or do not: a node that is away, a shard
//! that does not serve. Each request looks at them too, so no answer is a second old. **Rates** are compared with their
//! usual ones, once a second. Rules are pure functions of the gathered facts.

mod facts;
mod rules;
mod states;
mod usual;

use std::sync::PoisonError;

use umbo_api::diagnosis::{Diagnosis, DiagnosisFinding};
use umbo_dispatcher::Dispatcher;
use umbo_observe::Found;

use self::facts::Facts;

pub(crate) use self::facts::node_facts;
pub use self::states::CERTIFICATE_DAYS;
pub(crate) use self::states::readiness_problems;
pub(crate) use self::usual::SlowAverages;

/// Indexes of the keepers.
const STATES: usize = 0;
const RATES: usize = 1;

/// Looks at the states of a process.
pub(crate) fn look_at_states(dispatcher: &Dispatcher) {
    tell(dispatcher, STATES, || states::found(dispatcher));
}

/// Looks at the rates of the second that has ended; `stuck` is the number of loads without progress.
pub(crate) fn look_at_rates(
    dispatcher: &Dispatcher,
    second: u64,
    stuck: u64,
    usual: &mut SlowAverages,
) {
    let facts = Facts::gather(dispatcher, second, stuck);
    let found = rules::found(&facts, usual);
    rules::learn(&facts, &found, usual);
    tell(dispatcher, RATES, || found);
}

/// Hands findings to their keeper, and adds their begins and ends to the events. The findings are made while the
/// keeper is locked, so that no older look follows a newer one.
fn tell(dispatcher: &Dispatcher, keeper: usize, found: impl FnOnce() -> Vec<Found>) {
    let findings = dispatcher.findings.lock();
    let mut findings = findings.unwrap_or_else(PoisonError::into_inner);
    let events = findings[keeper].look(dispatcher.clock.wall().as_millis(), found());
    for event in events {
        dispatcher.control.events.happened(event);
    }
}

/// Returns the diagnosis of now.
pub(crate) fn current(dispatcher: &Dispatcher) -> Diagnosis {
    look_at_states(dispatcher);
    let findings = dispatcher.findings.lock();
    let keepers = findings.unwrap_or_else(PoisonError::into_inner);
    let mut findings = states::joined(keepers[STATES].current());
    findings.extend(keepers[RATES].current());
    findings.sort_by_key(|one: &DiagnosisFinding| (one.severity, one.since_ms));
    Diagnosis {
        checked_ms: keepers[STATES].checked_ms(),
        findings,
    }
}
