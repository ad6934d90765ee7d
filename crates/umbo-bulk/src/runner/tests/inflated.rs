//! Parts that inflate to far more bytes than were sent.

use super::*;

/// Blocks of [`BLOCK_LEN`] blank lines.
const BLOCKS: u64 = 64;
const BLOCK_LEN: u64 = 128 << 10;
const ROW: &[u8] = b"{\"pk\":\"p1\",\"v\":\"y\"}\n";

/// Returns a frame of Zstandard with eight MiB of blank lines and a row at the end.
fn bomb() -> Vec<u8> {
    // The magic number; no digest and no length of the content; a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    let head = |kind: u32, len: u32, is_last: bool| {
        let head = len << 3 | kind << 1 | u32::from(is_last);
        head.to_le_bytes()[..3].to_vec()
    };
    for _ in 0..BLOCKS {
        frame.extend(head(1, BLOCK_LEN as u32, false));
        frame.push(b'\n');
    }
    frame.extend(head(0, ROW.len() as u32, true));
    frame.extend(ROW);
    frame
}

async fn with_bomb(mode: LoadMode) -> Arc<FakeHost> {
    let host = FakeHost::uploading(NONE, mode, 0.0, in_order);
    host.store_part(0, &bomb(), "zstd").await;
    let now = host.lives_from(umbo_types::ShardId(0));
    let sealed = host.load.lock().unwrap().step(&LoadStep::Seal(1), now);
    sealed.unwrap();
    Arc::new(host)
}

#[tokio::test(start_paused = true)]
async fn the_bytes_that_a_part_inflates_to_are_charged_once() {
    for (mode, end) in [
        (LoadMode::Merge, LoadState::Live),
        (LoadMode::Replace, LoadState::Ready),
    ] {
        let host = with_bomb(mode).await;
        host.run(i64::MAX, 1).await;
        assert_eq!((host.state(), host.journal().await.applied), (end, 1));
        let charged = host.inflated.load(Ordering::SeqCst);
        assert_eq!(charged, BLOCKS * BLOCK_LEN + ROW.len() as u64, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_the_quota_amid_a_part_and_the_next_one_pays_only_what_is_left() {
    let host = with_bomb(LoadMode::Replace).await;
    *host.quota.lock().unwrap() = Some((1, tokio::time::Instant::now()));
    let running = Arc::clone(&host);
    let mut running = tokio::spawn(async move { running.run(i64::MAX, 1).await });
    // It is refused for the second time, at least.
    let waits = timeout(Duration::from_millis(3_500), &mut running).await;
    assert!(waits.is_err(), "the quota is used up");
    assert!(host.reason.lock().unwrap().is_some());
    let before = host.inflated.load(Ordering::SeqCst);
    assert!((1..8 << 20).contains(&before), "{before}");
    host.is_ending.store(true, Ordering::SeqCst);
    timeout(BEAT, running).await.unwrap().unwrap();
    assert_eq!(
        *host.reason.lock().unwrap(),
        None,
        "it does not wait any more"
    );
    host.is_ending.store(false, Ordering::SeqCst);
    *host.quota.lock().unwrap() = None;
    host.run(i64::MAX, 2).await;
    assert_eq!(host.state(), LoadState::Ready);
    let charged = host.inflated.load(Ordering::SeqCst);
    assert_eq!(charged, BLOCKS * BLOCK_LEN + ROW.len() as u64);
}
