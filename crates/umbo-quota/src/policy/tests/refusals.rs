//! What is refused of a policy: each wrong value, and each pair that contradicts itself.

use super::*;
use crate::limits::OVERRIDES_MAX;

const WRONG: [(Change, &str); 26] = [
    (
        |p| p.name = "Reads".into(),
        "'Reads': name: a policy is named by 1 to 64",
    ),
    (|p| p.name = String::new(), "'': name: a policy is named"),
    (|p| p.name = "-a".into(), "'-a': name: "),
    (|p| p.name = "a".repeat(65), ": name: a policy is named by"),
    (
        |p| p.unit = "request".into(),
        "'p': unit: no such unit: 'request'; did you mean 'requests'?",
    ),
    (|p| p.unit = String::new(), "'p': unit: no such unit: ''"),
    (
        |p| p.per[0] = "clients".into(),
        "'p': per[0]: no such dimension: 'clients' (there are: caller, user,",
    ),
    (
        |p| p.per.push("caller".into()),
        "'p': per[1]: 'caller' is listed twice",
    ),
    (
        |p| p.rate = "0".into(),
        "'p': rate: a rate of 0 would reject for ever; the lowest is 0.000001",
    ),
    (|p| p.rate = "0.0".into(), "'p': rate: a rate of 0"),
    (|p| p.rate = "-1".into(), "'p': rate: '-1' is negative"),
    (
        |p| p.rate = "NaN".into(),
        "'p': rate: 'NaN' is not a number",
    ),
    (
        |p| p.rate = "0.0000001".into(),
        "'p': rate: '0.0000001' has more than 6 digits",
    ),
    (
        |p| p.rate = "1000000000.000001".into(),
        "'p': rate: '1000000000.000001' is more than the maximum, 1000000000 requests",
    ),
    (
        |p| p.rate = "99999999999999999999".into(),
        "'p': rate: '99999999999999999999' is too large",
    ),
    (
        |p| p.burst = Some("50000000001".into()),
        "'p': burst: '50000000001' is more than the maximum, 50000000000 requests",
    ),
    (
        |p| p.refill = Some("50".into()),
        "'p': refill: '50' is not a time in whole milliseconds like 50ms",
    ),
    (
        |p| p.refill = Some("10.5ms".into()),
        "'p': refill: '10.5ms' is not a time",
    ),
    (
        |p| p.refill = Some("9ms".into()),
        "'p': refill: '9ms' is not between 10ms and 10s",
    ),
    (
        |p| p.refill = Some("99999999999s".into()),
        "'p': refill: '99999999999s' is not between",
    ),
    (
        |p| p.scope = Some("world".into()),
        "'p': scope: no such scope: 'world' (there are: pod, shard, fleet)",
    ),
    (
        |p| p.mode = Some("Shadow".into()),
        "'p': mode: no such mode: 'Shadow'; did you mean 'shadow'?",
    ),
    (
        |p| p.status = Some(503),
        "'p': status: '503' is neither 429 nor 419",
    ),
    (
        |p| p.matches.namespace = Some("Listings".into()),
        "'p': match.namespace: 'Listings' can match no namespace",
    ),
    (
        |p| p.matches.caller = Some(String::new()),
        "'p': match.caller: an empty pattern matches no name",
    ),
    (
        |p| p.matches.operations = vec!["gets".into()],
        "'p': match.operations[0]: no such operation: 'gets'; did you mean 'get'?",
    ),
];

