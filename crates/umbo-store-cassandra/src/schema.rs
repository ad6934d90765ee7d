//! The tables, and every statement that is sent for a request.
//!
//! A Cassandra partition is a *bucket*: some hash slots of one namespace, with all its datasets. Its static columns are
//! the guard of the bucket (`guard`). Its rows are of four kinds, so that one commit changes any of them: rows of
//! datasets, idempotency records, removed ranges of a dataset that is being built, and states of uploads. Rows are
//! written with UPDATE alone: an INSERT would leave a marker that keeps a row of nulls after its values have expired.

use std::sync::Arc;

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, Statement};

/// Number of the layout of the tables. A version that cannot read a layout refuses it.
pub(crate) const FORMAT: i32 = 1;

/// Kinds of the rows of a bucket.
pub(crate) const ROW: i8 = 0;
pub(crate) const IDEMPOTENCY: i8 = 1;
pub(crate) const REMOVED_RANGE: i8 = 2;
pub(crate) const UPLOAD: i8 = 3;

pub(crate) const TABLES: [&str; 6] = [
    "create table if not exists layout (
        tenant int primary key, format int, shards int, buckets int)",
    "create table if not exists namespaces (
        tenant int, identity int, primary key (tenant, identity))",
    "create table if not exists activations (
        tenant int, shard smallint, identity int, epoch int, live int, primary key (tenant, shard, identity))",
    "create table if not exists records (
        tenant int primary key, epoch bigint, number bigint, bound_epoch bigint, bound_number bigint, fenced frozen<list<frozen<tuple<int, int>>>>,
        datasets frozen<list<frozen<tuple<int, int, int, int, frozen<list<int>>>>>>, content blob)",
    "create table if not exists chunks (
        tenant int, upload blob, number int, bytes blob, primary key ((tenant, upload), number))",
    "create table if not exists buckets (
        tenant int, identity int, bucket smallint, kind tinyint, dataset int, slot smallint, pk blob, sk blob,
        tag bigint static, previous_tag bigint static, top bigint static, epoch int static, live int static,
        records_epoch bigint static, records_number bigint static, due bigint static, sizes frozen<map<int, frozen<tuple<bigint, bigint, bigint>>>> static,
        runs frozen<map<int, int>> static,
        version bigint, expires bigint, as_of bigint, by_client boolean, form tinyint, len bigint, held bigint,
        value blob, large blob, content_type blob, content_encoding blob,
        primary key ((tenant, identity, bucket), kind, dataset, slot, pk, sk))
        with compaction = {'class': 'UnifiedCompactionStrategy'}",
];

/// The bucket of a statement.
const BUCKET: &str = "tenant = ? and identity = ? and bucket = ?";
/// A row of a bucket.
const PLACE: &str = "kind = ? and dataset = ? and slot = ? and pk = ? and sk = ?";
/// What is read of a row, the last one its value.
const COLUMNS: &str = "kind, dataset, slot, pk, sk, version, expires, as_of, by_client, form, len, held, large, \
     content_type, content_encoding";

/// A walk through rows, with their values and without.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) whole: PreparedStatement,
    pub(crate) keys: PreparedStatement,
}

impl Walk {
    pub(crate) const fn of(&self, keys_only: bool) -> &PreparedStatement {
        if keys_only { &self.keys } else { &self.whole }
    }
}

/// Every statement on rows, prepared once.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) get: PreparedStatement,
    /// Rows by their places.
    pub(crate) rows_at: Walk,
    pub(crate) guard: PreparedStatement,
    pub(crate) guard_serial: PreparedStatement,
    pub(crate) set_guard: PreparedStatement,
    pub(crate) put: PreparedStatement,
    pub(crate) delete: PreparedStatement,
    /// Removes the rows of a partition from one sort key to another, both included.
    pub(crate) delete_sorts: PreparedStatement,
    /// Removes rows of a dataset up to a place, which is included.
    pub(crate) delete_up_to: PreparedStatement,
    pub(crate) delete_kind: PreparedStatement,
    /// Rows of a partition: without and with an end, then the same from the last row on.
    pub(crate) range: [Walk; 4],
    /// Rows of a dataset in the order of slots: from a slot on, and after a key.
    pub(crate) scan: [Walk; 2],
    pub(crate) kind: Walk,
    pub(crate) put_chunk: PreparedStatement,
    pub(crate) chunk: PreparedStatement,
    pub(crate) delete_chunks: PreparedStatement,
    pub(crate) add_namespace: PreparedStatement,
    pub(crate) delete_namespace: PreparedStatement,
    pub(crate) namespaces: PreparedStatement,
    pub(crate) activate: PreparedStatement,
    pub(crate) activations: PreparedStatement,
    pub(crate) records: PreparedStatement,
    pub(crate) keep_records: PreparedStatement,
    /// Records that all buckets are bound to a copy.
    pub(crate) bind_records: PreparedStatement,
}

