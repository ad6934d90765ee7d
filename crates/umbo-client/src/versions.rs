//! Versions of a namespace, which loads of mode replace have built.
//!
//! Owns the calls. An activation by number and dry runs of activations have the same effect when they are sent twice,
//! and are repeated like reads. Removals and rollbacks are repeated only if the failed attempt was certainly not
//! applied: a second rollback would return to the version of the beginning.

use reqwest::Method;
use umbo_api::versions::{VersionChange, VersionList};

use crate::client::Client;
use crate::error::Error;
use crate::request::with_dry_run;
use crate::retry::Repeat;

impl Client {
    /// Lists the versions of a namespace.
    pub async fn versions(&self, namespace: &str) -> Result<VersionList, Error> {
        let target = format!("/v1/ns/{namespace}/versions");
        self.read(target).await
    }

    /// Makes a version the live one. A dry run changes nothing, and returns the change.
    pub async fn activate_version(
        &self,
        namespace: &str,
        number: u32,
        is_dry_run: bool,
    ) -> Result<VersionChange, Error> {
        let target = format!("/v1/ns/{namespace}/versions/{number}/activate");
        let target = with_dry_run(target, is_dry_run);
        self.change(Method::POST, target, Repeat::Always).await
    }

    /// Makes the previously live version the live one again. A dry run changes nothing, and returns the change.
    pub async fn roll_back(
        &self,
        namespace: &str,
        is_dry_run: bool,
    ) -> Result<VersionChange, Error> {
        let target = format!("/v1/ns/{namespace}/versions/rollback");
        let target = with_dry_run(target, is_dry_run);
        self.change(Method::POST, target, Repeat::IfNotApplied)
            .await
    }

    /// Drops a version that is kept. A dry run changes nothing, and returns the change.
    pub async fn remove_version(
        &self,
        namespace: &str,
        number: u32,
        is_dry_run: bool,
    ) -> Result<VersionChange, Error> {
        let target = format!("/v1/ns/{namespace}/versions/{number}");
        let target = with_dry_run(target, is_dry_run);
        self.change(Method::DELETE, target, Repeat::IfNotApplied)
            .await
    }
}
