//! Requests about loads and versions: one function for each, between the phases that all requests have.
//!
//! A load is not a single call of the store: an upload is a stream of paid writes, and a description reads some of the
//! load's own rows. Reads have the price of a range, and changes the price of a batch write. Each write of an upload
//! goes through admission, quotas and the queue of its shard by itself.

pub(crate) mod continuations;
mod identified;
mod piece_writer;
pub(crate) mod report;
mod upload;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use umbo_api::header;
use umbo_api::loads::{LoadList, LoadSpec, SealBody};
use umbo_api::versions::VersionList;
use umbo_control::ControlError;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::{OwnRows, PlaneRequest};
use umbo_edge::body::{ArrivingBody, ReplyBody};
use umbo_edge::memory::ConnectionAnswers;
use umbo_http::idempotency_key::KeyedRequest;
use umbo_http::{Fields, RequestError, json_body};
use umbo_loads::{CreationKey, LoadError, LoadRecord, LoadStep, PartRecord, layout};
use umbo_store::{Store, StoreError, VersionOrder};
use umbo_types::NamespaceId;

use self::continuations::Continuations;
use self::identified::{GIVEN_PARTS, LoadRequest};
use crate::limits::LOAD_BODY_LEN_MAX;
use crate::stored_rows::read_json_rows;
use crate::waits::LoadWaits;
use crate::wire::{BulkRoute, LoadAnswer, LoadAsk, VersionAsk, answer, rejects_after};

/// Most parts of a load.
const PARTS_MAX: u32 = umbo_api::loads::PART_NUMBER_MAX as u32 + 1;

/// Serves a request about loads or versions.
pub(crate) async fn serve<B: ArrivingBody>(
    dispatcher: &Arc<Dispatcher>,
    (waits, continuations): (&LoadWaits, &Continuations),
    route: BulkRoute<'_>,
    (head, body): (&Parts, &mut B),
    (answers, started): (Arc<ConnectionAnswers>, Instant),
) -> Response<ReplyBody> {
    let fields = Fields::read(&head.headers);
    let asked = (&fields, route.is_change());
    let plane = PlaneRequest::begin(dispatcher, route.required(), asked, answers, started);
    let plane = match plane.await {
        Ok(plane) => plane,
        Err(refusal) => return refusal,
    };
    let mut request = LoadRequest {
        plane,
        waits,
        continuations,
    };
    let outcome = async {
        fields.check()?;
        let ask = route.decode(&head.method, &head.uri, &head.headers)?;
        // A caller without quota can still end its loads.
        if !matches!(ask, LoadAsk::Abort { .. }) {
            request.plane.admit(ask.priced_as())?;
        }
        request.plane.begin_work();
        let answered = Box::pin(request.answer(ask, body)).await;
        request.explained(answered).await
    };
    let outcome = outcome.await;
    let kept = outcome.as_ref().err().and_then(answer::kept_by);
    let mut response = request.plane.respond(outcome.map(Into::into));
    if let Some(kept) = kept {
        answer::add_offset(&mut response, kept);
    }
    response
}

