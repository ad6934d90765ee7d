//! The record of a request in words: what happened, and what to do about it.
//!
//! For a code that no sentence here is about, its meaning in the contract says both.

use std::fmt::Write as _;
use std::time::Duration;

use umbo_api::{ErrorCode, ErrorKind};
use umbo_observe::request_records::{KeptAs, PolicyRecord, ReasonCount, RequestRecord};
use umbo_quota::Unit;

/// Stands for the code of a request whose client did not wait for the answer.
pub(super) const CLIENT_LEFT: &str = "client-left";

/// Returns the name of a code.
pub(super) const fn code_name(code: Option<ErrorCode>) -> &'static str {
    match code {
        Some(code) => code.as_str(),
        None => CLIENT_LEFT,
    }
}

/// Returns microseconds in milliseconds.
pub(super) fn millis(micros: u32) -> f64 {
    f64::from(micros) / 1e3
}

/// Returns the unit of a policy.
pub(super) fn unit(record: &PolicyRecord) -> Unit {
    let unit = Unit::ALL.get(usize::from(record.unit));
    unit.copied().unwrap_or(Unit::Ru)
}

/// Returns a balance in units, for people.
pub(super) fn balance(record: &PolicyRecord) -> f64 {
    let amount = unit(record).as_f64(record.balance.unsigned_abs());
    if record.balance < 0 { -amount } else { amount }
}

/// Says what happened to a request and what to do.
pub(super) fn of_record(record: &RequestRecord, slow_from: Duration, older: u16) -> String {
    let mut text = subject(record);
    let total = millis(record.times.total_micros);
    match record.code {
        Some(code) => {
            let word = match code.kind() {
                ErrorKind::Refused => "refused",
                other => other.as_str(),
            };
            let (status, code) = (record.status, code.as_str());
            let _ = write!(
                text,
                " was {word} with {status} ({code}) after {total} ms, in the phase '{}'.",
                record.phase
            );
        }
        None if record.status == 0 => {
            let phase = record.phase;
            let _ = write!(
                text,
                " was left by its client after {total} ms, in the phase '{phase}', before it was answered."
            );
        }
        None => {
            let _ = write!(text, " was served with {} in {total} ms.", record.status);
        }
    }
    if let Some(detail) = &record.detail {
        let _ = write!(text, " The answer said: {detail}.");
    }
    text.push(' ');
    match (record.code, record.kept_as) {
        (Some(ErrorCode::QuotaExceeded), _) => match record.rejected_by() {
            Some(policy) => text.push_str(&spent(policy, record)),
            None => text.push_str(ErrorCode::QuotaExceeded.meaning()),
        },
        (Some(ErrorCode::Overloaded), _) => text.push_str(&overloaded(record)),
        (Some(code), _) => text.push_str(code.meaning()),
        (None, KeptAs::Slow) => text.push_str(&slow(record, slow_from)),
        (None, _) if record.status == 0 => {
            text.push_str("The client closed the connection early: its timeout may be too short.");
        }
        (None, _) => text.push_str("It is one of the sample of requests that were served in time."),
    }
    if older > 0 {
        let _ = write!(
            text,
            " There were {older} older requests with the same id, which a client may choose; this is the newest."
        );
    }
    text
}

fn subject(record: &RequestRecord) -> String {
    let mut text = format!("The {}", record.operation.as_str());
    if let Some(namespace) = &record.namespace {
        let _ = write!(text, " on namespace '{namespace}'");
    }
    match &record.caller {
        Some(caller) => {
            let _ = write!(text, " of caller '{}'", caller.as_str());
        }
        None => text.push_str(" of a caller that was not identified"),
    }
    if let Some(called_by) = &record.called_by {
        let _ = write!(text, " (by '{}')", called_by.as_str());
    }
    text
}

