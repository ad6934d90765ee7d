//! Findings over time. A finding begins when its condition has lasted, and ends when the condition has been gone for
//! long enough.
//!
//! A finding is told as an event when it begins and when it ends. Its sentence keeps its numbers for a while, so that
//! all who read it within that time read the same.

use std::collections::BTreeMap;

use umbo_api::diagnosis::{DiagnosisFinding, FindingSeverity};
use umbo_api::observe::{Event, EventKind};

/// Most findings that are kept: 512 shards, 512 nodes twice, and some more.
const FINDINGS_MAX: usize = 2_048;
/// Longest time after its begin at which a finding is told as an event: an older one was told by an earlier process.
const TOLD_MS: u64 = 60_000;
/// How long a sentence keeps its numbers, in milliseconds. The reasons of states are always the newest.
const SENTENCE_KEPT_MS: u64 = 30_000;

/// A rule of the diagnosis.
#[derive(Debug, PartialEq, Eq)]
pub struct FindingRule {
    /// Name on the wire.
    pub name: &'static str,
    /// How much its findings matter.
    pub severity: FindingSeverity,
    /// View of the operators' page that shows more.
    pub view: &'static str,
    /// What to do about its findings.
    pub advice: &'static str,
    /// For how long the condition lasts before a finding begins, and is gone before it ends, in seconds. Both are 0 for
    /// a state.
    pub lasts: [u64; 2],
    /// Kinds of the events of a begin and an end; `None` if something else tells them.
    pub events: Option<[EventKind; 2]>,
}

/// What a rule found at one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The rule.
    pub rule: &'static FindingRule,
    /// Name of the caller, node or other thing; see [`DiagnosisFinding::subject`].
    pub subject: String,
    /// One sentence.
    pub sentence: String,
    /// Text of the event of its end.
    pub end: Option<String>,
    /// When it began, in milliseconds since the Unix epoch, if that is known; otherwise it begins with the first look.
    pub since_ms: Option<u64>,
}

#[derive(Debug)]
struct StandingFinding {
    found: Found,
    worded_ms: u64,
    first_ms: u64,
    last_ms: u64,
    has_begun: bool,
}

/// The findings of some rules, over time.
#[derive(Debug, Default)]
pub struct Findings {
    standing: BTreeMap<(&'static str, String), StandingFinding>,
    checked_ms: u64,
}

impl Findings {
    /// Takes the findings of a look, and returns the events of begins and ends.
    pub fn look(&mut self, now_ms: u64, found: Vec<Found>) -> Vec<Event> {
        // The wall clock may go back: the times go back with it.
        let back = self.checked_ms.saturating_sub(now_ms);
        for one in self.standing.values_mut() {
            for at in [&mut one.worded_ms, &mut one.first_ms, &mut one.last_ms] {
                *at = at.saturating_sub(back);
            }
        }
        self.checked_ms = now_ms;
        for found in found {
            let key = (found.rule.name, found.subject.clone());
            if self.standing.len() >= FINDINGS_MAX && !self.standing.contains_key(&key) {
                continue;
            }
            let standing = self.standing.entry(key).or_insert_with(|| StandingFinding {
                found: found.clone(),
                worded_ms: now_ms,
                first_ms: found.since_ms.map_or(now_ms, |since| since.min(now_ms)),
                last_ms: now_ms,
                has_begun: false,
            });
            standing.last_ms = now_ms;
            let is_state = found.rule.lasts == [0, 0];
            if is_state || !standing.has_begun || now_ms >= standing.worded_ms + SENTENCE_KEPT_MS {
                (standing.found, standing.worded_ms) = (found, now_ms);
            }
        }
        let mut events = Vec::new();
        self.standing
            .retain(|_, standing| standing.goes_on(now_ms, &mut events));
        events
    }

    /// Returns the findings that have begun.
    pub fn current(&self) -> impl Iterator<Item = DiagnosisFinding> {
        let begun = self.standing.values().filter(|one| one.has_begun);
        begun.map(|one| DiagnosisFinding {
            rule: one.found.rule.name.to_owned(),
            subject: one.found.subject.clone(),
            severity: one.found.rule.severity,
            since_ms: one.first_ms,
            sentence: one.found.sentence.clone(),
            advice: one.found.rule.advice.to_owned(),
            view: one.found.rule.view.to_owned(),
        })
    }

