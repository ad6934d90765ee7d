//! The admin API of the fleet in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;
use umbo_api::fleet::FLEET_ROUTES;

use super::admin::{ADMIN, GET, word};
use super::operation::{ApiOperation, In, Parameter, answer};

const ROUTE: Parameter = Parameter {
    name: "route",
    place: In::Path,
    schema: || json!({"type": "string", "enum": FLEET_ROUTES}),
    about: "A route of the admin API that reads; its parameters are added as they are.",
};
const RESOURCE: Parameter = Parameter {
    name: "resource",
    place: In::Path,
    schema: word,
    about: "What the route is asked for, like the id of a request.",
};
const ANSWERS: &str = "What each of them answered.";

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/fleet",
        id: "listFleet",
        summary: "List the dispatchers of the cluster",
        about: "The server that answers first. One that is away is listed for an hour. A server with its store in its \
                process is alone. Dispatchers know one another through the shard nodes.",
        answers: &[answer(200, "The dispatchers.", "FleetList")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/fleet/{route}",
        id: "askFleet",
        summary: "Ask every dispatcher of the cluster",
        about: "Each answers as it would answer the caller itself, and refuses by itself what the caller may not see; \
                the token stays with the server that was asked. Dispatchers have three seconds to answer; one that \
                does not is shown with its last answer, if that was of 64 KiB at most.",
        parameters: &[&ROUTE],
        answers: &[answer(200, ANSWERS, "FleetAnswers")],
        errors: &[ADMIN, &[ErrorCode::RouteNotFound]],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/fleet/{route}/{resource}",
        id: "askFleetForOne",
        summary: "Ask every dispatcher of the cluster for one thing",
        about: "As for a route without a resource. With `why` and the id of a request, the dispatcher that answered \
                the request has the record, and the others answer 404.",
        parameters: &[&ROUTE, &RESOURCE],
        answers: &[answer(200, ANSWERS, "FleetAnswers")],
        errors: &[ADMIN, &[ErrorCode::RouteNotFound]],
        ..GET
    },
];
