//! The admin API of hot keys: their report, and the lists of pinned and blocked keys.
//!
//! Keys are the customer's data, so a key needs a grant on its namespace: `observe` to be seen, `admin` to
//! be listed. A row is named as in the data plane (`ns/{ns}/kv/{pk}[/{sk…}]`), any key by the id
//! that the report tells (`id/{id}`). How a key stands on a list is changed only under `If-Match`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::header::ETAG;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use umbo_api::hot::{HotList, HotListed, HotListing, HotListingSpec, HotReport, REASON_LEN_MAX};
use umbo_control::hot_lists::{HotKeyError, KeyId, ListChange, ListEntry, PutOutcome, version};
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::bounds::ADMIN_BODY_LEN_MAX;
use umbo_dispatcher::phase::identify;
use umbo_http::query::Query;
use umbo_http::{RequestError, encode, key_path};
use umbo_types::{Caller, Namespace, Permission, Timestamp};

use super::{DispatcherState, EVERYWHERE, caller, condition, json_body, origin};
use crate::admin_error::AdminError;
use crate::hot_report::report;

/// What all routes of lists begin with.
const PREFIX: &str = "/admin/v1/hot/";

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<HotReport>, AdminError> {
    let caller = caller(&dispatcher, &headers)?;
    let is_seen = |name: &str| caller.is_allowed(Permission::Observe, name);
    let namespaces = dispatcher.control.namespaces.live();
    // Who may observe no namespace learns nothing of the dispatcher either.
    if !namespaces.iter().any(|info| is_seen(&info.name)) {
        identify::authorize(&caller, Permission::Observe, EVERYWHERE)?;
    }
    Query::read(query.as_deref(), "")?;
    Ok(Json(report(&dispatcher, is_seen)?))
}

pub(crate) async fn put(
    State(dispatcher): DispatcherState,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, [(HeaderName, HeaderValue); 1], Json<HotListed>), AdminError> {
    let condition = condition(&headers)?;
    let target = HotTarget::read(&dispatcher, &headers, &uri, true)?;
    let spec: HotListingSpec = json_body(&dispatcher, &headers, body, ADMIN_BODY_LEN_MAX).await?;
    let now = dispatcher.control.time_at(dispatcher.clock.wall());
    let listing = listing(spec, &target.caller, now)?;
    let HotTarget {
        list,
        namespace,
        id,
        caller,
        dry_run,
    } = target;
    let key = id.name(&namespace, &dispatcher.control.key_hasher);
    let entry = ListEntry {
        id: id.clone(),
        listing: listing.clone(),
    };
    let mut origin = origin(&caller, &headers)?;
    origin.reason = origin.reason.or_else(|| listing.reason.clone());
    let worker = Arc::clone(&dispatcher);
    let put = async move {
        let control = &worker.control;
        control
            .list_key(list, &entry, &condition, dry_run, &origin)
            .await
    };
    let PutOutcome { listing, change } = dispatcher.control.run_to_end(put).await?;
    let tag = [(ETAG, encode::etag(version(&listing)))];
    let standing = dispatcher.control.hot_lists.standing(&id);
    let listed = HotListed {
        key,
        standing: standing.unwrap_or(list.standing()),
        listing,
    };
    let status = if change == ListChange::Added && !dry_run {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, tag, Json(listed)))
}

pub(crate) async fn remove(
    State(dispatcher): DispatcherState,
    uri: Uri,
    headers: HeaderMap,
) -> Result<StatusCode, AdminError> {
    let HotTarget {
        list, id, caller, ..
    } = HotTarget::read(&dispatcher, &headers, &uri, false)?;
    let origin = origin(&caller, &headers)?;
    let worker = Arc::clone(&dispatcher);
    dispatcher
        .control
        .run_to_end(async move { worker.control.unlist_key(list, &id, &origin).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The key and the list of a request, and who may change it.
struct HotTarget {
    list: HotList,
    namespace: String,
    id: KeyId,
    caller: Arc<Caller>,
    dry_run: bool,
}

impl HotTarget {
    /// Reads the raw path, because keys are bytes. The flag says whether the route has dry runs.
    fn read(
        dispatcher: &Dispatcher,
        headers: &HeaderMap,
        uri: &Uri,
        has_dry_run: bool,
    ) -> Result<Self, RequestError> {
        let caller = caller(dispatcher, headers)?;
        let rest = uri.path().strip_prefix(PREFIX);
        let (list, key) = rest
            .and_then(|rest| rest.split_once('/'))
            .ok_or(RequestError::RouteNotFound)?;
        let list = HotList::ALL.into_iter().find(|one| one.as_str() == list);
        let list = list.ok_or(RequestError::RouteNotFound)?;
        let is_id = key.starts_with("id/");
        let query = Query::read(
            uri.query(),
            match (is_id, has_dry_run) {
                (true, true) => "dry_run",
                (true, false) => "",
                (false, true) => "enc, dry_run",
                (false, false) => "enc",
            },
        )?;
        let (namespace, id) = match key.split_once('/') {
            Some(("id", id)) => {
                let name = |id: &KeyId| name_of(dispatcher, &caller, id);
                let id = KeyId::parse(id)?;
                (name(&id)?, id)
            }
            Some(("ns", row)) => {
                let (name, row) = row.split_once("/kv/").ok_or(RequestError::RouteNotFound)?;
                Namespace::check(name.as_bytes())?;
                identify::authorize(&caller, Permission::Admin, name)?;
                let key = key_path::key_of(row, query.key_encoding()?)?;
                let namespace = dispatcher.control.namespaces.find(name)?;
                (name.to_owned(), KeyId::row(namespace.id, &key))
            }
            _ => return Err(RequestError::RouteNotFound),
        };
        if !dispatcher.hot_keys.is_enabled() {
            return Err(HotKeyError::Disabled.into());
        }
        Ok(Self {
            list,
            namespace,
            id,
            caller,
            dry_run: has_dry_run && query.flag("dry_run")?,
        })
    }
}

/// Returns the name of a key's namespace to who may know it.
fn name_of(dispatcher: &Dispatcher, caller: &Caller, id: &KeyId) -> Result<String, RequestError> {
    let all = dispatcher.control.namespaces.live();
    let found = all.into_iter().find(|info| info.id == id.namespace().0);
    if let Some(info) = found {
        identify::authorize(caller, Permission::Admin, &info.name)?;
        return Ok(info.name);
    }
    identify::authorize(caller, Permission::Admin, EVERYWHERE)?;
    Err(HotKeyError::NamespaceGone.into())
}

fn listing(
    spec: HotListingSpec,
    caller: &Caller,
    now: Timestamp,
) -> Result<HotListing, RequestError> {
    let reason = spec.reason.filter(|reason| !reason.is_empty());
    if let Some(reason) = &reason
        && (reason.len() > REASON_LEN_MAX || reason.chars().any(char::is_control))
    {
        return Err(RequestError::BadBody(format!(
            "'reason' is {} bytes, expected one line of {REASON_LEN_MAX} bytes at most",
            reason.len()
        )));
    }
    let at = now.as_millis();
    Ok(HotListing {
        by: caller.id.as_str().to_owned(),
        at,
        until: spec.ttl.map(|ttl| at.saturating_add(ttl * 1_000)),
        reason,
    })
}
