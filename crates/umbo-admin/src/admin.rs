//! The admin API: namespaces, tokens, settings, metrics; nodes, shards, callers, quotas, hot keys and overload
//! in the files under this one, and records of requests.
//!
//! A route that changes something needs a grant of the permission `admin`; a route that reads needs `observe` (or
//! `admin`, which includes it). The grant is on the namespace that the route names, or on `*`.

pub(crate) mod backups;
pub(crate) mod callers;
pub(crate) mod cluster;
pub(crate) mod diagnosis;
pub(crate) mod events;
pub(crate) mod fleet;
pub(crate) mod heat;
pub(crate) mod history;
pub(crate) mod hot;
pub(crate) mod loads;
pub(crate) mod quotas;
pub(crate) mod running;
pub(crate) mod shed;
mod sizes;
pub(crate) mod usage;
pub(crate) mod why;

use std::iter;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use umbo_api::admin::{
    CreatedToken, NamespaceChange, NamespaceInfo, NamespaceList, NamespaceRemoval, NamespaceSpec,
    NewToken, OwnGrants, TokenList, WriteSetting,
};
use umbo_bulk::Bulk;
use umbo_control::events::Origin;
use umbo_control::namespaces::version;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::bounds::ADMIN_BODY_LEN_MAX;
use umbo_dispatcher::overload::hash_of;
use umbo_dispatcher::phase::identify;
use umbo_edge::body::{BodyLimits, read_bounded};
use umbo_edge::bounds::ROOM_PATIENCE;
use umbo_edge::content_coding::ContentCoding;
use umbo_http::json_body::json_object;
use umbo_http::query::Query;
use umbo_http::{Fields, RequestError, encode};
use umbo_store::{CallContext, Condition, ScanRequest};
use umbo_telemetry::metrics as counters;
use umbo_types::{Caller, Namespace, NamespaceId, Permission, ShardId, limits};

use self::sizes::NamespaceSizes;
use crate::admin_error::AdminError;
use crate::foreign_page;
use crate::scrape;

/// Stands for every namespace in a refusal.
const EVERYWHERE: &str = "*";

type DispatcherState = State<Arc<Dispatcher>>;
/// A namespace, with its version as the tag.
type DescribedNamespace = (
    StatusCode,
    [(HeaderName, HeaderValue); 1],
    Json<NamespaceInfo>,
);

/// The text in a path. Bytes that are no text name nothing that there is.
pub(crate) struct PathText(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminError> {
        let found = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = found.map_err(|_| RequestError::RouteNotFound)?;
        Ok(Self(text))
    }
}

fn caller(dispatcher: &Dispatcher, headers: &HeaderMap) -> Result<Arc<Caller>, RequestError> {
    if let Some(asker) = crate::asker::asker() {
        return Ok(asker);
    }
    let (now, started) = (dispatcher.clock.wall(), dispatcher.clock.monotonic());
    identify::caller(dispatcher, &Fields::read(headers), now, started)
}

/// Returns who makes a change, and why.
fn origin(caller: &Caller, headers: &HeaderMap) -> Result<Origin, RequestError> {
    Ok(Origin {
        by: caller.id.as_str().to_owned(),
        reason: Fields::read(headers).change_reason()?,
    })
}

/// Refuses a caller without the permission on the namespace.
fn permitted_on(
    dispatcher: &Dispatcher,
    headers: &HeaderMap,
    permission: Permission,
    name: &str,
) -> Result<(Arc<Caller>, Namespace), RequestError> {
    let caller = caller(dispatcher, headers)?;
    identify::authorize(&caller, permission, name)?;
    Ok((caller, Namespace::new(name)?))
}

/// Returns the condition under which something may be changed.
fn condition(headers: &HeaderMap) -> Result<Condition, RequestError> {
    Fields::read(headers).write_condition()
}

/// Refuses a caller that may not change settings outside of namespaces.
fn full_admin(dispatcher: &Dispatcher, headers: &HeaderMap) -> Result<Arc<Caller>, RequestError> {
    permitted_everywhere(dispatcher, headers, Permission::Admin)
}