#[test]
fn a_wrong_value_is_refused_with_its_place() {
    for (change, expected) in WRONG {
        let mut spec = spec("p", &["caller"], "requests", "100");
        parse(&spec);
        change(&mut spec);
        let message = refusal(&spec);
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

const CONTRADICTORY: [(Change, &str); 15] = [
    (
        |p| p.burst = Some("1".into()),
        "'p': burst: burst 1 is less than one refill: rate 1000 adds 50 in 50ms",
    ),
    (
        |p| p.burst = Some("0.5".into()),
        "'p': burst: burst 0.5 is less than 1 of requests",
    ),
    (
        |p| (p.rate, p.burst) = ("0.001".into(), Some("1001".into())),
        "'p': burst: burst 1001 takes 1001000 s to refill at rate 0.001, more than the maximum of 1000000 s",
    ),
    (
        |p| (p.per, p.scope) = (vec!["caller".into(), "shard".into()], Some("pod".into())),
        "'p': scope: scope 'pod' counts all shards together, but per [caller, shard] counts them apart",
    ),
    (
        |p| {
            p.unit = "reads".into();
            p.matches.operations = vec!["put".into(), "delete".into()];
        },
        "'p': match.operations: unit 'reads' counts nothing of operations [put, delete]",
    ),
    (
        |p| (p.unit, p.matches.operations) = ("write-bytes".into(), vec!["scan".into()]),
        "'p': match.operations: unit 'write-bytes' counts nothing of operations [scan]",
    ),
    (
        |p| p.matches.operations = vec!["get".into(), "get".into()],
        "'p': match.operations[1]: 'get' is listed twice",
    ),
    (
        |p| p.overrides[0].matches.caller = None,
        "'p': overrides[0].match: an override must match a dimension of the policy; per is [caller]",
    ),
    (
        |p| p.overrides[0].matches.namespace = Some("listings".into()),
        "'p': overrides[0].match.namespace: an override by namespace would give one bucket two \
             limits: the policy counts per [caller], add namespace to it",
    ),
    (
        |p| p.overrides[0].matches.operations = vec!["get".into()],
        "'p': overrides[0].match.operations: an override cannot match operations",
    ),
    (
        |p| p.matches.caller = Some("geo-*".into()),
        "'p': overrides[0].match.caller: 'search' never matches: the policy is only for caller 'geo-*'",
    ),
    (
        |p| p.overrides[0].matches.caller = Some("*".into()),
        "'p': overrides[0].match: it matches everything that the policy matches, so the policy's own rate 1000 is never used",
    ),
    (
        |p| {
            p.matches.caller = Some("s*".into());
            p.overrides[0].matches.caller = Some("s**".into());
        },
        "'p': overrides[0].match: it matches everything that the policy matches",
    ),
    (
        |p| p.overrides.push(over_caller("search", "7")),
        "'p': overrides[1].match: it matches the same as overrides[0], which has rate 5; this has 7",
    ),
    (
        |p| p.overrides[0].burst = Some("0.2".into()),
        "'p': overrides[0].burst: burst 0.2 is less than 1 of requests",
    ),
];

#[test]
fn a_contradiction_is_refused_with_both_values() {
    for (change, expected) in CONTRADICTORY {
        let mut spec = spec("p", &["caller"], "requests", "1000");
        spec.overrides.push(over_caller("search", "5"));
        parse(&spec);
        change(&mut spec);
        let message = refusal(&spec);
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

#[test]
fn a_star_alone_makes_no_other_override() {
    let mut spec = spec("p", &["caller", "user"], "ru", "1000");
    spec.overrides.push(over_caller("search", "5"));
    spec.overrides.push(over_caller("search", "7"));
    spec.overrides[1].matches.user = Some("*".into());
    assert!(refusal(&spec).contains("overrides[1].match: it matches the same as overrides[0]"));
}

#[test]
fn there_is_an_end_to_overrides() {
    let mut spec = spec("p", &["caller"], "ru", "1000");
    spec.overrides = (0..OVERRIDES_MAX)
        .map(|n| over_caller(&format!("c{n}"), "5"))
        .collect();
    assert_eq!(parse(&spec).overrides.len(), OVERRIDES_MAX);
    spec.overrides.push(over_caller("one-more", "5"));
    let expected = "'p': overrides: a policy has at most 256 overrides, this one has 257";
    assert_eq!(refusal(&spec), expected);
}
