//! Records the history of a node.

use std::path::Path;
use std::sync::Arc;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use umbo_telemetry::recorder::Recorder;

use crate::admin;
use crate::node::Node;

/// Records the history of a node in memory and in the files of a folder, until `stop`; then writes the rest of it.
pub async fn observe(node: Arc<Node>, folder: &Path, stop: CancellationToken) {
    let now = node.clock().wall();
    // A node records no happenings: its dispatchers see them.
    let (mut recorder, _) = Recorder::open(folder, now, node.history());
    loop {
        let wait = sleep(Recorder::wait(node.clock().wall()));
        let is_over = stop.run_until_cancelled(wait).await.is_none();
        let shared = Arc::clone(&node);
        // Taking a sample visits every metric, and must not block requests.
        let sample = move || {
            if is_over {
                recorder.end(shared.history(), &[]);
            } else {
                recorder.record(
                    shared.history(),
                    (shared.clock().monotonic(), shared.clock().wall()),
                    |visitor| admin::visit(&shared, visitor),
                    |_| Vec::new(),
                    Vec::new,
                );
            }
            recorder
        };
        match tokio::task::spawn_blocking(sample).await {
            Ok(sampled) if !is_over => recorder = sampled,
            Ok(_) => return,
            Err(error) => {
                tracing::error!(%error, "the history ends here: taking a sample failed");
                return;
            }
        }
    }
}
