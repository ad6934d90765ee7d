//! Once a second: takes a sample of the metrics for the history, counts usage and ranks the callers, and looks for
//! faults and events.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use umbo_bulk::Bulk;
use umbo_dispatcher::Dispatcher;
use umbo_observe::CallerCounts;
use umbo_quota::{OTHERS, Tally};
use umbo_telemetry::metric_names::CALLER_REQUEST_UNITS;
use umbo_telemetry::recorder::{Recorder, ended_second};
use umbo_telemetry::series::SeriesKey;

use crate::diagnosis;
use crate::happenings::Happenings;
use crate::home_rows::now;
use crate::scrape;
use crate::usage_rows::steps_of;

/// Records the history and the happenings of a dispatcher.
#[derive(Debug)]
pub struct DispatcherObserver {
    bulk: Arc<Bulk>,
    recorder: Recorder,
    happenings: Happenings,
    usual: diagnosis::SlowAverages,
}

impl DispatcherObserver {
    /// Makes the observer of a dispatcher; there should be one. History and happenings are kept in the files of a
    /// folder, or in memory only.
    pub fn new(bulk: &Arc<Bulk>, folder: Option<&Path>) -> Self {
        let dispatcher = bulk.dispatcher();
        let recorder = folder.map_or_else(Recorder::new, |folder| {
            let now = dispatcher.clock.wall();
            let (recorder, events) = Recorder::open(folder, now, &dispatcher.history);
            dispatcher.control.events.restore(events);
            recorder
        });
        Self {
            bulk: Arc::clone(bulk),
            recorder,
            happenings: Happenings::default(),
            usual: diagnosis::SlowAverages::default(),
        }
    }

    /// Returns for how long to wait before the next sample.
    pub fn wait(&self) -> Duration {
        Recorder::wait(self.bulk.dispatcher().clock.wall())
    }

    /// Takes the sample of the second that has ended.
    pub fn sample(&mut self) {
        let dispatcher = self.bulk.dispatcher();
        let second = ended_second(dispatcher.clock.wall());
        diagnosis::look_at_states(dispatcher);
        self.happenings.look(dispatcher);
        dispatcher.busy.end_second(second);
        dispatcher.latencies.end_second();
        self.recorder.record(
            &dispatcher.history,
            (dispatcher.clock.monotonic(), dispatcher.clock.wall()),
            |visitor| scrape::visit_sampled(&self.bulk, visitor),
            |elapsed| callers(dispatcher, elapsed),
            || dispatcher.control.events.happenings_since(0),
        );
        diagnosis::look_at_rates(dispatcher, second, self.bulk.stuck(), &mut self.usual);
    }

    /// Writes the last minute to the files. To be called when the server stops.
    pub fn end(&mut self) {
        let dispatcher = self.bulk.dispatcher();
        let happenings = dispatcher.control.events.happenings_since(0);
        self.recorder.end(&dispatcher.history, &happenings);
    }
}

/// Counts the usage and ranks the callers, and returns the series of the first ones.
fn callers(dispatcher: &Dispatcher, elapsed: f64) -> Vec<(SeriesKey, f64)> {
    if elapsed <= 0.0 {
        return Vec::new();
    }
    let top_callers = dispatcher.top_callers.lock();
    let mut top_callers = top_callers.unwrap_or_else(PoisonError::into_inner);
    let mut steps = steps_of(dispatcher);
    // By this time the rows of the steps expire.
    let now = now(dispatcher);
    top_callers.update(elapsed, |add| {
        let see = |caller: &Arc<str>, tally: &Tally| {
            if &**caller != OTHERS {
                add(caller, totals(tally));
            }
        };
        let quota = &dispatcher.quota;
        let seconds = Duration::from_secs_f64(elapsed + 0.5).as_secs();
        quota.sample_usage(&mut steps, (ended_second(now), seconds), see);
    });
    drop(steps);
    let rates = top_callers.top().into_iter().flat_map(|(caller, rates)| {
        // In the order of the table.
        let rates = [rates.ru, rates.requests, rates.rejected, rates.bytes];
        let series = CALLER_REQUEST_UNITS.history.iter().zip(rates);
        series.map(move |(series, rate)| (SeriesKey::new(series, Arc::clone(&caller)), rate))
    });
    rates.collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "only differences of a second count"
)]
fn totals(tally: &Tally) -> CallerCounts {
    CallerCounts {
        ru: tally.charged.as_f64(),
        requests: tally.requests as f64,
        rejected: tally.rejected as f64,
        bytes: (tally.read_bytes + tally.write_bytes) as f64,
    }
}
