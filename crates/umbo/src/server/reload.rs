//! What a running server can reload: the log filter, the certificates, the token file, the policy file, and
//! the map of its cluster.
//!
//! At SIGHUP, and within ten seconds of a change of one of the files. An invalid file is refused with its
//! reason, and the old content stays in effect.

use std::path::Path;
use std::sync::Arc;

use umbo_api::observe::EventKind;
use umbo_control::auth::file::read_tokens;
use umbo_control::auth::{AuthError, TokenRegistry, TokenSource};
use umbo_dispatcher::Dispatcher;
use umbo_store_remote::RemoteStore;
use umbo_telemetry::logging::LogHandle;
use umbo_tls::TlsSource;

use super::observe::happened;
use crate::cli_error::CliError;
use crate::map_file;
use crate::parts::read_policies;
use crate::reload_watch::{ReloadWatch, note, warn_of_others};
use crate::settings::Settings;

/// What a reload replaces.
pub(super) struct Reload {
    pub(super) watch: ReloadWatch,
    pub(super) started_with: Settings,
    pub(super) log: LogHandle,
    /// Of the ports for clients, and of the port for other dispatchers.
    pub(super) tls: Vec<Arc<TlsSource>>,
    pub(super) tokens: Arc<TokenRegistry>,
    pub(super) dispatcher: Arc<Dispatcher>,
    /// The remote store, if the shards are on nodes of a cluster.
    pub(super) remote: Option<Arc<RemoteStore>>,
}

impl Reload {
    /// Reloads at each trigger, in an endless loop.
    pub(super) async fn run(mut self) {
        loop {
            let settings = self.watch.next().await;
            self.reload(&settings);
        }
    }

    fn reload(&self, settings: &Settings) {
        note(
            "log filter",
            Some(self.log.set_filter(&settings.log.filter)),
        );
        for tls in &self.tls {
            note("certificates", Some(tls.reload()));
        }
        let tokens = settings.auth.token_file.as_deref().map(|path| {
            let records = read_tokens(Path::new(path))?;
            self.tokens.replace(TokenSource::File, records);
            Ok::<(), AuthError>(())
        });
        note("token file", tokens);
        let map = settings.cluster.map.as_deref();
        let remote = self.remote.as_ref().zip(map);
        let map = remote.map(|(store, path)| replace_map(store, Path::new(path)));
        note("map of the cluster", map);
        let path = settings.quota.policy_file.as_deref();
        let policies = read_policies(settings)
            .and_then(|policies| self.dispatcher.control.replace_policy_file(policies));
        let is_named = path
            .or(self.started_with.quota.policy_file.as_deref())
            .is_some();
        note("policy file", is_named.then_some(policies));
        warn_of_others(settings, &self.started_with);
        let text = "settings, certificates, tokens, policies and the map were read again";
        happened(&self.dispatcher, EventKind::SettingsReloaded, text);
    }
}

/// Uses the map of a file, if it is a successor of the one in effect.
fn replace_map(store: &RemoteStore, path: &Path) -> Result<(), CliError> {
    let map = map_file::read(path)?;
    store.set_map(map).map(|_| ()).map_err(CliError::start)
}
