//! Policies as their writers see them: what is read, and whom it concerns.

mod properties;
mod refusals;

use umbo_api::quota::{MatchSpec, OverrideSpec, PolicySpec};
use umbo_types::{Attribute, Attributes, NamespaceId, Operation};

use super::*;
use crate::limits::POLICIES_MAX;

/// Changes a policy in one field.
type Change = fn(&mut PolicySpec);

fn spec(name: &str, per: &[&str], unit: &str, rate: &str) -> PolicySpec {
    PolicySpec {
        per: per.iter().map(|&name| name.to_owned()).collect(),
        ..PolicySpec::new(name, unit, rate)
    }
}

fn parse(spec: &PolicySpec) -> Policy {
    Policy::parse(spec, PolicySource::File).unwrap()
}

fn refusal(spec: &PolicySpec) -> String {
    Policy::parse(spec, PolicySource::File)
        .unwrap_err()
        .to_string()
}

fn over_caller(caller: &str, rate: &str) -> OverrideSpec {
    OverrideSpec {
        matches: MatchSpec {
            caller: Some(caller.to_owned()),
            ..MatchSpec::default()
        },
        rate: rate.into(),
        burst: None,
    }
}

const ATTRIBUTES: Attributes<Option<&str>> = Attributes::new([Some("ann"), None, Some("acme")]);

const SUBJECT: Subject<'_> = Subject {
    caller: "search-web",
    namespace: "listings",
    namespace_id: NamespaceId(7),
    attributes: ATTRIBUTES,
    operation: Operation::Get,
};

#[test]
fn rates_are_exact_and_defaults_are_those_of_the_contract() {
    let policy = parse(&spec("p", &["caller"], "requests", "0.1"));
    assert_eq!(
        policy.limit,
        Limit {
            rate: 100_000,
            burst: 1_000_000
        }
    );
    assert_eq!(policy.refill, Duration::from_millis(50));
    assert_eq!(
        (policy.scope, policy.mode),
        (PolicyScope::Pod, Mode::Enforce)
    );
    assert_eq!((policy.status, policy.source), (429, PolicySource::File));
    assert!(policy.matches.dimensions().is_empty() && policy.overrides.is_empty());

    let second = parse(&spec("p", &[], "ru", "2.5"));
    assert_eq!(
        second.limit,
        Limit {
            rate: 2_500_000,
            burst: 2_500_000
        }
    );
    let slow = PolicySpec {
        refill: Some("10s".into()),
        ..spec("p", &[], "bytes", "64KiB")
    };
    let slow = parse(&slow);
    assert_eq!(
        slow.limit,
        Limit {
            rate: 65_536,
            burst: 655_360
        }
    );
    let slowest = parse(&spec("p", &[], "ru", "0.000001"));
    assert_eq!(
        slowest.limit,
        Limit {
            rate: 1,
            burst: 1_000_000
        }
    );
}

#[test]
fn the_ends_of_what_is_allowed_are_allowed() {
    for (unit, rate, burst) in [
        ("ru", "1000000000", "50000000000"),
        ("requests", "0.000001", "1"),
        ("bytes", "1000000000000", "1000000000000000"),
        ("bytes", "1", "1000000"),
    ] {
        for refill in ["10ms", "10s"] {
            let mut spec = spec("p", &[], unit, rate);
            spec.burst = Some(burst.into());
            spec.refill = Some(refill.to_owned());
            let limit = parse(&spec).limit;
            assert!(limit.rate > 0 && limit.burst < 1 << 56, "{unit} {rate}");
        }
    }
    let long = format!("a{}", ".".repeat(63));
    assert_eq!(*parse(&spec(&long, &[], "ru", "1")).name, *long);
}

#[test]
fn scope_and_per_say_the_same_of_the_shard() {
    for (scope, per) in [
        (Some("shard"), &["caller"][..]),
        (None, &["caller", "shard"]),
    ] {
        let spec = PolicySpec {
            scope: scope.map(str::to_owned),
            ..spec("p", per, "ru", "1")
        };
        let policy = parse(&spec);
        assert_eq!(policy.scope, PolicyScope::Shard);
        assert_eq!(policy.per.to_string(), "[caller, shard]");
    }
}

#[test]
fn a_policy_counts_what_matches_and_can_be_counted_by() {
    let mut spec = spec("p", &["caller", "user"], "ru", "1000");
    spec.matches.caller = Some("search-*".into());
    spec.matches.org = Some("acme".into());
    spec.matches.operations = vec!["get".into(), "range".into()];
    let policy = parse(&spec);
    assert!(policy.applies_to(&SUBJECT));
    for subject in [
        Subject {
            caller: "geo",
            ..SUBJECT
        },
        Subject {
            attributes: ATTRIBUTES.with(Attribute::Org, None),
            ..SUBJECT
        },
        Subject {
            attributes: ATTRIBUTES.with(Attribute::Org, Some("other")),
            ..SUBJECT
        },
        Subject {
            attributes: ATTRIBUTES.with(Attribute::User, None),
            ..SUBJECT
        },
        Subject {
            operation: Operation::Put,
            ..SUBJECT
        },
    ] {
        assert!(!policy.applies_to(&subject), "{subject:?}");
    }
    let per_shard = parse(&self::spec("p", &["shard"], "ru", "1"));
    assert!(per_shard.applies_to(&SUBJECT), "the shard is not known yet");
    assert!(!per_shard.applies_to(&Subject {
        operation: Operation::Admin,
        ..SUBJECT
    }));
}

