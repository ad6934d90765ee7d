//! Tasks under simulated time: as a runtime runs them, but in one order, and nobody sleeps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

/// Work that may wait.
pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs tasks.
pub(super) struct Runner {
    agenda: Agenda,
    waiting: HashMap<u64, Task>,
    /// Number of the next task that has to wait, and what wakes it: nearly none has to.
    next: u64,
    waker: Waker,
}

/// What tasks have to do with each other and with time.
#[derive(Clone, Default)]
pub(super) struct Agenda(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now_ns: u64,
    woken: VecDeque<u64>,
    started: Vec<Task>,
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    /// Who sleeps, by number of the timer.
    sleepers: HashMap<u64, Waker>,
    timers_made: u64,
}

impl Agenda {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics with it")
    }

    /// Starts a task, once what runs now waits.
    pub(super) fn start(&self, task: Task) {
        self.state().started.push(task);
    }

    /// Waits until so many nanoseconds have passed.
    pub(super) fn sleep(&self, length_ns: u64) -> Sleep {
        let due_ns = self.state().now_ns + length_ns;
        let agenda = self.clone();
        Sleep { agenda, due_ns }
    }
}

/// Ends at its instant.
pub(super) struct Sleep {
    agenda: Agenda,
    due_ns: u64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.agenda.state();
        if state.now_ns >= self.due_ns {
            return Poll::Ready(());
        }
        let number = state.timers_made;
        state.timers_made += 1;
        state.timers.push(Reverse((self.due_ns, number)));
        state.sleepers.insert(number, context.waker().clone());
        Poll::Pending
    }
}

struct Call {
    agenda: Agenda,
    number: u64,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.agenda.state().woken.push_back(self.number);
    }
}

impl Runner {
    pub(super) fn new() -> Self {
        let agenda = Agenda::default();
        let waker = waker(&agenda, 0);
        Self {
            agenda,
            waiting: HashMap::new(),
            next: 0,
            waker,
        }
    }

    pub(super) fn agenda(&self) -> Agenda {
        self.agenda.clone()
    }

    /// Returns how many tasks wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Runs a task until it waits, and whatever that sets going.
    pub(super) fn run(&mut self, task: Task) {
        self.begin(task);
        self.run_ready();
    }

    /// Lets time pass, and runs all that is due meanwhile, in its order.
    pub(super) fn advance(&mut self, to_ns: u64) {
        while let Some(waker) = self.due(to_ns) {
            waker.wake();
            self.run_ready();
        }
        self.agenda.state().now_ns = to_ns;
    }

    /// Goes on to the next timer that is due by then.
    fn due(&self, to_ns: u64) -> Option<Waker> {
        let mut state = self.agenda.state();
        let Reverse((due_ns, number)) = *state.timers.peek()?;
        if due_ns > to_ns {
            return None;
        }
        state.timers.pop();
        state.now_ns = due_ns;
        state.sleepers.remove(&number)
    }

    fn begin(&mut self, mut task: Task) {
        let polled = task.as_mut().poll(&mut Context::from_waker(&self.waker));
        if polled.is_pending() {
            self.waiting.insert(self.next, task);
            self.next += 1;
            self.waker = waker(&self.agenda, self.next);
        }
    }

    fn run_ready(&mut self) {
        loop {
            let (task, number) = {
                let mut state = self.agenda.state();
                (state.started.pop(), state.woken.pop_front())
            };
            if task.is_none() && number.is_none() {
                return;
            }
            if let Some(task) = task {
                self.begin(task);
            }
            // One that has ended may have been woken more often than it needed.
            if let Some(number) = number
                && let Some(mut task) = self.waiting.remove(&number)
            {
                let waker = waker(&self.agenda, number);
                let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
                if polled.is_pending() {
                    self.waiting.insert(number, task);
                }
            }
        }
    }
}

fn waker(agenda: &Agenda, number: u64) -> Waker {
    let agenda = agenda.clone();
    Waker::from(Arc::new(Call { agenda, number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_end_in_the_order_of_their_instants() {
        let mut runner = Runner::new();
        let ended = Arc::new(Mutex::new(Vec::new()));
        for length_ns in [30, 10, 20] {
            let (agenda, ended) = (runner.agenda(), Arc::clone(&ended));
            let at_once = runner.agenda();
            runner.run(Box::pin(async move {
                agenda.sleep(length_ns).await;
                let later = agenda.clone();
                at_once.start(Box::pin(async move {
                    later.sleep(5).await;
                    let now_ns = later.state().now_ns;
                    ended.lock().unwrap().push(now_ns);
                }));
            }));
        }
        runner.advance(24);
        assert_eq!(*ended.lock().unwrap(), [15]);
        assert_eq!(runner.waiting(), 2);
        runner.advance(100);
        assert_eq!(*ended.lock().unwrap(), [15, 25, 35]);
        assert_eq!((runner.waiting(), runner.agenda().state().now_ns), (0, 100));
    }
}
