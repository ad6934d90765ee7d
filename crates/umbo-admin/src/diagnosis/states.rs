//! States that are wrong whatever is usual: nodes, shards, records, clocks, loads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use umbo_api::backup::CompletedBackup;
use umbo_api::diagnosis::{DiagnosisFinding, FindingSeverity};
use umbo_api::observe::EventKind;
use umbo_control::RecordsReport;
use umbo_dispatcher::Dispatcher;
use umbo_observe::{FindingRule, Found};
use umbo_store::{NodeStatus, ShardState, ShardStatus};
use umbo_types::Timestamp;

use super::rules::{TROUBLE, shortened};
use crate::fleet::known_backups;
use crate::home_rows::now;

/// Longest reason of a load in a sentence, in characters; `umbo load status` has all of it.
const REASON_LEN_MAX: usize = 80;
/// How long a failed load is told, in milliseconds: until the next working day.
const FAILED_KEPT_MS: u64 = DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;
/// A certificate that ends within so many days is told, by `umbo doctor` too: time to get a new one.
pub const CERTIFICATE_DAYS: u64 = 14;
/// Most failed loads that are told.
const FAILED_MAX: usize = 16;
/// States of a load that failed, and of one whose rows were applied.
const FAILED: &str = "failed";
const APPLIED: [&str; 3] = ["live", "superseded", "rolled-back"];

static NODE_AWAY: FindingRule = FindingRule {
    name: "node-away",
    severity: FindingSeverity::Problem,
    view: "storage",
    advice: "look at the node: process, network, certificate",
    lasts: [0, 0],
    events: Some([EventKind::NodeLost, EventKind::NodeBack]),
};
static SHARD: FindingRule = FindingRule {
    name: "shard-not-serving",
    advice: "bring back the node, or mend the disk; the operator's guide, When something fails, has the steps",
    events: Some([EventKind::ShardLost, EventKind::ShardBack]),
    ..NODE_AWAY
};
static MAPS: FindingRule = FindingRule {
    name: "maps-differ",
    severity: FindingSeverity::Warning,
    advice: "give all machines the newest map",
    events: TROUBLE,
    ..NODE_AWAY
};
static CLOCK: FindingRule = FindingRule {
    name: "clock-off",
    severity: FindingSeverity::Warning,
    advice: "synchronise both clocks (chrony, systemd-timesyncd): times to live and tokens go by them",
    // Offsets near the bound come and go.
    lasts: [0, 10],
    events: TROUBLE,
    ..NODE_AWAY
};
static RECORDS: FindingRule = FindingRule {
    name: "records-old",
    advice: "bring back the home of Umbo's own records; the operator's guide, When something fails, has the steps",
    events: TROUBLE,
    ..NODE_AWAY
};
static PRIORITY: FindingRule = FindingRule {
    name: "priority-refused",
    severity: FindingSeverity::Notice,
    view: "overview",
    advice: "let the server lower the priority of its threads",
    events: TROUBLE,
    ..NODE_AWAY
};
static CERTIFICATE_ENDS: FindingRule = FindingRule {
    name: "certificate-ends",
    severity: FindingSeverity::Warning,
    view: "overview",
    advice: "put a new one in its place; it is read by itself, or on SIGHUP",
    events: TROUBLE,
    ..NODE_AWAY
};
static CERTIFICATE_ENDED: FindingRule = FindingRule {
    name: "certificate-ended",
    severity: FindingSeverity::Problem,
    ..CERTIFICATE_ENDS
};
static VERSIONS_DIFFER: FindingRule = FindingRule {
    name: "versions-differ",
    severity: FindingSeverity::Notice,
    view: "overview",
    advice: "end the upgrade, or go back; 'umbo fleet' and 'umbo cluster status' name them",
    // A rolling upgrade is shorter.
    lasts: [3_600, 10],
    events: None,
};
static BACKUP_OLD: FindingRule = FindingRule {
    name: "backup-old",
    severity: FindingSeverity::Warning,
    view: "storage",
    advice: "make one with 'umbo backup --to LOCATION'; 'umbo backup ls' has the last ones",
    events: TROUBLE,
    ..NODE_AWAY
};
/// A backup is old at this multiple of the longest time between the last ones, of at least half a day: backups of each night
/// may be late by a day.
const BACKUP_TIMES: u64 = 2;
const BACKUP_EVERY_MIN_MS: u64 = DAY_MS / 2;
/// How often a store with one backup is taken to be backed up.
const BACKUP_EVERY_MS: u64 = 7 * DAY_MS / 2;
static LOAD_FAILED: FindingRule = FindingRule {
    name: "load-failed",
    severity: FindingSeverity::Warning,
    view: "loads",
    advice: "mend the file and load it again; see 'umbo load status'",
    events: TROUBLE,
    ..NODE_AWAY
};

