//! A request about loads, once its caller is identified: what all of them need.

use std::sync::Arc;

use umbo_api::loads::LoadInfo;
use umbo_control::ControlPlane;
use umbo_control::events::Origin;
use umbo_http::{Fields, LoadAnswer, RequestError};
use umbo_loads::{LoadRecord, LoadStep};
use umbo_routing::SLOTS;
use umbo_types::RequestUnits;

use super::own_rows::{OwnRows, WorkTally};
use super::report;
use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::phase::identify::Identified;
use crate::request_log::RequestLog;

/// What a load in another state refuses, after "cannot be".
pub(super) const GIVEN_PARTS: &str = "given parts";
/// A request about loads, identified.
pub(super) struct LoadRequest<'a> {
    pub(super) dispatcher: &'a Arc<Dispatcher>,
    pub(super) log: &'a mut RequestLog,
    pub(super) charge: &'a mut Charge,
    pub(super) fields: &'a Fields<'a>,
    /// The work of the request.
    pub(super) tally: Arc<WorkTally>,
}

impl LoadRequest<'_> {
    pub(super) fn control(&self) -> &ControlPlane {
        &self.dispatcher.control
    }

    pub(super) fn identified(&self) -> &Identified {
        self.charge.identified()
    }

    /// Returns the rows of loads, as this request reads and writes them.
    pub(super) fn own_rows(&self) -> OwnRows {
        OwnRows::of_request(self.dispatcher, self.charge, &self.tally)
    }

    /// Counts what a write of this request was charged.
    pub(super) fn paid(&mut self, units: RequestUnits) {
        self.charge.paid_apart(units);
    }

    /// Counts a change of Umbo's records by this request, unless it was a dry run.
    pub(super) fn changed_records(&self, dry_run: bool) {
        if !dry_run {
            let map = &self.dispatcher.shard_map;
            self.tally.changed(map.owners_of(0..=SLOTS - 1).len());
        }
    }

    /// Returns who makes a change, and why.
    pub(super) fn origin(&self) -> Result<Origin, RequestError> {
        Ok(Origin {
            by: self.identified().caller.id.as_str().to_owned(),
            reason: self.fields.change_reason()?,
        })
    }

    pub(super) async fn find(&self, id: &str) -> Result<Arc<LoadRecord>, RequestError> {
        let namespace = self.identified().namespace.id;
        Ok(self.control().find_load(namespace, id).await?)
    }

    pub(super) async fn described(
        &self,
        id: &str,
        load: &LoadRecord,
    ) -> Result<LoadAnswer, RequestError> {
        let info: LoadInfo =
            report::describe(&self.dispatcher.load_waits, &self.own_rows(), id, load).await?;
        Ok(LoadAnswer::Load(Box::new(info)))
    }

    /// Makes a step of a load, also where the client leaves meanwhile.
    pub(super) async fn step(
        &self,
        id: &str,
        step: &LoadStep,
        dry_run: bool,
    ) -> Result<LoadAnswer, RequestError> {
        // The load has to be one of this namespace.
        self.find(id).await?;
        let origin = self.origin()?;
        let (dispatcher, id_of, step) = (Arc::clone(self.dispatcher), id.to_owned(), step.clone());
        let change = async move {
            let control = &dispatcher.control;
            control.step_load(&id_of, &step, dry_run, &origin).await
        };
        let load = self.control().run_to_end(change).await?;
        self.dispatcher.load_waits.note_change();
        self.changed_records(dry_run);
        let LoadAnswer::Load(mut info) = self.described(id, &load).await? else {
            return Err(RequestError::Internal(
                "a load was not described".to_owned(),
            ));
        };
        info.dry_run = dry_run.then_some(true);
        Ok(LoadAnswer::Load(info))
    }
}
