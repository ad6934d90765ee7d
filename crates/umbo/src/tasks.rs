//! Tasks in the background of a process, which end before it does.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks that are stopped together.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Does work until the stop.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_stoppable(|stop| async move {
            stop.run_until_cancelled(work).await;
        });
    }

    /// Does work that ends by itself once its token is cancelled.
    pub(crate) fn spawn_stoppable<W>(&self, work: impl FnOnce(CancellationToken) -> W)
    where
        W: Future<Output: Send> + Send + 'static,
    {
        self.tracker.spawn(work(self.stop.clone()));
    }

    /// Waits until all work has ended by itself.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Stops the work, and waits for its end.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.ended().await;
    }
}

/// Does work at each tick, in an endless loop. A missed tick is not made up for: the next one does its work too.
pub(crate) async fn at_each<W: Future<Output = ()>>(
    interval: Duration,
    mut work: impl FnMut() -> W,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        work().await;
    }
}