/// Returns the states that are wrong.
pub(super) fn found(dispatcher: &Dispatcher) -> Vec<Found> {
    let nodes = dispatcher.store.nodes();
    let mut found = of_nodes(&nodes);
    found.extend(of_readiness(dispatcher, &dispatcher.store.status(), &nodes));
    found.extend(failed_loads(dispatcher));
    let certificates = dispatcher.certificates.lock();
    let certificates = certificates.unwrap_or_else(PoisonError::into_inner);
    found.extend(of_certificates(&certificates, dispatcher.clock.wall()));
    let versions = dispatcher.fleet_versions.lock();
    let mut versions = versions.unwrap_or_else(PoisonError::into_inner).clone();
    versions.extend(nodes.into_iter().filter_map(|node| node.program_version));
    found.extend(of_versions(&versions));
    let backups = known_backups(dispatcher);
    // Reports have the time of the home, too.
    found.extend(of_backups(&backups, now(dispatcher).as_millis()));
    found
}

/// Returns the problems that readiness tells, one line each, and whether any shard serves.
pub(crate) fn readiness_problems(dispatcher: &Dispatcher) -> (Vec<String>, bool) {
    let shards = dispatcher.store.status();
    let serves = |one: &ShardStatus| !matches!(one.state, ShardState::Unavailable(_));
    let any_serves = shards.iter().any(serves);
    let found = of_readiness(dispatcher, &shards, &dispatcher.store.nodes());
    (
        found.into_iter().map(|one| one.sentence).collect(),
        any_serves,
    )
}

fn of_readiness(
    dispatcher: &Dispatcher,
    shards: &[ShardStatus],
    nodes: &[NodeStatus],
) -> Vec<Found> {
    let mut found = of_shards(shards);
    found.extend(
        nodes
            .iter()
            .filter_map(|node| Some(state(&CLOCK, &node.name, node.clock_problem()?))),
    );
    found.extend(of_records(&dispatcher.control.records_report()));
    found.extend(of_priority(dispatcher.priority_refusal()));
    found
}

fn state(rule: &'static FindingRule, subject: &str, sentence: String) -> Found {
    Found {
        rule,
        subject: subject.to_owned(),
        sentence,
        end: None,
        since_ms: None,
    }
}

fn of_nodes(nodes: &[NodeStatus]) -> Vec<Found> {
    let away = nodes.iter().filter_map(|node| {
        let reason = node.failure.as_ref()?;
        let name = &node.name;
        let sentence = format!("node '{name}' is not reachable: {reason}");
        Some(Found {
            end: Some(format!(
                "node '{name}' is reachable again, or has left the cluster"
            )),
            ..state(&NODE_AWAY, name, sentence)
        })
    });
    let mut found: Vec<_> = away.collect();
    let versions = nodes.iter().filter_map(|node| node.map_version);
    let versions: BTreeSet<_> = versions.collect();
    if versions.len() > 1 {
        let told: Vec<_> = versions.iter().map(u64::to_string).collect();
        let sentence = format!("nodes go by different maps: versions {}", told.join(", "));
        found.push(state(&MAPS, "", sentence));
    }
    found
}

fn of_shards(shards: &[ShardStatus]) -> Vec<Found> {
    let lost = shards.iter().filter_map(|status| {
        let shard = status.shard;
        let sentence = match &status.state {
            ShardState::Available => return None,
            ShardState::ReadOnly(reason) => format!("shard {shard} is read-only: {reason}"),
            ShardState::Unavailable(reason) => format!("shard {shard} is unavailable: {reason}"),
        };
        Some(Found {
            end: Some(format!("shard {shard} serves again")),
            ..state(&SHARD, &shard.to_string(), sentence)
        })
    });
    lost.collect()
}