#[test]
fn what_the_account_does_not_settle_is_looked_at_for_each_request() {
    let is_settled = |change: Change| {
        let mut spec = spec("p", &["caller", "namespace"], "ru", "1");
        change(&mut spec);
        parse(&spec).is_settled_by_account()
    };
    assert!(is_settled(|_| {}));
    assert!(is_settled(|p| p.matches.operations = vec!["get".into()]));
    assert!(is_settled(|p| p.overrides.push(over_caller("a", "2"))));
    assert!(!is_settled(|p| p.per.push("user".into())));
    assert!(!is_settled(|p| p.per.push("shard".into())));
    assert!(!is_settled(|p| p.matches.session = Some("*".into())));
}

#[test]
fn the_most_specific_override_counts() {
    let mut spec = spec("p", &["caller", "namespace"], "requests", "1");
    let over = |caller: Option<&str>, namespace: Option<&str>, rate: &str| OverrideSpec {
        matches: MatchSpec {
            caller: caller.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            ..MatchSpec::default()
        },
        rate: rate.into(),
        burst: None,
    };
    spec.overrides = vec![
        over(Some("s*"), None, "2"),
        over(Some("search-*"), Some("list*"), "3"),
        over(Some("search-web"), None, "4"),
        over(Some("search-web"), Some("listings"), "5"),
        over(Some("*-web"), None, "6"),
        over(Some("web-*"), None, "7"),
    ];
    let policy = parse(&spec);
    let rate = |caller, namespace| {
        let subject = Subject {
            caller,
            namespace,
            ..SUBJECT
        };
        policy.limit_for(&subject).rate / 1_000_000
    };
    assert_eq!(rate("geo", "listings"), 1);
    assert_eq!(rate("stock", "listings"), 2);
    assert_eq!(rate("search-api", "lists"), 3);
    assert_eq!(
        rate("search-web", "lists"),
        4,
        "an exact name is worth any number of letters"
    );
    assert_eq!(rate("search-web", "listings"), 5);
    assert_eq!(rate("web-web", "listings"), 6, "of equal ones the first");
}

#[test]
fn a_set_is_in_order_and_has_each_name_once() {
    let policy =
        |name: &str, source| Policy::parse(&spec(name, &["caller"], "ru", "5"), source).unwrap();
    let set = PolicySet::new(vec![
        policy("b", PolicySource::File),
        policy("a", PolicySource::Stored),
    ])
    .unwrap();
    let names: Vec<&str> = set.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(set.get("b").unwrap().source, PolicySource::File);
    assert!(set.get("c").is_none() && set.len() == 2 && !set.is_empty());

    let twice = vec![
        policy("a", PolicySource::File),
        policy("b", PolicySource::File),
        policy("a", PolicySource::Stored),
    ];
    assert_eq!(
        PolicySet::new(twice).unwrap_err().to_string(),
        "two policies are named 'a': policies[0] (file) and policies[2] (stored)"
    );
    let many = (0..=POLICIES_MAX)
        .map(|n| policy(&format!("p{n}"), PolicySource::File))
        .collect();
    assert_eq!(PolicySet::new(many), Err(PolicySetError::TooMany(257)));
}

#[test]
fn a_built_in_policy_gives_way() {
    let built_in = PolicySet::built_in();
    let default = built_in.get(DEFAULT_CALLER).unwrap();
    assert_eq!(
        default.limit,
        Limit {
            rate: 1_000_000_000_000,
            burst: 1_000_000_000_000
        }
    );
    assert_eq!(
        (default.source, default.mode),
        (PolicySource::BuiltIn, Mode::Enforce)
    );
    assert!(default.applies_to(&SUBJECT) && default.per.contains(Dimension::Caller));

    let ours = Policy::parse(
        &spec(DEFAULT_CALLER, &["caller"], "ru", "5"),
        PolicySource::File,
    )
    .unwrap();
    for both in [
        vec![(**default).clone(), ours.clone()],
        vec![ours.clone(), (**default).clone()],
    ] {
        let set = PolicySet::new(both).unwrap();
        assert_eq!(set.len(), 1);
        assert_eq!(**set.get(DEFAULT_CALLER).unwrap(), ours);
    }
    let twice = vec![(**default).clone(), ours.clone(), ours];
    assert!(
        PolicySet::new(twice)
            .unwrap_err()
            .to_string()
            .contains("policies[1] (file) and policies[2]")
    );
}
