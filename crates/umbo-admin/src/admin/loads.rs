//! The admin API of loads: one list for all namespaces.
//!
//! Needs a grant of `observe` on `*`.

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::loads::LoadList;
use umbo_dispatcher::list_loads;
use umbo_dispatcher::overload::hash_of;
use umbo_http::query::Query;

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;

pub(crate) async fn list(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<LoadList>, AdminError> {
    let operator = full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    // Operators share no queue with the services that have their name.
    let caller = !hash_of(operator.id.as_str());
    Ok(Json(list_loads(&dispatcher, caller).await))
}