    /// Returns when the last look was, in milliseconds since the Unix epoch.
    pub fn checked_ms(&self) -> u64 {
        self.checked_ms
    }
}

impl StandingFinding {
    /// Begins or ends the finding if it is time to. Returns whether it is kept.
    fn goes_on(&mut self, now_ms: u64, events: &mut Vec<Event>) -> bool {
        let rule = self.found.rule;
        let [begins_after, ends_after] = rule.lasts.map(|seconds| seconds * 1_000);
        let mut tell = |at: usize, text| {
            let kind = rule.events.map(|kinds| kinds[at]);
            events.extend(kind.map(|kind| Event::new(now_ms, kind, &*self.found.subject, text)));
        };
        if self.last_ms == now_ms {
            if !self.has_begun && now_ms >= self.first_ms + begins_after {
                self.has_begun = true;
                if now_ms < self.first_ms + TOLD_MS {
                    tell(0, self.found.sentence.clone());
                }
            }
            return true;
        }
        if self.has_begun && now_ms < self.last_ms + ends_after {
            return true;
        }
        if self.has_begun {
            let seconds = (self.last_ms - self.first_ms) / 1_000;
            let over = || format!("over after {seconds} s: {}", self.found.sentence);
            tell(1, self.found.end.clone().unwrap_or_else(over));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static RATE: FindingRule = FindingRule {
        name: "rate",
        severity: FindingSeverity::Warning,
        view: "overview",
        advice: "look",
        lasts: [2, 10],
        events: Some([EventKind::TroubleBegan, EventKind::TroubleEnded]),
    };
    static STATE: FindingRule = FindingRule {
        name: "state",
        lasts: [0, 0],
        events: Some([EventKind::NodeLost, EventKind::NodeBack]),
        ..RATE
    };

    fn found(rule: &'static FindingRule, sentence: &str) -> Vec<Found> {
        vec![Found {
            rule,
            subject: "b".to_owned(),
            sentence: sentence.to_owned(),
            end: None,
            since_ms: None,
        }]
    }

    fn texts(events: Vec<Event>) -> Vec<String> {
        events.into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn a_rate_is_told_once_it_lasts_and_ends_once_it_is_gone_for_long() {
        let mut findings = Findings::default();
        assert_eq!(findings.look(1_000, found(&RATE, "1/s")), []);
        assert_eq!(findings.look(2_000, found(&RATE, "2/s")), []);
        assert_eq!(findings.current().count(), 0);
        assert_eq!(texts(findings.look(3_000, found(&RATE, "3/s"))), ["3/s"]);
        for second in 4..13 {
            assert_eq!(findings.look(second * 1_000, found(&RATE, "9/s")), []);
        }
        let now: Vec<_> = findings.current().collect();
        assert_eq!((now[0].since_ms, &*now[0].sentence), (1_000, "3/s"));
        assert_eq!(findings.look(40_000, found(&RATE, "9/s")), []);
        assert_eq!(findings.current().next().unwrap().sentence, "9/s");
        assert_eq!(findings.look(49_000, Vec::new()), []);
        let ended = findings.look(50_000, Vec::new());
        assert_eq!(texts(ended), ["over after 39 s: 9/s"]);
        assert_eq!(findings.current().count(), 0);
    }

    #[test]
    fn a_moment_is_forgotten() {
        let mut findings = Findings::default();
        for second in [1, 3, 5] {
            let events = findings.look(second * 1_000, found(&RATE, "1/s"));
            assert_eq!(events, []);
            assert_eq!(findings.look((second + 1) * 1_000, Vec::new()), []);
        }
        assert_eq!(findings.current().count(), 0);
    }

    #[test]
    fn a_state_is_told_at_once_with_its_newest_reason() {
        let mut findings = Findings::default();
        let begun = findings.look(1_000, found(&STATE, "away: refused"));
        assert_eq!(texts(begun), ["away: refused"]);
        assert_eq!(findings.look(1_100, found(&STATE, "away: no route")), []);
        assert_eq!(
            findings.current().next().unwrap().sentence,
            "away: no route"
        );
        let ended = findings.look(1_200, Vec::new());
        assert_eq!(ended[0].kind, EventKind::NodeBack);
        assert_eq!(findings.current().count(), 0);
    }

    #[test]
    fn a_clock_that_goes_back_keeps_no_finding() {
        let mut findings = Findings::default();
        findings.look(3_600_000, found(&STATE, "away"));
        assert_eq!(findings.look(1_000, found(&STATE, "away")), []);
        assert_eq!(findings.current().next().unwrap().since_ms, 1_000);
        assert_eq!(findings.look(2_000, Vec::new()).len(), 1);
        assert_eq!(findings.current().count(), 0);
        findings.look(3_000, found(&RATE, "1/s"));
        assert_eq!(findings.look(1_000, found(&RATE, "1/s")), []);
        assert_eq!(texts(findings.look(3_000, found(&RATE, "1/s"))), ["1/s"]);
    }

    #[test]
    fn a_finding_of_an_earlier_process_keeps_its_begin_and_is_not_told_again() {
        let since = |since_ms| Found {
            since_ms: Some(since_ms),
            ..found(&STATE, "failed").remove(0)
        };
        let mut findings = Findings::default();
        assert_eq!(findings.look(90_000, vec![since(1_000)]), []);
        assert_eq!(findings.current().next().unwrap().since_ms, 1_000);
        let mut findings = Findings::default();
        assert_eq!(
            texts(findings.look(90_000, vec![since(89_000)])),
            ["failed"]
        );
    }

    #[test]
    fn findings_are_bounded() {
        let mut findings = Findings::default();
        let many = (0..2 * FINDINGS_MAX).map(|at| Found {
            subject: at.to_string(),
            ..found(&STATE, "away").remove(0)
        });
        findings.look(1_000, many.collect());
        assert_eq!(findings.current().count(), FINDINGS_MAX);
    }
}
