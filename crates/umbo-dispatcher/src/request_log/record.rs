//! The record that the log of a request becomes, if the request leaves one. While the request runs, its line in the
//! list.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbo_api::running::RunningRequest;
use umbo_http::CacheStatus;
use umbo_observe::request_records::{
    KeptAs, RecordId, RequestRecord, RequestTimes, ShardMoment, micros,
};
use umbo_telemetry::trace::Phase;
use umbo_types::RequestUnits;

use super::{ChargeEnd, RequestEnd, RequestLog};
use crate::running::RunningGuard;

impl RequestLog {
    /// Makes the record of the request.
    pub(super) fn record(&self, end: RequestEnd, kept_as: KeptAs) -> Arc<RequestRecord> {
        let caller = self.caller.as_ref().map(|caller| &caller.id);
        let (payer, charge) = match end.charge {
            Some(ChargeEnd { payer, charge }) => (Some(payer), charge),
            None => (None, None),
        };
        let paid_by_other = payer.as_ref().is_some_and(|payer| Some(payer) != caller);
        let called_by = caller.filter(|_| paid_by_other).cloned();
        let namespace = self.namespace.as_ref();
        Arc::new(RequestRecord {
            id: RecordId::from_slice(self.request_id.as_bytes()),
            at: self.dispatcher.clock.wall(),
            operation: self.operation,
            called_by,
            namespace: namespace.map(|entry| Arc::clone(&entry.name)),
            criticality: self.criticality,
            status: self.status,
            code: self.code,
            kept_as,
            phase: match (self.code, self.status) {
                (None, 1..) => Phase::Encode.as_str(),
                _ => self.phase.as_str(),
            },
            times: self.times(end.at),
            cache: self.cache_status.map(CacheStatus::as_str),
            shard: self.shard,
            attempts: match (
                &self.store_time,
                self.dispatcher.store.capabilities().answers_at_once,
            ) {
                (Some(time), false) => u8::try_from(time.retries + 1).unwrap_or(u8::MAX),
                _ => 0,
            },
            moment: self.moment(),
            caller: payer.or_else(|| caller.cloned()),
            charge,
            detail: self.detail.clone(),
        })
    }

    /// Adds the request to the list of running requests.
    pub(crate) fn list(&self, phase: Phase, charged: RequestUnits) -> RunningGuard {
        let namespace = self.namespace.as_ref();
        let about = RunningRequest {
            id: self.request_id.as_str().to_owned(),
            operation: self.operation.as_str().to_owned(),
            caller: self
                .caller
                .as_ref()
                .map(|caller| caller.id.as_str().to_owned()),
            namespace: namespace.map(|entry| entry.info.name.as_str().to_owned()),
            shard: self.shard.map(|shard| shard.0),
            criticality: self.criticality.map(|tier| tier.as_str().to_owned()),
            phase: phase.as_str().to_owned(),
            ..RunningRequest::default()
        };
        self.dispatcher.running.begin(about, self.started, charged)
    }

    /// Returns the state of the shard at the last tick.
    fn moment(&self) -> Option<ShardMoment> {
        let overload = self.dispatcher.overload.as_ref()?;
        overload.moment(self.shard?, self.operation)
    }

    fn times(&self, ended: Instant) -> RequestTimes {
        let total = ended.saturating_duration_since(self.started);
        let Some(asked) = self.asked else {
            return RequestTimes {
                prepare_micros: micros(total),
                total_micros: micros(total),
                ..RequestTimes::default()
            };
        };
        let prepare = asked.saturating_duration_since(self.started);
        let after = ended.saturating_duration_since(asked);
        let (wait, fetch, network) = match self.store_time {
            Some(time) => (
                time.waited,
                time.taken,
                time.held.saturating_sub(time.taken),
            ),
            // The request ended while it waited or was fetched; which of both is not known.
            None if self.cache_status.is_none() => (after, Duration::ZERO, Duration::ZERO),
            None => Default::default(),
        };
        let answer = after.saturating_sub(wait + fetch + network);
        RequestTimes {
            prepare_micros: micros(prepare),
            wait_micros: micros(wait),
            fetch_micros: micros(fetch),
            network_micros: micros(network),
            answer_micros: micros(answer),
            total_micros: micros(total),
        }
    }
}
