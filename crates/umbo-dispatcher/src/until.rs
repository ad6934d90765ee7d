//! Work that has a deadline, and may be over at once.
//!
//! A store in this process answers a read with the first poll: no timer is made for that. Work is
//! polled once for each time that it is woken, not once more when the timer is made. The result goes
//! from the work to the caller; the future has no room for it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::time::{Sleep, sleep_until};
use umbo_types::Deadline;

/// Waits for work until a deadline; `None` if the deadline passes first.
pub(crate) async fn until<T>(
    deadline: Deadline,
    work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    until_where(deadline, || true, work).await
}

/// Waits for work until a deadline, if `needs_timer` returns true in a poll that finds the work pending;
/// before that something else bounds the wait. `needs_timer` is not called again once it has.
pub(crate) async fn until_where<T>(
    deadline: Deadline,
    mut needs_timer: impl FnMut() -> bool,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut timer = pin!(None::<Sleep>);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        if timer.is_none() && needs_timer() {
            timer.set(Some(sleep_until(deadline.instant().into())));
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
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

    #[tokio::test]
    async fn a_timer_is_made_once_it_is_needed() {
        let (needs_timer, mut polls) = (Cell::new(false), 0);
        let work = pin!(poll_fn(|context| {
            polls += 1;
            needs_timer.set(polls == 3);
            if polls < 3 {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        }));
        let passed = Deadline::at(Instant::now());
        assert_eq!(until_where(passed, || needs_timer.get(), work).await, None);
        // A timer of the past may take one poll more.
        assert!(polls >= 3);
    }
}
