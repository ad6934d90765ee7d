//! The list of requests that run, which operators see, and the order to end one.
//!
//! Listed are requests that have waited for the store for `LISTED_AFTER`, and ranges and scans that are
//! streamed in more than one chunk. All others are too short to be named, and cost nothing here. A listed request
//! removes itself when it ends, on every way out; the bound on requests in flight bounds the list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use umbo_api::running::RunningRequest;
use umbo_http::RequestError;
use umbo_types::RequestUnits;

/// How long a request waits for the store before it is listed. Longer than nearly all reads and commits, and
/// too short to be noticed.
pub(crate) const LISTED_AFTER: Duration = Duration::from_millis(10);

/// The requests that run, by their number, in the order of their listing.
#[derive(Debug, Default)]
pub struct RunningRequests(Mutex<(u64, BTreeMap<u64, Arc<ListedRequest>>)>);

#[derive(Debug)]
struct ListedRequest {
    /// Without its age and charge.
    about: RunningRequest,
    started: Instant,
    /// In micro-RU.
    charged: AtomicU64,
    /// The error of the request, once an operator has ended it.
    killed: OnceLock<RequestError>,
    told: Notify,
}

/// A place in the list; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard {
    list: Arc<RunningRequests>,
    number: u64,
    request: Arc<ListedRequest>,
}

impl RunningRequests {
    /// Lists a request. Its age and charge are kept apart.
    pub(crate) fn begin(
        self: &Arc<Self>,
        about: RunningRequest,
        started: Instant,
        charged: RequestUnits,
    ) -> RunningGuard {
        let request = Arc::new(ListedRequest {
            about,
            started,
            charged: AtomicU64::new(charged.as_micros()),
            killed: OnceLock::new(),
            told: Notify::new(),
        });
        let mut listed = self.listed();
        let number = listed.0;
        listed.0 += 1;
        listed.1.insert(number, Arc::clone(&request));
        RunningGuard {
            list: Arc::clone(self),
            number,
            request,
        }
    }

    /// Returns the requests that run, in the order of their listing.
    pub fn list(&self, now: Instant) -> Vec<RunningRequest> {
        let show = |running: &Arc<ListedRequest>| RunningRequest {
            age_ms: now.saturating_duration_since(running.started).as_millis() as u64,
            ru: RequestUnits::from_micros(running.charged.load(Relaxed)).as_f64(),
            ..running.about.clone()
        };
        self.listed().1.values().map(show).collect()
    }

    /// Orders the requests of an id to end with an error, and returns whether there is one. The first order counts.
    pub fn kill(&self, id: &str, killed: &RequestError) -> bool {
        let listed = self.listed();
        let found = listed.1.values().filter(|running| running.about.id == id);
        let told = found.map(|running| {
            running.killed.get_or_init(|| killed.clone());
            running.told.notify_one();
        });
        told.count() > 0
    }

    fn listed(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<ListedRequest>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningGuard {
    /// Records the charge so far.
    pub(crate) fn charged(&self, units: RequestUnits) {
        self.request.charged.store(units.as_micros(), Relaxed);
    }

    /// Refuses the request if an operator has ended it.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        let killed = self.request.killed.get();
        killed.map_or(Ok(()), |killed| Err(killed.clone()))
    }

    /// Waits until an operator ends the request.
    pub(crate) async fn killed(&self) -> RequestError {
        loop {
            if let Err(killed) = self.check() {
                return killed;
            }
            self.request.told.notified().await;
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.list.listed().1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(list: &Arc<RunningRequests>, id: &str) -> RunningGuard {
        let about = RunningRequest {
            id: id.to_owned(),
            ..RunningRequest::default()
        };
        list.begin(about, Instant::now(), RequestUnits::from_micros(1_500_000))
    }

    fn killed() -> RequestError {
        RequestError::Killed("'ops' has ended this request".to_owned())
    }

    #[tokio::test]
    async fn a_request_is_ended_by_its_id_and_leaves_the_list() {
        let list = Arc::<RunningRequests>::default();
        let (one, other) = (listed(&list, "one"), listed(&list, "other"));
        assert_eq!(format!("{}", list.list(Instant::now())[0].ru), "1.5");
        assert!(!list.kill("none", &killed()));
        assert!(list.kill("one", &killed()));
        assert!(matches!(one.killed().await, RequestError::Killed(_)));
        assert!(other.check().is_ok());
        drop((one, other));
        assert!(list.list(Instant::now()).is_empty());
    }

    #[tokio::test]
    async fn an_order_reaches_a_request_that_waits() {
        let list = Arc::<RunningRequests>::default();
        let one = listed(&list, "one");
        let waiting = tokio::spawn(async move { one.killed().await });
        tokio::task::yield_now().await;
        assert!(list.kill("one", &killed()));
        let told = waiting.await.expect("it ends");
        assert!(matches!(told, RequestError::Killed(_)));
    }
}
