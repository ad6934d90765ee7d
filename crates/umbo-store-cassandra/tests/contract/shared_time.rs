//! What writes of a commit are charged.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use umbo_store::{ByKey as _, CallContext, ManualClock};
use umbo_types::{Clock as _, Timestamp};

use crate::calls::{increment, key, request};
use crate::{open, settings};

/// Together they are charged for no longer than the commit took, and the wait for the commit before is no work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_share_the_time_of_their_commit() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
    let store = open(&settings().await, &clock).await;
    let at = key("p");
    let calls: Vec<CallContext> = (0..20).map(|_| CallContext::internal()).collect();
    // Most gather while the first are committed.
    let writes = calls
        .iter()
        .map(|call| store.write_rows(call, request(increment(&at, 1))));
    let mut all = pin!(join_all(writes));
    let begun = clock.monotonic();
    let answers = loop {
        // Time passes meanwhile.
        clock.advance(Duration::from_millis(1));
        tokio::select! {
            biased;
            answers = &mut all => break answers,
            () = tokio::task::yield_now() => {}
        }
    };
    let took = clock.monotonic() - begun;
    assert!(answers.iter().flatten().all(Result::is_ok), "{answers:?}");
    let sum = |of: fn(&CallContext) -> Option<Duration>| {
        let times = calls.iter().map(|call| of(call).expect("it is told"));
        times.sum::<Duration>()
    };
    let (service, busy) = (sum(CallContext::service_time), sum(CallContext::busy_time));
    assert!(
        Duration::ZERO < busy && busy <= took,
        "{busy:?} of {took:?}"
    );
    assert!(
        took < service,
        "no two had one commit: {service:?} of {took:?}"
    );
}
