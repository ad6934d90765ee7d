//! The admin API of the diagnosis.
//!
//! Needs a grant of `observe` on `*`: findings name callers and keys of every namespace.

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::diagnosis::Diagnosis;
use umbo_http::query::Query;

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;
use crate::diagnosis;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Diagnosis>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(diagnosis::current(&dispatcher)))
}
