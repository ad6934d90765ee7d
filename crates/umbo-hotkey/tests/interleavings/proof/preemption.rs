//! All interleavings with at most so many preemptions, one after the other.
//!
//! Iterative context bounding (Musuvathi and Qadeer 2007). A task that has to wait hands over to
//! any other, and every choice of that is tried; a task that could go on is preempted at any point,
//! to any other, at most `preemptions_max` times in a run. The number of interleavings then grows
//! with a power of the length of a run instead of exponentially, and the faults that need few
//! preemptions, nearly all of those ever found, are found for certain.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Which of the tasks that may go on was chosen at a point.
#[derive(Debug, Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct PreemptionScheduler {
    preemptions_max: usize,
    runs_max: usize,
    runs: usize,
    choices: Vec<Choice>,
    step: usize,
    preemptions: usize,
    /// Whether there was nothing left to walk through.
    pub(crate) is_complete: Arc<AtomicBool>,
}

impl PreemptionScheduler {
    /// Walks through all interleavings with that many preemptions; gives up after `runs_max`.
    pub(crate) fn new(preemptions_max: usize, runs_max: usize) -> Self {
        Self {
            preemptions_max,
            runs_max,
            runs: 0,
            choices: Vec::new(),
            step: 0,
            preemptions: 0,
            is_complete: Arc::default(),
        }
    }

    /// Goes on to the next combination of choices; says whether there is one.
    fn advance(&mut self) -> bool {
        while let Some(last) = self.choices.last_mut() {
            last.taken += 1;
            if last.taken < last.of {
                return true;
            }
            self.choices.pop();
        }
        false
    }
}

impl Scheduler for PreemptionScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        let is_over = self.runs > 0 && !self.advance();
        if is_over {
            self.is_complete.store(true, Relaxed);
        }
        if is_over || self.runs == self.runs_max {
            return None;
        }
        self.runs += 1;
        self.step = 0;
        self.preemptions = 0;
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let may_go_on = |task: &&&Task| Some(task.id()) == current && !is_yielding;
        let going_on = runnable.iter().position(|task| may_go_on(&task));
        let of = match going_on {
            Some(_) if self.preemptions == self.preemptions_max => 1,
            _ => runnable.len(),
        };
        if self.step == self.choices.len() {
            self.choices.push(Choice { taken: 0, of });
        }
        let Choice { taken, of: was } = self.choices[self.step];
        assert_eq!(was, of, "a run depends on something besides its schedule");
        self.step += 1;
        // The first choice is to go on, where that is possible.
        let first = going_on.unwrap_or(0);
        self.preemptions += usize::from(going_on.is_some() && taken > 0);
        Some(runnable[(first + taken) % runnable.len()].id())
    }

    fn next_u64(&mut self) -> u64 {
        unreachable!("a program that is walked through takes no random numbers")
    }
}
