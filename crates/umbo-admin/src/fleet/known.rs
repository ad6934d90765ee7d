//! The servers that were seen of late, and their last answers. Bounded.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use umbo_api::fleet::{FleetProcess, ProcessInfo, ProcessState};

use super::answer::ServerAnswer;

/// How long a server that is away is listed, in milliseconds: an hour.
const AWAY_MS_MAX: u64 = 60 * 60 * 1_000;
/// Most servers that are listed as away.
const AWAY_MAX: usize = 64;
/// Most answers that are kept: of 32 servers, those to 8 questions.
const ANSWERS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// Longest answer that is kept, in bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct KnownProcesses {
    processes: BTreeMap<u64, FleetProcess>,
    /// The last answers to observers of all, and when they came.
    answers: LruCache<(u64, String), LastAnswer>,
}

/// When an answer came, in milliseconds since the Unix epoch, and the answer.
type LastAnswer = (u64, ServerAnswer);

impl Default for KnownProcesses {
    fn default() -> Self {
        Self {
            processes: BTreeMap::new(),
            answers: LruCache::new(ANSWERS_MAX),
        }
    }
}

/// Describes a server that answers now.
pub(super) fn live(id: u64, about: ProcessInfo, is_self: bool, now_ms: u64) -> FleetProcess {
    FleetProcess {
        id: format!("{id:016x}"),
        about,
        is_self,
        state: ProcessState::Live,
        seen_ms: now_ms,
        owns_quotas: false,
    }
}

impl KnownProcesses {
    /// Takes notice of the servers that are live, and returns all that are known: this one first, then by name.
    pub(super) fn update(
        &mut self,
        live: Vec<(u64, FleetProcess)>,
        now_ms: u64,
    ) -> Vec<(u64, FleetProcess)> {
        for process in self.processes.values_mut() {
            process.state = ProcessState::Away;
            process.owns_quotas = false;
        }
        self.processes.extend(live);
        let is_listed = |process: &FleetProcess| {
            process.state == ProcessState::Live
                || now_ms.saturating_sub(process.seen_ms) < AWAY_MS_MAX
        };
        self.processes.retain(|_, process| is_listed(process));
        while self.processes.len() > AWAY_MAX {
            let away = self.processes.iter();
            let away = away.filter(|(_, process)| process.state == ProcessState::Away);
            let Some(oldest) = away
                .min_by_key(|(_, process)| process.seen_ms)
                .map(|(id, _)| *id)
            else {
                break;
            };
            self.processes.remove(&oldest);
        }
        let mut all: Vec<_> = self
            .processes
            .iter()
            .map(|(id, process)| (*id, process.clone()))
            .collect();
        all.sort_by(|(one_id, one), (other_id, other)| {
            let key = |process: &FleetProcess| (!process.is_self, process.about.name.clone());
            (key(one), one_id).cmp(&(key(other), other_id))
        });
        all
    }

    /// Keeps the answer of a server, unless it is long or the rest of an earlier one: it would show nothing of a server
    /// that is away.
    pub(super) fn keep(&mut self, id: u64, path: &str, at_ms: u64, answer: &ServerAnswer) {
        if answer.1.len() <= ANSWER_LEN_MAX && !path.contains("since") {
            let last = (at_ms, answer.clone());
            self.answers.put((id, path.to_owned()), last);
        }
    }

    /// Returns the last answer of a server to a question.
    pub(super) fn last_answer(&mut self, id: u64, path: &str) -> Option<LastAnswer> {
        self.answers.get(&(id, path.to_owned())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn process(id: u64, name: &str, now_ms: u64) -> (u64, FleetProcess) {
        let about = ProcessInfo {
            name: name.to_owned(),
            ..ProcessInfo::default()
        };
        (id, live(id, about, name == "self", now_ms))
    }

    #[test]
    fn a_server_that_is_away_is_listed_for_an_hour_with_its_last_answer() {
        let mut known = KnownProcesses::default();
        let all = known.update(vec![process(2, "a", 10), process(1, "self", 10)], 10);
        let names: Vec<_> = all.iter().map(|(_, one)| one.about.name.as_str()).collect();
        assert_eq!(names, ["self", "a"]);
        known.keep(2, "/x", 10, &(200, Bytes::from_static(b"{}")));
        let all = known.update(vec![process(1, "self", 20)], 20);
        assert_eq!((all[1].1.state, all[1].1.seen_ms), (ProcessState::Away, 10));
        assert_eq!(known.last_answer(2, "/x").map(|last| last.0), Some(10));
        assert!(known.last_answer(2, "/y").is_none());
        let later = 10 + AWAY_MS_MAX;
        assert_eq!(
            known.update(vec![process(1, "self", later)], later).len(),
            1
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut known = KnownProcesses::default();
        for id in 0..1_000 {
            known.update(vec![process(id, "a", id)], id);
            known.keep(id, "/x", id, &(200, Bytes::from_static(b"1")));
        }
        assert_eq!(known.processes.len(), AWAY_MAX);
        assert_eq!(known.answers.len(), ANSWERS_MAX.get());
        let long = Bytes::from(vec![b'1'; ANSWER_LEN_MAX + 1]);
        known.keep(7, "/x", 7, &(200, long));
        assert!(known.last_answer(7, "/x").is_none());
        known.keep(8, "/x?since_ms=7", 7, &(200, Bytes::from_static(b"1")));
        assert!(known.last_answer(8, "/x?since_ms=7").is_none());
    }
}
