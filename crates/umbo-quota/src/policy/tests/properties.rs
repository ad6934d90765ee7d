//! What holds of any policy that was read, against slow twins.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use umbo_api::Quantity;
use umbo_types::{Attribute, Attributes};

use super::*;
use crate::pattern::Pattern;

fn pattern(probability: f64) -> impl Strategy<Value = Option<String>> {
    let text = "[ab]{0,2}[*]?[ab]{0,2}".prop_filter("empty", |text| !text.is_empty());
    prop::option::weighted(probability, text)
}

fn any_match(is_override: bool) -> impl Strategy<Value = MatchSpec> {
    let operations: Vec<String> = Operations::all()
        .map(|one| one.as_str().to_owned())
        .collect();
    let (count, probability) = if is_override { (0, 0.6) } else { (8, 0.2) };
    let pattern = || pattern(probability);
    let operations = prop::sample::subsequence(operations, 0..=count);
    (
        pattern(),
        pattern(),
        pattern(),
        pattern(),
        pattern(),
        operations,
    )
        .prop_map(
            |(caller, namespace, user, session, org, operations)| MatchSpec {
                caller,
                namespace,
                user,
                session,
                org,
                operations,
            },
        )
}

fn any_amount() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        (1..2_000_u32).prop_map(|whole| whole.to_string()),
        (0..5_u32, 1..1_000_000_u32).prop_map(|(whole, part)| format!("{whole}.{part:06}")),
        (1..64_u32, prop::sample::select(vec!["B", "KiB", "MiB"]))
            .prop_map(|(number, size)| format!("{number}{size}")),
    ]
    .prop_map(Quantity::text)
}

prop_compose! {
    fn any_spec()(
        matches in any_match(false),
        per in prop::sample::subsequence(Dimension::ALL.map(Dimension::as_str).to_vec(), 0..=6),
        unit in prop::sample::select(Unit::ALL.to_vec()),
        (rate, burst) in (any_amount(), prop::option::of(any_amount())),
        refill in prop::option::of(10..10_000_u32),
        (scope, mode, status) in (prop::option::of(0..2_usize), 0..2_usize, 0..2_usize),
        overrides in prop::collection::vec((any_match(true), any_amount()), 0..6),
    ) -> PolicySpec {
        let overrides = overrides.into_iter().map(|(matches, rate)| OverrideSpec { matches, rate, burst: None });
        PolicySpec {
            name: "p".to_owned(),
            matches,
            per: per.into_iter().map(str::to_owned).collect(),
            unit: unit.as_str().to_owned(),
            rate,
            burst,
            refill: refill.map(|ms| format!("{ms}ms")),
            scope: scope.map(|at| PolicyScope::ALL[at].as_str().to_owned()),
            mode: Some(Mode::ALL[mode].as_str().to_owned()),
            status: Some([429, 419][status]),
            overrides: overrides.collect(),
        }
    }
}

/// Leaves out of a spec what is refused of its overrides, so that most specs can be read.
fn readable(mut spec: PolicySpec) -> Option<Policy> {
    loop {
        let error = match Policy::parse(&spec, PolicySource::Stored) {
            Ok(policy) => return Some(policy),
            Err(error) => error,
        };
        let index = error.place.strip_prefix("overrides[")?.split(']').next()?;
        let index: usize = index.parse().ok()?;
        let matches = &mut spec.overrides[index].matches;
        match *error.problem {
            PolicyProblem::OverrideOutsidePer { dimension, .. } => {
                *matches.pattern_mut(dimension.as_str())? = None;
            }
            _ => drop(spec.overrides.remove(index)),
        }
    }
}

fn any_subject(names: &[Option<String>; 5]) -> Option<Subject<'_>> {
    let [caller, namespace, user, session, org] = names.each_ref().map(Option::as_deref);
    Some(Subject {
        caller: caller?,
        namespace: namespace?,
        attributes: Attributes::new([user, session, org]),
        ..SUBJECT
    })
}

/// Sorts by how much an override says, as the documentation has it.
fn slow_limit(policy: &Policy, subject: &Subject<'_>) -> Limit {
    let mut ranked: Vec<(usize, usize, std::cmp::Reverse<usize>, Limit)> = Vec::new();
    for (index, one) in policy.overrides.iter().enumerate() {
        let attributes = one.matches.attributes.iter();
        let attributes = attributes.map(|(one, pattern)| (pattern, subject.attributes[one]));
        let names: Vec<_> = [
            (&one.matches.caller, Some(subject.caller)),
            (&one.matches.namespace, Some(subject.namespace)),
        ]
        .into_iter()
        .chain(attributes)
        .collect();
        let is_match = names.iter().all(|(pattern, name)| match (pattern, name) {
            (None, _) => true,
            (Some(pattern), Some(name)) => pattern.matches(name),
            (Some(_), None) => false,
        });
        if is_match {
            let given: Vec<&Pattern> = names
                .iter()
                .filter_map(|(pattern, _)| pattern.as_ref())
                .collect();
            let exact = given
                .iter()
                .filter(|pattern| !pattern.as_str().contains('*'))
                .count();
            let letters = given
                .iter()
                .flat_map(|pattern| pattern.as_str().chars())
                .filter(|&letter| letter != '*')
                .count();
            ranked.push((exact, letters, std::cmp::Reverse(index), one.limit));
        }
    }
    ranked.sort_by_key(|(exact, letters, index, _)| (*exact, *letters, *index));
    ranked.last().map_or(policy.limit, |(.., limit)| *limit)
}

