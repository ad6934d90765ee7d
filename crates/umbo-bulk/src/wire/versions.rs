//! Requests about the versions of a namespace.
//!
//! Routes: `versions`, `versions/{n}`, `versions/{n}/activate` and `versions/rollback`.

use http::{Method, Uri};

use umbo_http::RequestError;
use umbo_http::query::Query;

/// A request about versions. The dry run of a change only returns its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionAsk {
    /// Lists the versions.
    List,
    /// Activates a version.
    Activate {
        /// Number of the version to activate.
        number: u32,
        /// Whether nothing is changed.
        dry_run: bool,
    },
    /// Activates the version that was live before.
    Rollback {
        /// Whether nothing is changed.
        dry_run: bool,
    },
    /// Drops a version that is kept.
    Remove {
        /// Number of the version to drop.
        number: u32,
        /// Whether nothing is changed.
        dry_run: bool,
    },
}

/// Returns the methods of a route below `versions`, or `None` if there is no such route.
pub(crate) fn methods(rest: Option<&str>) -> Option<&'static str> {
    match rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
        None => Some("GET"),
        Some(("rollback", "") | (_, "activate")) => Some("POST"),
        Some((number, "")) if !number.is_empty() => Some("DELETE"),
        Some(_) => None,
    }
}

/// Decodes a request about versions; `rest` is the path after `versions/`.
pub(crate) fn decode(rest: &str, method: &Method, uri: &Uri) -> Result<VersionAsk, RequestError> {
    if rest.is_empty() {
        Query::read(uri.query(), "")?;
        return Ok(VersionAsk::List);
    }
    let query = Query::read(uri.query(), "dry_run")?;
    let dry_run = query.flag("dry_run")?;
    if rest == "rollback" {
        return Ok(VersionAsk::Rollback { dry_run });
    }
    let number = rest.split('/').next().unwrap_or_default();
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_plain);
    let number = number.ok_or(RequestError::RouteNotFound)?;
    Ok(if *method == Method::DELETE {
        VersionAsk::Remove { number, dry_run }
    } else {
        VersionAsk::Activate { number, dry_run }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_their_methods() {
        for (rest, allowed) in [
            (None, Some("GET")),
            (Some("3"), Some("DELETE")),
            (Some("3/activate"), Some("POST")),
            (Some("rollback"), Some("POST")),
            (Some("3/other"), None),
            (Some(""), None),
            (Some("3/"), Some("DELETE")),
        ] {
            assert_eq!(methods(rest), allowed, "{rest:?}");
        }
    }

    #[test]
    fn a_number_is_digits() {
        let decoded = |method: &Method, rest: &str| {
            let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
            let uri: Uri = format!("/v1/ns/a/versions/{path}?{query}").parse().unwrap();
            decode(path, method, &uri)
        };
        let (number, dry_run) = (7, true);
        let activate = decoded(&Method::POST, "7/activate?dry_run=true");
        assert_eq!(activate.unwrap(), VersionAsk::Activate { number, dry_run });
        let remove = decoded(&Method::DELETE, "7?dry_run=true");
        assert_eq!(remove.unwrap(), VersionAsk::Remove { number, dry_run });
        for bad in ["x/activate", "+1/activate", "99999999999/activate"] {
            assert!(decoded(&Method::POST, bad).is_err(), "{bad}");
        }
    }
}
