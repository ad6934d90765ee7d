//! Nodes that are restarted while they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbo_store::{ByKey as _, CallContext};
use umbo_store_remote::RemoteSettings;

use crate::cluster::Cluster;
use crate::rows::{NS, key, write};

/// Every node is stopped and started while rows are written and read, without a failed request.
#[tokio::test(start_paused = true)]
async fn nobody_notices_a_rolling_restart() {
    let mut cluster = Cluster::start(3);
    let store = cluster.connect(RemoteSettings::default()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let store = Arc::clone(&store);
            let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
            tokio::spawn(async move {
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let key = key(&format!("row-{caller}-{n}"));
                    write(&*store, &key, b"v").await.expect("written");
                    let row = store.get_row(&CallContext::internal(), NS, &key).await;
                    assert!(row.expect("read").is_some());
                    done.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    for at in 0..3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.stop(at).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.serve(at);
    }
    let before = done.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no caller sees a failure");
    }
    assert!(done.load(Ordering::Relaxed) > before + 16);
}
