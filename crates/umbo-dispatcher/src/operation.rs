//! The operations of the data plane: how each is decoded, which shards it concerns, how it is carried out, and
//! its answer as a type. One file for each; `request` calls them in the order of the phases.

pub(crate) mod batch_write;
pub(crate) mod body;
pub(crate) mod delete_range;
pub(crate) mod explain;
pub(crate) mod get;
mod large_upload;
pub(crate) mod multi_get;
pub(crate) mod range;
mod received;
pub(crate) mod scan;
pub(crate) mod stored_form;
mod stored_row;
pub(crate) mod usage;
pub(crate) mod write;

use http::Uri;
use http_body::SizeHint;
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::Route;
use umbo_http::{Fields, RequestError};
use umbo_quota::CostHint;
use umbo_types::Key;

use self::body::RequestBody;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::reply::Reply;

/// One operation, from the decoded request to the answer.
pub(crate) trait Operate: Sized {
    /// The answer of the store.
    type Fetched;

    /// *Decode*: reads the request without its body.
    fn decode(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError>;

    /// Returns the row if the request names exactly one: an operator may have blocked it.
    fn key(&self) -> Option<&Key> {
        None
    }

    /// *Price*: returns a hint of the work before it is done. Bytes count sort keys and values, and partition
    /// keys unless they stand in the path: the same bytes that the `end` line of a page counts. Removals write
    /// none.
    fn hint(&self, _body: &SizeHint) -> CostHint {
        CostHint::default()
    }

    /// *Locate*: finds the shards and reads the body. If the path names the shards, they are debited before
    /// the body is read, because a refusal must cost little.
    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError>;

    /// *Shield*, *wait*, *fetch*: reads of hot keys go through the local cache; every call of the store waits
    /// for a permit of its shard.
    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError>;

    /// *Settle*: charges the work that was done, and makes the answer.
    fn settle(
        self,
        fetched: Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError>;
}
