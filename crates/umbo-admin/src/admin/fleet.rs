//! The admin API of the fleet.
//!
//! Needs a grant of `observe` on `*`, but for a caller's own requests. Every server of the fleet refuses, by itself, what
//! the caller may not see.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use http::HeaderMap;
use umbo_api::fleet::FleetList;
use umbo_http::RequestError;
use umbo_http::query::Query;

use super::{DispatcherState, caller, full_observer};
use crate::admin_error::AdminError;
use crate::fleet::{FleetReply, FleetView, is_of_fleet};

pub(crate) async fn list(
    State(dispatcher): DispatcherState,
    Extension(fleet): Extension<Arc<FleetView>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<FleetList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(fleet.list().await))
}

pub(crate) async fn ask(
    State(dispatcher): DispatcherState,
    Extension(fleet): Extension<Arc<FleetView>>,
    path: http::Uri,
    headers: HeaderMap,
) -> Result<FleetReply, AdminError> {
    let asked = path.path_and_query().map_or("", |path| path.as_str());
    let rest = asked.strip_prefix("/admin/v1/fleet/").unwrap_or_default();
    let path = format!("/admin/v1/{rest}");
    let observer = full_observer(&dispatcher, &headers);
    if observer.is_err() && rest.split(['/', '?']).next() == Some("why") {
        // A caller sees its own requests.
        let who = caller(&dispatcher, &headers)?;
        return Ok(fleet.ask(&who, &path, false).await);
    }
    let observer = observer?;
    if !is_of_fleet(&path) {
        return Err(RequestError::RouteNotFound.into());
    }
    Ok(fleet.ask(&observer, &path, true).await)
}
