//! Recognises the shard or policy behind a refusal, so that it slows only the requests that it refuses, and
//! not their namespace. Pure: the time is a parameter.
//!
//! A client knows neither the shard of a partition nor which requests a policy counts; it learns both from
//! refusals. A refusal that names a shard applies to reads, or writes, of its partition. A refusal that names
//! a policy applies to requests of its operation and payer. Later requests of the same kind are counted, and
//! given up, together with all others that the shard or policy refused. All other requests are counted for
//! their namespace. So if a server refuses requests of all kinds, the namespace slows down as a whole.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use umbo_api::Problem;

use crate::request::RepeatableRequest;

/// Most kinds of requests with known refusals: 96 KiB. A new kind replaces the one with the same remainder.
const KNOWN_MAX: usize = 4_096;
/// How long a kind of requests counts as refused by a shard or policy: the window of a throttle.
const KNOWN_FOR: Duration = Duration::from_secs(30);

/// The attributes of a request that refusals apply to; all parts are hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestScope {
    /// Namespace.
    pub(crate) namespace: u64,
    /// Namespace, whether it writes, and partition; `None` for requests that concern many partitions.
    partition: Option<u64>,
    /// Namespace, operation and payer.
    operation: u64,
    is_write: bool,
}

impl RequestScope {
    /// Returns the kind of a request. `None` for requests of the admin API, which no quota counts.
    pub(crate) fn of(request: &RepeatableRequest, payer: &HeaderMap) -> Option<Self> {
        let path = request.target.split('?').next()?;
        let mut parts = path.strip_prefix("/v1/ns/")?.split('/');
        let namespace = hash(parts.next()?);
        let resource = parts.next().unwrap_or_default();
        let next = parts.next().unwrap_or_default();
        let is_write = request.is_write;
        let is_of_partition = matches!(resource, "kv" | "range");
        let partition = is_of_partition.then(|| hash((namespace, is_write, next)));
        let action = if is_of_partition { "" } else { next };
        let mut payers = DefaultHasher::new();
        for (name, value) in payer {
            (name.as_str(), value.as_bytes()).hash(&mut payers);
        }
        let method = request.method.as_str();
        Some(Self {
            namespace,
            partition,
            operation: hash((namespace, method, resource, action, payers.finish())),
            is_write,
        })
    }
}

/// The refused kinds of requests, with the shard or policy that refuses each.
#[derive(Debug, Default)]
pub(crate) struct Concerns {
    /// Empty until there is one.
    known: Vec<Option<Concern>>,
}

#[derive(Debug, Clone, Copy)]
struct Concern {
    kind: u64,
    /// Hash of the shard or policy that refuses it.
    throttle: u64,
    until: Instant,
}

impl Concerns {
    /// Returns the throttle that counts a request: the shard or policy that refuses requests of its kind, or
    /// else its namespace.
    pub(crate) fn throttle(&self, kind: &RequestScope, now: Instant) -> u64 {
        let by_shard = kind.partition.and_then(|kind| self.find(kind, now));
        by_shard
            .or_else(|| self.find(kind.operation, now))
            .unwrap_or(kind.namespace)
    }

    /// Learns from a refusal.
    pub(crate) fn learn(&mut self, kind: &RequestScope, problem: &Problem, now: Instant) {
        let of_shard = problem.shard.zip(kind.partition);
        let (refused, throttle) = match (of_shard, &problem.policy) {
            (Some((shard, partition)), policy) => {
                let throttle = hash((kind.namespace, kind.is_write, shard, policy));
                (partition, throttle)
            }
            (None, Some(policy)) => (kind.operation, hash((kind.namespace, policy))),
            (None, None) => return,
        };
        self.known.resize(KNOWN_MAX, None);
        self.known[refused as usize % KNOWN_MAX] = Some(Concern {
            kind: refused,
            throttle,
            until: now + KNOWN_FOR,
        });
    }