fn of_records(records: &RecordsReport) -> Option<Found> {
    let problem = records.problem.as_ref()?;
    let sentence = if records.is_unreadable {
        format!("the newest of Umbo's own records cannot be read: {problem}")
    } else {
        format!("Umbo's own records are served from a copy: {problem}")
    };
    Some(state(&RECORDS, "", sentence))
}

/// Returns the problem of long work's priority, if the system refused it.
fn of_priority(refusal: Option<&str>) -> Option<Found> {
    let refusal = refusal?;
    let sentence = format!("long reads and loads have the priority of short requests: {refusal}");
    Some(state(&PRIORITY, "", sentence))
}

/// Returns the certificates that end soon or have ended.
fn of_certificates(ends: &[(String, Timestamp)], now: Timestamp) -> Vec<Found> {
    let ends = ends.iter().filter_map(|(file, ends)| {
        if *ends <= now {
            let sentence = format!("the certificate in {file} has ended");
            return Some(state(&CERTIFICATE_ENDED, file, sentence));
        }
        let days = (ends.as_millis() - now.as_millis()) / DAY_MS;
        let sentence = format!("the certificate in {file} ends in {days} days");
        (days < CERTIFICATE_DAYS).then(|| state(&CERTIFICATE_ENDS, file, sentence))
    });
    ends.collect()
}

/// Returns the versions of nodes and other dispatchers, if they differ from the version of this one.
fn of_versions(others: &[String]) -> Option<Found> {
    let own = env!("CARGO_PKG_VERSION");
    let different = others.iter().filter(|one| *one != own);
    let different: BTreeSet<_> = different.map(|one| shortened(one)).collect();
    let named = different.into_iter().collect::<Vec<_>>().join(", ");
    let sentence = format!("the fleet runs versions {own}, {}", shortened(&named));
    (!named.is_empty()).then(|| state(&VERSIONS_DIFFER, "", sentence))
}

/// Returns that the last backup is old, for a store that is backed up at times.
fn of_backups(newest_first: &[CompletedBackup], now_ms: u64) -> Option<Found> {
    let taken_ms = |one: &CompletedBackup| {
        one.ended_ms
            .saturating_sub(one.seconds.saturating_mul(1_000))
    };
    let newest = taken_ms(newest_first.first()?);
    let between = newest_first.windows(2);
    let between = between.map(|pair| taken_ms(&pair[0]).saturating_sub(taken_ms(&pair[1])));
    let every = between.max().unwrap_or(BACKUP_EVERY_MS);
    let every = every.max(BACKUP_EVERY_MIN_MS);
    let age = now_ms.saturating_sub(newest);
    (age >= BACKUP_TIMES * every).then(|| {
        let usually = match newest_first.len() {
            1 => "it is the only one".to_owned(),
            _ => format!("those before were at most {} apart", days_text(every)),
        };
        let sentence = format!("the last backup is {} old; {usually}", days_text(age));
        state(&BACKUP_OLD, "", sentence)
    })
}

/// Returns a time in days, or in hours below two days.
fn days_text(ms: u64) -> String {
    match ms / DAY_MS {
        0 | 1 => format!("{} hours", ms / (DAY_MS / 24)),
        days => format!("{days} days"),
    }
}

