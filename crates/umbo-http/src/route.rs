//! Recognises the operation of a path and a method.

use http::Method;
use umbo_types::{Namespace, Operation, Permission};

use crate::key_path::split_at_slash;
use crate::request_error::RequestError;

/// A recognised data-plane route, borrowed from the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    /// The operation of the request.
    pub operation: Operation,
    /// Name in the path, a valid one.
    pub namespace: &'a str,
    /// The path after the resource.
    pub(crate) rest: &'a str,
    method: RouteMethod,
}

/// The effect of a method on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteMethod {
    Get,
    /// The body is left out of the answer.
    Head,
    /// A put stores the present value.
    Patch,
    Other,
}

impl RouteMethod {
    fn of(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::HEAD => Self::Head,
            Method::PATCH => Self::Patch,
            _ => Self::Other,
        }
    }
}

impl Route<'_> {
    /// Returns whether the body is left out of the answer.
    pub(crate) fn is_head(&self) -> bool {
        self.method == RouteMethod::Head
    }

    /// Returns whether a put stores the present value.
    pub(crate) fn is_touch(&self) -> bool {
        self.method == RouteMethod::Patch
    }

    /// Returns the permission that a grant must hold.
    pub fn permission(&self) -> Permission {
        match self.operation {
            Operation::Scan => Permission::Scan,
            operation if operation.is_write() => Permission::Write,
            _ => Permission::Read,
        }
    }
}

/// Splits the path of a resource of a namespace: the namespace, the resource, and the path after it.
pub fn resource(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let (namespace, resource) = split_at_slash(path.strip_prefix("/v1/ns/")?)?;
    Some(match split_at_slash(resource) {
        Some((resource, rest)) => (namespace, resource, Some(rest)),
        None => (namespace, resource, None),
    })
}

/// Recognises a data-plane route, or returns `None` if the path is not of the data plane.
pub fn route<'a>(method: &Method, path: &'a str) -> Option<Result<Route<'a>, RequestError>> {
    let (namespace, resource, rest) = resource(path)?;
    let (operation, rest) = match (resource, rest) {
        ("kv", Some(rest)) => (
            match *method {
                Method::GET | Method::HEAD => Ok(Operation::Get),
                Method::PUT | Method::PATCH => Ok(Operation::Put),
                Method::DELETE => Ok(Operation::Delete),
                _ => Err("GET, HEAD, PUT, PATCH, DELETE"),
            },
            rest,
        ),
        ("range", Some(rest)) if !rest.contains('/') => (
            match *method {
                Method::GET => Ok(Operation::Range),
                Method::DELETE => Ok(Operation::DeleteRange),
                _ => Err("GET, DELETE"),
            },
            rest,
        ),
        ("batch", Some("get")) => (post(method, Operation::MultiGet), ""),
        ("batch", Some("write")) => (post(method, Operation::BatchWrite), ""),
        ("scan", None) => (post(method, Operation::Scan), ""),
        ("explain", None) => (post(method, Operation::Explain), ""),
        ("usage", None) if *method == Method::GET => (Ok(Operation::Usage), ""),
        ("usage", None) => (Err("GET"), ""),
        _ => return None,
    };
    let method = RouteMethod::of(method);
    Some(match (Namespace::check(namespace.as_bytes()), operation) {
        (_, Err(allowed)) => Err(RequestError::MethodNotAllowed { allowed }),
        (Err(error), Ok(_)) => Err(error.into()),
        (Ok(()), Ok(operation)) => Ok(Route {
            operation,
            namespace,
            rest,
            method,
        }),
    })
}

fn post(method: &Method, operation: Operation) -> Result<Operation, &'static str> {
    if *method == Method::POST {
        Ok(operation)
    } else {
        Err("POST")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Both ways: what the document has is a route, and no operation or method is missing in it.
    #[test]
    fn the_routes_are_those_of_the_document() {
        let document: Value = serde_json::from_str(umbo_api::DOCUMENT).unwrap();
        let mut operations = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let is_elsewhere = path.contains("/loads") || path.contains("/versions");
            if !path.starts_with("/v1/ns/") || is_elsewhere {
                continue;
            }
            let asked = path.replace(['{', '}'], "");
            for name in ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"] {
                let method = Method::from_bytes(name.as_bytes()).unwrap();
                let found = route(&method, &asked).unwrap();
                let is_described = item.get(name.to_lowercase()).is_some();
                assert_eq!(found.is_ok(), is_described, "{name} {path}");
                operations.extend(found.map(|found| found.operation));
            }
        }
        let others = [Operation::Load, Operation::Admin, Operation::Service];
        let of_rows = Operation::ALL.into_iter();
        let of_rows: BTreeSet<_> = of_rows.filter(|one| !others.contains(one)).collect();
        assert_eq!(operations, of_rows);
    }
}
