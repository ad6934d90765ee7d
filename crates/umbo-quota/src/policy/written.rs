//! A policy written out with all its defaults, as answers, records and policy files have it.

use umbo_api::Quantity;
use umbo_api::problem::QuotaLimit;
use umbo_api::quota::{MatchSpec, OverrideSpec, PolicySpec};

use super::refill::format_refill;
use super::{Limit, Matcher, Policy, PolicyScope};
use crate::dimension::Dimension;
use crate::unit::{Unit, format_amount};

impl Policy {
    /// Writes the policy out with all its defaults; [`Policy::parse`] reads the same from it.
    pub fn spec(&self) -> PolicySpec {
        let by_name = self.per.iter().filter(|one| {
            // The scope says it already.
            self.scope != PolicyScope::Shard || *one != Dimension::Shard
        });
        let limit = self.limit.written(self.unit);
        let overrides = self.overrides.iter().map(|one| {
            let limit = one.limit.written(self.unit);
            OverrideSpec {
                matches: one.matches.spec(),
                rate: limit.rate,
                burst: Some(limit.burst),
            }
        });
        PolicySpec {
            matches: self.matches.spec(),
            per: by_name.map(|one| one.as_str().to_owned()).collect(),
            burst: Some(limit.burst),
            refill: Some(format_refill(self.refill)),
            scope: Some(self.scope.as_str().to_owned()),
            mode: Some(self.mode.as_str().to_owned()),
            status: Some(self.status),
            overrides: overrides.collect(),
            ..PolicySpec::new(&*self.name, limit.unit, limit.rate)
        }
    }
}

impl Limit {
    /// Writes the limit as exact decimals of a unit.
    pub fn written(self, unit: Unit) -> QuotaLimit {
        QuotaLimit {
            rate: Quantity::number(format_amount(unit, self.rate)),
            burst: Quantity::number(format_amount(unit, self.burst)),
            unit: unit.as_str().to_owned(),
        }
    }
}

impl Matcher {
    fn spec(&self) -> MatchSpec {
        let operations = self.operations.iter();
        let mut spec = MatchSpec {
            operations: operations.map(|one| one.as_str().to_owned()).collect(),
            ..MatchSpec::default()
        };
        for (dimension, pattern) in self.patterns() {
            if let Some(place) = spec.pattern_mut(dimension.as_str()) {
                *place = Some(pattern.to_string());
            }
        }
        spec
    }
}
