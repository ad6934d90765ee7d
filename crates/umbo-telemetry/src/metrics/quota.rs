//! Metrics of the quotas: by policy, by caller, and the quality of the estimates.
//!
//! Owns the series and their order. The owner of the quotas passes the values in, and bounds them: policies
//! are few, and of the callers only those that use most now are included.

use std::sync::Arc;

use umbo_types::{Operation, RequestUnits};

use super::visit::Families;
use crate::metric::Metric;
use crate::metric_names as names;

/// State of the quotas at the time of a scrape.
#[derive(Debug, Clone, Default)]
pub struct QuotaGauges {
    /// The policies in force.
    pub policies: Vec<PolicyGauges>,
    /// The callers that use most now, and the charge of each since the start.
    pub callers: Vec<(Arc<str>, RequestUnits)>,
    /// Estimates by operation.
    pub estimates: Vec<Estimates>,
}

/// What one policy did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyGauges {
    /// Name of the policy.
    pub policy: String,
    /// Requests it rejected.
    pub rejected: u64,
    /// Requests it would have rejected.
    pub shadow_rejected: u64,
    /// Debt that was written off, in the policy's unit.
    pub forgiven: f64,
    /// Buckets that the policy has now.
    pub buckets: u64,
    /// Highest ratio of requested rate to limit among them.
    pub utilisation: f64,
}

/// Quality of the estimates of one operation.
#[derive(Debug, Clone)]
pub struct Estimates {
    /// The operation.
    pub operation: Operation,
    /// Upper bounds of the ratio of cost to estimate, ascending, with the requests between the bound before
    /// and this one.
    pub ratios: Vec<(&'static str, u64)>,
    /// Sum of the estimates.
    pub estimated: RequestUnits,
    /// Sum of the costs of the same requests.
    pub actual: RequestUnits,
}

impl QuotaGauges {
    pub(super) fn visit(&self, families: &mut Families<'_>) {
        self.visit_estimates(families);
        self.visit_policies(families);
        let callers = self.callers.iter();
        let charged = callers.map(|(caller, charged)| ([caller.to_string()], *charged));
        families.family(&names::CALLER_REQUEST_UNITS, charged);
    }

    fn visit_estimates(&self, families: &mut Families<'_>) {
        families.head(&names::ESTIMATES);
        for one in &self.estimates {
            for (bound, count) in &one.ratios {
                let labels = [one.operation.as_str(), bound];
                families.sample(&names::ESTIMATES, &labels, count);
            }
        }
        let sums = self.estimates.iter();
        let sums = sums.map(|one| ([one.operation.as_str()], one.estimated));
        families.family(&names::ESTIMATED_REQUEST_UNITS, sums);
        let sums = self.estimates.iter();
        let sums = sums.map(|one| ([one.operation.as_str()], one.actual));
        families.family(&names::SAMPLED_REQUEST_UNITS, sums);
    }

    fn visit_policies(&self, families: &mut Families<'_>) {
        type Pick = fn(&PolicyGauges) -> u64;
        let gauges: [(&'static Metric, Pick); 3] = [
            (&names::POLICY_REJECTED, |p| p.rejected),
            (&names::POLICY_SHADOW_REJECTED, |p| p.shadow_rejected),
            (&names::POLICY_BUCKETS, |p| p.buckets),
        ];
        for (metric, pick) in gauges {
            let policies = self.policies.iter();
            families.family(metric, policies.map(|p| ([p.policy.clone()], pick(p))));
        }
        let policies = self.policies.iter();
        let forgiven = policies.map(|p| ([p.policy.clone()], p.forgiven));
        families.family(&names::POLICY_FORGIVEN, forgiven);
        let policies = self.policies.iter();
        let utilisation = policies.map(|p| ([p.policy.clone()], p.utilisation));
        families.family(&names::POLICY_UTILISATION, utilisation);
    }
}
