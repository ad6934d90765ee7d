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
    use super::*;

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
