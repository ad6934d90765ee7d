//! The policy file, its example, and policies written out.

use std::collections::BTreeSet;

use proptest::prelude::*;
use umbo_quota::{DEFAULT_CALLER, Dimension, Limit, Operations, PolicySet, Unit};
use umbo_types::Operation;

use super::*;

const EXAMPLE: &str = include_str!("../../../../config/quotas.toml");

#[test]
fn the_example_is_a_policy_file() {
    let policies = read_policies(EXAMPLE).unwrap();
    let units: BTreeSet<Unit> = policies.iter().map(|policy| policy.unit).collect();
    assert_eq!(units.len(), Unit::ALL.len());
    let scans = policies
        .iter()
        .find(|policy| &*policy.name == "scans")
        .unwrap();
    assert_eq!((scans.limit.rate, scans.limit.burst), (100_000, 10_000_000));
    let built_in = PolicySet::built_in()
        .iter()
        .map(|policy| (**policy).clone())
        .collect();
    let together = [policies.clone(), built_in].concat();
    assert_eq!(PolicySet::new(together).unwrap().len(), policies.len());
}

#[test]
fn the_example_begins_with_the_built_in_policy() {
    let first = read_policies(EXAMPLE).unwrap().swap_remove(0);
    let built_in = PolicySet::built_in();
    let expected = Policy {
        source: PolicySource::File,
        ..(**built_in.get(DEFAULT_CALLER).unwrap()).clone()
    };
    assert_eq!(first, expected);

    // What it says of its defaults is true.
    for line in [
        "match = {}",
        "burst = 1000000",
        "refill = \"50ms\"",
        "scope = \"pod\"",
        "mode = \"enforce\"",
        "status = 429",
    ] {
        let without = EXAMPLE.replacen(&format!("\n{line}\n"), "\n", 1);
        assert_ne!(without, EXAMPLE, "{line}");
        assert_eq!(read_policies(&without).unwrap()[0], expected, "{line}");
    }
}

#[test]
fn the_example_names_all_that_can_be_said() {
    let spec = read_policies(EXAMPLE).unwrap()[0].spec();
    let fields = serde_json::to_value(spec).unwrap();
    for field in fields.as_object().unwrap().keys() {
        assert!(EXAMPLE.contains(&format!("\n{field} = ")), "{field}");
    }
    let words = [
        "match",
        "overrides",
        "operations",
        "enforce",
        "shadow",
        "429",
        "419",
    ];
    let words = words
        .into_iter()
        .chain(Dimension::ALL.map(Dimension::as_str))
        .chain(Operations::all().map(Operation::as_str))
        .chain(Unit::ALL.map(Unit::as_str));
    for word in words {
        assert!(EXAMPLE.contains(word), "{word}");
    }
    for limit in [
        Unit::Ru.rate_max() / 1_000_000,
        Unit::Bytes.rate_max(),
        Unit::Ru.burst_max() / 1_000_000,
        Unit::Bytes.burst_max(),
    ] {
        assert!(
            EXAMPLE.contains(&format!("at most {limit}"))
                || EXAMPLE.contains(&format!("(of bytes {limit})")),
            "{limit}"
        );
    }
}

/// A file of two policies, the second of which begins in line 6.
const GOOD: &str = r#"# ours
[[policy]]
name = "a"
unit = "ru"
rate = 5
[[policy]]
name = "b"
per = [
    "caller",
]
unit = "requests"
rate = 0.5

[[policy.overrides]]
match = { caller = "x" }
rate = 7
[[policy.overrides]]
match = { caller = "y" }
rate = 8
"#;

