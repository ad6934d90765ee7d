//! What a running server can reload: the token file, the policy file, and the map of its cluster.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use umbo_api::observe::EventKind;
use umbo_control::auth::file::read_tokens;
use umbo_control::auth::{AuthError, TokenRegistry, TokenSource};
use umbo_dispatcher::Dispatcher;
use umbo_store_remote::RemoteStore;
use umbo_tls::TlsSource;
use umbo_types::Timestamp;

use super::observe::happened;
use crate::cli_error::CliError;
use crate::map_file;
use crate::parts::read_policies;
use crate::reload_watch::{Reloadable, note};
use crate::settings::Settings;

/// What a reload replaces.
pub(super) struct ServerReload {
    pub(super) tokens: Arc<TokenRegistry>,
    pub(super) dispatcher: Arc<Dispatcher>,
    /// Whether a policy file was named at the start.
    pub(super) had_policy_file: bool,
    pub(super) tls: Vec<Arc<TlsSource>>,
    /// The remote store, if the shards are on nodes of a cluster.
    pub(super) remote: Option<Arc<RemoteStore>>,
}

impl ServerReload {
    /// Tells the dispatcher when the certificates end.
    pub(super) fn tell_certificates(&self) {
        let ends = self.tls.iter().filter_map(|tls| {
            let (file, ends) = tls.ends()?;
            Some((
                file.display().to_string(),
                Timestamp(ends.saturating_mul(1_000_000)),
            ))
        });
        let ends = ends.collect();
        let told = self.dispatcher.certificates.lock();
        *told.unwrap_or_else(PoisonError::into_inner) = ends;
    }
}

impl Reloadable for ServerReload {
    async fn reload(&self, settings: &Settings) {
        self.tell_certificates();
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
        let policies = read_policies(settings)
            .and_then(|policies| self.dispatcher.control.replace_policy_file(policies));
        let has_file = self.had_policy_file || settings.quota.policy_file.is_some();
        note("policy file", has_file.then_some(policies));
        let text = "settings, certificates, tokens, policies and the map were read again";
        happened(&self.dispatcher, EventKind::SettingsReloaded, text);
    }
}

/// Uses the map of a file, if it is a successor of the one in effect.
fn replace_map(store: &RemoteStore, path: &Path) -> Result<(), CliError> {
    let map = map_file::read(path)?;
    store.set_map(map).map(|_| ()).map_err(CliError::start)
}