    fn find(&self, kind: u64, now: Instant) -> Option<u64> {
        let known = self.known.get(kind as usize % KNOWN_MAX)?.as_ref()?;
        (known.kind == kind && now < known.until).then_some(known.throttle)
    }
}

fn hash(value: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::Method;
    use umbo_api::ErrorCode;

    use crate::retry::Repeat;

    fn kind(method: Method, target: &str) -> RequestScope {
        let request = RepeatableRequest::new(method, target.to_owned(), Repeat::Always);
        RequestScope::of(&request, &HeaderMap::new()).unwrap()
    }

    fn get(target: &str) -> RequestScope {
        kind(Method::GET, target)
    }

    fn problem(shard: Option<u16>, policy: Option<&str>) -> Problem {
        let mut problem = Problem::new(ErrorCode::Overloaded, "");
        (problem.shard, problem.policy) = (shard, policy.map(str::to_owned));
        problem
    }

    #[test]
    fn a_shard_concerns_the_partitions_that_it_refused() {
        let (mut concerns, now) = (Concerns::default(), Instant::now());
        let [a, b, c] = ["a/1", "b/1", "c/1"].map(|key| get(&format!("/v1/ns/n/kv/{key}")));
        concerns.learn(&a, &problem(Some(3), None), now);
        concerns.learn(&b, &problem(Some(3), None), now);
        let of_shard = concerns.throttle(&a, now);
        assert_ne!(of_shard, a.namespace);
        assert_eq!(concerns.throttle(&b, now), of_shard);
        let other_row = get("/v1/ns/n/kv/a/2?enc=b64u");
        assert_eq!(concerns.throttle(&other_row, now), of_shard);
        assert_eq!(concerns.throttle(&c, now), c.namespace);
        // Writes wait for a shard apart from reads.
        let write = kind(Method::PUT, "/v1/ns/n/kv/a/1");
        assert_eq!(concerns.throttle(&write, now), write.namespace);
        let elsewhere = get("/v1/ns/m/kv/a/1");
        assert_eq!(concerns.throttle(&elsewhere, now), elsewhere.namespace);
        assert_eq!(concerns.throttle(&a, now + KNOWN_FOR), a.namespace);
    }

    #[test]
    fn a_policy_concerns_the_operation_and_the_payer_that_it_refused() {
        let (mut concerns, now) = (Concerns::default(), Instant::now());
        let put = kind(Method::PUT, "/v1/ns/n/kv/a/1");
        concerns.learn(&put, &problem(None, Some("writes")), now);
        let of_policy = concerns.throttle(&put, now);
        assert_ne!(of_policy, put.namespace);
        let other_put = kind(Method::PUT, "/v1/ns/n/kv/b/1");
        assert_eq!(concerns.throttle(&other_put, now), of_policy);
        for other in [
            get("/v1/ns/n/kv/a/1"),
            kind(Method::POST, "/v1/ns/n/batch/write"),
        ] {
            assert_eq!(concerns.throttle(&other, now), other.namespace);
        }
        let mut payer = HeaderMap::new();
        payer.insert("umbo-quota-user", "search".parse().unwrap());
        let request =
            RepeatableRequest::new(Method::PUT, "/v1/ns/n/kv/a/1".to_owned(), Repeat::Always);
        let paid = RequestScope::of(&request, &payer).unwrap();
        assert_eq!(concerns.throttle(&paid, now), paid.namespace);
    }

    #[test]
    fn a_refusal_that_names_neither_concerns_the_namespace() {
        let (mut concerns, now) = (Concerns::default(), Instant::now());
        let scan = kind(Method::POST, "/v1/ns/n/scan");
        concerns.learn(&scan, &problem(None, None), now);
        // A scan visits many shards: one of them says nothing of the next.
        concerns.learn(&scan, &problem(Some(1), None), now);
        assert_eq!(concerns.throttle(&scan, now), scan.namespace);
        assert_eq!(
            RequestScope::of(
                &RepeatableRequest::read("/healthz".to_owned()),
                &HeaderMap::new()
            ),
            None
        );
    }
}
