//! Tokens that were made with the admin API: kept in the system records, in effect at once on this
//! pod and at the next refresh on the others.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;
use umbo_api::admin::{CreatedToken, NewToken as AskedToken, TokenList};
use umbo_types::Clock;

use crate::auth::{NewToken, TokenRecord, TokenRegistry, TokenSource};
use crate::failure::Failure;
use crate::system::SystemRecords;

const KIND: &str = "token";

/// The tokens of the store.
#[derive(Debug)]
pub(crate) struct StoredTokens {
    system: Arc<SystemRecords>,
    in_effect: Arc<TokenRegistry>,
    clock: Arc<dyn Clock>,
    /// Held while a token is made or revoked, so that what was checked stays true until it is done.
    changing: Mutex<()>,
}

impl StoredTokens {
    pub(crate) fn new(
        system: Arc<SystemRecords>,
        in_effect: Arc<TokenRegistry>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            system,
            in_effect,
            clock,
            changing: Mutex::default(),
        }
    }

    /// Loads the tokens of the store.
    pub(crate) async fn refresh(&self) -> Result<(), Failure> {
        let mut records = Vec::new();
        for (id, content) in self.system.load(KIND).await? {
            match TokenRecord::from_bytes(&content) {
                Ok(record) => records.push(record),
                Err(error) => tracing::error!(id, %error, "a token record is unreadable"),
            }
        }
        self.in_effect.replace(TokenSource::Store, records);
        Ok(())
    }

    /// Returns all tokens, those of the token file included, without their secrets.
    pub(crate) fn list(&self) -> TokenList {
        TokenList {
            tokens: self.in_effect.list(),
        }
    }

    /// Makes a token.
    pub(crate) async fn create(&self, asked: &AskedToken) -> Result<CreatedToken, Failure> {
        let (token, record) = NewToken::check(asked)?.create(self.clock.wall())?;
        let _changing = self.changing.lock().await;
        self.in_effect.check_create(&record)?;
        let content = Bytes::from(record.to_bytes());
        self.system
            .update(KIND, record.id(), |_| Ok(Some(content.clone())))
            .await?;
        let info = record.info(TokenSource::Store);
        self.in_effect.insert(TokenSource::Store, record);
        tracing::info!(id = info.id, name = info.name, "made a token");
        Ok(CreatedToken {
            token: token.to_string(),
            info,
        })
    }

    /// Revokes a token of the store.
    pub(crate) async fn revoke(&self, id: &str) -> Result<(), Failure> {
        let _changing = self.changing.lock().await;
        self.in_effect.check_revoke(id, self.clock.wall())?;
        self.system.update(KIND, id, |_| Ok(None)).await?;
        self.in_effect.remove(id);
        tracing::info!(id, "revoked a token");
        Ok(())
    }
}
