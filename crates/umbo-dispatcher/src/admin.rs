//! The admin API: namespaces, tokens, settings, metrics; nodes, shards, quotas, hot keys and overload
//! in the files under this one.
//!
//! Every route needs a grant of the verb `admin`: on the namespace it names, or on `*`.

pub(crate) mod cluster;
pub(crate) mod hot;
pub(crate) mod quotas;
pub(crate) mod shed;

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use umbo_api::admin::{
    CreatedToken, NamespaceInfo, NamespaceList, NamespaceRemoval, NamespaceSettings, NewToken,
    TokenList,
};
use umbo_store::{CallContext, ScanRequest};
use umbo_telemetry::metrics as counters;
use umbo_types::{Caller, Namespace, Verb, limits};

use crate::classify;
use crate::edge::body::{BodyLimits, read_bounded};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::operation::body::json_object;
use crate::pod::Dispatcher;
use crate::query::Query;
use crate::scrape;

/// Bodies of the admin API are small.
const BODY_LEN_MAX: u64 = 64 << 10;
/// Stands for every namespace in a refusal.
const EVERYWHERE: &str = "*";

type Pod = State<Arc<Dispatcher>>;

/// The text in a path. Bytes that are no text name nothing that there is.
pub(crate) struct PathText(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let found = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = found.map_err(|_| Failure::RouteNotFound)?;
        Ok(Self(text))
    }
}

fn caller(pod: &Dispatcher, headers: &HeaderMap) -> Result<Arc<Caller>, Failure> {
    classify::caller(pod, &Fields::read(headers), pod.clock.wall())
}

fn namespace_admin(
    pod: &Dispatcher,
    headers: &HeaderMap,
    name: &str,
) -> Result<Namespace, Failure> {
    let caller = caller(pod, headers)?;
    classify::authorize(&caller, Verb::Admin, name)?;
    Ok(Namespace::new(name)?)
}

fn full_admin(pod: &Dispatcher, headers: &HeaderMap) -> Result<(), Failure> {
    let caller = caller(pod, headers)?;
    if caller
        .grants
        .iter()
        .any(|grant| grant.allows_everywhere(Verb::Admin))
    {
        return Ok(());
    }
    Err(Failure::Forbidden {
        caller: caller.id.as_str().to_owned(),
        verb: Verb::Admin.as_str(),
        namespace: EVERYWHERE.to_owned(),
    })
}

async fn json_body<T>(pod: &Dispatcher, body: Body, len_max: u64) -> Result<T, Failure>
where
    T: serde::de::DeserializeOwned,
{
    let limits = BodyLimits {
        len_max,
        timeout: pod.limits.body_timeout,
    };
    let bytes = read_bounded(body, limits).await?;
    let text = if bytes.trim_ascii().is_empty() {
        &b"{}"[..]
    } else {
        &bytes[..]
    };
    json_object(text)
}

pub(crate) async fn list_namespaces(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<NamespaceList>, Failure> {
    let caller = caller(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let is_seen = |info: &NamespaceInfo| {
        Verb::ALL
            .into_iter()
            .any(|verb| caller.is_allowed(verb, &info.name))
    };
    let namespaces = pod.namespaces.all().into_iter().filter(is_seen).collect();
    Ok(Json(NamespaceList { namespaces }))
}

pub(crate) async fn describe_namespace(
    State(pod): Pod,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<NamespaceInfo>, Failure> {
    let name = namespace_admin(&pod, &headers, &name)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(pod.namespaces.find(name.as_str())?.info.clone()))
}

pub(crate) async fn put_namespace(
    State(pod): Pod,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<NamespaceInfo>), Failure> {
    let name = namespace_admin(&pod, &headers, &name)?;
    Query::read(query.as_deref(), "")?;
    let settings: NamespaceSettings = json_body(&pod, body, BODY_LEN_MAX).await?;
    if let Some(ttl) = settings.default_ttl
        && !(1..=limits::TTL_SECONDS_MAX).contains(&ttl)
    {
        let expected = "1 to 315360000 seconds";
        return Err(Failure::BadBody(format!(
            "'default_ttl' is {ttl}, expected {expected}"
        )));
    }
    let worker = Arc::clone(&pod);
    let (info, is_new) = pod
        .to_its_end(async move { worker.namespaces.put(&name, settings).await })
        .await?;
    Ok((
        if is_new {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        },
        Json(info),
    ))
}

pub(crate) async fn remove_namespace(
    State(pod): Pod,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<NamespaceRemoval>, Failure> {
    let name = namespace_admin(&pod, &headers, &name)?;
    let dry_run = Query::read(query.as_deref(), "dry_run")?.flag("dry_run")?;
    if dry_run {
        let (rows, bytes) = count(&pod, name.as_str()).await?;
        return Ok(Json(NamespaceRemoval {
            name: name.to_string(),
            rows: Some(rows),
            bytes: Some(bytes),
            dry_run,
        }));
    }
    // Not counted: that would take a scan, and every shard.
    let removal = NamespaceRemoval {
        name: name.to_string(),
        rows: None,
        bytes: None,
        dry_run,
    };
    let worker = Arc::clone(&pod);
    pod.to_its_end(async move { worker.namespaces.remove(name.as_str()).await })
        .await?;
    tracing::info!(namespace = removal.name, "removed a namespace");
    Ok(Json(removal))
}

/// Counts the visible rows of a namespace and the bytes of their keys and values.
async fn count(pod: &Dispatcher, name: &str) -> Result<(u64, u64), Failure> {
    let mut request = ScanRequest {
        namespace: pod.namespaces.find(name)?.id,
        slots: 0..=umbo_routing::SLOTS - 1,
        shard: None,
        after: None,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: true,
    };
    let (mut rows, mut bytes) = (0, 0);
    loop {
        let page = pod.store.scan(&CallContext::internal(), &request).await?;
        rows += page.rows.len() as u64;
        bytes += page
            .rows
            .iter()
            .map(|row| (row.partition.len() + row.sort.len()) as u64 + u64::from(row.value_len))
            .sum::<u64>();
        if page.resume_after.is_none() {
            return Ok((rows, bytes));
        }
        request.after = page.resume_after;
        // A long count must not keep the thread from other requests.
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn list_tokens(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<TokenList>, Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(pod.stored_tokens.list()))
}

pub(crate) async fn create_token(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<CreatedToken>), Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let new: NewToken = json_body(&pod, body, BODY_LEN_MAX).await?;
    let worker = Arc::clone(&pod);
    let created = pod
        .to_its_end(async move { worker.stored_tokens.create(&new).await })
        .await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(crate) async fn revoke_token(
    State(pod): Pod,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<StatusCode, Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let worker = Arc::clone(&pod);
    pod.to_its_end(async move { worker.stored_tokens.revoke(&id).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The scrape of `/metrics`, on both ports, to who may see all of it.
pub(crate) async fn show_metrics(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<([(http::HeaderName, HeaderValue); 1], String), Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let text = scrape::render(&pod).await?;
    let content_type = HeaderValue::from_static(counters::CONTENT_TYPE);
    Ok(([(CONTENT_TYPE, content_type)], text))
}

pub(crate) async fn show_config(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<([(http::HeaderName, HeaderValue); 1], String), Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let toml = HeaderValue::from_static("application/toml");
    Ok(([(CONTENT_TYPE, toml)], pod.config_text.clone()))
}
