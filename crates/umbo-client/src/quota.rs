//! Quotas: the policies of a server, their buckets, and the cost of requests.

use reqwest::Method;
use umbo_api::path::percent_encode;
use umbo_api::quota::{
    CallerList, ExplainAnswer, ExplainBody, PolicyChange, PolicyInfo, PolicyList, PolicySpec,
    QuotaUsers, SimulateAnswer, SimulateBody, UsageAnswer, UsageHistory,
};

use crate::admin::json;
use crate::client::Client;
use crate::error::Error;
use crate::kv::Condition;
use crate::request::{RepeatableRequest, with_dry_run};
use crate::retry::Repeat;

impl Client {
    /// Lists the policies in effect. Like all calls about policies it needs the grant `admin` on every
    /// namespace.
    pub async fn quotas(&self) -> Result<PolicyList, Error> {
        self.read("/admin/v1/quotas").await
    }

    /// Returns what callers have spent over all namespaces since the start of the server that answers, in descending
    /// order; `limit` callers at most, which is 1 to 10,000. Needs the grant `observe` on every namespace.
    pub async fn callers(&self, limit: u64) -> Result<CallerList, Error> {
        let target = format!("/admin/v1/callers?limit={limit}");
        self.read(target).await
    }

    /// Describes a policy.
    pub async fn quota(&self, name: &str) -> Result<PolicyInfo, Error> {
        self.read(target(name, "")).await
    }

    /// Stores a policy if the condition holds for the stored policy of its name; a dry run only returns the
    /// change. The server refuses a policy that contradicts itself or the others.
    pub async fn put_quota(
        &self,
        policy: &PolicySpec,
        condition: Condition,
        dry_run: bool,
    ) -> Result<PolicyChange, Error> {
        let target = with_dry_run(target(&policy.name, ""), dry_run);
        let request = RepeatableRequest::new(Method::PUT, target, repeat(condition, dry_run))
            .with_body("application/json", json(policy)?);
        self.send_for_json(&condition.on(request)?).await
    }

    /// Removes a stored policy if the condition holds for it; a dry run only returns the change.
    pub async fn delete_quota(
        &self,
        name: &str,
        condition: Condition,
        dry_run: bool,
    ) -> Result<PolicyChange, Error> {
        let target = with_dry_run(target(name, ""), dry_run);
        let repeat = Repeat::always_if(dry_run);
        let request = condition.on(RepeatableRequest::new(Method::DELETE, target, repeat))?;
        self.send_for_json(&request).await
    }

    /// Lists the callers with a bucket of a policy on the server that answers, the busiest first, and up to
    /// `limit` of them; `None` is the default of the server.
    pub async fn quota_users(&self, name: &str, limit: Option<u64>) -> Result<QuotaUsers, Error> {
        let query = limit.map_or_else(String::new, |limit| format!("?limit={limit}"));
        let target = target(name, &format!("/users{query}"));
        self.read(target).await
    }

    /// Returns which of the requests that the server remembers a policy would have rejected. Nothing is
    /// changed.
    pub async fn simulate_quota(&self, body: &SimulateBody) -> Result<SimulateAnswer, Error> {
        let target = "/admin/v1/quotas/simulate".to_owned();
        let request = RepeatableRequest::new(Method::POST, target, Repeat::Always)
            .with_body("application/json", json(body)?);
        self.send_for_json(&request).await
    }

    /// Returns the cost of a request, the shards it would reach and the policies that would count it. Nothing
    /// of it is done. Needs the grant `read` on the namespace.
    pub async fn explain(
        &self,
        namespace: &str,
        body: &ExplainBody,
    ) -> Result<ExplainAnswer, Error> {
        let target = format!("/v1/ns/{namespace}/explain");
        let request = RepeatableRequest::new(Method::POST, target, Repeat::Always)
            .with_body("application/json", json(body)?);
        self.send_for_json(&request).await
    }

    /// Returns the usage of a namespace: the caller's own, or with the grant `admin` of all callers.
    pub async fn usage(&self, namespace: &str) -> Result<UsageAnswer, Error> {
        let target = format!("/v1/ns/{namespace}/usage");
        self.read(target).await
    }

    /// Returns the usage of the last days through all servers. Usage of other callers needs the grant `observe` on its
    /// namespace.
    pub async fn usage_history(&self, query: &UsageQuery<'_>) -> Result<UsageHistory, Error> {
        let UsageQuery {
            last_seconds,
            by,
            namespace,
            caller,
            limit,
        } = query;
        let by = by.join(",");
        let mut target =
            format!("/admin/v1/usage?last_seconds={last_seconds}&by={by}&limit={limit}");
        for (name, value) in [("namespace", namespace), ("caller", caller)] {
            if let Some(value) = value {
                target = format!("{target}&{name}={}", percent_encode(value.as_bytes()));
            }
        }
        self.read(target).await
    }
}

/// A question for the usage of the last days.
#[derive(Debug, Clone, Copy)]
pub struct UsageQuery<'a> {
    /// How far to go back, in seconds: 1 to 3,024,000 (35 days).
    pub last_seconds: u64,
    /// Groups of the answer: `caller`, `namespace`, `operation`, and `day` or `month`. At least one.
    pub by: &'a [&'a str],
    /// Only usage of this namespace.
    pub namespace: Option<&'a str>,
    /// Only usage of this caller.
    pub caller: Option<&'a str>,
    /// Most rows of the answer: 1 to 65,536, which is all of them.
    pub limit: u64,
}

fn target(name: &str, rest: &str) -> String {
    format!("/admin/v1/quotas/{}{rest}", percent_encode(name.as_bytes()))
}

/// A change under a condition makes the condition false, so a repetition would be refused.
fn repeat(condition: Condition, dry_run: bool) -> Repeat {
    Repeat::always_if(dry_run || matches!(condition, Condition::None | Condition::Exists))
}
