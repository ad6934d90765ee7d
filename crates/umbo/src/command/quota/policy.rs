//! A policy on the command line: as flags, as a file, and in a table. The server decides which values may be
//! combined.

use std::path::Path;
use std::str::FromStr;

use clap::Args;
use serde::Serialize;
use umbo_api::Quantity;
use umbo_api::quota::{MatchSpec, OverrideSpec, PolicySpec};
use umbo_control::policy_file::read_policies;
use umbo_quota::Policy;

use crate::cli_error::{CliError, usage};
use crate::command::kv::read_file;

/// Longest policy file.
const FILE_LEN_MAX: usize = 1 << 20;

/// The fields of a policy. A field that is not given keeps its value, or has the default in a new policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct PolicyArguments {
    /// Unit to count: ru, requests, reads, writes, read-bytes, write-bytes or bytes
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Units a second (like 1000, 0.5; of bytes also 64KiB, 2MiB)
    #[arg(long, value_name = "AMOUNT")]
    rate: Option<String>,
    /// Most units at once after idle time [default: one second of the rate]
    #[arg(long, value_name = "AMOUNT")]
    burst: Option<String>,
    /// How often buckets are refilled (10ms to 10s)
    #[arg(long, value_name = "DURATION")]
    refill: Option<String>,
    /// One bucket for each combination of these: caller, user, session, org, namespace, shard; '' is one
    /// bucket for all
    #[arg(long, value_name = "DIMENSIONS", value_delimiter = ',')]
    per: Option<Vec<String>>,
    /// Which requests are counted: caller, namespace, user, session or org and a pattern, or operations and a
    /// list with commas (like caller=search-*, operations=get,range); may be repeated, and DIMENSION= removes
    /// one
    #[arg(long = "match", value_name = "DIMENSION=PATTERN")]
    matches: Vec<MatchArgument>,
    /// pod (each server on its own), shard for a quota of each storage shard, or fleet for one quota of all servers
    /// together
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// enforce, or shadow to count what would be rejected without rejecting it
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// HTTP status of rejections: 429 or 419
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Another limit for some of the buckets (like caller=search-web,rate=2000,burst=4000); may be repeated,
    /// and one without a rate removes the limit
    #[arg(long = "override", value_name = "DIMENSION=PATTERN,…,rate=AMOUNT")]
    overrides: Vec<OverrideArgument>,
}

/// `DIMENSION=PATTERN`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MatchArgument {
    dimension: String,
    pattern: String,
}

/// `DIMENSION=PATTERN,…,rate=AMOUNT[,burst=AMOUNT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OverrideArgument {
    matches: MatchSpec,
    rate: Option<String>,
    burst: Option<String>,
}

impl FromStr for MatchArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((dimension, pattern)) = text.split_once('=') else {
            return Err("expected DIMENSION=PATTERN, like caller=search-*".to_owned());
        };
        let argument = Self {
            dimension: dimension.to_owned(),
            pattern: pattern.to_owned(),
        };
        argument.apply(&mut MatchSpec::default())?;
        Ok(argument)
    }
}

impl MatchArgument {
    fn apply(&self, matches: &mut MatchSpec) -> Result<(), String> {
        let pattern = Some(self.pattern.clone()).filter(|pattern| !pattern.is_empty());
        let dimension = self.dimension.as_str();
        if dimension == "operations" {
            let operations = pattern.iter().flat_map(|list| list.split(','));
            matches.operations = operations.map(str::to_owned).collect();
            return Ok(());
        }
        let known = matches.patterns().map(|(name, _)| name).join(", ");
        let unknown = || format!("'{dimension}' is none of {known} and operations");
        *matches.pattern_mut(dimension).ok_or_else(unknown)? = pattern;
        Ok(())
    }
}

impl FromStr for OverrideArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut argument = Self {
            matches: MatchSpec::default(),
            rate: None,
            burst: None,
        };
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("rate", rate)) => argument.rate = Some(rate.to_owned()),
                Some(("burst", burst)) => argument.burst = Some(burst.to_owned()),
                Some(("operations", _)) => {
                    return Err("an override selects buckets, not operations".to_owned());
                }
                _ => part
                    .parse::<MatchArgument>()?
                    .apply(&mut argument.matches)?,
            }
        }
        if argument.matches.is_empty() {
            return Err("an override needs a pattern, like caller=search-web".to_owned());
        }
        if argument.rate.is_none() && argument.burst.is_some() {
            return Err("an override with a burst needs a rate".to_owned());
        }
        Ok(argument)
    }
}

impl PolicyArguments {
    /// Returns whether no field is given.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Makes a policy from the given fields, and takes the others from `before`, if there is one.
    pub(super) fn policy(
        &self,
        name: &str,
        before: Option<PolicySpec>,
    ) -> Result<PolicySpec, CliError> {
        let mut policy = match before {
            Some(before) => before,
            None => self.new_policy(name)?,
        };
        if let Some(rate) = &self.rate {
            // A burst of one second of the rate is the default, not a chosen one.
            policy.burst.take_if(|burst| *burst == policy.rate);
            policy.rate = Quantity::number(rate);
        }
        let burst = self.burst.as_deref().map(Quantity::number);
        policy.burst = burst.or(policy.burst);
        policy.unit = self.unit.clone().unwrap_or(policy.unit);
        if let Some(per) = &self.per {
            let dimensions = per.iter().filter(|dimension| !dimension.is_empty());
            policy.per = dimensions.cloned().collect();
        }
        policy.refill = self.refill.clone().or(policy.refill);
        policy.scope = self.scope.clone().or(policy.scope);
        policy.mode = self.mode.clone().or(policy.mode);
        policy.status = self.status.or(policy.status);
        for argument in &self.matches {
            let applied = argument.apply(&mut policy.matches);
            applied.map_err(CliError::Usage)?;
        }
        for argument in &self.overrides {
            let is_other = |one: &OverrideSpec| one.matches != argument.matches;
            policy.overrides.retain(is_other);
            let OverrideArgument {
                matches,
                rate,
                burst,
            } = argument.clone();
            policy.overrides.extend(rate.map(|rate| OverrideSpec {
                matches,
                rate: Quantity::number(rate),
                burst: burst.map(Quantity::number),
            }));
        }
        Ok(policy)
    }

