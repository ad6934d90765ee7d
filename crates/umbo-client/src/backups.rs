//! Backups: begins one, reads the pieces of its shards, and reports and lists the completed ones.

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use umbo_api::backup::{BackupBegun, BackupEnd, BackupList, CompletedBackup};

use crate::admin::json;
use crate::client::Client;
use crate::error::Error;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

impl Client {
    /// Begins a backup: takes the state of every shard. A backup that was begun before ends. Needs the grant `admin` on
    /// every namespace.
    pub async fn begin_backup(&self) -> Result<BackupBegun, Error> {
        let target = "/admin/v1/backups".to_owned();
        let request = RepeatableRequest::new(Method::POST, target, Repeat::Always);
        self.send_for_json(&request).await
    }

    /// Reads a piece of a shard of a backup; `None` beyond the end. Pieces are read one after the other, from 1 on.
    pub async fn backup_piece(
        &self,
        backup: &str,
        shard: u16,
        piece: u32,
    ) -> Result<Option<Bytes>, Error> {
        let target = format!("/admin/v1/backups/{backup}/{shard}/{piece}");
        let mut response = self.send(&RepeatableRequest::read(target)).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        Ok(Some(self.body(&mut response).await?))
    }

    /// Reports a backup as complete; the fleet knows its age from then on.
    pub async fn end_backup(
        &self,
        backup: &str,
        end: &BackupEnd,
    ) -> Result<CompletedBackup, Error> {
        let target = format!("/admin/v1/backups/{backup}");
        let request = RepeatableRequest::new(Method::PUT, target, Repeat::Always)
            .with_body("application/json", json(end)?);
        self.send_for_json(&request).await
    }

    /// Lists the last completed backups, newest first.
    pub async fn backups(&self) -> Result<BackupList, Error> {
        let request = RepeatableRequest::read("/admin/v1/backups".to_owned());
        self.send_for_json(&request).await
    }
}
