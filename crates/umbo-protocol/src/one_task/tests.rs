//! Wakes and turns of parts.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::task::{ArcWake, noop_waker_ref, waker};
use tokio::sync::{mpsc, oneshot};

use super::*;

#[tokio::test]
async fn parts_run_while_the_main_one_waits_for_them() {
    let mut all = OneTask::default();
    let parts = all.parts();
    let (sender, mut receiver) = mpsc::channel(1);
    let begin = parts.clone();
    let sum = all.drive(async move {
        for number in 0..100 {
            let sender = sender.clone();
            begin.execute(async move {
                tokio::task::yield_now().await;
                sender.send(number).await.unwrap();
            });
        }
        let mut sum = 0;
        for _ in 0..100 {
            sum += receiver.recv().await.unwrap();
        }
        sum
    });
    assert_eq!(sum.await, 4_950);
}

#[tokio::test]
async fn a_part_goes_on_with_the_next_call() {
    let mut all = OneTask::default();
    let (asked, answer) = (oneshot::channel::<u32>(), oneshot::channel::<u32>());
    all.parts().execute(async move {
        let number = asked.1.await.unwrap();
        answer.0.send(number + 1).unwrap();
    });
    all.drive(tokio::task::yield_now()).await;
    asked.0.send(6).unwrap();
    assert_eq!(all.drive(answer.1).await.unwrap(), 7);
}

#[tokio::test]
async fn parts_end_with_it() {
    let mut all = OneTask::default();
    let (held, dropped) = oneshot::channel::<()>();
    all.parts().execute(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    all.drive(tokio::task::yield_now()).await;
    drop(all);
    assert!(dropped.await.is_err());
}

/// Counts what the runtime hears.
#[derive(Default)]
struct Counted(AtomicUsize);

impl ArcWake for Counted {
    fn wake_by_ref(this: &Arc<Self>) {
        this.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_is_woken_while_it_is_polled_does_not_wake_the_task() {
    let counted = Arc::new(Counted::default());
    let outer = waker(Arc::clone(&counted));
    let mut context = Context::from_waker(&outer);
    let mut all = OneTask::default();
    let (ask, mut asked) = mpsc::channel::<()>(1);
    let (answer, mut answered) = mpsc::channel::<()>(1);
    all.parts().execute(async move {
        while asked.recv().await.is_some() {
            answer.send(()).await.unwrap();
        }
    });
    let polled = {
        let main = async move {
            for _ in 0..5 {
                ask.send(()).await.unwrap();
                answered.recv().await.unwrap();
            }
        };
        pin!(all.drive(main)).poll(&mut context)
    };
    assert!(polled.is_ready());
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_woken_between_two_polls_wakes_the_task() {
    let counted = Arc::new(Counted::default());
    let outer = waker(Arc::clone(&counted));
    let mut context = Context::from_waker(&outer);
    let mut all = OneTask::default();
    let (sender, receiver) = oneshot::channel::<()>();
    let mut driving = pin!(all.drive(receiver));
    assert!(driving.as_mut().poll(&mut context).is_pending());
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
    sender.send(()).unwrap();
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    assert!(driving.poll(&mut context).is_ready());
}

#[test]
fn one_that_wakes_itself_forever_lets_others_run() {
    let counted = Arc::new(Counted::default());
    let outer = waker(Arc::clone(&counted));
    let mut context = Context::from_waker(&outer);
    let mut all = OneTask::default();
    let mut polls = 0;
    let main = poll_fn(|context: &mut Context<'_>| {
        polls += 1;
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let polled = pin!(all.drive(main)).poll(&mut context);
    assert!(polled.is_pending());
    assert_eq!(polls, ROUNDS_MAX);
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
}

/// Wakes from another thread at every instant of a turn: none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_of_another_thread_is_lost() {
    let mut all = OneTask::default();
    let (sender, mut receiver) = mpsc::channel::<u32>(1);
    let other = tokio::spawn(async move {
        for number in 0..20_000 {
            sender.send(number).await.unwrap();
        }
    });
    let (pass, mut passed) = mpsc::channel::<u32>(1);
    all.parts().execute(async move {
        while let Some(number) = receiver.recv().await {
            pass.send(number).await.unwrap();
        }
    });
    let all_of_them = all.drive(async move {
        let mut count = 0;
        while passed.recv().await.is_some() {
            count += 1;
        }
        count
    });
    let count = tokio::time::timeout(Duration::from_mins(1), all_of_them).await;
    assert_eq!(count.expect("a wake was lost"), 20_000);
    other.await.unwrap();
}

#[tokio::test]
async fn others_run_between_two_turns_of_a_part() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let other = sender.clone();
    tokio::spawn(async move { other.send("the other task").unwrap() });
    let mut all = OneTask::default();
    let main = async move {
        let mut rest = Yield::default();
        poll_fn(|context| rest.poll(context)).await;
        sender.send("this one").unwrap();
    };
    all.drive(main).await;
    assert_eq!(receiver.recv().await, Some("the other task"));
    assert_eq!(receiver.recv().await, Some("this one"));
}

#[test]
fn a_rest_outside_a_runtime_is_over_at_once_or_asks_to_be_polled() {
    let mut context = Context::from_waker(noop_waker_ref());
    let mut rest = Yield::default();
    let first = rest.poll(&mut context);
    assert!(first.is_ready() || rest.poll(&mut context).is_ready());
}