impl LoadRequest<'_> {
    async fn answer<B: ArrivingBody>(
        &mut self,
        ask: LoadAsk,
        body: &mut B,
    ) -> Result<LoadAnswer, RequestError> {
        match ask {
            LoadAsk::Create => self.create(body).await,
            LoadAsk::List => Ok(LoadAnswer::List(self.list().await)),
            LoadAsk::Describe { id } => {
                let load = self.find(&id).await?;
                self.described(&id, &load).await
            }
            LoadAsk::Rejects { id, after, limit } => {
                let load = self.find(&id).await?;
                let rows = self.plane.own_rows();
                let (lines, last) = report::rejects(&rows, &load, after, limit).await?;
                let name = &self.plane.namespace().info.name;
                let next = last.map(|last| rejects_after(name, &id, last, limit));
                Ok(LoadAnswer::Rejects { lines, next })
            }
            LoadAsk::Seal { id } => self.seal(&id, body).await,
            LoadAsk::Pause { id } => self.step(&id, &LoadStep::Pause, false).await,
            LoadAsk::Resume { id } => self.step(&id, &LoadStep::Resume, false).await,
            LoadAsk::Abort { id, dry_run } => self.step(&id, &LoadStep::Abort, dry_run).await,
            LoadAsk::PartOffset { id, number } => {
                let load = self.find(&id).await?;
                let rows = self.plane.own_rows();
                let kept = report::kept(&rows, &load, number).await?;
                let kept = kept.ok_or(ControlError::Load(LoadError::PartNotFound { number }))?;
                Ok(LoadAnswer::Offset {
                    offset: kept.len,
                    is_complete: kept.is_complete,
                })
            }
            LoadAsk::Versions(ask) => self.versions(ask).await,
            LoadAsk::Upload(ask) => {
                let load = self.find(&ask.id).await?;
                upload::upload(self, &ask, &load, body).await
            }
        }
    }

    async fn create<B: ArrivingBody>(&mut self, body: &mut B) -> Result<LoadAnswer, RequestError> {
        let mut keyed = KeyedRequest::read(self.plane.fields())?;
        if self.plane.fields().idempotency_ttl.is_some() {
            return Err(RequestError::BadHeader {
                name: header::IDEMPOTENCY_TTL,
                expected: "no such header to create a load: its Idempotency-Key is kept as long as the load",
            });
        }
        let text = self.plane.read_text(body, LOAD_BODY_LEN_MAX).await?;
        let spec: LoadSpec = if text.trim_ascii().is_empty() {
            LoadSpec::default()
        } else {
            json_body::json_object(&text)?
        };
        let origin = self.plane.origin()?;
        let namespace = Arc::clone(self.plane.namespace());
        let store = &*self.plane.dispatcher().store;
        if spec.keep_row_versions && has_rows(store, namespace.dataset) {
            return Err(ControlError::Load(LoadError::HasRows).into());
        }
        let payer = self.plane.payer_id();
        let creation = keyed.as_mut().map(|keyed| {
            keyed.add(Some(&text));
            let (key, request) = keyed.kept_texts(&payer);
            CreationKey { key, request }
        });
        let (dispatcher, bits) = (Arc::clone(self.plane.dispatcher()), fastrand::u32(..));
        let rows = self.plane.own_rows();
        let create = async move {
            let control = &dispatcher.control;
            let (id, load) = control
                .create_load(
                    &namespace,
                    &spec,
                    payer.as_str(),
                    creation.as_ref(),
                    bits,
                    &origin,
                )
                .await?;
            // A repeated request records the creation in the shards that have not recorded it; the first request was
            // not acknowledged then.
            let shards = if load.state.takes_parts() {
                note_creation(&dispatcher, &rows, &load).await
            } else {
                Vec::new()
            };
            if shards.is_empty() {
                return Ok((id, load));
            }
            if creation.is_none() {
                // If this fails, the load fails after a while, because it is not sealed.
                drop(
                    control
                        .step_load(&id, &LoadStep::Abort, false, &origin)
                        .await,
                );
            }
            Err(ControlError::ShardsUnconfirmed { shards })
        };
        let (id, load) = self.control().run_to_end(create).await?;
        self.changed_records(false);
        Ok(LoadAnswer::Created(Box::new(load.info(
            &id,
            None,
            Vec::new(),
        ))))
    }

    async fn list(&self) -> LoadList {
        let (rows, waits) = (self.plane.own_rows(), self.waits);
        let loads = self.control().loads.of(self.plane.namespace().id);
        let told = loads
            .iter()
            .map(|(id, load)| report::describe_for_list(waits, &rows, id, load));
        LoadList {
            loads: join_all(told).await,
            left_out: 0,
        }
    }

    async fn seal<B: ArrivingBody>(
        &mut self,
        id: &str,
        body: &mut B,
    ) -> Result<LoadAnswer, RequestError> {
        let load = self.find(id).await?;
        let SealBody { parts } =
            json_body::json_object(&self.plane.read_text(body, LOAD_BODY_LEN_MAX).await?)?;
        if parts > PARTS_MAX {
            return Err(ControlError::from(LoadError::Field {
                field: "parts",
                expected: "a number of parts, from 0 to 10000",
            })
            .into());
        }
        if load.state.takes_parts() {
            self.check_parts(&load, parts).await?;
        }
        self.step(id, &LoadStep::Seal(parts), false).await
    }

    /// Refuses to seal a load that lacks parts or has others.
    async fn check_parts(&self, load: &LoadRecord, parts: u32) -> Result<(), RequestError> {
        let rows = self.plane.own_rows();
        let found = read_json_rows::<_, PartRecord>(&rows, load.report_id(), layout::PARTS).await?;
        let mut is_there = vec![false; parts as usize];
        for (number, _) in found {
            match is_there.get_mut(usize::from(number)) {
                Some(there) => *there = true,
                None => {
                    return Err(ControlError::from(LoadError::PartBeyond { number, parts }).into());
                }
            }
        }
        let missing = is_there.iter().zip(0_u16..).filter(|(there, _)| !**there);
        let missing: Vec<u16> = missing.map(|(_, number)| number).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(ControlError::from(LoadError::PartsMissing { missing }).into())
    }

    /// Turns the answer of a shard that has fenced a namespace of a load into its reason: the load has ended, or was
    /// forgotten, or the namespace was removed with it.
    async fn explained(
        &self,
        answered: Result<LoadAnswer, RequestError>,
    ) -> Result<LoadAnswer, RequestError> {
        let Err(RequestError::Store(StoreError::NamespaceGone { namespace, .. })) = &answered
        else {
            return answered;
        };
        let own = self.plane.namespace();
        let control = self.control();
        // Learns of it from the home.
        Box::pin(control.find_after_removal(*namespace, &own.info.name)).await?;
        let loads = control.loads.of(own.id);
        let mut loads = loads.into_iter().map(|(_, load)| load);
        let load = loads.find(|load| load.content_id() == *namespace);
        Err(match load {
            Some(load) => ControlError::from(LoadError::State {
                state: load.state,
                action: GIVEN_PARTS,
            }),
            None => ControlError::from(LoadError::NotFound {
                id: "of this request".to_owned(),
            }),
        }
        .into())
    }
}

