//! Constants of the product that schemas of parameters name, so that a limit stands in one place.

use serde_json::{Value, json};
use umbo_api::{fleet, loads, row, time_to_live};
use umbo_telemetry::metric_names::series_names;
use umbo_types::limits;

/// Returns the constant of a name.
pub(crate) fn named(name: &str) -> Value {
    let series = series_names().join("|");
    match name {
        "EXPIRES_AT_MS_MAX" => json!(row::EXPIRES_AT_MS.end()),
        "EXPIRES_AT_MS_MIN" => json!(row::EXPIRES_AT_MS.start()),
        "FLEET_ROUTES" => json!(fleet::FLEET_ROUTES),
        "PAGE_BYTES_DEFAULT" => json!(limits::PAGE_BYTES_DEFAULT),
        "PAGE_BYTES_MAX" => json!(limits::PAGE_BYTES_MAX),
        "PART_NUMBER_MAX" => json!(loads::PART_NUMBER_MAX),
        "REJECTS_LISTED_MAX" => json!(loads::REJECTS_LISTED_MAX),
        "SERIES_PATTERN" => json!(format!("^({series})(,({series}))*$")),
        "TTL_PATTERN" => json!(time_to_live::PATTERN),
        _ => panic!("no constant {name}"),
    }
}

/// Puts constants in place of their names.
pub(crate) fn substitute(schema: &mut Value) {
    match schema {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix('$') {
                *schema = named(name);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(substitute),
        Value::Object(fields) => fields.values_mut().for_each(substitute),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
