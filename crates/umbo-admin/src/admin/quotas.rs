//! The admin API of quotas: policies, their buckets, and the effect that a policy would have.
//!
//! A policy is of no namespace, so every route needs a grant on `*`: `observe` to see policies, `admin` to
//! change and simulate them. A change says what
//! stood in effect before and what stands afterwards; a dry run says the same and does nothing. The
//! word `simulate` is taken by the route of that name: no stored policy can be called so.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::header::ETAG;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use umbo_api::quota::{
    PolicyChange, PolicyInfo, PolicyList, PolicySpec, QuotaUsers, SimulateAnswer, SimulateBody,
};
use umbo_control::policies::{self, QuotaError};
use umbo_control::policy_file::with_nearest;
use umbo_dispatcher::bounds::POLICY_BODY_LEN_MAX;
use umbo_http::query::Query;
use umbo_http::{RequestError, encode};
use umbo_quota::HISTORY_SECONDS;
use umbo_types::Version;

use super::{
    DispatcherState, PathText, condition, full_admin, full_observer, json_body, origin, usage,
};
use crate::admin_error::AdminError;
use crate::home_rows::aside;

/// Users that are listed where the request does not say how many.
const USERS_DEFAULT: u64 = 100;

type Tag = [(HeaderName, HeaderValue); 1];

pub(crate) async fn list_policies(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<PolicyList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    Ok(Json(dispatcher.control.policies.list()))
}

pub(crate) async fn describe_policy(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<(Option<Tag>, Json<PolicyInfo>), AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let info = dispatcher.control.policies.describe(&name)?;
    Ok((tag(info.version), Json(info)))
}

pub(crate) async fn put_policy(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Option<Tag>, Json<PolicyChange>), AdminError> {
    let origin = origin(&*full_admin(&dispatcher, &headers)?, &headers)?;
    let dry_run = Query::read(query.as_deref(), "dry_run")?.flag("dry_run")?;
    let condition = condition(&headers)?;
    let spec: PolicySpec = json_body(&dispatcher, &headers, body, POLICY_BODY_LEN_MAX)
        .await
        .map_err(suggest)?;
    if spec.name != name {
        return Err(QuotaError::OtherName {
            path: name,
            body: spec.name,
        }
        .into());
    }
    let worker = Arc::clone(&dispatcher);
    let (change, is_new) = dispatcher
        .control
        .run_to_end(async move {
            worker
                .control
                .put_policy(&spec, &condition, dry_run, &origin)
                .await
        })
        .await?;
    let status = if is_new && !dry_run {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, tag(change.version), Json(change)))
}

pub(crate) async fn remove_policy(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<PolicyChange>, AdminError> {
    let origin = origin(&*full_admin(&dispatcher, &headers)?, &headers)?;
    let dry_run = Query::read(query.as_deref(), "dry_run")?.flag("dry_run")?;
    let condition = condition(&headers)?;
    let worker = Arc::clone(&dispatcher);
    let change = dispatcher
        .control
        .run_to_end(async move {
            worker
                .control
                .remove_policy(&name, &condition, dry_run, &origin)
                .await
        })
        .await?;
    Ok(Json(change))
}

pub(crate) async fn list_users(
    State(dispatcher): DispatcherState,
    PathText(name): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<QuotaUsers>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "limit")?;
    let limit = query.number("limit", 1..=10_000, "1 to 10000")?;
    let limit = limit.unwrap_or(USERS_DEFAULT);
    let users = dispatcher.control.policies.users(&name, limit as usize)?;
    Ok(Json(users))
}

pub(crate) async fn simulate(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SimulateAnswer>, AdminError> {
    let caller = full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let asked: SimulateBody = json_body(&dispatcher, &headers, body, POLICY_BODY_LEN_MAX)
        .await
        .map_err(suggest)?;
    if asked.last_seconds == Some(0) {
        let expected = "'last_seconds' is 0, expected 1 or more".to_owned();
        return Err(RequestError::BadBody(expected).into());
    }
    if let Some(last) = asked.last_seconds.filter(|last| *last > HISTORY_SECONDS) {
        let (policy, replay) = policies::on_usage(&asked)?;
        let (replay, unreadable) = usage::replay(&dispatcher, &caller, replay, last).await?;
        return Ok(Json(policies::simulated(&policy, replay, unreadable)));
    }
    // A record of an hour takes a while to replay.
    let answer = aside(move || dispatcher.control.policies.simulate(&asked)).await?;
    Ok(Json(answer?))
}

/// Adds the name that was probably meant to the error of a misspelt field.
fn suggest(failure: RequestError) -> RequestError {
    match failure {
        RequestError::BadBody(message) => RequestError::BadBody(with_nearest(&message)),
        other => other,
    }
}

fn tag(version: Option<u64>) -> Option<Tag> {
    version.map(|version| [(ETAG, encode::etag(Version(version)))])
}