/// Says which policy rejected a request.
fn spent(policy: &PolicyRecord, record: &RequestRecord) -> String {
    let (name, unit) = (&policy.policy, unit(policy));
    let (rate, cost) = (unit.as_f64(policy.rate), unit.as_f64(policy.price));
    let (word, left) = (unit.as_str(), balance(policy));
    let shard = record.shard.filter(|_| policy.is_of_shard);
    let shard = shard.map_or_else(String::new, |shard| format!(" for shard {}", shard.0));
    let multiplier = record
        .charge
        .as_ref()
        .map_or(1.0, |charge| charge.price_multiplier);
    let mut text = format!(
        "Policy '{name}' refills {rate} {word} a second{shard}; the request would have taken {cost}, and {left} were left"
    );
    if policy.balance > 0 {
        let whom = if multiplier > 1.0 {
            "higher tiers"
        } else {
            "retries with a ticket"
        };
        let _ = write!(text, ", which are reserved for {whom}");
    }
    if policy.observed > 0 {
        let _ = write!(
            text,
            "; about {} {word}/s were asked for",
            unit.as_f64(policy.observed).round()
        );
    }
    if multiplier > 1.0 {
        let _ = write!(
            text,
            "; an overload of its shard multiplied the price by {multiplier}"
        );
    }
    let _ = write!(
        text,
        ". The answer named a wait of {} ms. Let the caller send less or spread it out; to see what it spends: \
         umbo quota users {name}. To allow more: umbo quota set {name} --rate …, after umbo quota simulate.",
        policy.wait_millis
    );
    text
}

/// Says how the shard was that shed a request.
fn overloaded(record: &RequestRecord) -> String {
    let mut text = match record.shard {
        Some(shard) => format!("Shard {} could not keep up", shard.0),
        None => "The shard could not keep up".to_owned(),
    };
    if let Some(moment) = &record.moment {
        let _ = write!(
            text,
            ": {} requests waited for its {} permits, and its pressure was {:.2}",
            moment.waiting, moment.limit, moment.pressure
        );
    }
    if let Some(tier) = record.criticality {
        let _ = write!(text, "; tier '{}' was shed", tier.as_str());
    }
    text.push_str(
        ". Nothing was applied, and a later retry may succeed. To see who loads the shard: umbo shed status and \
         umbo top; requests of callers above their fair share are shed first, and a quota keeps a caller below it.",
    );
    text
}

/// Says where the time of a slow request went.
fn slow(record: &RequestRecord, slow_from: Duration) -> String {
    let times = &record.times;
    let parts = [
        (
            times.prepare_micros,
            "before a shard was asked",
            "its body may have come slowly, or the threads of the server are late (umbo shed status)",
        ),
        (
            times.wait_micros,
            "in the queue of its shard",
            "the shard has more work than it can do: umbo shed status, umbo top",
        ),
        (
            times.fetch_micros,
            "in its shard",
            "its disk or a large commit may be slow: umbo status, umbo shard ls",
        ),
        (
            times.network_micros,
            "between dispatcher and shard node",
            "the node or the line to it is slow: umbo cluster status",
        ),
        (
            times.answer_micros,
            "after the shard had answered",
            "a stream takes as long as its client takes to read it",
        ),
    ];
    let (most, place, advice) = parts
        .into_iter()
        .max_by_key(|(micros, ..)| *micros)
        .unwrap_or_default();
    let shard = record
        .shard
        .map_or_else(String::new, |shard| format!(" (shard {})", shard.0));
    format!(
        "It is slow: 99 of 100 such requests take at most about {:.1} ms now. Most of its time, {} ms, passed \
         {place}{shard}; {advice}.",
        slow_from.as_secs_f64() * 1e3,
        millis(most),
    )
}

/// Says what a reason means.
pub(super) fn of_reason(count: &ReasonCount) -> String {
    let times = match count.count {
        1 => "Once".to_owned(),
        count => format!("{count} times"),
    };
    let Some(code) = count.code else {
        return format!(
            "{times}: its client left before it was answered. See the timeout of the client."
        );
    };
    let by = match (&count.policy, count.shard) {
        (Some(policy), Some(shard)) => format!("{times} by policy '{policy}' on shard {}", shard.0),
        (Some(policy), None) => format!("{times} by policy '{policy}'"),
        (None, Some(shard)) => format!("{times} on shard {}", shard.0),
        (None, None) => times,
    };
    format!("{by}: {}. {}", code.title(), code.meaning())
}

#[cfg(test)]
mod tests {
    use umbo_observe::request_records::{
        ChargeRecord, PolicyVerdict, RecordId, RequestTimes, ShardMoment,
    };
    use umbo_types::{CallerId, Criticality, Operation, RequestUnits, ShardId, Timestamp};

