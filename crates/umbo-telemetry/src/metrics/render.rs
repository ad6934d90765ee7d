//! The visit of the counters of requests, loads and connections.
//!
//! Series of an operation appear with its first request, so that a scrape of an idle server is short. Series of refusals
//! are there from the start, at zero: a rate over a series that begins with an event does not see it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{Criticality, Operation, RequestUnits};

use super::RequestMetrics;
use super::buckets::{BUCKETS, HISTOGRAM_BOUNDS};
use super::counters::{Counter, CounterSlot, Histogram, OperationCounters, STATUS_SERIES};
use super::outcome::RequestOutcome;
use super::statuses::{STATUS_OTHER, STATUSES};
use super::visit::{DurationHistogram, Families};
use crate::metric::Metric;
use crate::metric_names as names;

impl RequestMetrics {
    /// Shows the counters of requests, loads and connections.
    pub fn visit(&self, families: &mut Families<'_>) {
        self.visit_operations(families);
        self.visit_charges(families);
        self.visit_refusals(families);
        self.visit_connections(families);
    }

    fn visit_operations(&self, families: &mut Families<'_>) {
        let seen: Vec<Operation> = Operation::ALL
            .into_iter()
            .filter(|&operation| {
                self.sum(|slot| &slot.operation(operation).begun) > 0 || {
                    (0..STATUS_SERIES).any(|at| self.requests(operation, at) > 0)
                }
            })
            .collect();
        families.head(&names::REQUESTS);
        for &operation in &seen {
            for at in 0..STATUS_SERIES {
                let count = self.requests(operation, at);
                if count > 0 {
                    let status = STATUSES
                        .get(at)
                        .map_or_else(|| STATUS_OTHER.to_owned(), u16::to_string);
                    families.sample(&names::REQUESTS, &[operation.as_str(), &status], count);
                }
            }
        }
        self.visit_outcomes(families);
        self.visit_histogram(families, &names::REQUEST_DURATION, &seen, |counters| {
            &counters.duration
        });
        self.visit_histogram(families, &names::STORE_DURATION, &seen, |counters| {
            &counters.store_duration
        });
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            seen.iter().map(move |&operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                ([operation.as_str()], sum)
            })
        };
        families.family(&names::REQUEST_BYTES, by_operation(|c| &c.request_bytes));
        families.family(&names::RESPONSE_BYTES, by_operation(|c| &c.response_bytes));
        // `ended` is read before `begun`: a request that comes and goes meanwhile must not make the
        // difference negative.
        let ended: Vec<u64> = by_operation(|c| &c.ended).map(|(_, sum)| sum).collect();
        let in_flight = by_operation(|c| &c.begun)
            .zip(ended)
            .map(|((label, begun), ended)| (label, begun.saturating_sub(ended)));
        families.family(&names::REQUESTS_IN_FLIGHT, in_flight);
    }

    fn visit_outcomes(&self, families: &mut Families<'_>) {
        families.head(&names::REQUEST_OUTCOMES);
        let tiers = Criticality::ALL.map(Criticality::as_str);
        let tiers = tiers.into_iter().chain([names::TIER_UNKNOWN]);
        for operation in Operation::ALL {
            for (at, tier) in tiers.clone().enumerate() {
                for outcome in RequestOutcome::ALL {
                    let count =
                        self.sum(|slot| &slot.operation(operation).outcomes[at][outcome as usize]);
                    let labels = [operation.as_str(), tier, outcome.as_str()];
                    families.sample(&names::REQUEST_OUTCOMES, &labels, count);
                }
            }
        }
    }

    /// Shows the costs of requests, and how many were rejected. Operations that cost nothing have no series of costs.
    fn visit_charges(&self, families: &mut Families<'_>) {
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            Operation::ALL.into_iter().map(move |operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                ([operation.as_str()], sum)
            })
        };
        let some = |(_, sum): &(_, u64)| *sum > 0;
        let charged = by_operation(|c| &c.charged_micros)
            .filter(some)
            .map(|(label, micros)| (label, RequestUnits::from_micros(micros)));
        families.family(&names::REQUEST_UNITS, charged);
        let admitted = by_operation(|c| &c.admitted).filter(some);
        families.family(&names::REQUESTS_ADMITTED, admitted);
        families.family(&names::REQUESTS_REJECTED, by_operation(|c| &c.rejected));
        families.family(&names::REQUESTS_REPEATED, by_operation(|c| &c.repeated));
    }

    fn visit_histogram(
        &self,
        families: &mut Families<'_>,
        metric: &'static Metric,
        operations: &[Operation],
        pick: fn(&OperationCounters) -> &Histogram,
    ) {
        families.head(metric);
        for &operation in operations {
            let label = operation.as_str();
            let mut sum = 0;
            let cumulative: [u64; BUCKETS] = std::array::from_fn(|at| {
                sum += self.sum(|slot| &pick(slot.operation(operation)).buckets[at]);
                sum
            });
            let histogram = DurationHistogram {
                bounds: &HISTOGRAM_BOUNDS,
                cumulative: &cumulative,
                sum_nanos: self.sum(|slot| &pick(slot.operation(operation)).sum_nanos),
            };
            families.histogram(metric, label, &histogram);
        }
    }

    fn visit_refusals(&self, families: &mut Families<'_>) {
        let counts = self.codes.iter().enumerate().map(|(at, code)| {
            let count = self.sum(|slot| &slot.refused[at]);
            ([code.name, code.kind], count)
        });
        families.family(&names::REFUSED, counts);
        let aborted = self.sum(|slot| &slot.streams_aborted);
        families.single(&names::STREAMS_ABORTED, aborted);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let rows = ["applied", "skipped", "rejected"]
            .into_iter()
            .zip(&self.load_rows);
        families.family(
            &names::LOAD_ROWS,
            rows.map(|(outcome, rows)| ([outcome], count(rows))),
        );
        families.single(&names::LOAD_BYTES, count(&self.load_bytes));
        let ended = ["applied", "failed"].into_iter().zip(&self.loads_ended);
        families.family(
            &names::LOADS_ENDED,
            ended.map(|(outcome, ended)| ([outcome], count(ended))),
        );
    }

    fn visit_connections(&self, families: &mut Families<'_>) {
        families.single(&names::CONNECTIONS, self.connections_open());
        let accepted = self.connections_accepted.load(Relaxed);
        families.single(&names::CONNECTIONS_ACCEPTED, accepted);
        let evicted = self.connections_evicted.load(Relaxed);
        families.single(&names::CONNECTIONS_EVICTED, evicted);
        let turned_away = self.connections_turned_away.load(Relaxed);
        families.single(&names::CONNECTIONS_TURNED_AWAY, turned_away);
        let failed = self.tls_handshakes_failed.load(Relaxed);
        families.single(&names::TLS_HANDSHAKES_FAILED, failed);
    }

    fn requests(&self, operation: Operation, at: usize) -> u64 {
        self.sum(|slot| &slot.operation(operation).requests[at])
    }

    fn sum<'a>(&'a self, pick: impl Fn(&'a CounterSlot) -> &'a Counter) -> u64 {
        let counts = self.slots.iter().map(|slot| pick(slot).get());
        counts.fold(0, u64::wrapping_add)
    }
}
