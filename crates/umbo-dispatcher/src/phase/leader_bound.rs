//! The time of a read that many requests wait for: it is bounded by itself, and not by the request that leads it.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::task;
use umbo_http::RequestError;
use umbo_store::StoreError;
use umbo_types::{Deadline, ShardId};

use crate::until::until_where;

/// The time that a leader has for its read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaderBound {
    deadline: Deadline,
    timeout: Duration,
    /// The task of the request; `None` outside of tasks.
    made_in: Option<task::Id>,
    /// Whether the request ends no later than the leader. In its task the timer of the request then bounds the
    /// read; a request that ends leaves the read to another task.
    is_bounded_there: bool,
    /// Whether the request polls the read again when it is listed, long before the time of the leader is over.
    is_listed_later: bool,
}

impl LeaderBound {
    /// To be made in the task of the request, which began at `begun` and ends at `request_deadline`.
    pub(crate) fn new(
        begun: Instant,
        timeout: Duration,
        request_deadline: Deadline,
        is_listed_later: bool,
    ) -> Self {
        let deadline = Deadline::after(begun, timeout);
        Self {
            deadline,
            timeout,
            made_in: task::try_id(),
            is_bounded_there: request_deadline.instant() <= deadline.instant(),
            is_listed_later,
        }
    }

    /// Returns when the time is over.
    pub(crate) const fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Returns whether a poll of the present task needs a timer. In the task of the request, the timers of the request
    /// may do.
    fn needs_timer(&self, is_first: bool) -> bool {
        let is_polled_again = self.is_bounded_there || (is_first && self.is_listed_later);
        !is_polled_again || self.made_in != task::try_id()
    }

    /// Waits for the answer to a read within the time of the leader; `None` if that time passes first.
    pub(super) fn on<T>(
        &self,
        read: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> impl Future<Output = Option<Result<T, StoreError>>> {
        let mut is_first = true;
        let needs_timer = move || self.needs_timer(std::mem::replace(&mut is_first, false));
        until_where(self.deadline, needs_timer, read)
    }

    /// Returns the answer to a read, or an error if it did not come in time.
    pub(super) fn answer<T>(
        &self,
        answer: Option<Result<T, StoreError>>,
        shard: ShardId,
    ) -> Result<T, RequestError> {
        match answer {
            Some(answer) => Ok(answer?),
            None => Err(RequestError::DeadlineInStore {
                shard: Some(shard),
                is_write: false,
                timeout: self.timeout,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    const LEADER_TIMEOUT: Duration = Duration::from_millis(20);

    fn bound(request_timeout: Duration) -> LeaderBound {
        let monotonic = tokio::time::Instant::now().into_std();
        let request_deadline = Deadline::after(monotonic, request_timeout);
        LeaderBound::new(monotonic, LEADER_TIMEOUT, request_deadline, true)
    }

    /// Waits as a request does, which polls once more when it is listed.
    async fn is_ended(bound: LeaderBound) -> bool {
        let read = pin!(pending::<Result<(), StoreError>>());
        let mut answer = pin!(bound.on(read));
        match timeout(LEADER_TIMEOUT / 4, answer.as_mut()).await {
            Ok(answer) => answer.is_none(),
            Err(_) => timeout(4 * LEADER_TIMEOUT, answer)
                .await
                .is_ok_and(|answer| answer.is_none()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_listed_later_makes_no_timer_at_first() {
        for is_listed_later in [true, false] {
            let bound = LeaderBound {
                is_listed_later,
                ..bound(4 * LEADER_TIMEOUT)
            };
            let (begun, polled_again) = (tokio::time::Instant::now(), 2 * LEADER_TIMEOUT);
            let read = pin!(pending::<Result<(), StoreError>>());
            let answer = timeout(polled_again, bound.on(read)).await;
            assert!(answer.unwrap().is_none());
            let is_late = tokio::time::Instant::now() >= begun + polled_again;
            assert_eq!(is_late, is_listed_later);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_bounded_by_its_request_and_in_another_task_by_itself() {
        let of_short_request = || bound(LEADER_TIMEOUT / 2);
        assert!(!is_ended(of_short_request()).await);
        let left_behind = tokio::spawn(is_ended(of_short_request()));
        assert!(left_behind.await.unwrap());
        assert!(is_ended(bound(2 * LEADER_TIMEOUT)).await);
    }
}
