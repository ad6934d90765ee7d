//! Rules over the rates of a second: pure functions of the facts and of slow averages.

use umbo_api::diagnosis::FindingSeverity;
use umbo_api::hot::{BusyShardInfo, BusySourceInfo};
use umbo_api::key_text;
use umbo_api::observe::EventKind;
use umbo_api::shed::ShardOverload;
use umbo_observe::{FindingRule, Found};

use super::facts::{Facts, LOCAL, REJECTED_MIN};
use super::usual::SlowAverages;

/// Events of findings without more special kinds.
pub(super) const TROUBLE: Option<[EventKind; 2]> =
    Some([EventKind::TroubleBegan, EventKind::TroubleEnded]);

/// How many seconds a rate is unusual before it is told, and usual again before it is over: a burst is shorter.
const RATE_LASTS: [u64; 2] = [3, 10];
/// Seconds for conditions with another window or controller behind them.
const CONDITION_LASTS: [u64; 2] = [1, 10];
/// The latency of a node is one of several seconds already.
const NODE_LASTS: [u64; 2] = [0, 10];
/// A caller is unusual from this multiple of its usual requests on,
const CALLER_TIMES: f64 = 5.0;
/// from this share of the request units on, as a small caller may do as it likes,
const CALLER_SHARE: f64 = 0.2;
/// and from this many requests a second on, as few requests multiply by chance.
const CALLER_REQUESTS: f64 = 50.0;
/// A key is hot for an operator from this share of all reads on, and from this many reads a second on: fewer are no
/// load.
const KEY_SHARE: f64 = 0.5;
const KEY_READS: f64 = 200.0;
/// A shard is busy from half of a processor on, and a partition hot with more than half of that.
const BUSY: f64 = 0.5;
const BUSY_SHARE: f64 = 0.5;
/// A queue is long from this many waiting requests of a shard on; usually none waits.
const WAITING: u64 = 100;
/// A node is slow from this multiple of its usual p99 on, and from this many milliseconds above it: a disk takes some. So
/// is a commit.
const NODE_TIMES: f64 = 4.0;
const NODE_ABOVE_MS: f64 = 20.0;
/// A policy rejects much from this share of its caller's requests on.
const REJECTED_SHARE: f64 = 0.2;
/// Requests fail from this many a second on, and from this share of all on.
const FAILED: f64 = 1.0;
const FAILED_SHARE: f64 = 0.01;
/// A disk is nearly full below this share, but only if it is below this many bytes too: a tenth of a large disk lasts.
const DISK_SHARE: f64 = 0.1;
const DISK_FREE: f64 = 20.0 * GIB;
/// A disk that is full within this many seconds, as it has filled in the last minutes, is told: time to make room.
const DISK_FULL_WITHIN: f64 = 3_600.0;
const GIB: f64 = 1_073_741_824.0;
/// Longest name in a sentence, in characters.
const NAME_LEN_MAX: usize = 40;