/// Refuses a caller that may not see reports outside of namespaces.
fn full_observer(
    dispatcher: &Dispatcher,
    headers: &HeaderMap,
) -> Result<Arc<Caller>, RequestError> {
    permitted_everywhere(dispatcher, headers, Permission::Observe)
}

fn permitted_everywhere(
    dispatcher: &Dispatcher,
    headers: &HeaderMap,
    permission: Permission,
) -> Result<Arc<Caller>, RequestError> {
    let caller = caller(dispatcher, headers)?;
    let mut grants = caller.grants.iter();
    if grants.any(|grant| grant.allows_everywhere(permission)) {
        return Ok(caller);
    }
    Err(RequestError::Forbidden {
        caller: caller.id.as_str().to_owned(),
        permission: permission.as_str(),
        namespace: EVERYWHERE.to_owned(),
    })
}

/// Reads a body of at most `len_max` bytes, also once inflated. An absent one is an object without fields.
async fn json_body<T>(
    dispatcher: &Dispatcher,
    headers: &HeaderMap,
    mut body: Body,
    len_max: usize,
) -> Result<T, RequestError>
where
    T: serde::de::DeserializeOwned,
{
    let limits = BodyLimits {
        len_max: len_max as u64,
        timeout: dispatcher.limits.body_timeout,
    };
    // Operators share no memory with the services that have their name.
    let operator = !hash_of(caller(dispatcher, headers)?.id.as_str());
    let room = dispatcher.body_room(operator, ROOM_PATIENCE);
    let (mut bytes, mut _held) = read_bounded(&mut body, limits, &room).await?;
    if let Some(coding) = ContentCoding::of_body(headers.get(CONTENT_ENCODING))? {
        let (text, permit) = coding.inflate_body(&bytes, len_max, &room).await?;
        (bytes, _held) = (text, Some(permit));
    }
    if bytes.trim_ascii().is_empty() {
        return json_object(b"{}");
    }
    check_media_type(headers)?;
    json_object(&bytes)
}

/// Refuses a body that is not JSON by its media type: forms and texts are what any web page may send without asking
/// (Fetch standard, CORS-safelisted requests). A program may leave the media type out, a browser may not.
fn check_media_type(headers: &HeaderMap) -> Result<(), RequestError> {
    let mut sent = headers.get_all(CONTENT_TYPE).iter();
    let is_json = |sent: &HeaderValue| {
        let kind = sent.as_bytes().split(|&byte| byte == b';').next();
        let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
        kind == b"application/json" || kind.starts_with(b"application/") && kind.ends_with(b"+json")
    };
    let refused = match sent.next() {
        None if foreign_page::is_by_browser(headers) => None,
        None => return Ok(()),
        Some(first) => match iter::once(first).chain(sent).find(|sent| !is_json(sent)) {
            None => return Ok(()),
            Some(other) => Some(String::from_utf8_lossy(other.as_bytes()).into_owned()),
        },
    };
    Err(RequestError::BodyNotJson { sent: refused })
}

