//! A store whose values are kept compressed, for tests: the contract suite on it shows that the engine within carries the
//! forms of values through everything that it does.

use std::sync::Arc;

use async_trait::async_trait;
use umbo_types::{Key, NamespaceId, Row, ShardId, StoredForm, Value};

use crate::call::CallContext;
use crate::compression::{frame, plain, plain_bytes};
use crate::error::{StoreError, WriteError};
use crate::request::{Change, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written};
use crate::row_batch::RowBatch;
use crate::store::Store;
use crate::wrapped::WrappedStore;

/// Hands every value to the store within in the zstd form, where that is shorter by a byte, and returns it plain.
#[derive(Debug)]
pub struct CompressedStore(pub Arc<dyn Store>);

#[async_trait]
impl WrappedStore for CompressedStore {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        let row = self.0.get(call, shard, namespace, key).await?;
        Ok(row.map(plain_row).transpose()?)
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let rows = self
            .0
            .multi_get(call, shard, namespace, keys)
            .await
            .into_iter();
        rows.map(|row| row?.map(plain_row).transpose()).collect()
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        let page = self.0.range(call, shard, request).await?;
        Ok(Page {
            rows: plain_rows(&page.rows, request.keys_only)?,
            ..page
        })
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        let page = self.0.scan(call, shard, request).await?;
        Ok(ScanPage {
            rows: plain_rows(&page.rows, request.keys_only)?,
            ..page
        })
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        mut request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        for mutation in &mut request.mutations {
            if let Change::Put { value, .. } = &mut mutation.change
                && value.form == StoredForm::Plain
            {
                *value = compressed(std::mem::take(value));
            }
        }
        self.0.write(call, shard, request).await
    }
}

fn compressed(value: Value) -> Value {
    match frame(&value.bytes) {
        Ok(bytes) if bytes.len() < value.bytes.len() => Value {
            bytes: bytes.into(),
            form: StoredForm::Zstd,
            ..value
        },
        Ok(_) | Err(_) => value,
    }
}

fn plain_row(row: Row) -> Result<Row, StoreError> {
    let value = plain(row.value).map_err(|_| damaged())?;
    Ok(Row { value, ..row })
}

fn plain_rows(rows: &RowBatch, keys_only: bool) -> Result<RowBatch, StoreError> {
    let (mut all, mut room) = (RowBatch::default(), Vec::new());
    for mut row in rows.iter() {
        if !keys_only {
            row.value = plain_bytes(row.form, row.value, &mut room).map_err(|_| damaged())?;
        }
        if row.form == StoredForm::Zstd {
            row.form = StoredForm::Plain;
        }
        all.push(row);
    }
    Ok(all)
}

fn damaged() -> StoreError {
    StoreError::Corrupt {
        shard: ShardId(0),
        reason: "a compressed value cannot be decompressed".to_owned(),
    }
}
