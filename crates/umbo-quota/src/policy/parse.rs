//! From text to policy. A text that is not understood exactly is refused with its place.
//!
//! Each field is read here; `contradiction` checks the fields against each other.

use std::time::Duration;

use umbo_api::Quantity;
use umbo_api::quota::{MatchSpec, OverrideSpec, PolicySource, PolicySpec};
use umbo_types::{Attributes, NamespacePattern, Operation};

use super::contradiction;
use super::error::{FieldProblem, PolicyError, PolicyProblem, at};
use super::refill::{read_refill, refill_brings};
use super::{Limit, Matcher, Mode, Operations, Override, Policy, PolicyScope};
use crate::dimension::{Dimension, Dimensions};
use crate::limits::{POLICY_NAME_LEN_MAX, REFILL_DEFAULT};
use crate::pattern::Pattern;
use crate::unit::{Unit, format_amount, parse_amount};

impl Policy {
    /// Reads a policy and checks its values against each other.
    ///
    /// The error is the first problem, in the order of the fields.
    pub fn parse(spec: &PolicySpec, source: PolicySource) -> Result<Self, PolicyError> {
        read(spec, source).map_err(|(place, problem)| PolicyError {
            policy: spec.name.clone(),
            place,
            problem: Box::new(problem),
        })
    }
}

fn read(spec: &PolicySpec, source: PolicySource) -> Result<Policy, FieldProblem> {
    if !is_name(&spec.name) {
        return Err(at("name", PolicyProblem::BadName(spec.name.clone())));
    }
    let matches = read_matcher(&spec.matches, "match")?;
    let per = read_dimensions(&spec.per)?;
    let unit: Unit = spec.unit.parse().map_err(|error| at("unit", error))?;
    let refill = spec.refill.as_deref().map(read_refill).transpose();
    let refill = refill
        .map_err(|problem| at("refill", problem))?
        .unwrap_or(REFILL_DEFAULT);
    let limit = read_limit(unit, refill, (&spec.rate, spec.burst.as_ref()), "")?;
    let scope = spec.scope.as_deref().map(PolicyScope::parse).transpose();
    let (scope, per) = scope
        .map_err(PolicyProblem::from)
        .and_then(|scope| settle_scope(scope, per))
        .map_err(|problem| at("scope", problem))?;
    let mode = spec.mode.as_deref().map(Mode::parse).transpose();
    let mode = mode
        .map_err(|error| at("mode", error))?
        .unwrap_or(Mode::Enforce);
    let status = spec.status.unwrap_or(429);
    if !matches!(status, 419 | 429) {
        return Err(at("status", PolicyProblem::BadStatus(status)));
    }
    let mut policy = Policy {
        name: spec.name.as_str().into(),
        matches,
        per,
        unit,
        limit,
        refill,
        scope,
        mode,
        status,
        overrides: Vec::new(),
        source,
    };
    contradiction::check_policy(&policy)?;
    contradiction::check_override_count(spec.overrides.len())?;
    for (index, one) in spec.overrides.iter().enumerate() {
        let place = format!("overrides[{index}]");
        let one = read_override(&policy, one, &place)?;
        contradiction::check_override(&policy, &one, &place)?;
        policy.overrides.push(one);
    }
    Ok(policy)
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= POLICY_NAME_LEN_MAX
        && name.bytes().next().is_some_and(is_plain)
        && name
            .bytes()
            .all(|byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
}

fn read_dimensions(names: &[String]) -> Result<Dimensions, FieldProblem> {
    let mut per = Dimensions::default();
    for (index, name) in names.iter().enumerate() {
        let place = || format!("per[{index}]");
        let dimension: Dimension = name.parse().map_err(|error| at(place(), error))?;
        if per.contains(dimension) {
            return Err(at(place(), PolicyProblem::Repeated(name.clone())));
        }
        per = per.with(dimension);
    }
    Ok(per)
}

/// Reconciles `scope` with the shard in `per`: one of them is enough, and both must agree.
fn settle_scope(
    scope: Option<PolicyScope>,
    per: Dimensions,
) -> Result<(PolicyScope, Dimensions), PolicyProblem> {
    match (scope, per.contains(Dimension::Shard)) {
        (Some(scope @ (PolicyScope::Pod | PolicyScope::Fleet)), true) => {
            let scope = scope.as_str();
            Err(PolicyProblem::ScopeAgainstPer { scope, per })
        }
        (Some(PolicyScope::Shard), _) | (None, true) => {
            Ok((PolicyScope::Shard, per.with(Dimension::Shard)))
        }
        (scope, false) => Ok((scope.unwrap_or(PolicyScope::Pod), per)),
    }
}

fn read_matcher(spec: &MatchSpec, place: &str) -> Result<Matcher, FieldProblem> {
    let read = |dimension: Dimension| {
        let mut patterns = spec.patterns().into_iter();
        let of_it = patterns.find(|(name, _)| *name == dimension.as_str());
        let Some(text) = of_it.and_then(|(_, pattern)| pattern.as_deref()) else {
            return Ok(None);
        };
        let place = || format!("{place}.{dimension}");
        let pattern = Pattern::parse(text).map_err(|error| at(place(), error))?;
        if dimension == Dimension::Namespace && !can_be_namespace(&pattern) {
            return Err(at(place(), PolicyProblem::NoNamespace(text.to_owned())));
        }
        Ok(Some(pattern))
    };
    Ok(Matcher {
        caller: read(Dimension::Caller)?,
        namespace: read(Dimension::Namespace)?,
        attributes: Attributes::try_from_fn(|one| read(Dimension::Attribute(one)))?,
        operations: read_operations(&spec.operations, place)?,
    })
}

fn can_be_namespace(pattern: &Pattern) -> bool {
    pattern.literal_len() <= umbo_types::limits::NAMESPACE_LEN_MAX
        && pattern.as_str().parse::<NamespacePattern>().is_ok()
}

fn read_operations(names: &[String], place: &str) -> Result<Operations, FieldProblem> {
    let mut chosen: Vec<Operation> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let place = || format!("{place}.operations[{index}]");
        let operation = Operations::find(name).map_err(|error| at(place(), error))?;
        if chosen.contains(&operation) {
            return Err(at(place(), PolicyProblem::Repeated(name.clone())));
        }
        chosen.push(operation);
    }
    Ok(chosen.into_iter().collect())
}