proptest! {
    #[test]
    fn a_policy_written_out_reads_back_the_same(spec in any_spec()) {
        if let Some(policy) = readable(spec) {
            let written = policy.spec();
            prop_assert_eq!(&Policy::parse(&written, policy.source).unwrap(), &policy);
            prop_assert_eq!(policy.spec(), written);
        }
    }

    #[test]
    fn what_was_read_keeps_the_invariants(spec in any_spec()) {
        if let Some(policy) = readable(spec) {
            let limits = policy.overrides.iter().map(|one| one.limit).chain([policy.limit]);
            for Limit { rate, burst } in limits {
                prop_assert!(rate >= 1 && rate <= policy.unit.rate_max());
                prop_assert!(burst <= policy.unit.burst_max());
                prop_assert!(burst >= policy.unit.atoms_per_unit());
                let brings = u128::from(rate) * policy.refill.as_millis();
                prop_assert!(u128::from(burst) * 1_000 >= brings);
            }
            prop_assert_eq!(policy.scope == PolicyScope::Shard, policy.per.contains(Dimension::Shard));
            let all: BTreeSet<_> = policy.overrides.iter().map(|one| format!("{:?}", one.matches)).collect();
            prop_assert_eq!(all.len(), policy.overrides.len());
        }
    }

    #[test]
    fn the_limit_is_that_of_the_slow_twin(
        spec in any_spec(),
        subjects in prop::collection::vec(prop::array::uniform5(prop::option::weighted(0.9, "[ab]{0,4}")), 1..8),
    ) {
        let Some(policy) = readable(spec) else { return Ok(()) };
        for names in &subjects {
            let Some(subject) = any_subject(names) else { continue };
            prop_assert_eq!(policy.limit_for(&subject), slow_limit(&policy, &subject));
        }
    }

    /// One bucket has one limit, whichever request asks.
    #[test]
    fn the_limit_is_that_of_the_bucket(
        spec in any_spec(),
        one in prop::array::uniform5("[ab]{1,3}"),
        other in prop::array::uniform5("[ab]{1,3}"),
    ) {
        let Some(policy) = readable(spec) else { return Ok(()) };
        let order = [
            Dimension::Caller,
            Dimension::Namespace,
            Dimension::Attribute(Attribute::User),
            Dimension::Attribute(Attribute::Session),
            Dimension::Attribute(Attribute::Org),
        ];
        let mut same_bucket = other;
        for (at, dimension) in order.into_iter().enumerate() {
            if policy.per.contains(dimension) {
                same_bucket[at].clone_from(&one[at]);
            }
        }
        let limit = |names: &[String; 5]| {
            let names = names.clone().map(Some);
            policy.limit_for(&any_subject(&names).unwrap())
        };
        prop_assert_eq!(limit(&one), limit(&same_bucket));
    }

    #[test]
    fn what_is_bound_is_all_that_can_apply(
        specs in prop::collection::vec(any_spec(), 1..6),
        names in prop::array::uniform5("[ab]{0,3}"),
    ) {
        let named = |(index, spec): (usize, PolicySpec)| {
            readable(PolicySpec { name: format!("p{index}"), ..spec })
        };
        let policies: Vec<Policy> = specs.into_iter().enumerate().filter_map(named).collect();
        let names = names.map(Some);
        let subject = any_subject(&names).unwrap();
        let set = PolicySet::new(policies).unwrap();
        let bound: Vec<&str> = set.bind(subject.caller, subject.namespace).map(|policy| &*policy.name).collect();
        for policy in set.iter().filter(|policy| policy.applies_to(&subject)) {
            prop_assert!(bound.contains(&&*policy.name));
        }
        for policy in set.iter().filter(|policy| bound.contains(&&*policy.name)) {
            let is_for = |pattern: &Option<Pattern>, name: &str| {
                pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
            };
            prop_assert!(is_for(&policy.matches.caller, subject.caller));
            prop_assert!(is_for(&policy.matches.namespace, subject.namespace));
        }
    }
}

/// The specs above are no use where hardly any of them can be read.
#[test]
fn most_random_specs_are_readable() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut read, mut overrides) = (0, 0);
    for _ in 0..300 {
        let spec = any_spec().new_tree(&mut runner).unwrap().current();
        if let Some(policy) = readable(spec) {
            read += 1;
            overrides += policy.overrides.len();
        }
    }
    assert!(read > 100 && overrides > 100, "{read} {overrides}");
}
