//! The wire format of loads and versions: routes, header fields and bodies. All of it is a function of its arguments.

pub(crate) mod answer;
pub(crate) mod loads;
mod versions;

use http::{HeaderMap, Method, Uri};
use umbo_dispatcher::plane::RequiredGrant;
use umbo_http::{RequestError, decode};
use umbo_types::{Namespace, Operation, Permission};

pub(crate) use self::answer::LoadAnswer;
pub(crate) use self::loads::{LoadAsk, Piece, UploadAsk, rejects_after};
pub(crate) use self::versions::VersionAsk;

/// A recognised route of the plane, borrowed from the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkRoute<'a> {
    /// Name in the path, a valid one.
    namespace: &'a str,
    /// The part of the path after the resource.
    rest: &'a str,
    is_about_versions: bool,
    is_change: bool,
    permission: Permission,
}

/// Recognises a route of the plane. Returns `None` if the path has another resource.
pub fn route<'a>(method: &Method, path: &'a str) -> Option<Result<BulkRoute<'a>, RequestError>> {
    let (namespace, resource, rest) = decode::resource(path)?;
    let is_about_versions = resource == "versions";
    let allowed = match resource {
        "loads" => loads::methods(rest)?,
        "versions" => versions::methods(rest)?,
        _ => return None,
    };
    if !allowed.split(", ").any(|name| name == method.as_str()) {
        return Some(Err(RequestError::MethodNotAllowed { allowed }));
    }
    if let Err(error) = Namespace::check(namespace.as_bytes()) {
        return Some(Err(error.into()));
    }
    Some(Ok(BulkRoute {
        namespace,
        rest: rest.unwrap_or_default(),
        is_about_versions,
        is_change: !method.is_safe(),
        // Uploaders ask how much is kept of a part.
        permission: if *method == Method::GET {
            Permission::Read
        } else {
            Permission::Write
        },
    }))
}

impl<'a> BulkRoute<'a> {
    /// Returns the grant that the request needs.
    pub(crate) const fn required(&self) -> RequiredGrant<'a> {
        RequiredGrant {
            operation: Operation::Load,
            namespace: self.namespace,
            permission: self.permission,
        }
    }

    /// Returns whether the request may change something.
    pub(crate) const fn is_change(&self) -> bool {
        self.is_change
    }

    /// Decodes the request.
    pub(crate) fn decode(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<LoadAsk, RequestError> {
        if self.is_about_versions {
            let ask = versions::decode(self.rest, method, uri)?;
            return Ok(LoadAsk::Versions(ask));
        }
        loads::decode(self.rest, method, uri, headers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// How many kinds of requests [`number`] tells apart.
    const KINDS: usize = 14;

    /// Numbers the kinds of requests.
    const fn number(ask: &LoadAsk) -> usize {
        match ask {
            LoadAsk::Create => 0,
            LoadAsk::List => 1,
            LoadAsk::Describe { .. } => 2,
            LoadAsk::Rejects { .. } => 3,
            LoadAsk::Seal { .. } => 4,
            LoadAsk::Pause { .. } => 5,
            LoadAsk::Resume { .. } => 6,
            LoadAsk::Abort { .. } => 7,
            LoadAsk::PartOffset { .. } => 8,
            LoadAsk::Upload(_) => 9,
            LoadAsk::Versions(VersionAsk::List) => 10,
            LoadAsk::Versions(VersionAsk::Activate { .. }) => 11,
            LoadAsk::Versions(VersionAsk::Rollback { .. }) => 12,
            LoadAsk::Versions(VersionAsk::Remove { .. }) => 13,
        }
    }

    /// Both ways: every operation of the document is a route, and every kind of request and every method is in it.
    #[test]
    fn the_routes_are_those_of_the_document() {
        let document: Value = serde_json::from_str(umbo_api::DOCUMENT).unwrap();
        let mut kinds = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let asked = path.replace("{version}", "2").replace("{part}", "0");
            let asked = asked.replace(['{', '}'], "");
            for name in ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"] {
                let method = Method::from_bytes(name.as_bytes()).unwrap();
                let Some(found) = route(&method, &asked) else {
                    continue;
                };
                let is_described = item.get(name.to_lowercase()).is_some();
                assert_eq!(found.is_ok(), is_described, "{name} {path}");
                let uri = asked.parse().unwrap();
                let ask = found.and_then(|route| route.decode(&method, &uri, &HeaderMap::new()));
                kinds.extend(ask.as_ref().map(number));
            }
        }
        assert!(
            kinds.into_iter().eq(0..KINDS),
            "a request that no operation is"
        );
    }

    #[test]
    fn routes_of_the_plane_are_recognised_and_no_others() {
        for (method, path, expected) in [
            (Method::POST, "/v1/ns/a/loads", Some(Ok(Permission::Write))),
            (
                Method::GET,
                "/v1/ns/a/loads/i/rejects",
                Some(Ok(Permission::Read)),
            ),
            (
                Method::HEAD,
                "/v1/ns/a/loads/i/parts/0",
                Some(Ok(Permission::Write)),
            ),
            (Method::GET, "/v1/ns/a/versions", Some(Ok(Permission::Read))),
            (
                Method::POST,
                "/v1/ns/a/versions/2/activate",
                Some(Ok(Permission::Write)),
            ),
            (Method::GET, "/v1/ns/a/versions/2/x", None),
            (Method::GET, "/v1/ns/a/loads/i/x", None),
            (Method::GET, "/v1/ns/a/kv/loads", None),
            (
                Method::DELETE,
                "/v1/ns/a/loads",
                Some(Err("method-not-allowed")),
            ),
            (Method::GET, "/v1/ns/A/loads", Some(Err("invalid-key"))),
        ] {
            let found = route(&method, path);
            let found = found.map(|found| match found {
                Ok(found) => Ok(found.permission),
                Err(error) => Err(error.code().as_str()),
            });
            assert_eq!(found, expected, "{method} {path}");
        }
    }
}
