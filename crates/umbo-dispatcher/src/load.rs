//! Requests about loads: one function for each, between the phases that all requests have.
//!
//! A load is no one call of the store: an upload is a stream of paid writes, a description some reads of the load's
//! own rows. So the caller is identified, admitted and answered as for every request, at the price of a range for what it reads
//! and of a batch write for what it changes; and each write of an upload goes
//! through admission, quotas and the queue of its shard by itself (`paid_write`). Applying a sealed load is the business
//! of `umbo-loads`, which works through `host`.

pub(crate) mod continuations;
mod host;
mod list;
mod long_values;
mod own_rows;
mod piece_writer;
mod report;
mod request;
mod upload;
mod versions;
pub(crate) mod waits;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use http_body::Body;
use umbo_api::header;
use umbo_api::loads::{LoadList, LoadSpec, SealBody};
use umbo_control::ControlError;
use umbo_edge::body::ReplyBody;
use umbo_edge::memory::ConnectionAnswers;
use umbo_http::decode::Route;
use umbo_http::idempotency_key::KeyedRequest;
use umbo_http::{
    Answer, Fields, LoadAnswer, LoadAsk, RequestError, json_body, loads, versions as version_routes,
};
use umbo_loads::{LoadError, LoadRecord, LoadStep, PartRecord, layout, read_json_rows};
use umbo_quota::CostHint;
use umbo_store::StoreError;
use umbo_telemetry::trace::Phase;

pub use self::host::run_loads;
pub use self::list::{list_loads, loads_by_state, stuck_loads};
use self::request::{GIVEN_PARTS, LoadRequest};
use crate::bounds::LOAD_BODY_LEN_MAX;
use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::body::RequestBody;
use crate::phase::identify::Identified;
use crate::reply::{refuse, respond};
use crate::request_log::RequestLog;

/// Most parts of a load.
const PARTS_MAX: u32 = umbo_api::loads::PART_NUMBER_MAX as u32 + 1;

/// Serves a request about loads.
pub(crate) async fn serve<B>(
    dispatcher: &Arc<Dispatcher>,
    route: Route<'_>,
    head: &Parts,
    mut body: B,
    answers: Arc<ConnectionAnswers>,
    started: Instant,
) -> Response<ReplyBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let fields = Fields::read(&head.headers);
    let mut log = RequestLog::begin(dispatcher, route.operation, &fields, answers, started);
    if !head.method.is_safe() {
        log.changes_records();
    }
    log.phase(Phase::Classify);
    let identified = match Identified::new(dispatcher, &route, &fields, &mut log).await {
        Ok(identified) => identified,
        Err(error) => return refuse(log, &error),
    };
    let mut charge = Charge::new(dispatcher, identified);
    let outcome = async {
        log.phase(Phase::Decode);
        fields.check()?;
        let ask = if route.is_about_versions() {
            LoadAsk::Versions(version_routes::decode(
                route.rest(),
                &head.method,
                &head.uri,
            )?)
        } else {
            loads::decode(route.rest(), &head.method, &head.uri, &head.headers)?
        };
        // A caller without quota can still end its loads.
        if !matches!(ask, LoadAsk::Abort { .. }) {
            log.phase(Phase::Admit);
            charge.price_as(ask.priced_as());
            charge.admit(CostHint::default())?;
            charge.begin_store();
        }
        log.phase(Phase::Fetch);
        let mut request = LoadRequest {
            dispatcher,
            log: &mut log,
            charge: &mut charge,
            fields: &fields,
            tally: Arc::default(),
        };
        let answered = Box::pin(request.answer(ask, &mut body)).await;
        let answered = request.explained(answered).await;
        let work = request.tally.work();
        if answered.is_ok() {
            charge.settle(&work);
        } else {
            charge.progress(&work);
        }
        answered
    };
    let outcome = outcome.await;
    drop(body);
    log.phase(Phase::Encode);
    respond(&mut log, &mut charge, outcome.map(Answer::Load), false)
}

