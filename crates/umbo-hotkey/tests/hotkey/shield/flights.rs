//! Flights: one read for all who want the same at the same time, whatever becomes of any of them.

use std::time::Duration;

use umbo_hotkey::{AnswerSource, FlightError, FlightSettings, ReadContext, ShieldSettings};

use super::lab::{Lab, Mood, settings, settle};

#[tokio::test]
async fn readers_of_a_cold_key_follow_the_read_under_way() {
    let lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(lab.client("a").await);
    }
    let other = lab.client("b").await;
    assert!(other.await.unwrap().unwrap().value.is_none());
    gate.add_permits(1);
    let mut values = Vec::new();
    for client in clients {
        let served = client.await.unwrap().unwrap();
        values.push(served.value.unwrap());
    }
    assert_eq!(lab.reads(), 2);
    // One buffer for all of them.
    assert!(
        values
            .iter()
            .all(|value| value.as_ptr() == values[0].as_ptr())
    );
    let report = lab.shield.report(lab.now);
    assert_eq!(
        (report.flight_totals.leaders, report.flight_totals.followers),
        (2, 49)
    );
    assert_eq!((report.flights, report.held_bytes), (0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_cancels_nothing_for_the_others() {
    let lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let first = lab.client("a").await;
    let follower = lab.client("a").await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    let served = follower.await.unwrap().unwrap();
    assert_eq!(served.source, AnswerSource::Follower);
    assert_eq!(lab.reads(), 1);
}

#[tokio::test]
async fn a_read_goes_on_when_all_have_left_and_newcomers_join_it() {
    let lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let first = lab.client("a").await;
    first.abort();
    settle().await;
    let late = lab.client("a").await;
    gate.add_permits(1);
    assert!(late.await.unwrap().is_ok());
    assert_eq!((lab.reads(), lab.shield.report(lab.now).flights), (1, 0));
}

#[tokio::test]
async fn a_failure_is_told_to_its_own_client_and_each_follower_is_sent_on() {
    for mood in [Mood::Failing, Mood::Panicking] {
        let lab = Lab::new();
        lab.put("a", "1");
        let gate = lab.moods(&[mood]);
        let first = lab.client("a").await;
        let mut followers = Vec::new();
        for _ in 0..20 {
            followers.push(lab.client("a").await);
        }
        gate.add_permits(1);
        let failed = first.await.unwrap().unwrap_err();
        let own = [
            FlightError::Failed("the store failed"),
            FlightError::Panicked,
        ];
        assert!(own.contains(&failed), "{failed:?}");
        for follower in followers {
            assert_eq!(follower.await.unwrap(), Err(FlightError::LeaderFailed));
        }
        // None of them has asked the store in the name of the others.
        let report = lab.shield.report(lab.now);
        assert_eq!((lab.reads(), report.flight_totals.orphans), (1, 20));
        assert_eq!((report.flights, report.held_bytes), (0, 0));
        // The next reader leads again.
        assert_eq!(lab.get("a").await.unwrap().source, AnswerSource::Leader);
    }
}

#[tokio::test]
async fn a_read_that_fails_after_its_client_has_left_is_told_to_its_followers() {
    for mood in [Mood::Failing, Mood::Panicking] {
        let lab = Lab::new();
        let gate = lab.moods(&[mood]);
        let first = lab.client("a").await;
        let follower = lab.client("a").await;
        first.abort();
        settle().await;
        gate.add_permits(1);
        assert_eq!(follower.await.unwrap(), Err(FlightError::LeaderFailed));
        assert_eq!(lab.shield.report(lab.now).flights, 0);
    }
}

#[tokio::test]
async fn a_follower_that_leaves_frees_its_place_and_holds_no_result() {
    let lab = bounded(|flights| flights.readers_max = 2);
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let first = lab.client("a").await;
    let left = lab.client("a").await;
    left.abort();
    settle().await;
    let follower = lab.client("a").await;
    follower.abort();
    settle().await;
    gate.add_permits(1);
    assert!(first.await.unwrap().is_ok());
    let report = lab.shield.report(lab.now);
    assert_eq!((report.flight_totals.followers, report.held_bytes), (2, 0));
}

fn bounded(change: impl FnOnce(&mut FlightSettings)) -> Lab {
    let mut flights = FlightSettings::default();
    change(&mut flights);
    Lab::with(ShieldSettings {
        flights,
        ..settings()
    })
}

#[tokio::test]
async fn so_many_may_wait_and_no_more() {
    let lab = bounded(|flights| flights.readers_max = 3);
    let gate = lab.moods(&[Mood::Waiting]);
    let mut clients = Vec::new();
    // The client of the leader waits too.
    for _ in 0..3 {
        clients.push(lab.client("a").await);
    }
    let crowded = lab.client("a").await;
    assert_eq!(crowded.await.unwrap(), Err(FlightError::Full));
    gate.add_permits(1);
    for client in clients {
        assert!(client.await.unwrap().is_ok());
    }
    assert_eq!(lab.shield.report(lab.now).flight_totals.crowded, 1);
}

#[tokio::test]
async fn so_many_flights_may_be_under_way_and_no_more() {
    let lab = bounded(|flights| {
        flights.flights_max = 2;
        flights.stripes = 1;
    });
    let gate = lab.moods(&[Mood::Waiting, Mood::Waiting]);
    let (one, two) = (lab.client("a").await, lab.client("b").await);
    let crowded = lab.client("c").await;
    assert_eq!(crowded.await.unwrap(), Err(FlightError::Full));
    gate.add_permits(2);
    assert!(one.await.unwrap().is_ok() && two.await.unwrap().is_ok());
    assert!(lab.get("c").await.is_ok());
}

#[tokio::test]
async fn a_flight_that_should_have_ended_is_not_joined() {
    let mut lab = bounded(|flights| flights.timeout = Duration::from_secs(2));
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let stuck = lab.client("a").await;
    lab.pass(1_999);
    let follower = lab.client("a").await;
    lab.pass(1);
    let served = lab.get("a").await.unwrap();
    assert_eq!((served.source, lab.reads()), (AnswerSource::Leader, 2));
    gate.add_permits(1);
    assert!(stuck.await.unwrap().is_ok() && follower.await.unwrap().is_ok());
    assert_eq!(lab.shield.report(lab.now).flights, 0);
}

#[tokio::test]
async fn a_client_may_refuse_to_join_an_older_read() {
    let mut lab = Lab::new();
    lab.put("a", "1");
    let gate = lab.moods(&[Mood::Waiting]);
    let first = lab.client("a").await;
    lab.pass(10);
    let context = ReadContext {
        age_max: Some(Duration::ZERO),
        ..lab.context()
    };
    assert_eq!(
        lab.get_on("a", context).await.unwrap().source,
        AnswerSource::Leader
    );
    gate.add_permits(1);
    assert!(first.await.unwrap().is_ok());
    assert_eq!(lab.reads(), 2);
}

#[tokio::test]
async fn a_runtime_that_ends_leaves_nobody_waiting() {
    let lab = Lab::new();
    let _gate = lab.moods(&[Mood::Waiting]);
    let other = tokio::task::spawn_blocking({
        let (shield, store) = (lab.shield.clone(), lab.store.clone());
        let (context, caller) = (lab.context(), lab.caller.clone());
        move || {
            // The leader's task belongs to this runtime, and is dropped with it.
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.build().unwrap();
            runtime.spawn(async move {
                let row = super::lab::key("a");
                let key = shield.seed().row(super::lab::NAMESPACE, &row);
                let read = super::lab::read(&store, row.clone());
                super::lab::read_through(&shield, &key, &context, &caller, read).await
            });
            runtime.block_on(settle());
        }
    });
    other.await.unwrap();
    assert_eq!(lab.shield.report(lab.now).flights, 0);
    assert!(lab.get("a").await.is_ok());
}
