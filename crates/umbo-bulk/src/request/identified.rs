//! A request about loads after its caller is identified: the steps that all such requests share.

use std::sync::Arc;

use umbo_control::ControlPlane;
use umbo_dispatcher::plane::PlaneRequest;
use umbo_http::RequestError;
use umbo_loads::{LoadRecord, LoadStep};
use umbo_types::limits::SLOTS;

use super::continuations::Continuations;
use super::report;
use crate::waits::LoadWaits;
use crate::wire::LoadAnswer;

/// The action that a load in another state refuses, as the words after "cannot be".
pub(super) const GIVEN_PARTS: &str = "given parts";

/// A request about loads, identified.
pub(super) struct LoadRequest<'a> {
    pub(super) plane: PlaneRequest<'a>,
    pub(super) waits: &'a LoadWaits,
    pub(super) continuations: &'a Continuations,
}

impl LoadRequest<'_> {
    pub(super) fn control(&self) -> &ControlPlane {
        &self.plane.dispatcher().control
    }

    /// Counts a change of Umbo's records by this request, unless it was a dry run.
    pub(super) fn changed_records(&self, dry_run: bool) {
        if !dry_run {
            let map = &self.plane.dispatcher().shard_map;
            let shards = map.owners_of(0..=SLOTS - 1);
            self.plane.changed_records(shards.len());
        }
    }

    pub(super) async fn find(&self, id: &str) -> Result<Arc<LoadRecord>, RequestError> {
        let namespace = self.plane.namespace().id;
        Ok(self.control().find_load(namespace, id).await?)
    }

    pub(super) async fn described(
        &self,
        id: &str,
        load: &LoadRecord,
    ) -> Result<LoadAnswer, RequestError> {
        let rows = self.plane.own_rows();
        let info = report::describe(self.waits, &rows, id, load).await?;
        Ok(LoadAnswer::Load(Box::new(info)))
    }

    /// Makes a step of a load, even if the client leaves meanwhile.
    pub(super) async fn step(
        &self,
        id: &str,
        step: &LoadStep,
        dry_run: bool,
    ) -> Result<LoadAnswer, RequestError> {
        // The load has to be one of this namespace.
        self.find(id).await?;
        let origin = self.plane.origin()?;
        let (dispatcher, id_of, step) = (
            Arc::clone(self.plane.dispatcher()),
            id.to_owned(),
            step.clone(),
        );
        let change = async move {
            let control = &dispatcher.control;
            control.step_load(&id_of, &step, dry_run, &origin).await
        };
        let load = self.control().run_to_end(change).await?;
        self.waits.note_change();
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