static CALLER_UNUSUAL: FindingRule = FindingRule {
    name: "caller-unusual",
    severity: FindingSeverity::Warning,
    view: "callers",
    advice: "ask its owner; 'umbo quota set' holds it back",
    lasts: RATE_LASTS,
    events: TROUBLE,
};
static KEY_HOT: FindingRule = FindingRule {
    name: "key-hot",
    severity: FindingSeverity::Notice,
    view: "hot",
    advice: "its reads are served from memory; 'umbo hot block' refuses them",
    ..CALLER_UNUSUAL
};
static PARTITION_HOT: FindingRule = FindingRule {
    name: "partition-hot",
    view: "heat",
    advice: "spread its rows over several partition keys, or hold the caller back; see 'umbo hot busy'",
    ..CALLER_UNUSUAL
};
static SHARD_OVERLOADED: FindingRule = FindingRule {
    name: "shard-overloaded",
    severity: FindingSeverity::Problem,
    view: "overload",
    advice: "hold back who causes it; see 'umbo shed status' and 'umbo hot busy'",
    lasts: CONDITION_LASTS,
    // Its episodes are told as events.
    events: None,
};
static QUEUE_LONG: FindingRule = FindingRule {
    name: "queue-long",
    severity: FindingSeverity::Warning,
    events: TROUBLE,
    lasts: RATE_LASTS,
    ..SHARD_OVERLOADED
};
static NODE_SLOW: FindingRule = FindingRule {
    name: "node-slow",
    severity: FindingSeverity::Problem,
    view: "storage",
    advice: "look at its disk, processor and network; see 'umbo shard ls'",
    lasts: NODE_LASTS,
    ..CALLER_UNUSUAL
};
static QUOTA_REJECTS: FindingRule = FindingRule {
    name: "quota-rejects",
    view: "quotas",
    advice: "let the caller slow down, or raise the limit: 'umbo quota simulate', 'umbo quota set'",
    ..CALLER_UNUSUAL
};
static REQUESTS_FAIL: FindingRule = FindingRule {
    name: "requests-fail",
    severity: FindingSeverity::Problem,
    view: "overview",
    advice: "see the other findings, 'umbo why' and the server's log",
    ..CALLER_UNUSUAL
};
static DISK_NEARLY_FULL: FindingRule = FindingRule {
    name: "disk-nearly-full",
    severity: FindingSeverity::Warning,
    view: "storage",
    advice: "remove rows or give them a time to live, move shards, or give the disk more space; see 'umbo ns ls'",
    lasts: CONDITION_LASTS,
    events: TROUBLE,
};
static DISK_FILLS: FindingRule = FindingRule {
    name: "disk-fills",
    ..DISK_NEARLY_FULL
};
static LOADS_STUCK: FindingRule = FindingRule {
    name: "loads-stuck",
    severity: FindingSeverity::Warning,
    view: "loads",
    advice: "see the reasons in 'umbo load ls'",
    lasts: CONDITION_LASTS,
    events: TROUBLE,
};

/// Returns the findings of a second.
pub(super) fn found(facts: &Facts, usual: &SlowAverages) -> Vec<Found> {
    let mut found = unusual_callers(facts, usual);
    found.extend(hot_keys(facts));
    found.extend(hot_partitions(facts));
    found.extend(crowded_shards(facts, usual));
    found.extend(slow_nodes(facts, usual));
    found.extend(rejecting_policies(facts));
    found.extend(failing_requests(facts));
    found.extend(disk(facts, usual));
    found.extend(stuck_loads(facts.loads_stuck));
    found
}

/// Learns the facts of a second, and which of them are unusual.
#[expect(
    clippy::cast_precision_loss,
    reason = "disks have fewer than 2^53 bytes"
)]
pub(super) fn learn(facts: &Facts, found: &[Found], usual: &mut SlowAverages) {
    let is_found = |rule: &str, subject: &str| {
        let mut found = found.iter();
        found.any(|one| one.rule.name == rule && one.subject == subject)
    };
    for (name, caller) in &facts.callers {
        let is_unusual = is_found(CALLER_UNUSUAL.name, name);
        usual.callers.learn(name, caller.requests, is_unusual);
    }
    let is_there = |name: &str| facts.callers.contains_key(name);
    usual.callers.learn_absent(is_there);
    for node in &facts.nodes {
        if let Some(p99_ms) = node.p99_ms() {
            let is_unusual = is_found(NODE_SLOW.name, &node.name);
            usual.nodes.learn(&node.name, p99_ms, is_unusual);
        }
        usual.learn_commits(&node.name, node.commits, is_slow);
    }
    if let Some(disk) = &facts.disk
        && let Some(before) = usual.disk_free.replace(disk.free)
    {
        let shrunk = before as f64 - disk.free as f64;
        usual.disk.learn("", shrunk, false);
    }
    let shards = facts.shards.iter();
    usual.shed = shards.map(|one| (one.shard, shed_total(one))).collect();
}

fn finding(rule: &'static FindingRule, subject: impl Into<String>, sentence: String) -> Found {
    Found {
        rule,
        subject: subject.into(),
        sentence,
        end: None,
        since_ms: None,
    }
}

fn unusual_callers(facts: &Facts, usual: &SlowAverages) -> Vec<Found> {
    let unusual = facts.callers.iter().filter_map(|(name, caller)| {
        let (now, usually) = (caller.requests, usual.callers.of(name)?);
        let share = caller.ru / facts.ru.max(caller.ru).max(f64::MIN_POSITIVE);
        let is_unusual =
            now >= CALLER_REQUESTS && now >= CALLER_TIMES * usually && share >= CALLER_SHARE;
        let than_usual = if usually < 0.5 {
            "usually next to none".to_owned()
        } else {
            format!("{} times its usual {}", number(now / usually), number(usually))
        };
        is_unusual.then(|| {
            let (shown, now) = (shortened(name), number(now));
            let sentence = format!(
                "caller {shown} sends {now} requests/s, {than_usual}, and takes {} of the request units",
                percent(share)
            );
            finding(&CALLER_UNUSUAL, name, sentence)
        })
    });
    unusual.collect()
}