/// Returns the latest loads that failed in the last day. A later load into the same namespace settles the matter.
fn failed_loads(dispatcher: &Dispatcher) -> Vec<Found> {
    let now = dispatcher.clock.wall().as_millis();
    let loads = dispatcher.control.loads.all();
    let mut applied: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, load) in &loads {
        if APPLIED.contains(&load.state.as_str()) {
            let newest = applied.entry(load.namespace).or_default();
            *newest = load.created_at.max(*newest);
        }
    }
    let is_settled = |namespace, since| applied.get(&namespace).is_some_and(|at| *at > since);
    let failed = loads.iter().filter_map(|(id, load)| {
        let ended = load.ended_at?;
        let is_told = load.state.as_str() == FAILED
            && now < ended + FAILED_KEPT_MS
            && !is_settled(load.namespace, load.created_at);
        is_told.then_some((ended, id, load))
    });
    let mut failed: Vec<_> = failed.collect();
    failed.sort_by_key(|(ended, ..)| Reverse(*ended));
    let told = failed
        .into_iter()
        .take(FAILED_MAX)
        .map(|(ended, id, load)| {
            let reason = load.reason.as_deref().unwrap_or("no reason is known");
            let reason: String = reason.chars().take(REASON_LEN_MAX).collect();
            let sentence = format!("load {id} of namespace {} has failed: {reason}", load.name);
            let end = format!(
                "load {id} of namespace {} is settled, or its failure is a day old",
                load.name
            );
            Found {
                end: Some(end),
                since_ms: Some(ended),
                ..state(&LOAD_FAILED, id, sentence)
            }
        });
    told.collect()
}

/// Joins the findings of shards with the same cause.
pub(super) fn joined(findings: impl Iterator<Item = DiagnosisFinding>) -> Vec<DiagnosisFinding> {
    let mut by_cause: BTreeMap<String, Vec<DiagnosisFinding>> = BTreeMap::new();
    let mut all = Vec::new();
    for finding in findings {
        match finding.sentence.split_once(" is ") {
            Some((_, cause)) if finding.rule == SHARD.name => {
                by_cause.entry(cause.to_owned()).or_default().push(finding);
            }
            _ => all.push(finding),
        }
    }
    for (cause, mut shards) in by_cause {
        shards.sort_by_key(|one| one.subject.parse::<u16>().unwrap_or(u16::MAX));
        let numbers: Vec<_> = shards.iter().map(|one| one.subject.clone()).collect();
        let since_ms = shards.iter().map(|one| one.since_ms).min();
        let Some(mut first) = shards.into_iter().next() else {
            continue;
        };
        if numbers.len() > 1 {
            first.subject = numbers.join(", ");
            first.sentence = format!("shards {} are {cause}", shortened(&first.subject));
            first.since_ms = since_ms.unwrap_or(first.since_ms);
        }
        all.push(first);
    }
    all
}

#[cfg(test)]
mod tests {
    use umbo_observe::Findings;
    use umbo_types::ShardId;

    use super::*;