/// Records in each shard that a load was created, by a row whose version is the highest of the shard at that time.
/// Returns the shards that have not confirmed it: without this row the load cannot tell which rows of the shard are
/// newer.
async fn note_creation(dispatcher: &Dispatcher, rows: &OwnRows, load: &LoadRecord) -> Vec<u16> {
    let grows_by_shard = dispatcher.store.capabilities().versions == VersionOrder::Shard;
    if !grows_by_shard || !load.is_as_of_creation() {
        return Vec::new();
    }
    let (map, report) = (&dispatcher.shard_map, load.report_id());
    let shards = map.owners_of(0..=umbo_types::limits::SLOTS - 1);
    let keys = layout::creation_keys(&shards, |partition| map.locate(report, partition));
    let noting = keys.into_iter().map(async |(shard, key)| {
        let noted = rows.write_one(report, layout::creation_row(key)).await;
        let refused = noted.err()?;
        tracing::debug!(shard = shard.0, %refused, "the creation of a load was not noted in a shard");
        Some(shard.0)
    });
    join_all(noting).await.into_iter().flatten().collect()
}

impl LoadRequest<'_> {
    /// Answers a request about versions.
    pub(super) async fn versions(&self, ask: VersionAsk) -> Result<LoadAnswer, RequestError> {
        let namespace = Arc::clone(self.plane.namespace());
        let (dispatcher, origin) = (Arc::clone(self.plane.dispatcher()), self.plane.origin()?);
        let change = async move {
            let control = &dispatcher.control;
            match ask {
                VersionAsk::List => Ok(None),
                VersionAsk::Activate { number, dry_run } => {
                    let number = Some(number);
                    let change = control.activate_version(&namespace, number, dry_run, &origin);
                    change.await.map(Some)
                }
                VersionAsk::Rollback { dry_run } => {
                    let change = control.activate_version(&namespace, None, dry_run, &origin);
                    change.await.map(Some)
                }
                VersionAsk::Remove { number, dry_run } => {
                    let change = control.remove_version(&namespace, number, dry_run, &origin);
                    change.await.map(Some)
                }
            }
        };
        let changed = self.control().run_to_end(change).await?;
        Ok(match changed {
            Some(change) => {
                self.changed_records(change.dry_run.is_some());
                LoadAnswer::VersionChange(change)
            }
            None => LoadAnswer::Versions(self.version_list()),
        })
    }

    fn version_list(&self) -> VersionList {
        let namespace = self.plane.namespace();
        let sizes = sizes(&*self.plane.dispatcher().store);
        let versions = namespace.versions().into_iter().map(|(id, mut info)| {
            (info.rows, info.bytes) = sizes.get(&id).copied().unwrap_or_default();
            info
        });
        VersionList {
            activations: namespace.epoch,
            versions: versions.collect(),
        }
    }
}

/// Returns whether a dataset has rows, as its shards told last. Expired rows count.
fn has_rows(store: &dyn Store, dataset: NamespaceId) -> bool {
    sizes(store)
        .get(&dataset)
        .is_some_and(|(rows, _)| *rows > 0)
}

/// Returns the rows and bytes of each dataset, over the shards that tell them.
fn sizes(store: &dyn Store) -> HashMap<NamespaceId, (u64, u64)> {
    let mut sizes = HashMap::new();
    for size in store
        .status()
        .into_iter()
        .filter_map(|status| status.sizes)
        .flatten()
    {
        let (rows, bytes): &mut (u64, u64) = sizes.entry(size.namespace).or_default();
        *rows += size.rows;
        *bytes += size.bytes;
    }
    sizes
}