fn read_override(
    policy: &Policy,
    spec: &OverrideSpec,
    place: &str,
) -> Result<Override, FieldProblem> {
    let matches = read_matcher(&spec.matches, &format!("{place}.match"))?;
    let amounts = (&spec.rate, spec.burst.as_ref());
    let limit = read_limit(policy.unit, policy.refill, amounts, &format!("{place}."))?;
    Ok(Override { matches, limit })
}

/// Reads rate and burst. `prefix` is the path to their fields, with a point after it.
fn read_limit(
    unit: Unit,
    refill: Duration,
    (rate, burst): (&Quantity, Option<&Quantity>),
    prefix: &str,
) -> Result<Limit, FieldProblem> {
    let read = |field: &str, text: &str, max: u64| {
        let place = || format!("{prefix}{field}");
        let atoms = parse_amount(unit, text).map_err(|error| at(place(), error))?;
        if atoms > max {
            let (value, max) = (text.to_owned(), format_amount(unit, max));
            return Err(at(place(), PolicyProblem::TooHigh { value, max, unit }));
        }
        Ok(atoms)
    };
    let rate = read("rate", rate.as_str(), unit.rate_max())?;
    if rate == 0 {
        let min = format_amount(unit, 1);
        return Err(at(format!("{prefix}rate"), PolicyProblem::Zero { min }));
    }
    let burst = match burst {
        Some(burst) => read("burst", burst.as_str(), unit.burst_max())?,
        None => rate
            .max(unit.atoms_per_unit())
            .max(refill_brings(rate, refill)),
    };
    let limit = Limit { rate, burst };
    contradiction::check_limit(unit, limit, refill)
        .map_err(|problem| at(format!("{prefix}burst"), problem))?;
    Ok(limit)
}