impl LoadRequest<'_> {
    async fn answer<B>(&mut self, ask: LoadAsk, body: &mut B) -> Result<LoadAnswer, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        match ask {
            LoadAsk::Create => self.create(body).await,
            LoadAsk::List => Ok(LoadAnswer::List(self.list().await)),
            LoadAsk::Describe { id } => {
                let load = self.find(&id).await?;
                self.described(&id, &load).await
            }
            LoadAsk::Rejects { id } => {
                let load = self.find(&id).await?;
                let rows = self.own_rows();
                Ok(LoadAnswer::Rejects(report::rejects(&rows, &load).await?))
            }
            LoadAsk::Seal { id } => self.seal(&id, body).await,
            LoadAsk::Pause { id } => self.step(&id, &LoadStep::Pause, false).await,
            LoadAsk::Resume { id } => self.step(&id, &LoadStep::Resume, false).await,
            LoadAsk::Abort { id, dry_run } => self.step(&id, &LoadStep::Abort, dry_run).await,
            LoadAsk::PartOffset { id, number } => {
                let load = self.find(&id).await?;
                let rows = self.own_rows();
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

    async fn text<B>(&mut self, body: &mut B) -> Result<Bytes, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let context = self.identified().context;
        let mut body = RequestBody::new(
            self.dispatcher,
            || self.charge.caller_hash(),
            body,
            self.fields,
        );
        body.read_text(self.log, context, LOAD_BODY_LEN_MAX).await
    }

    async fn create<B>(&mut self, body: &mut B) -> Result<LoadAnswer, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let mut keyed = KeyedRequest::read(self.fields)?;
        if self.fields.idempotency_ttl.is_some() {
            return Err(RequestError::BadHeader {
                name: header::IDEMPOTENCY_TTL,
                expected: "none to create a load, whose key is known as long as the load is",
            });
        }
        let text = self.text(body).await?;
        let spec: LoadSpec = if text.trim_ascii().is_empty() {
            LoadSpec::default()
        } else {
            json_body::json_object(&text)?
        };
        let origin = self.origin()?;
        let namespace = Arc::clone(&self.identified().namespace);
        let payer = self.charge.payer_id();
        let creation = keyed.as_mut().map(|keyed| {
            keyed.add(Some(&text));
            keyed.creation(&payer)
        });
        let (dispatcher, bits) = (Arc::clone(self.dispatcher), fastrand::u32(..));
        let rows = self.own_rows();
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
            // A repetition notes it where it was not noted before, which was not acknowledged then.
            let shards = if load.state.takes_parts() {
                rows.note_creation(&load).await
            } else {
                Vec::new()
            };
            if shards.is_empty() {
                return Ok((id, load));
            }
            if creation.is_none() {
                // Where this fails, the load fails after a while, because it is not sealed.
                drop(
                    control
                        .step_load(&id, &LoadStep::Abort, false, &origin)
                        .await,
                );
            }
            Err(ControlError::LoadUnconfirmed { shards })
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
        let (rows, waits) = (self.own_rows(), &self.dispatcher.load_waits);
        let loads = self.control().loads.of(self.identified().namespace.id);
        let told = loads
            .iter()
            .map(|(id, load)| report::describe_for_list(waits, &rows, id, load));
        LoadList {
            loads: join_all(told).await,
            left_out: 0,
        }
    }

    async fn seal<B>(&mut self, id: &str, body: &mut B) -> Result<LoadAnswer, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let load = self.find(id).await?;
        let SealBody { parts } = json_body::json_object(&self.text(body).await?)?;
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
        let rows = self.own_rows();
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

    /// Says what a shard means that knows a namespace of a load to be fenced: the load has ended, or was forgotten, or
    /// the namespace was removed with it.
    async fn explained(
        &self,
        answered: Result<LoadAnswer, RequestError>,
    ) -> Result<LoadAnswer, RequestError> {
        let Err(RequestError::Store(StoreError::NamespaceGone { namespace, .. })) = &answered
        else {
            return answered;
        };
        let own = &self.identified().namespace;
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