fn hot_keys(facts: &Facts) -> Option<Found> {
    let report = facts.hot.as_ref()?;
    let hot = report.keys.iter().filter(|key| key.is_hot);
    let key = hot.max_by(|one, other| one.rate.total_cmp(&other.rate))?;
    let share = key.rate / report.pod.reads_rate.max(key.rate).max(f64::MIN_POSITIVE);
    if key.rate < KEY_READS || share < KEY_SHARE {
        return None;
    }
    let named = [&key.key.pk, &key.key.pk64, &key.key.sk, &key.key.sk64];
    let named = named.into_iter().flatten().map(String::as_str);
    let named: Vec<_> = named.filter(|part| !part.is_empty()).collect();
    let name = format!("{}/{}", key.key.namespace, named.join("/"));
    let caller = key.callers.first().map_or_else(String::new, |first| {
        let caller = shortened(&first.caller);
        format!(", {} of them by caller {caller}", percent(first.share))
    });
    let sentence = format!(
        "key {} gets {} reads/s, {} of all{caller}",
        shortened(&name),
        number(key.rate),
        percent(share),
    );
    Some(finding(&KEY_HOT, &*key.key.hash, sentence))
}

/// Returns the largest source of a busy shard, in words.
fn source_text(source: &BusySourceInfo) -> String {
    let or_dash =
        |name: &Option<String>| name.as_ref().map_or("-".to_owned(), |name| shortened(name));
    let mut text = format!(
        "{} by caller {}, namespace {}",
        source.operation,
        or_dash(&source.caller),
        or_dash(&source.namespace)
    );
    let partition = partition_of(source).map(|partition| shortened(&partition));
    text.extend(partition.map(|partition| format!(", partition {partition}")));
    text
}

fn partition_of(source: &BusySourceInfo) -> Option<String> {
    let partition = source.partition().unwrap_or_default();
    (!partition.is_empty()).then(|| key_text::format(&partition))
}

fn hot_partitions(facts: &Facts) -> Vec<Found> {
    let hot = facts.busy.iter().filter(|shard| shard.busy >= BUSY);
    let hot = hot.filter_map(|shard| {
        let first = (shard.sources.first()).filter(|first| first.share > BUSY_SHARE)?;
        let partition = partition_of(first)?;
        let sentence = format!(
            "partition {} keeps shard {} busy {} of the time: {} of it is {}",
            shortened(&partition),
            shard.shard,
            percent(shard.busy),
            percent(first.share),
            source_text(&BusySourceInfo {
                pk: None,
                pk64: None,
                ..first.clone()
            }),
        );
        let namespace = first.namespace.as_deref().unwrap_or("-");
        let subject = format!("{namespace}/{partition}");
        Some(finding(&PARTITION_HOT, subject, sentence))
    });
    hot.collect()
}

/// Returns how many requests of a shard were shed since the start.
fn shed_total(shard: &ShardOverload) -> u64 {
    shard.tiers.iter().flat_map(|tier| tier.shed.values()).sum()
}

fn crowded_shards(facts: &Facts, usual: &SlowAverages) -> Vec<Found> {
    let cause = |number: u16| {
        let busy = |one: &&BusyShardInfo| one.shard == number;
        let first = facts.busy.iter().find(busy)?.sources.first()?;
        Some(format!(
            ": {} of its time goes to {}",
            percent(first.share),
            source_text(first)
        ))
    };
    let crowded = facts.shards.iter().filter_map(|shard| {
        let (number, waiting) = (shard.shard, shard.queue.waiting);
        let (rule, text) = if shard.overloaded {
            let shed = usual.shed_now(number, shed_total(shard));
            (
                &SHARD_OVERLOADED,
                format!("shard {number} is overloaded and sheds {shed} requests/s"),
            )
        } else if waiting >= WAITING {
            (
                &QUEUE_LONG,
                format!("{waiting} requests wait for shard {number}"),
            )
        } else {
            return None;
        };
        let sentence = text + &cause(number).unwrap_or_default();
        Some(finding(rule, number.to_string(), sentence))
    });
    crowded.collect()
}

