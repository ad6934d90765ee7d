//! Tokens that were made with the admin API: kept in the system records, in effect at once on this
//! pod and at the next refresh on the others.

use bytes::Bytes;
use umbo_api::admin::{CreatedToken, NewToken as AskedToken, TokenList};

use crate::auth::{NewToken, TokenRecord, TokenSource};
use crate::failure::Failure;
use crate::pod::Dispatcher;

const KIND: &str = "token";

/// Loads the tokens of the store.
pub(crate) async fn refresh(pod: &Dispatcher) -> Result<(), Failure> {
    let mut records = Vec::new();
    for (id, content) in pod.system.load(KIND).await? {
        match TokenRecord::from_bytes(&content) {
            Ok(record) => records.push(record),
            Err(error) => tracing::error!(id, %error, "a token record is unreadable"),
        }
    }
    pod.tokens.replace(TokenSource::Store, records);
    Ok(())
}

/// Returns all tokens, without their secrets.
pub(crate) fn list(pod: &Dispatcher) -> TokenList {
    TokenList {
        tokens: pod.tokens.list(),
    }
}

/// Makes a token.
pub(crate) async fn create(pod: &Dispatcher, asked: &AskedToken) -> Result<CreatedToken, Failure> {
    let (token, record) = NewToken::check(asked)?.create(pod.clock.wall())?;
    let _changing = pod.changes.lock().await;
    pod.tokens.check_create(&record)?;
    let content = Bytes::from(record.to_bytes());
    pod.system
        .update(KIND, record.id(), |_| Ok(Some(content.clone())))
        .await?;
    let info = record.info(TokenSource::Store);
    pod.tokens.insert(TokenSource::Store, record);
    tracing::info!(id = info.id, name = info.name, "made a token");
    Ok(CreatedToken {
        token: token.to_string(),
        info,
    })
}

/// Revokes a token of the store.
pub(crate) async fn revoke(pod: &Dispatcher, id: &str) -> Result<(), Failure> {
    let _changing = pod.changes.lock().await;
    pod.tokens.check_revoke(id, pod.clock.wall())?;
    pod.system.update(KIND, id, |_| Ok(None)).await?;
    pod.tokens.remove(id);
    tracing::info!(id, "revoked a token");
    Ok(())
}
