//! Work that has a deadline, and may be over at once.
//!
//! A store in this process answers a read with the first poll: no timer is made for that. Work is
//! polled once for each time that it is woken, not once more when the timer is made.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::future::poll_immediate;
use umbo_types::Deadline;

/// Waits for work until a deadline; none where it passes before.
pub(crate) async fn until<T>(
    deadline: Deadline,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let at_once = poll_immediate(work.as_mut()).await;
    if at_once.is_some() {
        return at_once;
    }
    let mut timer = pin!(tokio::time::sleep_until(deadline.instant().into()));
    let mut is_polled = true;
    poll_fn(|context| {
        // It has just been polled: the first time is for the timer.
        if !std::mem::take(&mut is_polled)
            && let Poll::Ready(done) = work.as_mut().poll(context)
        {
            return Poll::Ready(Some(done));
        }
        timer.as_mut().poll(context).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Instant::now(), Duration::from_millis(20))
    }

    #[tokio::test]
    async fn what_is_over_at_once_is_polled_once_and_has_no_deadline() {
        let mut polls = 0;
        let work = pin!(poll_fn(|_| {
            polls += 1;
            Poll::Ready(7)
        }));
        let passed = Deadline::at(Instant::now());
        assert_eq!(until(passed, work).await, Some(7));
        assert_eq!(polls, 1);
    }

    #[tokio::test]
    async fn what_is_woken_once_is_polled_twice() {
        let mut polls = 0;
        let work = pin!(poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let later = Deadline::after(Instant::now(), Duration::from_mins(1));
        assert_eq!(until(later, work).await, Some(()));
        assert_eq!(polls, 2);
    }

    #[tokio::test]
    async fn what_is_never_over_ends_with_the_deadline() {
        let deadline = soon();
        assert_eq!(
            until(deadline, pin!(std::future::pending::<()>())).await,
            None
        );
        assert!(deadline.has_passed(Instant::now()));
    }
}