fn slow_nodes(facts: &Facts, usual: &SlowAverages) -> Vec<Found> {
    let slow = facts.nodes.iter().filter_map(|node| {
        let (now, usually) = (node.p99_ms()?, usual.nodes.of(&node.name)?);
        let (subject, shards) = if node.name == LOCAL {
            ("this server".to_owned(), String::new())
        } else {
            let shards: Vec<_> = node.shards.iter().map(ToString::to_string).collect();
            let shards = shortened(&shards.join(", "));
            (format!("node {}", node.name), format!(": shards {shards}"))
        };
        is_slow(now, usually).then(|| {
            let commit = usual.commit_ms(&node.name, node.commits);
            let commit = commit.zip(usual.commits.of(&node.name));
            let commit = commit.filter(|(now, usually)| is_slow(*now, *usually));
            let disk = commit.map_or_else(String::new, |(now, usually)| {
                let (now, usually) = (number(now), number(usually));
                format!("; its disk takes {now} ms for a commit, usually {usually} ms")
            });
            let (now, usually) = (number(now), number(usually));
            let sentence = format!(
                "{subject} answers in {now} ms (p99), usually in {usually} ms{shards}{disk}"
            );
            finding(&NODE_SLOW, &*node.name, sentence)
        })
    });
    slow.collect()
}

/// Returns whether milliseconds of a node are many, for a node that usually takes others.
fn is_slow(now: f64, usually: f64) -> bool {
    now >= NODE_TIMES * usually && now >= usually + NODE_ABOVE_MS
}

fn rejecting_policies(facts: &Facts) -> Vec<Found> {
    let rejecting = facts.policies.iter().filter_map(|policy| {
        let mut parts = policy.bucket.split(' ');
        let caller = parts.find_map(|part| part.strip_prefix("caller="));
        let of_caller = caller.and_then(|name| facts.callers.get(name));
        let asked = of_caller.map_or(facts.requests, |one| one.rejected + one.requests);
        let rejected = of_caller.map_or(policy.rejected, |one| policy.rejected.min(one.rejected));
        (rejected >= REJECTED_MIN && rejected >= REJECTED_SHARE * asked).then(|| {
            let of = caller.map_or_else(String::new, |name| format!(" of caller {}", shortened(name)));
            let (unit, asked, limit) = (policy.unit, number(policy.asked), number(policy.limit));
            let sentence = format!(
                "policy {} rejects {} requests/s{of}: {asked} {unit}/s are asked for and {limit} {unit}/s allowed",
                shortened(&policy.name),
                number(rejected),
            );
            finding(&QUOTA_REJECTS, &*policy.name, sentence)
        })
    });
    rejecting.collect()
}

fn failing_requests(facts: &Facts) -> Option<Found> {
    let share = facts.failed / facts.requests.max(f64::MIN_POSITIVE);
    (facts.failed >= FAILED && share >= FAILED_SHARE).then(|| {
        let sentence = format!(
            "{} requests/s fail, {} of all",
            number(facts.failed),
            percent(share)
        );
        finding(&REQUESTS_FAIL, "", sentence)
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn disk(facts: &Facts, usual: &SlowAverages) -> Option<Found> {
    let disk = facts.disk?;
    let (free, size) = (disk.free as f64, disk.size as f64);
    let left = format!("the disk has {} GiB free", number(free / GIB));
    if free < DISK_SHARE * size && free < DISK_FREE {
        let sentence = format!("{left}, {} of it", percent(free / size));
        return Some(finding(&DISK_NEARLY_FULL, "", sentence));
    }
    let shrinks = usual.disk.of("")?;
    let seconds = free / shrinks.max(f64::MIN_POSITIVE);
    (usual.disk.is_old("") && seconds < DISK_FULL_WITHIN).then(|| {
        let sentence = format!(
            "{left}, and is full in {} minutes at this rate",
            number(seconds / 60.0)
        );
        finding(&DISK_FILLS, "", sentence)
    })
}

fn stuck_loads(stuck: u64) -> Option<Found> {
    let loads = if stuck == 1 { "load has" } else { "loads have" };
    let sentence = format!("{stuck} {loads} waited for more than 10 minutes without progress");
    (stuck > 0).then(|| finding(&LOADS_STUCK, "", sentence))
}

/// Returns a number for people: with a decimal if it is small.
fn number(value: f64) -> String {
    if value >= 9.95 || (value - value.round()).abs() < 0.05 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(super) fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_LEN_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
