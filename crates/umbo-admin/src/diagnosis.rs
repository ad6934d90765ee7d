//! The diagnosis of a dispatcher: what is wrong or unusual, since when, who or what causes it, and what to do.
//!
//! Two kinds of findings, each with its keeper in the dispatcher. **States** hold or do not: a node that is away, a shard
//! that does not serve. Who asks looks at them too, so that no answer is a second old. **Rates** are compared with their
//! usual ones, once a second. Rules are pure functions of the gathered facts.

mod facts;
mod rules;
mod states;
mod usual;

use std::sync::PoisonError;

use umbo_api::diagnosis::{Diagnosis, DiagnosisFinding};
use umbo_bulk::Bulk;
use umbo_dispatcher::Dispatcher;
use umbo_observe::Found;

use self::facts::Facts;

pub(crate) use self::facts::node_facts;
pub(crate) use self::states::readiness_problems;
pub(crate) use self::usual::Usual;

/// Indexes of the keepers.
const STATES: usize = 0;
const RATES: usize = 1;

/// Looks at the states of a process.
pub(crate) fn look_at_states(bulk: &Bulk) {
    tell(bulk.dispatcher(), STATES, || states::found(bulk));
}

/// Looks at the rates of the second that has ended.
pub(crate) fn look_at_rates(bulk: &Bulk, second: u64, usual: &mut Usual) {
    let facts = Facts::gather(bulk, second);
    let found = rules::found(&facts, usual);
    usual.learn(&facts, &found);
    tell(bulk.dispatcher(), RATES, || found);
}

/// Hands findings to their keeper, and adds what has begun or ended to the events. The findings are made while the
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
pub(crate) fn current(bulk: &Bulk) -> Diagnosis {
    look_at_states(bulk);
    let findings = bulk.dispatcher().findings.lock();
    let keepers = findings.unwrap_or_else(PoisonError::into_inner);
    let mut findings = states::joined(keepers[STATES].current());
    findings.extend(keepers[RATES].current());
    findings.sort_by_key(|one: &DiagnosisFinding| (one.severity, one.since_ms));
    Diagnosis {
        checked_ms: keepers[STATES].checked_ms(),
        findings,
    }
}