    fn new_policy(&self, name: &str) -> Result<PolicySpec, CliError> {
        let (Some(unit), Some(rate)) = (&self.unit, &self.rate) else {
            return Err(usage!(
                "there is no policy '{name}'; a new one needs --unit and --rate"
            ));
        };
        Ok(PolicySpec::new(name, unit, Quantity::number(rate)))
    }
}

/// Reads a policy file; `-` is stdin.
pub(super) fn read_policy_file(path: &Path) -> Result<Vec<PolicySpec>, CliError> {
    let name = path.display();
    let bytes = read_file(path, FILE_LEN_MAX)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| usage!("{name} is not a policy file: it is not text"))?;
    let policies = read_policies(&text).map_err(|error| usage!("{name}: {error}"))?;
    Ok(policies.iter().map(Policy::spec).collect())
}

/// Reads a policy file that holds one policy.
pub(super) fn read_one_policy(path: &Path) -> Result<PolicySpec, CliError> {
    let mut policies = read_policy_file(path)?;
    match (policies.pop(), policies.len()) {
        (Some(policy), 0) => Ok(policy),
        (_, others) => Err(usage!(
            "{} holds {} policies; expected one",
            path.display(),
            if others == 0 { 0 } else { others + 1 }
        )),
    }
}

/// Writes a policy as a policy file.
pub(super) fn to_toml(policy: &PolicySpec) -> Result<String, CliError> {
    #[derive(Serialize)]
    struct PolicyFile<'a> {
        policy: [&'a PolicySpec; 1],
    }
    let text = toml::to_string(&PolicyFile { policy: [policy] });
    text.map_err(|error| CliError::Output(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArguments,
    }

    fn arguments(line: &[&str]) -> PolicyArguments {
        let line = [&["x"], line].concat();
        Line::try_parse_from(line).unwrap().policy
    }

    fn json(policy: &PolicySpec) -> serde_json::Value {
        serde_json::to_value(policy).unwrap()
    }

    #[test]
    fn a_new_policy_is_what_the_flags_say() {
        let arguments = arguments(&[
            "--unit=ru",
            "--rate=0.50",
            "--burst=100",
            "--per=caller,namespace",
            "--match=caller=search-*",
            "--match=operations=get,range",
            "--mode=shadow",
            "--status=419",
            "--override=caller=search-web,rate=5,burst=2MiB",
        ]);
        assert!(!arguments.is_empty());
        let policy = arguments.policy("p", None).unwrap();
        let expected = serde_json::json!({
            "name": "p", "unit": "ru", "rate": "0.50", "burst": 100,
            "per": ["caller", "namespace"],
            "match": {"caller": "search-*", "operations": ["get", "range"]},
            "mode": "shadow", "status": 419,
            "overrides": [{"match": {"caller": "search-web"}, "rate": 5, "burst": "2MiB"}],
        });
        assert_eq!(json(&policy), expected);
        let read = policy_of_toml(&to_toml(&policy).unwrap());
        assert_eq!(json(&read), expected);
    }

    fn policy_of_toml(text: &str) -> PolicySpec {
        #[derive(serde::Deserialize)]
        struct PolicyFile {
            policy: [PolicySpec; 1],
        }
        let PolicyFile { policy: [policy] } = toml::from_str(text).unwrap();
        policy
    }

    #[test]
    fn a_new_policy_needs_a_unit_and_a_rate() {
        for line in [&["--rate=5"][..], &["--unit=ru"], &[]] {
            assert!(arguments(line).policy("p", None).is_err());
        }
        assert!(arguments(&[]).is_empty());
    }

    #[test]
    fn what_is_not_given_stays() {
        let before = arguments(&[
            "--unit=ru",
            "--rate=1000",
            "--burst=1000",
            "--per=caller",
            "--match=caller=a*",
            "--match=namespace=n",
            "--override=caller=ab,rate=1",
            "--override=caller=ac,rate=1",
        ]);
        let before = before.policy("p", None).unwrap();
        let change = |line: &[&str]| arguments(line).policy("p", Some(before.clone())).unwrap();
        assert_eq!(change(&[]), before);
        let faster = change(&["--rate=2000"]);
        assert_eq!((faster.rate.as_str(), faster.burst), ("2000", None));
        let other = change(&["--rate=2000", "--burst=9", "--match=caller=", "--per="]);
        assert_eq!(other.burst.unwrap().as_str(), "9");
        assert_eq!((other.matches.caller, other.per.len()), (None, 0));
        assert_eq!(other.matches.namespace.as_deref(), Some("n"));
        let overrides = change(&["--override=caller=ab,rate=7", "--override=caller=ac"]).overrides;
        assert_eq!(overrides.len(), 1);
        assert_eq!(overrides[0].rate.as_str(), "7");
    }

    #[test]
    fn flags_that_say_nothing_are_refused() {
        for line in [
            "--match=caller",
            "--match=moon=x",
            "--override=rate=5",
            "--override=caller=x,burst=5",
            "--override=operations=get,rate=5",
            "--override=moon=x,rate=5",
        ] {
            assert!(Line::try_parse_from(["x", line]).is_err(), "{line}");
        }
    }
}
