//! A row as the shard has it now, for writes that begin with a look at it: what a touch stores again, and what a dry
//! run of a delete would remove. Never from the local cache, which may be seconds old.

use std::pin::pin;

use umbo_http::RequestError;
use umbo_types::{Key, Row};

use crate::phase::locate::Located;
use crate::phase::queue::{self, with_permit};
use crate::store_call::{Answered, Timed};

/// Reads the row in a permit of its shard.
pub(super) async fn stored_row(
    located: &mut Located<'_>,
    key: &Key,
) -> Result<Option<Row>, RequestError> {
    let (dispatcher, call) = (located.dispatcher, located.call());
    let (namespace, dataset) = (located.namespace_id(), located.dataset());
    let shard = dispatcher.shard_map.locate(namespace, &key.partition);
    let work = async {
        let context = call.context();
        let reading = async {
            let row = dispatcher.store.get(&context, dataset, key).await;
            Answered::new(&context, row)
        };
        let source = || call.source(namespace, Some(&key.partition));
        let timed = with_permit(dispatcher, shard, &call, source, pin!(reading)).await?;
        Ok(Timed {
            answer: timed.answer?,
            time: timed.time,
        })
    };
    queue::ask(located, pin!(work)).await
}
