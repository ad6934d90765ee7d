//! Values that are too long for a row, under quotas that let their runs wait.

use umbo_store::{ByKey as _, CallContext, ChunkRequest, Store as _, UPLOAD_IDLE};
use umbo_types::{Key, limits::LARGE_CHUNK_LEN};

use super::*;
use crate::runner::work::removal;

/// Chunks of the long value.
const CHUNKS: u32 = 13;

/// A sealed load of two rows, the first of which has a long value.
async fn with_long_value(mode: LoadMode, max_reject_ratio: f64) -> Arc<FakeHost> {
    let value = long_value();
    let text = format!("{{\"pk\":\"p1\",\"v\":\"{value}\"}}\n{{\"pk\":\"p2\",\"v\":\"y\"}}\n");
    with_part(mode, max_reject_ratio, &text).await
}

fn long_value() -> String {
    "x".repeat(CHUNKS as usize * LARGE_CHUNK_LEN - 5)
}

async fn with_part(mode: LoadMode, max_reject_ratio: f64, text: &str) -> Arc<FakeHost> {
    let host = FakeHost::uploading(NONE, mode, max_reject_ratio, in_order);
    host.store_part(0, text.as_bytes(), "").await;
    let sealed = LoadStep::Seal(1);
    let now = host.lives_from(umbo_types::ShardId(0));
    host.load.lock().unwrap().step(&sealed, now).unwrap();
    Arc::new(host)
}

fn set_quota(host: &FakeHost, used_for: Duration) {
    let until = tokio::time::Instant::now() + used_for;
    *host.quota.lock().unwrap() = Some((1, until));
}

