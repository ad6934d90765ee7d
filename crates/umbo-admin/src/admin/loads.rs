//! The admin API of loads: one list for all namespaces.
//!
//! Needs a grant of `observe` on `*`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::loads::LoadList;
use umbo_bulk::Bulk;
use umbo_dispatcher::overload::hash_of;
use umbo_http::query::Query;

use super::full_observer;
use crate::admin_error::AdminError;

pub(crate) async fn list(
    State(bulk): State<Arc<Bulk>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<LoadList>, AdminError> {
    let operator = full_observer(bulk.dispatcher(), &headers)?;
    Query::read(query.as_deref(), "")?;
    // Operators share no queue with the services that have their name.
    let caller = !hash_of(operator.id.as_str());
    Ok(Json(bulk.list(caller).await))
}
