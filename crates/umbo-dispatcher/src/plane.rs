//! The parts of a plane above this one: its requests begin and end like requests for rows, and its writes reach a shard
//! in the same way.
//!
//! Such a request is no single call of the store. The caller is identified, admitted and answered as for every request,
//! at the price of the operation that does the same work. `OwnRows` are read and written for it; `patient_write` and
//! `write_once` charge writes separately.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use umbo_control::NamespaceEntry;
use umbo_control::events::Origin;
use umbo_edge::body::{ArrivingBody, BodyPace, BodyRoom, ReplyBody};
use umbo_edge::bounds::ROOM_PATIENCE;
use umbo_edge::memory::ConnectionAnswers;
use umbo_http::{Answer, Fields, PlaneAnswer, RequestError};
use umbo_quota::CostHint;
use umbo_telemetry::trace::Phase;
use umbo_types::{CallerId, Operation, RequestUnits};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::body::RequestBody;
pub use crate::own_rows::OwnRows;
use crate::own_rows::WorkTally;
pub use crate::paid_write::{
    PaidRows, PaidWrite, charge_read, patient_write, too_slow, wait_of, write_once,
};
pub use crate::phase::identify::{Identified, RequiredGrant};
pub use crate::phase::read_through::check_blocked;
use crate::reply::{refuse, reply};
use crate::request_log::RequestLog;

/// A request of a plane above, whose caller is identified.
#[derive(Debug)]
pub struct PlaneRequest<'a> {
    dispatcher: &'a Arc<Dispatcher>,
    fields: &'a Fields<'a>,
    log: RequestLog,
    charge: Charge,
    /// The work of the request on rows of the plane itself.
    tally: Arc<WorkTally>,
}

impl<'a> PlaneRequest<'a> {
    /// Identifies the caller. The error is the response to a request that is refused here. `is_change` says that the
    /// request may change Umbo's own records.
    pub async fn begin(
        dispatcher: &'a Arc<Dispatcher>,
        required: RequiredGrant<'_>,
        (fields, is_change): (&'a Fields<'a>, bool),
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Result<Self, Response<ReplyBody>> {
        let mut log = RequestLog::begin(dispatcher, required.operation, fields, answers, started);
        if is_change {
            log.changes_records();
        }
        log.phase(Phase::Classify);
        let identified = match Identified::new(dispatcher, required, fields, &mut log).await {
            Ok(identified) => identified,
            Err(error) => return Err(refuse(log, &error)),
        };
        log.phase(Phase::Decode);
        Ok(Self {
            dispatcher,
            fields,
            log,
            charge: Charge::new(dispatcher, identified),
            tally: Arc::default(),
        })
    }

    /// Debits the quotas of the payer at the price of another operation that does the same work, or refuses the
    /// request.
    pub fn admit(&mut self, priced_as: Operation) -> Result<(), RequestError> {
        self.log.phase(Phase::Admit);
        self.charge.price_as(priced_as);
        self.charge.admit(CostHint::default())?;
        self.charge.begin_store();
        Ok(())
    }

    /// Records that the work of the request begins.
    pub fn begin_work(&mut self) {
        self.log.phase(Phase::Fetch);
    }

    /// Makes the response, and charges the work on rows of the plane.
    pub fn respond(mut self, outcome: Result<PlaneAnswer, RequestError>) -> Response<ReplyBody> {
        let work = self.tally.work();
        if outcome.is_ok() {
            self.charge.settle(&work);
        } else {
            self.charge.progress(&work);
        }
        self.log.phase(Phase::Encode);
        let outcome = outcome.map(|answer| Answer::Plane(answer).into());
        reply(&mut self.log, &mut self.charge, outcome).0
    }

    /// Returns the dispatcher.
    pub const fn dispatcher(&self) -> &'a Arc<Dispatcher> {
        self.dispatcher
    }

    /// Returns the header fields of the request.
    pub const fn fields(&self) -> &'a Fields<'a> {
        self.fields
    }

    /// Returns the namespace of the request.
    pub fn namespace(&self) -> &Arc<NamespaceEntry> {
        &self.charge.identified().namespace
    }

    /// Returns the caller, as the payer of writes with separate charges.
    pub const fn payer(&self) -> &Identified {
        self.charge.identified()
    }

    /// Returns the name of the payer.
    pub fn payer_id(&self) -> CallerId {
        self.charge.payer_id()
    }

    /// Returns the author and the reason of a change.
    pub fn origin(&self) -> Result<Origin, RequestError> {
        Ok(Origin {
            by: self.payer().caller.id.as_str().to_owned(),
            reason: self.fields.change_reason()?,
        })
    }

    /// Returns rows of the plane itself, as this request reads and writes them.
    pub fn own_rows(&self) -> OwnRows {
        OwnRows::of_request(self.dispatcher, &self.charge, &self.tally)
    }

    /// Reads a body that is text, of at most `len_max` bytes, also once inflated.
    pub async fn read_text<B: ArrivingBody>(
        &mut self,
        body: &mut B,
        len_max: usize,
    ) -> Result<Bytes, RequestError> {
        let context = self.payer().context;
        let caller = || self.charge.caller_hash();
        let mut body = RequestBody::new(self.dispatcher, caller, body, self.fields);
        body.read_text(&mut self.log, context, len_max).await
    }

    /// Returns the minimum speed of a body that is read piece by piece, and its memory.
    pub fn body_stream(&self) -> (BodyPace, BodyRoom<'a>) {
        let dispatcher: &'a Dispatcher = self.dispatcher;
        (
            BodyPace::streamed(dispatcher.limits.body_timeout),
            dispatcher.body_room(self.charge.caller_hash(), ROOM_PATIENCE),
        )
    }

    /// Counts bytes of a body that was read piece by piece.
    pub fn received(&mut self, bytes: usize) {
        self.log.received(bytes);
    }

    /// Counts a write of this request with a separate charge.
    pub fn paid(&mut self, units: RequestUnits) {
        self.charge.paid_apart(units);
    }

    /// Counts a change of Umbo's own records, which is handed to each of `shards`.
    pub fn changed_records(&self, shards: usize) {
        self.tally.changed(shards);
    }
}
