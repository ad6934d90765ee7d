//! The refusal of a caller whose quota is used up: the policy, its limit, the observed rate, and when
//! to come back.
//!
//! The wait comes from the limiter and stays exact: it covers the refill that is reserved for others,
//! and the jitter.

use std::time::Duration;

use umbo_api::quantity::Quantity;
use umbo_api::{Problem, Scope};
use umbo_quota::{Dimension, Policy, PolicyScope, Rejection, Unit, format_amount};
use umbo_types::RequestUnits;

/// Adds the content of a rejection to its problem.
pub fn describe(rejection: &Rejection, problem: &mut Problem) {
    let policy = &*rejection.policy;
    problem.status = policy.status;
    problem.scope = Some(scope(policy));
    problem.policy = Some(policy.name.to_string());
    problem.limit = Some(rejection.limit.written(policy.unit));
    problem.observed = Some(observed(policy.unit, rejection.observed));
    problem.penalty = (rejection.penalty > RequestUnits::ZERO)
        .then(|| Quantity::number(rejection.penalty.to_string()));
    problem.retry.after_ms = Some(wait_ms(rejection.wait));
}

/// Returns the observed rate per second as it is written in bodies.
fn observed(unit: Unit, atoms: u64) -> Quantity {
    Quantity::number(format_amount(unit, atoms))
}

/// Returns a wait in milliseconds: never short of it, and never zero.
pub fn wait_ms(wait: Duration) -> u64 {
    let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// Writes a sentence about the spent quota and when to come back.
pub fn detail(rejection: &Rejection) -> String {
    let policy = &*rejection.policy;
    let (name, unit) = (&policy.name, policy.unit.as_str());
    let rate = format_amount(policy.unit, rejection.limit.rate);
    let whom = match rejection.shard {
        Some(shard) => format!("{} (shard {shard})", whom(policy)),
        None => whom(policy),
    };
    let wait = wait_ms(rejection.wait);
    let spent = if rejection.observed > rejection.limit.rate {
        let observed = about(policy.unit, rejection.observed);
        format!("about {observed} {unit}/s were asked for")
    } else {
        match rejection.balance {
            // One large request can spend more than a second allows, even if the observed rate is low.
            ..0 => {
                let over = about(policy.unit, rejection.balance.unsigned_abs());
                format!("{over} {unit} more than that were already spent")
            }
            0 => "all of it is spent".to_owned(),
            1.. if !rejection.price_multiplier.is_none() => {
                "what is left is reserved for higher tiers".to_owned()
            }
            1.. => "what is left is reserved for retries".to_owned(),
        }
    };
    let raised = if rejection.price_multiplier.is_none() {
        String::new()
    } else {
        let multiplier = rejection.price_multiplier;
        format!("; a shard is overloaded and the price is {multiplier}")
    };
    format!(
        "policy '{name}' allows {rate} {unit}/s {whom}; {spent}{raised}; come back in {wait} ms"
    )
}

fn whom(policy: &Policy) -> String {
    let names: Vec<&str> = policy.per.iter().map(Dimension::as_str).collect();
    match names.as_slice() {
        [] => "in all".to_owned(),
        [one] => format!("per {one}"),
        [first @ .., last] => format!("per {} and {last}", first.join(", ")),
    }
}

/// Rounds an amount for readers: to whole units from ten units on.
fn about(unit: Unit, atoms: u64) -> String {
    let whole = unit.atoms_per_unit();
    let step = if atoms >= 10 * whole {
        whole
    } else {
        (whole / 100).max(1)
    };
    format_amount(unit, atoms.div_ceil(step).saturating_mul(step))
}

/// Returns the scope of the limit: the narrowest dimension that the policy counts by.
fn scope(policy: &Policy) -> Scope {
    let has = |dimension| policy.per.contains(dimension);
    let is_of_caller = |one| matches!(one, Dimension::Caller | Dimension::Attribute(_));
    if has(Dimension::Shard) {
        Scope::Shard
    } else if policy.per.iter().any(is_of_caller) {
        Scope::Caller
    } else if has(Dimension::Namespace) {
        Scope::Namespace
    } else if policy.scope == PolicyScope::Fleet {
        Scope::Fleet
    } else {
        Scope::Pod
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use umbo_api::ErrorCode;
    use umbo_api::quota::{PolicySource, PolicySpec};
    use umbo_types::PriceMultiplier;

    use super::*;

    fn rejection(per: &[&str], observed: u64, balance: i64) -> Rejection {
        let spec = PolicySpec {
            per: per.iter().map(|&one| one.to_owned()).collect(),
            ..PolicySpec::new("p", "ru", "100")
        };
        let policy = Policy::parse(&spec, PolicySource::File).unwrap();
        Rejection {
            limit: policy.limit,
            policy: Arc::new(policy),
            shard: None,
            label: String::new(),
            observed,
            balance,
            wait: Duration::from_micros(349_001),
            price: 1,
            penalty: RequestUnits::ZERO,
            ticket: None,
            price_multiplier: PriceMultiplier::NONE,
        }
    }

    #[test]
    fn the_sentence_says_what_was_spent() {
        let flood = rejection(&["caller"], 400_200_000, -5);
        let text = "policy 'p' allows 100 ru/s per caller; about 401 ru/s were asked for; come back in 350 ms";
        assert_eq!(detail(&flood), text);
        let of_shard = Rejection {
            shard: Some(umbo_types::ShardId(3)),
            ..rejection(&["shard"], 400_200_000, -5)
        };
        let text = "policy 'p' allows 100 ru/s per shard (shard 3); about 401 ru/s were asked for; come back in 350 ms";
        assert_eq!(detail(&of_shard), text);
        let debt = rejection(&["caller", "user", "namespace"], 0, -1_234_567);
        let text = "policy 'p' allows 100 ru/s per caller, user and namespace; 1.24 ru more than that were already spent; come back in 350 ms";
        assert_eq!(detail(&debt), text);
        let penalised = Rejection {
            price_multiplier: PriceMultiplier::from_hundredths(400),
            penalty: RequestUnits::from_micros(3_150_000),
            ..rejection(&["caller"], 0, 5)
        };
        let text = "policy 'p' allows 100 ru/s per caller; what is left is reserved for higher tiers; a shard is overloaded and the price is ×4; come back in 350 ms";
        assert_eq!(detail(&penalised), text);
        let mut problem = Problem::new(ErrorCode::QuotaExceeded, "");
        describe(&penalised, &mut problem);
        assert_eq!(problem.penalty.take().unwrap().as_str(), "3.15");
        describe(&flood, &mut problem);
        assert_eq!(problem.penalty, None);
        let reserved = rejection(&[], 0, 5);
        let text = "policy 'p' allows 100 ru/s in all; what is left is reserved for retries; come back in 350 ms";
        assert_eq!(detail(&reserved), text);
    }

    #[test]
    fn the_scope_is_the_narrowest_of_the_dimensions() {
        for (per, expected) in [
            (&[][..], Scope::Pod),
            (&["namespace"], Scope::Namespace),
            (&["org", "namespace"], Scope::Caller),
            (&["caller", "shard"], Scope::Shard),
        ] {
            let Rejection { policy, .. } = rejection(per, 0, 0);
            assert_eq!(scope(&policy), expected, "{per:?}");
        }
        let spec = PolicySpec {
            scope: Some("fleet".to_owned()),
            ..PolicySpec::new("p", "ru", "100")
        };
        let of_all = Policy::parse(&spec, PolicySource::File).unwrap();
        assert_eq!(scope(&of_all), Scope::Fleet);
    }
}
