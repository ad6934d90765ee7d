//! The faults of a world, and their end.

use umbo_quota::{Limit, PolicySet};

use super::{Mail, NODES_MAX, World};
use crate::lies;
use crate::support::fleet_quota;

impl World {
    /// Lets something go wrong.
    pub(super) fn harm(&mut self) {
        let at = self.random.below(self.nodes.len() as u64) as usize;
        let id = self.nodes[at].id;
        let staying = self.nodes.iter().filter(|one| one.leaves_ms.is_none());
        let is_last = staying.count() < 2 || self.nodes[at].leaves_ms.is_some();
        match self.random.below(12) {
            0 | 1 if self.faults.deaths && !is_last => {
                self.gone.push((id, self.now_ms));
                for flight in self.nodes.remove(at).flights {
                    self.counters[flight.counter].lose(flight.beyond);
                }
                self.note(format!("{id:x} is killed"));
            }
            2 if self.faults.deaths && !is_last => {
                if let Some(row) = self.nodes[at].quota.leaving() {
                    self.send(Mail::Write(id, row), 5);
                }
                self.nodes[at].leaves_ms = Some(self.now_ms + 300);
                self.note(format!("{id:x} leaves"));
            }
            3 | 4 if self.faults.deaths && self.nodes.len() < NODES_MAX => self.begin(),
            5 if self.faults.cuts => {
                let groups = 1 + self.random.below(3);
                for node in &mut self.nodes {
                    node.group = self.random.below(groups);
                }
                let groups: Vec<_> = self.nodes.iter().map(|node| node.group).collect();
                self.note(format!("groups {groups:?}"));
            }
            6 if self.faults.cuts => {
                let node = &mut self.nodes[at];
                node.is_cut_from_row = !node.is_cut_from_row;
                let is_cut = node.is_cut_from_row;
                self.note(format!("{id:x} is cut off from the row: {is_cut}"));
            }
            7 | 8 if self.faults.policies => self.change_policies(),
            9 | 10 if self.faults.lies => self.lie(at),
            _ => {
                for counter in &mut self.counters {
                    counter.turn(&mut self.random);
                }
            }
        }
    }

    fn change_policies(&mut self) {
        let Limit { rate, burst } = self.counters[0].limit;
        let factor = self.random.pick(&[0, 1, 4]);
        let next = |now: u64, first: u64| match factor {
            0 => now,
            factor => (now * factor / 2).clamp(first / 4, first * 4),
        };
        let limit = Limit {
            rate: next(rate, self.first_limit.rate),
            burst: next(burst, self.first_limit.burst),
        };
        self.note(format!("{limit:?}, removed before: {}", factor == 0));
        self.policies = fleet_quota(limit, self.scope);
        for node in &self.nodes {
            if factor == 0 {
                node.limiter.replace(PolicySet::default());
            }
            node.limiter.replace(self.policies.clone());
        }
        for counter in &mut self.counters {
            counter.change(limit);
        }
    }

    fn lie(&mut self, at: usize) {
        let now = self.now();
        let ids: Vec<u64> = self.nodes.iter().map(|node| node.id).collect();
        for _ in 0..20 {
            let from = self.random.pick(&ids);
            let row = self.row().clone();
            let body = lies::report(&mut self.random, &ids, &row, &self.named);
            let _ = self.nodes[at].quota.hear(&body, now);
            let body = lies::reply(&mut self.random, &ids, &row);
            self.nodes[at].quota.answered(from, &body, now);
        }
        self.note("lies");
    }

    /// Ends all faults; each counter is asked for twice its rate from now on.
    pub(super) fn heal(&mut self) {
        (self.lost, self.late_ms) = (0.0, 3);
        for node in &mut self.nodes {
            (node.group, node.is_cut_from_row) = (0, false);
        }
        self.faults.deaths = false;
        for counter in &mut self.counters {
            counter.calm(&mut self.random);
        }
        self.note("calm");
    }
}