pub(crate) async fn list_namespaces(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<NamespaceList>, AdminError> {
    let caller = caller(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let is_seen = |info: &NamespaceInfo| {
        Permission::ALL
            .into_iter()
            .any(|permission| caller.is_allowed(permission, &info.name))
    };
    let all = dispatcher.control.all_namespaces().into_iter();
    let mut namespaces: Vec<_> = all.filter(is_seen).collect();
    let sizes = NamespaceSizes::of(dispatcher.store.status());
    let live = dispatcher.control.namespaces.live_datasets();
    for info in namespaces.iter_mut().filter(|info| is_counted(info)) {
        let dataset = live.get(&NamespaceId(info.id));
        info.size = Some(sizes.get(dataset.map_or(info.id, |dataset| dataset.0)));
    }
    Ok(Json(NamespaceList { namespaces }))
}

pub(crate) async fn describe_namespace(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<DescribedNamespace, AdminError> {
    let (_, name) = permitted_on(&dispatcher, &headers, Permission::Observe, &name)?;
    Query::read(query.as_deref(), "")?;
    let mut info = dispatcher.control.namespaces.describe(name.as_str())?;
    info.waiting_for = dispatcher.control.waiting_for(name.as_str());
    let live = dispatcher.control.namespaces.live_datasets();
    let dataset = live.get(&NamespaceId(info.id));
    let dataset = dataset.map_or(info.id, |dataset| dataset.0);
    info.size =
        is_counted(&info).then(|| NamespaceSizes::of(dispatcher.store.status()).get(dataset));
    let tag = [(ETAG, encode::etag(version(&info)))];
    Ok((StatusCode::OK, tag, Json(info)))
}

/// Returns whether the engine counts the rows of a namespace.
const fn is_counted(info: &NamespaceInfo) -> bool {
    info.settings.writes.is_exact()
}

/// What a request wants of a namespace.
struct AskedNamespace {
    origin: Origin,
    name: Namespace,
    condition: Condition,
    spec: NamespaceSpec,
}

impl AskedNamespace {
    async fn read(
        dispatcher: &Dispatcher,
        name: &str,
        query: Option<&str>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, AdminError> {
        let (caller, name) = permitted_on(dispatcher, headers, Permission::Admin, name)?;
        Query::read(query, "")?;
        let spec: NamespaceSpec = json_body(dispatcher, headers, body, ADMIN_BODY_LEN_MAX).await?;
        if spec.writes == Some(WriteSetting::Fast) && !dispatcher.store.capabilities().fast_writes {
            let text = "the engine of the rows has exact writes only; create the namespace without 'writes'";
            return Err(RequestError::NotInEngine(text).into());
        }
        Ok(Self {
            origin: origin(&caller, headers)?,
            name,
            condition: condition(headers)?,
            spec,
        })
    }
}

/// Creates a namespace. An existing one is changed only if `If-Match` names it.
pub(crate) async fn put_namespace(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<DescribedNamespace, AdminError> {
    let asked = AskedNamespace::read(&dispatcher, &name, query.as_deref(), &headers, body).await?;
    let AskedNamespace {
        origin,
        name,
        condition,
        spec,
    } = asked;
    let worker = Arc::clone(&dispatcher);
    let put = async move {
        let control = &worker.control;
        control
            .put_namespace(name.as_str(), &spec, &condition, &origin)
            .await
    };
    let info = dispatcher.control.run_to_end(put).await?;
    Ok(changed(info))
}

/// Changes what the body names (RFC 7396).
pub(crate) async fn change_namespace(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<DescribedNamespace, AdminError> {
    let asked = AskedNamespace::read(&dispatcher, &name, query.as_deref(), &headers, body).await?;
    let AskedNamespace {
        origin,
        name,
        condition,
        spec,
    } = asked;
    let worker = Arc::clone(&dispatcher);
    let change = async move {
        let control = &worker.control;
        control
            .change_namespace(name.as_str(), &spec, &condition, &origin)
            .await
    };
    let info = dispatcher.control.run_to_end(change).await?;
    Ok(changed(info))
}

/// Answers what became of a namespace.
fn changed(info: NamespaceInfo) -> DescribedNamespace {
    let status = match info.change {
        Some(NamespaceChange::Created) => StatusCode::CREATED,
        Some(NamespaceChange::Changed | NamespaceChange::Unchanged) | None => StatusCode::OK,
    };
    (status, [(ETAG, encode::etag(version(&info)))], Json(info))
}

pub(crate) async fn remove_namespace(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, AdminError> {
    let (caller, name) = permitted_on(&dispatcher, &headers, Permission::Admin, &name)?;
    let query = Query::read(query.as_deref(), "dry_run, abandon_shard")?;
    let dry_run = query.flag("dry_run")?;
    let shards = dispatcher.shard_map.shards() as u64;
    let abandoned = query.number("abandon_shard", 0..=shards - 1, "the number of a shard")?;
    if dry_run {
        let (rows, bytes) = count(&dispatcher, name.as_str()).await?;
        let removal = NamespaceRemoval {
            name: name.to_string(),
            rows,
            bytes,
            dry_run,
        };
        return Ok(Json(removal).into_response());
    }
    let abandoned = abandoned.map(|shard| ShardId(shard as u16));
    let origin = origin(&caller, &headers)?;
    let (worker, removed) = (Arc::clone(&dispatcher), name.clone());
    let removing = dispatcher
        .control
        .run_to_end(async move {
            worker
                .control
                .remove_namespace(removed.as_str(), abandoned, &origin)
                .await
        })
        .await?;
    Ok(match removing {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(removing) => (StatusCode::ACCEPTED, Json(removing)).into_response(),
    })
}

/// Counts the visible rows of a namespace and the bytes of their keys and values.
async fn count(dispatcher: &Dispatcher, name: &str) -> Result<(u64, u64), RequestError> {
    let mut request = ScanRequest {
        namespace: dispatcher.control.namespaces.find(name)?.id,
        slots: 0..=limits::SLOTS - 1,
        after: None,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: true,
    };
    let (mut rows, mut bytes) = (0, 0);
    let mut shards = dispatcher.shard_map.owners_of(request.slots.clone());
    while let Some(&shard) = shards.last() {
        let page = dispatcher
            .store
            .scan(&CallContext::internal(), shard, &request)
            .await?;
        rows += page.rows.len() as u64;
        bytes += page
            .rows
            .iter()
            .map(|row| (row.partition.len() + row.sort.len()) as u64 + u64::from(row.value_len))
            .sum::<u64>();
        if page.resume_after.is_none() {
            shards.pop();
        }
        request.after = page.resume_after;
        // A long count must not keep the thread from other requests.
        tokio::task::yield_now().await;
    }
    Ok((rows, bytes))
}

pub(crate) async fn list_tokens(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<TokenList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(dispatcher.control.token_list()))
}

pub(crate) async fn describe_own_grants(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<OwnGrants>, AdminError> {
    let caller = caller(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(OwnGrants {
        caller: caller.id.as_str().to_owned(),
        grants: caller.grants.iter().map(ToString::to_string).collect(),
    }))
}

pub(crate) async fn create_token(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<CreatedToken>), AdminError> {
    let origin = origin(&*full_admin(&dispatcher, &headers)?, &headers)?;
    Query::read(query.as_deref(), "")?;
    let new: NewToken = json_body(&dispatcher, &headers, body, ADMIN_BODY_LEN_MAX).await?;
    let worker = Arc::clone(&dispatcher);
    let created = dispatcher
        .control
        .run_to_end(async move { worker.control.create_token(&new, &origin).await })
        .await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(crate) async fn revoke_token(
    State(dispatcher): DispatcherState,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, AdminError> {
    let origin = origin(&*full_admin(&dispatcher, &headers)?, &headers)?;
    let dry_run = Query::read(query.as_deref(), "dry_run")?.flag("dry_run")?;
    let revoked = dispatcher.control.tokens.list();
    let revoked = revoked.into_iter().find(|token| token.id == id);
    let worker = Arc::clone(&dispatcher);
    dispatcher
        .control
        .run_to_end(async move { worker.control.revoke_token(&id, dry_run, &origin).await })
        .await?;
    Ok(match revoked.filter(|_| dry_run) {
        Some(token) => Json(token).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The scrape of `/metrics`, on both ports, to who may see all of it.
pub(crate) async fn show_metrics(
    State(bulk): State<Arc<Bulk>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<([(HeaderName, HeaderValue); 1], String), AdminError> {
    full_observer(bulk.dispatcher(), &headers)?;
    Query::read(query.as_deref(), "")?;
    let text = scrape::render(&bulk).await?;
    let content_type = HeaderValue::from_static(counters::CONTENT_TYPE);
    Ok(([(CONTENT_TYPE, content_type)], text))
}

pub(crate) async fn show_config(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<([(HeaderName, HeaderValue); 1], String), AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(CONTENT_TYPE, text)], dispatcher.config_text.clone()))
}