/// What to replace in that file by what, and what is said of it.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "rate = 5",
        "rate = 0",
        "line 5: 'a': rate: a rate of 0 would reject for ever",
    ),
    (
        "rate = 5",
        "rate = nan",
        "line 5: 'a': rate: 'NaN' is not a number",
    ),
    (
        "rate = 5",
        "rate = inf",
        "line 5: 'a': rate: 'inf' is not a number",
    ),
    (
        "rate = 5",
        "rate = -5",
        "line 5: 'a': rate: '-5' is negative",
    ),
    (
        "rate = 5",
        "rate = true",
        "line 5: invalid type: boolean `true`, expected a number or a text",
    ),
    ("rate = 5", "rate = ", "line 5: "),
    (
        "rate = 5",
        "rate = 5\nstatus = 70000",
        "line 6: invalid value: integer `70000`",
    ),
    ("rate = 5", "rate = 5\nrate = 6", "line 6: duplicate key"),
    ("rate = 5\n", "", "line 2: missing field `rate`"),
    (
        "unit = \"ru\"",
        "unit = \"rus\"",
        "line 4: 'a': unit: no such unit: 'rus'; did you mean 'ru'?",
    ),
    (
        "unit = \"ru\"",
        "unit = \"ru\"\nbrust = 1",
        "line 5: unknown field `brust`, expected one of",
    ),
    (
        "unit = \"ru\"",
        "unit = \"ru\"\nbrust = 1",
        "did you mean `burst`?",
    ),
    (
        "unit = \"ru\"",
        "unit = \"ru\"\nburst = 0.1",
        "line 5: 'a': burst: burst 0.1 is less than 1 of ru",
    ),
    (
        "\"caller\"",
        "\"callers\"",
        "line 9: 'b': per[0]: no such dimension: 'callers'",
    ),
    (
        "caller = \"y\"",
        "namespace = \"y\"",
        "line 18: 'b': overrides[1].match.namespace: an override by namespace",
    ),
    (
        "caller = \"y\"",
        "caller = \"x\"",
        "line 18: 'b': overrides[1].match: it matches the same as overrides[0]",
    ),
    (
        "caller = \"y\"",
        "calller = \"y\"",
        "line 18: unknown field `calller`",
    ),
    (
        "rate = 8",
        "rate = \"8KiB\"",
        "line 19: 'b': overrides[1].rate: '8KiB' is a size",
    ),
    (
        "name = \"b\"",
        "name = \"a\"",
        "line 6: two policies are named 'a': this one, and the one in line 2",
    ),
    (
        "[[policy]]\nname = \"a\"",
        "[[policies]]\nname = \"a\"",
        "line 2: unknown field `policies`, expected `policy`",
    ),
];

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    assert_eq!(read_policies(GOOD).unwrap().len(), 2);
    assert_eq!(read_policies("# nothing\n").unwrap(), []);
    for (from, to, expected) in WRONG {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let message = read_policies(&text).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}\n{expected}");
    }
    let single = "# ours\n\n[policy]\nname = \"a\"\n";
    let error = read_policies(single).unwrap_err();
    assert_eq!(
        (error.line, error.problem),
        (3, PolicyFileProblem::OneBracket)
    );
}

#[test]
fn a_policy_written_out_is_the_same_policy() {
    for policy in read_policies(EXAMPLE).unwrap() {
        let spec = policy.spec();
        assert_eq!(
            Policy::parse(&spec, PolicySource::File).as_ref(),
            Ok(&policy)
        );
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<PolicySpec>(&json).unwrap(), spec);
        let file = toml::to_string(&serde_json::json!({"policy": [spec]})).unwrap();
        assert_eq!(read_policies(&file).unwrap(), [policy]);
    }
}

#[test]
fn the_source_has_one_name() {
    for source in [
        PolicySource::BuiltIn,
        PolicySource::File,
        PolicySource::Stored,
    ] {
        let wire = serde_json::to_value(source).unwrap();
        assert_eq!(wire, source.as_str());
    }
}

proptest! {
    #[test]
    fn any_amount_comes_through_json_as_it_is(rate in 1..=1_000_000_000_000_000_u64, burst in 1_000_000..=50_000_000_000_000_000_u64) {
        let mut policy = read_policies("[[policy]]\nname = \"p\"\nunit = \"ru\"\nrate = 1\n").unwrap().swap_remove(0);
        policy.limit = Limit { rate, burst: burst.max(rate).min(rate.saturating_mul(1_000_000)) };
        let json = serde_json::to_string(&policy.spec()).unwrap();
        let read = Policy::parse(&serde_json::from_str(&json).unwrap(), PolicySource::File);
        prop_assert_eq!(read, Ok(policy));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\[\\[?policy(\\.overrides)?\\]?\\]\n|(name|rate|per|match|x) = (\\[\"é\"\\]|5|\"a\"|\\{\\})\n){0,8}") {
        if let Err(error) = read_policies(&text) {
            prop_assert!(error.line <= text.matches('\n').count() + 1);
        }
    }
}
