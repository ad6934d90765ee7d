//! What can be reloaded while a node runs: the map, the certificates, the policy file, the log
//! filter.
//!
//! At SIGHUP, and within ten seconds of a change of one of the files. What cannot be used is
//! refused with its reason and the old one stays.

use std::path::Path;
use std::sync::Arc;

use umbo_shard::Node;
use umbo_telemetry::logging::LogHandle;
use umbo_tls::TlsSource;

use super::quota::CeilingsReader;
use crate::failure::Failure;
use crate::map_file;
use crate::reload_watch::{ReloadWatch, note};
use crate::settings::Settings;

/// What a reload replaces.
pub(super) struct Reload {
    pub(super) watch: ReloadWatch,
    pub(super) started_with: Settings,
    pub(super) log: LogHandle,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) node: Arc<Node>,
    pub(super) ceilings: Arc<CeilingsReader>,
}

impl Reload {
    /// Reloads whenever there is a reason to, for ever.
    pub(super) async fn run(mut self) {
        loop {
            let settings = self.watch.next().await;
            self.reload(&settings).await;
        }
    }

    async fn reload(&self, settings: &Settings) {
        let filter = self.log.set_filter(&settings.log.filter);
        note("log filter", Some(filter));
        note("certificates", self.tls.as_ref().map(|tls| tls.reload()));
        let map = settings.cluster.map.as_deref();
        note(
            "map of the cluster",
            map.map(|path| self.replace_map(Path::new(path))),
        );
        let is_named = |settings: &Settings| settings.quota.policy_file.is_some();
        if is_named(settings) || is_named(&self.started_with) {
            note(
                "policy file",
                Some(self.ceilings.replace_file(settings).await),
            );
        }
        let mut new = settings.clone();
        let old = &self.started_with.quota.policy_file;
        new.quota.policy_file.clone_from(old);
        new.log.filter.clone_from(&self.started_with.log.filter);
        if new != self.started_with {
            tracing::warn!("settings have changed that take effect at the next start");
        }
    }

    fn replace_map(&self, path: &Path) -> Result<(), Failure> {
        let map = Arc::new(map_file::read(path)?);
        let version = map.version();
        let unopened = self.node.replace_map(map).map_err(Failure::start)?;
        if !unopened.is_empty() {
            let shards: Vec<_> = unopened.iter().map(ToString::to_string).collect();
            let shards = shards.join(", ");
            tracing::warn!(
                version,
                shards,
                "the map gives this node shards that it opens when it is started again"
            );
        }
        Ok(())
    }
}
