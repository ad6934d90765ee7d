//! A row as the shard has it now. A touch reads it to store its value again; a dry run of a delete reads it to count
//! it. Never from the local cache, which may be seconds old.

use std::pin::pin;

use umbo_http::RequestError;
use umbo_types::{Key, Row};

use crate::phase::fetch;
use crate::phase::locate::Located;
use crate::phase::queue;

/// Reads the row in a permit of its shard.
pub(super) async fn stored_row(
    located: &mut Located<'_>,
    key: &Key,
) -> Result<Option<Row>, RequestError> {
    let (dispatcher, call) = (located.dispatcher, located.call());
    let (namespace, dataset) = (located.namespace_id(), located.dataset());
    let shard = dispatcher.shard_map.locate(namespace, &key.partition);
    let work = fetch::row(dispatcher, (shard, namespace), &call, dataset, key);
    Ok(queue::ask(located, pin!(work)).await??)
}