async fn assert_whole(host: &Arc<FakeHost>) {
    let key = Key::new("p1", "").unwrap();
    let namespace = if host.state() == LoadState::Live {
        ROWS
    } else {
        BUILT
    };
    let call = CallContext::internal();
    let row = host.store.get_row(&call, namespace, &key);
    let large = row.await.unwrap().unwrap().value.large().unwrap();
    assert_eq!(large.len, u64::from(CHUNKS) * LARGE_CHUNK_LEN as u64 - 5);
    assert!(host.journal().await.values.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_long_value_is_stored_once_however_often_its_run_waits() {
    for mode in [LoadMode::Merge, LoadMode::Replace] {
        let host = with_long_value(mode, 0.0).await;
        set_quota(&host, Duration::ZERO);
        host.run(i64::MAX, 1).await;
        assert!(matches!(host.state(), LoadState::Live | LoadState::Ready));
        assert_eq!(
            *host.chunks.lock().unwrap(),
            (0..CHUNKS).collect::<Vec<_>>()
        );
        assert_whole(&host).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_rows_with_the_same_long_value_each_is_whole_until_it_is_removed() {
    for mode in [LoadMode::Merge, LoadMode::Replace] {
        let line = |sk| {
            format!(
                "{{\"pk\":\"p1\",\"sk\":\"{sk}\",\"v\":\"{}\"}}\n",
                long_value()
            )
        };
        let host = with_part(mode, 0.0, &[line("a"), line("b")].concat()).await;
        host.run(i64::MAX, 1).await;
        let namespace = if mode == LoadMode::Merge { ROWS } else { BUILT };
        let keys = ["a", "b"].map(|sort| Key::new("p1", sort).unwrap());
        for (removed, key) in keys.iter().enumerate() {
            for (at, other) in keys.iter().enumerate() {
                let is_whole = chunks_of(&host, namespace, other).await == CHUNKS;
                assert_eq!(is_whole, at >= removed, "{mode:?}: {other:?}");
            }
            let mutation = removal(key.clone());
            host.write(namespace, vec![mutation], None).await.unwrap();
        }
    }
}

/// Returns how many chunks of the value of a row are there.
async fn chunks_of(host: &FakeHost, namespace: NamespaceId, key: &Key) -> u32 {
    let (call, shard) = (CallContext::internal(), host.store.shard_of(namespace, key));
    let Some(row) = host.store.get_row(&call, namespace, key).await.unwrap() else {
        return 0;
    };
    let large = row.value.large().unwrap();
    let mut there = 0;
    for index in 0..CHUNKS {
        let request = ChunkRequest {
            namespace,
            large,
            index,
        };
        let chunk = host.store.chunk(&call, shard, key, &request).await.unwrap();
        there += u32::from(chunk.is_some());
    }
    there
}

/// Runs the load until some chunks are stored, and then waits for a day. Returns how many are.
async fn begin(host: &Arc<FakeHost>) -> (usize, tokio::task::JoinHandle<()>) {
    set_quota(host, Duration::ZERO);
    let running = Arc::clone(host);
    let mut running = tokio::spawn(async move { running.run(i64::MAX, 1).await });
    while host.chunks.lock().unwrap().len() < 4 {
        assert!(
            timeout(BEAT / 10, &mut running).await.is_err(),
            "it goes on"
        );
    }
    set_quota(host, Duration::from_hours(24));
    assert!(timeout(BEAT * 2, &mut running).await.is_err(), "it waits");
    (host.chunks.lock().unwrap().len(), running)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lets_go_amid_a_long_value_ends_at_once_and_the_next_one_goes_on() {
    let host = with_long_value(LoadMode::Merge, 0.0).await;
    let (stored, running) = begin(&host).await;
    host.is_ending.store(true, Ordering::SeqCst);
    timeout(BEAT, running).await.unwrap().unwrap();
    let run = host.journal().await;
    assert_eq!((run.runner, run.values[0].chunks), (0, stored as u32));
    host.is_ending.store(false, Ordering::SeqCst);
    set_quota(&host, Duration::ZERO);
    host.run(i64::MAX, 2).await;
    assert_eq!(host.state(), LoadState::Live);
    assert_eq!(
        *host.chunks.lock().unwrap(),
        (0..CHUNKS).collect::<Vec<_>>()
    );
    assert_whole(&host).await;
}

#[tokio::test(start_paused = true)]
async fn a_value_is_stored_again_whose_upload_was_given_up() {
    let host = with_long_value(LoadMode::Merge, 0.0).await;
    let (stored, running) = begin(&host).await;
    host.clock.advance(UPLOAD_IDLE);
    *host.quota.lock().unwrap() = None;
    running.await.unwrap();
    assert_eq!(host.state(), LoadState::Live);
    let again = host.chunks.lock().unwrap().split_off(stored);
    assert_eq!(again, (0..CHUNKS).collect::<Vec<_>>());
    assert_whole(&host).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_fails_whose_value_is_given_up_again_and_again() {
    let host = with_long_value(LoadMode::Merge, 0.0).await;
    host.gives_up.store(true, Ordering::SeqCst);
    host.run(i64::MAX, 1).await;
    assert_eq!(host.state(), LoadState::Failed);
    let reason = host.load.lock().unwrap().reason.clone().unwrap();
    assert!(
        reason.contains(r#"{"pk":"p1","sk":""}"#) && reason.contains("8 times"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_value_that_its_quota_never_lets_be_stored_is_rejected() {
    for (mode, ratio, end) in [
        (LoadMode::Merge, 0.5, LoadState::Live),
        (LoadMode::Replace, 0.5, LoadState::Ready),
        (LoadMode::Merge, 0.0, LoadState::Failed),
        (LoadMode::Replace, 0.0, LoadState::Failed),
    ] {
        let host = with_long_value(mode, ratio).await;
        host.longest_value.store(1 << 20, Ordering::SeqCst);
        host.run(i64::MAX, 1).await;
        assert_eq!(host.state(), end, "{mode:?}");
        let run = host.journal().await;
        assert_eq!((run.applied, run.rejected, host.rejects().await), (1, 1, 1));
        assert!(host.chunks.lock().unwrap().is_empty());
    }
}