    fn node(name: &str, failure: Option<&str>, map_version: u64) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            failure: failure.map(str::to_owned),
            map_version: Some(map_version),
            shards: Vec::new(),
            in_flight: Some(0),
            clock_ahead: None,
            program_version: None,
        }
    }

    fn sentences(found: &[Found]) -> Vec<&str> {
        found.iter().map(|one| &*one.sentence).collect()
    }

    #[test]
    fn nodes_that_are_away_and_maps_that_differ_are_told() {
        let nodes = [node("a", None, 1), node("b", Some("refused"), 1)];
        let found = of_nodes(&nodes);
        assert_eq!(sentences(&found), ["node 'b' is not reachable: refused"]);
        let mut findings = Findings::default();
        let kinds = |events: Vec<umbo_api::observe::Event>| -> Vec<_> {
            events.into_iter().map(|one| (one.kind, one.text)).collect()
        };
        let lost = (
            EventKind::NodeLost,
            "node 'b' is not reachable: refused".to_owned(),
        );
        assert_eq!(kinds(findings.look(1, found)), [lost]);
        let back = (
            EventKind::NodeBack,
            "node 'b' is reachable again, or has left the cluster".to_owned(),
        );
        assert_eq!(kinds(findings.look(2, of_nodes(&nodes[..1]))), [back]);
        let maps = of_nodes(&[node("a", None, 1), node("b", None, 2)]);
        assert_eq!(
            sentences(&maps),
            ["nodes go by different maps: versions 1, 2"]
        );
    }

    #[test]
    fn shards_of_one_cause_are_one_sentence() {
        let away = || ShardState::Unavailable("node b: is away".to_owned());
        let shards = [
            ShardStatus::new(ShardId(0), ShardState::Available),
            ShardStatus::new(ShardId(1), away()),
            ShardStatus::new(ShardId(2), ShardState::ReadOnly("disk full".to_owned())),
            ShardStatus::new(ShardId(10), away()),
            ShardStatus::new(ShardId(3), away()),
        ];
        let mut findings = Findings::default();
        let events = findings.look(1, of_shards(&shards));
        let told: Vec<_> = events
            .iter()
            .map(|one| (&*one.subject, &*one.text))
            .collect();
        assert_eq!(told[1], ("10", "shard 10 is unavailable: node b: is away"));
        let mut joined = joined(findings.current());
        joined.sort_by(|one, other| one.sentence.cmp(&other.sentence));
        let told: Vec<_> = joined.iter().map(|one| &*one.sentence).collect();
        let expected = [
            "shard 2 is read-only: disk full",
            "shards 1, 3, 10 are unavailable: node b: is away",
        ];
        assert_eq!(told, expected);
        assert_eq!(joined[1].subject, "1, 3, 10");
    }

    #[test]
    fn certificates_that_end_soon_or_have_ended_are_told() {
        let day = |day: u64| Timestamp(day * DAY_MS * 1_000);
        let ends = [
            ("a.pem", 120),
            ("b.pem", 113),
            ("c.pem", 114),
            ("d.pem", 100),
        ];
        let ends = ends.map(|(file, at)| (file.to_owned(), day(at)));
        let found = of_certificates(&ends, day(100));
        let expected = [
            "the certificate in b.pem ends in 13 days",
            "the certificate in d.pem has ended",
        ];
        assert_eq!(sentences(&found), expected);
    }

    #[test]
    fn versions_that_differ_are_told_after_an_hour() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(of_versions(&[own.to_owned()]), None);
        let others = [own, "9.1.0", "9.0.0", "9.1.0"].map(str::to_owned);
        let found = of_versions(&others).unwrap();
        let expected = format!("the fleet runs versions {own}, 9.0.0, 9.1.0");
        assert_eq!(found.sentence, expected);
        let mut findings = Findings::default();
        for (second, told) in [(0, 0), (3_599, 0), (3_600, 1)] {
            findings.look(second * 1_000, of_versions(&others).into_iter().collect());
            assert_eq!(findings.current().count(), told, "{second}");
        }
    }

    #[test]
    fn a_backup_is_old_after_twice_the_time_between_backups() {
        let hour = DAY_MS / 24;
        let backup = |at: u64| CompletedBackup {
            ended_ms: at * hour + 60_000,
            seconds: 60,
            ..CompletedBackup::default()
        };
        let told = |hours: &[u64], now: u64| {
            let backups: Vec<_> = hours.iter().map(|at| backup(1_000 + at)).collect();
            of_backups(&backups, (1_000 + now) * hour).map(|found| found.sentence)
        };
        assert_eq!(
            told(&[], 9_000),
            None,
            "without backups no backup is missed"
        );
        assert_eq!(told(&[0], 167), None);
        let only = "the last backup is 7 days old; it is the only one";
        assert_eq!(told(&[0], 168).as_deref(), Some(only));
        assert_eq!(told(&[48, 24, 0], 48 + 47), None);
        let daily = "the last backup is 2 days old; those before were at most 24 hours apart";
        assert_eq!(told(&[48, 24, 0], 48 + 48).as_deref(), Some(daily));
        // Two in a row by hand are no habit of minutes, and the longest pause counts.
        assert_eq!(told(&[1, 0], 24), None);
        let often = "the last backup is 24 hours old; those before were at most 12 hours apart";
        assert_eq!(told(&[1, 0], 25).as_deref(), Some(often));
        assert_eq!(told(&[97, 73, 1, 0], 97 + 143), None);
        // A caller may report any time.
        let endless = CompletedBackup {
            seconds: u64::MAX,
            ..backup(1_000)
        };
        assert!(of_backups(&[endless.clone(), endless], 1_000 * hour).is_some());
        // A clock that was put back.
        assert_eq!(told(&[48, 0], 1), None);
    }

    #[test]
    fn a_refused_priority_is_told() {
        let found = of_priority(Some("permission denied (os error 1)")).unwrap();
        let told = "long reads and loads have the priority of short requests: permission denied (os error 1)";
        assert_eq!(found.sentence, told);
        assert_eq!(of_priority(None), None);
    }
}