    use super::*;

    fn record(code: Option<ErrorCode>) -> RequestRecord {
        RequestRecord {
            id: RecordId::from_slice(b"a-1"),
            at: Timestamp::from_millis(1),
            operation: Operation::Get,
            caller: Some(CallerId::new("crawler")),
            called_by: None,
            namespace: Some("demo".into()),
            criticality: Some(Criticality::Sheddable),
            status: code.map_or(200, ErrorCode::status),
            code,
            kept_as: KeptAs::Refused,
            phase: "admit",
            times: RequestTimes {
                prepare_micros: 41,
                total_micros: 41,
                ..RequestTimes::default()
            },
            cache: None,
            shard: Some(ShardId(3)),
            attempts: 0,
            moment: None,
            charge: None,
            detail: None,
        }
    }

    fn text(record: &RequestRecord) -> String {
        of_record(record, Duration::from_millis(5), 0)
    }

    #[test]
    fn every_code_is_explained_with_what_to_do() {
        for code in ErrorCode::ALL {
            let said = text(&record(Some(*code)));
            let word = match code.kind() {
                ErrorKind::Refused => "refused",
                other => other.as_str(),
            };
            let head = format!(
                "The get on namespace 'demo' of caller 'crawler' was {word} with {} ({code}) after 0.041 ms, \
                 in the phase 'admit'. ",
                code.status()
            );
            let tail = said.strip_prefix(&head);
            assert!(tail.is_some_and(|tail| tail.len() > 20), "{said}");
            let count = ReasonCount {
                code: Some(*code),
                policy: None,
                shard: None,
                count: 2,
                last_at: Timestamp::from_millis(1),
                example: RecordId::new(),
            };
            assert!(of_reason(&count).starts_with("2 times: "), "{code}");
        }
    }

    #[test]
    fn a_rejection_names_its_policy_and_an_overload_its_shard() {
        let mut rejected = record(Some(ErrorCode::QuotaExceeded));
        rejected.charge = Some(Box::new(ChargeRecord {
            estimate: RequestUnits::from_micros(1_000_000),
            price_multiplier: 1.0,
            policies: Box::new([PolicyRecord {
                policy: "crawlers".into(),
                balance: -200_000,
                price: 1_000_000,
                rate: 100_000_000,
                observed: 401_000_000,
                wait_millis: 13,
                unit: 0,
                is_of_shard: false,
                is_of_fleet: false,
                verdict: PolicyVerdict::Rejected,
            }]),
            ..ChargeRecord::default()
        }));
        let said = text(&rejected);
        let expected = "Policy 'crawlers' refills 100 ru a second; the request would have taken 1, and -0.2 were \
                        left; about 401 ru/s were asked for. The answer named a wait of 13 ms.";
        assert!(said.contains(expected), "{said}");
        if let Some(policy) = rejected
            .charge
            .as_mut()
            .and_then(|charge| charge.policies.first_mut())
        {
            (policy.balance, policy.is_of_shard) = (1_425_988, true);
        }
        let said = text(&rejected);
        let expected = "refills 100 ru a second for shard 3; the request would have taken 1, and 1.425988 were left, \
                        which are reserved for retries with a ticket; about";
        assert!(said.contains(expected), "{said}");
        let mut shed = record(Some(ErrorCode::Overloaded));
        shed.moment = Some(ShardMoment {
            pressure: 0.5,
            limit: 18,
            in_flight: 18,
            waiting: 40,
        });
        let expected = "Shard 3 could not keep up: 40 requests waited for its 18 permits, and its pressure was 0.50; \
                        tier 'sheddable' was shed.";
        let said = text(&shed);
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_slow_request_says_where_its_time_went() {
        let mut slow = record(None);
        slow.kept_as = KeptAs::Slow;
        slow.times = RequestTimes {
            wait_micros: 80_000,
            total_micros: 81_000,
            ..RequestTimes::default()
        };
        let said = text(&slow);
        assert!(
            said.contains("80 ms, passed in the queue of its shard (shard 3)"),
            "{said}"
        );
        let mut left = record(None);
        left.status = 0;
        assert!(text(&left).contains("was left by its client after 0.041 ms"));
    }
}