impl Statements {
    pub(crate) async fn prepare(session: &Session) -> Result<Self, PrepareError> {
        let read = async |text: String| {
            let mut statement = prepare(session, text).await?;
            statement.set_is_idempotent(true);
            Ok::<_, PrepareError>(statement)
        };
        let walk = async |rest: &str| {
            let whole = format!("select {COLUMNS}, value from buckets where {BUCKET} and {rest}");
            // Answers with and without values have the same columns: that of `large` stands twice in these.
            let keys =
                format!("select {COLUMNS}, large as value from buckets where {BUCKET} and {rest}");
            Ok::<_, PrepareError>(Walk {
                whole: read(whole).await?,
                keys: read(keys).await?,
            })
        };
        let write = |text: String| prepare(session, text);
        let guard_text = format!(
            "select tag, previous_tag, top, epoch, live, records_epoch, records_number, due, sizes, runs \
             from buckets where {BUCKET} limit 1"
        );
        let mut guard_serial = read(guard_text.clone()).await?;
        guard_serial.set_consistency(Consistency::LocalSerial);
        let from = "kind = 0 and dataset = ? and slot = ? and pk = ? and sk >= ?";
        let back = "order by kind desc, dataset desc, slot desc, pk desc, sk desc";
        let slots = "(kind, dataset, slot) <= (0, ?, ?) limit ?";
        Ok(Self {
            get: read(format!(
                "select {COLUMNS}, value from buckets where {BUCKET} and {PLACE}"
            ))
            .await?,
            rows_at: walk("(kind, dataset, slot, pk, sk) in ?").await?,
            guard: read(guard_text).await?,
            guard_serial,
            set_guard: write(format!(
                "update buckets set tag = ?, previous_tag = ?, top = ?, epoch = ?, live = ?, records_epoch = ?, \
                 records_number = ?, due = ?, sizes = ?, runs = ? where {BUCKET} if tag = ?"
            ))
            .await?,
            put: write(format!(
                "update buckets using ttl ? set version = ?, expires = ?, as_of = ?, by_client = ?, form = ?, len = ?, \
                 held = ?, value = ?, large = ?, content_type = ?, content_encoding = ? where {BUCKET} and {PLACE}"
            ))
            .await?,
            delete: write(format!("delete from buckets where {BUCKET} and {PLACE}")).await?,
            delete_sorts: write(format!(
                "delete from buckets where {BUCKET} and kind = 0 and dataset = ? and slot = ? and pk = ? \
                 and sk >= ? and sk <= ?"
            ))
            .await?,
            delete_up_to: write(format!(
                "delete from buckets where {BUCKET} and (kind, dataset) >= (?, ?) \
                 and (kind, dataset, slot, pk, sk) <= (?, ?, ?, ?, ?)"
            ))
            .await?,
            delete_kind: write(format!("delete from buckets where {BUCKET} and kind = ?")).await?,
            range: [
                walk(&format!("{from} limit ?")).await?,
                walk(&format!("{from} and sk < ? limit ?")).await?,
                walk(&format!("{from} {back} limit ?")).await?,
                walk(&format!("{from} and sk < ? {back} limit ?")).await?,
            ],
            scan: [
                walk(&format!("(kind, dataset, slot) >= (0, ?, ?) and {slots}")).await?,
                walk(&format!(
                    "(kind, dataset, slot, pk, sk) > (0, ?, ?, ?, ?) and {slots}"
                ))
                .await?,
            ],
            kind: walk("kind = ? and dataset = ?").await?,
            put_chunk: read(
                "update chunks set bytes = ? where tenant = ? and upload = ? and number = ?".into(),
            )
            .await?,
            chunk: read(
                "select bytes from chunks where tenant = ? and upload = ? and number = ?".into(),
            )
            .await?,
            delete_chunks: read("delete from chunks where tenant = ? and upload = ?".into())
                .await?,
            add_namespace: read("insert into namespaces (tenant, identity) values (?, ?)".into())
                .await?,
            delete_namespace: read(
                "delete from namespaces where tenant = ? and identity = ?".into(),
            )
            .await?,
            namespaces: read("select identity from namespaces where tenant = ?".into()).await?,
            // The time stamp is the epoch: the highest one stays, whoever writes it when.
            activate: read(
                "update activations using timestamp ? set epoch = ?, live = ? \
                 where tenant = ? and shard = ? and identity = ?"
                    .into(),
            )
            .await?,
            activations: read(
                "select shard, identity, epoch, live from activations where tenant = ?".into(),
            )
            .await?,
            records: read(
                "select epoch, number, bound_epoch, bound_number, fenced, datasets, content from records where tenant = ?"
                    .into(),
            )
            .await?,
            keep_records: write(
                "update records set epoch = ?, number = ?, fenced = ?, datasets = ?, content = ? \
                 where tenant = ? if epoch = ? and number = ?"
                    .into(),
            )
            .await?,
            bind_records: write(
                "update records set bound_epoch = ?, bound_number = ? \
                 where tenant = ? if epoch = ? and number = ?"
                    .into(),
            )
            .await?,
        })
    }
}

async fn prepare(session: &Session, text: String) -> Result<PreparedStatement, PrepareError> {
    let mut statement = session.prepare(Statement::new(text)).await?;
    // A conditional write that is sent twice says that it was not applied, although the first one was.
    statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
    statement.set_use_cached_result_metadata(true);
    Ok(statement)
}
