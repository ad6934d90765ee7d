//! The admin API: namespaces, tokens, shards, configuration. Needs the `admin` grant. Quotas are in the module
//! `quota`.

use std::time::SystemTime;

use reqwest::{Method, StatusCode};
use serde::Serialize;
use umbo_api::admin::{
    CreatedToken, Health, NamespaceInfo, NamespaceList, NamespaceRemoval, NamespaceRemoving,
    NamespaceSpec, NewToken, ServiceInfo, ShardList, TokenInfo, TokenList,
};
use umbo_api::diagnosis::Diagnosis;
use umbo_api::path::percent_encode;

use crate::client::Client;
use crate::error::Error;
use crate::request::{RepeatableRequest, with_dry_run};
use crate::retry::Repeat;

impl Client {
    /// Returns the name and version of the server that answers.
    pub async fn service(&self) -> Result<ServiceInfo, Error> {
        self.read("/").await
    }

    /// Like [`Self::service`], with the time of day of the server, in whole seconds, or `None` if the answer has
    /// no `Date`.
    pub async fn service_and_time(&self) -> Result<(ServiceInfo, Option<SystemTime>), Error> {
        let request = RepeatableRequest::read("/".to_owned());
        let (headers, body) = self.send_for_parts(&request).await?;
        let service = serde_json::from_slice(&body).map_err(|error| Error::json(&error))?;
        let date = headers.get(reqwest::header::DATE);
        let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        Ok((service, date))
    }

    /// Returns whether the server that answers takes requests, and its problems.
    pub async fn readiness(&self) -> Result<Health, Error> {
        match self.read("/readyz").await {
            // A server that does not take requests says so with this status.
            Err(Error::Foreign {
                status: 503, body, ..
            }) => Ok(serde_json::from_str(&body).unwrap_or_else(|_| Health {
                status: "unavailable".to_owned(),
                problems: vec![body],
            })),
            answer => answer,
        }
    }

    /// Lists the namespaces, with their sizes.
    pub async fn namespaces(&self) -> Result<NamespaceList, Error> {
        self.read("/admin/v1/namespaces").await
    }

    /// Describes a namespace.
    pub async fn namespace(&self, name: &str) -> Result<NamespaceInfo, Error> {
        self.read(namespace_target(name)).await
    }

    /// Creates a namespace. Returns it, and whether it is new. An existing namespace stays as it is; if its
    /// settings differ from the named ones, the request is refused.
    pub async fn put_namespace(
        &self,
        name: &str,
        spec: &NamespaceSpec,
    ) -> Result<(NamespaceInfo, bool), Error> {
        let target = namespace_target(name);
        let request = RepeatableRequest::new(Method::PUT, target, Repeat::Always)
            .with_body("application/json", json(spec)?);
        let mut response = self.send(&request).await?;
        let is_new = response.status() == StatusCode::CREATED;
        let body = self.body(&mut response).await?;
        let namespace = serde_json::from_slice(&body).map_err(|error| Error::json(&error))?;
        Ok((namespace, is_new))
    }

    /// Changes those settings of a namespace that are named, and returns it.
    pub async fn change_namespace(
        &self,
        name: &str,
        spec: &NamespaceSpec,
    ) -> Result<NamespaceInfo, Error> {
        let target = namespace_target(name);
        let request = RepeatableRequest::new(Method::PATCH, target, Repeat::Always)
            .with_body("application/merge-patch+json", json(spec)?);
        self.send_for_json(&request).await
    }

    /// Counts the rows that the removal of a namespace would remove.
    pub async fn count_namespace(&self, name: &str) -> Result<NamespaceRemoval, Error> {
        let target = with_dry_run(namespace_target(name), true);
        self.change(Method::DELETE, target, Repeat::Always).await
    }

    /// Removes a namespace with all its rows. Returns `None` if its name is free, otherwise the shards that have
    /// yet to confirm the removal; it continues by itself. `abandoned` names a shard that never comes back: the
    /// server does not wait for its confirmation.
    pub async fn delete_namespace(
        &self,
        name: &str,
        abandoned: Option<u16>,
    ) -> Result<Option<NamespaceRemoving>, Error> {
        let query = abandoned.map_or_else(String::new, |shard| format!("?abandon_shard={shard}"));
        let target = namespace_target(name) + &query;
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::IfNotApplied);
        let mut response = self.send(&request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let body = self.body(&mut response).await?;
        let removing = serde_json::from_slice(&body).map_err(|error| Error::json(&error))?;
        Ok(Some(removing))
    }

    /// Lists the tokens, without their secrets.
    pub async fn tokens(&self) -> Result<TokenList, Error> {
        self.read("/admin/v1/tokens").await
    }

    /// Creates a token. Only this answer ever shows its secret, so a request is not repeated when its outcome is
    /// unknown.
    pub async fn create_token(&self, token: &NewToken) -> Result<CreatedToken, Error> {
        let target = "/admin/v1/tokens".to_owned();
        let request = RepeatableRequest::new(Method::POST, target, Repeat::IfNotApplied)
            .with_body("application/json", json(token)?);
        self.send_for_json(&request).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        let target = token_target(id);
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::IfNotApplied);
        self.send(&request).await.map(drop)
    }

    /// Returns the token that a revocation would end, and revokes nothing.
    pub async fn revoke_token_dry_run(&self, id: &str) -> Result<TokenInfo, Error> {
        let target = with_dry_run(token_target(id), true);
        self.change(Method::DELETE, target, Repeat::Always).await
    }

    /// Lists the shards.
    pub async fn shards(&self) -> Result<ShardList, Error> {
        self.read("/admin/v1/shards").await
    }

    /// Returns the faults and unusual loads at the server that answers.
    pub async fn diagnosis(&self) -> Result<Diagnosis, Error> {
        self.read("/admin/v1/diagnosis").await
    }

    /// Returns the configuration in effect, as TOML.
    pub async fn config(&self) -> Result<String, Error> {
        self.read_text("/admin/v1/config").await
    }
}

fn namespace_target(name: &str) -> String {
    format!("/admin/v1/namespaces/{}", percent_encode(name.as_bytes()))
}

fn token_target(id: &str) -> String {
    format!("/admin/v1/tokens/{}", percent_encode(id.as_bytes()))
}

pub(crate) fn json(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(|error| Error::json(&error))
}
