//! `umbo kv get`: the bytes of a row on stdout, nothing added; with `-o json`, the row with its
//! version, expiry and content type.

use clap::Args;
use umbo_api::batch::KeyFields;
use umbo_api::path::base64url;
use umbo_api::row::JsonRow;

use super::RowKey;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Format};

/// Arguments of `umbo kv get`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    key: RowKey,
}

impl Arguments {
    /// Prints the value.
    pub(super) async fn run(&self, connection: &Connection) -> Result<(), Failure> {
        let (partition, sort) = (&*self.key.pk.0, self.key.sort());
        let value = connection
            .client()?
            .get(self.key.ns.as_str(), partition, sort)
            .await?
            .ok_or(Failure::RowNotFound)?;
        if connection.listing_format() == Format::Table {
            return output::write_bytes(&value.bytes);
        }
        let key = KeyFields::of(partition, sort);
        let (v, v64) = match std::str::from_utf8(&value.bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(base64url(&value.bytes))),
        };
        output::write_json(&JsonRow {
            pk: key.pk,
            pk64: key.pk64,
            sk: key.sk,
            sk64: key.sk64,
            version: Some(value.version),
            expires_at: value.expires_at,
            content_type: value.content_type,
            content_encoding: value.content_encoding,
            bytes: None,
            v,
            v64,
        })
    }
}
