//! The tables, and every statement that is sent for a request.
//!
//! A Cassandra partition is a *bucket*: some hash slots of one namespace, with all its datasets. Its first row, which has
//! an empty place, is the guard of the bucket (`guard`). The others are of four kinds, so that one commit changes any of
//! them: rows of datasets, idempotency records, removed ranges of a dataset that is being built, and states of uploads.
//! Rows are written with UPDATE alone: an INSERT would leave a marker that keeps a row of nulls after its values have
//! expired.

use std::sync::Arc;

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, Statement};

/// Number of the layout of the tables. A version that cannot read a layout refuses it.
pub(crate) const FORMAT: i32 = 4;

/// Kinds of the rows of a bucket.
pub(crate) const ROW: u8 = 0;
pub(crate) const IDEMPOTENCY: u8 = 1;
pub(crate) const REMOVED_RANGE: u8 = 2;
pub(crate) const UPLOAD: u8 = 3;

/// The tables: name, and columns with everything behind them.
pub(crate) const TABLES: [(&str, &str); 6] = [
    (
        "layout",
        "(instance int primary key, format int, shards int, buckets int)",
    ),
    (
        "namespaces",
        "(instance int, identity int, primary key (instance, identity))",
    ),
    (
        "activations",
        "(instance int, shard smallint, identity int, epoch int, live int, primary key (instance, shard, identity))",
    ),
    (
        "records",
        "(instance int primary key, epoch bigint, number bigint, bound_epoch bigint, bound_number bigint, \
         fenced frozen<list<frozen<tuple<int, int>>>>, \
         datasets frozen<list<frozen<tuple<int, int, int, int, frozen<list<int>>>>>>, content blob)",
    ),
    (
        "chunks",
        "(instance int, upload blob, number int, bytes blob, primary key ((instance, upload), number))",
    ),
    (
        "buckets",
        "(instance int, identity int, bucket smallint, place blob, \
         tag bigint, guard frozen<tuple<list<tuple<bigint, bigint>>, bigint, int, int, bigint, bigint, bigint, \
         map<int, tuple<bigint, bigint, bigint>>, map<int, int>, bigint>>, \
         about blob, value blob, apart blob, \
         primary key ((instance, identity, bucket), place)) \
         with compaction = {'class': 'UnifiedCompactionStrategy'}",
    ),
];

/// The bucket of a statement.
const BUCKET: &str = "instance = ? and identity = ? and bucket = ?";
/// The guard of a bucket.
const GUARD: &str = "place = 0x";
/// A row of a bucket.
const PLACE: &str = "place = ?";
/// Rows of a bucket: a `PlaceRange`.
const PLACES: &str = "place >= ? and place < ?";
/// Columns that are read of a row, without the value.
const COLUMNS: &str = "place, about";

/// A statement that reads rows, with their values and without.
#[derive(Debug)]
pub(crate) struct RowsRead {
    whole: PreparedStatement,
    keys: PreparedStatement,
}

impl RowsRead {
    pub(crate) const fn of(&self, keys_only: bool) -> &PreparedStatement {
        if keys_only { &self.keys } else { &self.whole }
    }
}

/// Every statement on rows, prepared once.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) guard: PreparedStatement,
    pub(crate) guard_serial: PreparedStatement,
    pub(crate) set_guard: PreparedStatement,
    pub(crate) put: PreparedStatement,
    pub(crate) delete: PreparedStatement,
    pub(crate) delete_range: PreparedStatement,
    pub(crate) fast: FastStatements,
    pub(crate) rows: RowReads,
    pub(crate) own: OwnStatements,
}

/// Statements of fast writes. Each has a time stamp, so that it may be sent again.
#[derive(Debug)]
pub(crate) struct FastStatements {
    pub(crate) put: PreparedStatement,
    /// Puts a row with a long value.
    pub(crate) put_apart: PreparedStatement,
    pub(crate) delete: PreparedStatement,
    pub(crate) delete_range: PreparedStatement,
}

/// Statements that read rows of a bucket.
#[derive(Debug)]
pub(crate) struct RowReads {
    pub(crate) get: PreparedStatement,
    /// Rows by their places.
    pub(crate) at: RowsRead,
    /// Rows in order, then from the last one on; they leave values that stand apart.
    pub(crate) walk: [RowsRead; 2],
}

/// Statements on the other tables.
#[derive(Debug)]
pub(crate) struct OwnStatements {
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

/// Prepares statements on the tables of a keyspace.
struct Preparer<'a> {
    session: &'a Session,
    keyspace: &'a str,
}

impl Preparer<'_> {
    fn table(&self, name: &str) -> String {
        format!("\"{}\".{name}", self.keyspace)
    }

    /// Prepares a statement that is sent once.
    async fn write(&self, text: String) -> Result<PreparedStatement, PrepareError> {
        let mut statement = self.session.prepare(Statement::new(text)).await?;
        // A conditional write that is sent twice says that it was not applied, although the first one was.
        statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        statement.set_use_cached_result_metadata(true);
        Ok(statement)
    }

    /// Prepares a statement that may be sent again.
    async fn read(&self, text: String) -> Result<PreparedStatement, PrepareError> {
        let mut statement = self.session.prepare(Statement::new(text)).await?;
        statement.set_is_idempotent(true);
        statement.set_use_cached_result_metadata(true);
        Ok(statement)
    }

    /// Prepares a read of rows with these columns of values.
    async fn select(&self, values: &str, rest: &str) -> Result<PreparedStatement, PrepareError> {
        let buckets = self.table("buckets");
        let text = format!("select {COLUMNS}{values} from {buckets} where {BUCKET} and {rest}");
        self.read(text).await
    }

    async fn reads(&self, values: &str, rest: &str) -> Result<RowsRead, PrepareError> {
        Ok(RowsRead {
            whole: self.select(values, rest).await?,
            keys: self.select("", rest).await?,
        })
    }

    async fn row_reads(&self) -> Result<RowReads, PrepareError> {
        let values = ", value, apart";
        let walk = async |order| {
            let rest = format!("{PLACES} {order} limit ?");
            self.reads(", value", &rest).await
        };
        Ok(RowReads {
            get: self.select(values, PLACE).await?,
            at: self.reads(values, "place in ?").await?,
            walk: [walk("").await?, walk("order by place desc").await?],
        })
    }

    async fn fast(&self) -> Result<FastStatements, PrepareError> {
        let buckets = self.table("buckets");
        let put = |column: &str| {
            format!(
                "update {buckets} using ttl ? and timestamp ? set about = ?, {column} = ? \
                 where {BUCKET} and {PLACE}"
            )
        };
        let delete = |rest: &str| {
            format!("delete from {buckets} using timestamp ? where {BUCKET} and {rest}")
        };
        Ok(FastStatements {
            put: self.read(put("value")).await?,
            put_apart: self.read(put("apart")).await?,
            delete: self.read(delete(PLACE)).await?,
            delete_range: self.read(delete(PLACES)).await?,
        })
    }

    async fn own(&self) -> Result<OwnStatements, PrepareError> {
        let [chunks, namespaces] = [self.table("chunks"), self.table("namespaces")];
        let [activations, records] = [self.table("activations"), self.table("records")];
        let chunk = "instance = ? and upload = ?";
        Ok(OwnStatements {
            put_chunk: self
                .read(format!("update {chunks} set bytes = ? where {chunk} and number = ?"))
                .await?,
            chunk: self
                .read(format!("select bytes from {chunks} where {chunk} and number = ?"))
                .await?,
            delete_chunks: self.read(format!("delete from {chunks} where {chunk}")).await?,
            add_namespace: self
                .read(format!("insert into {namespaces} (instance, identity) values (?, ?)"))
                .await?,
            delete_namespace: self
                .read(format!("delete from {namespaces} where instance = ? and identity = ?"))
                .await?,
            namespaces: self
                .read(format!("select identity from {namespaces} where instance = ?"))
                .await?,
            // The time stamp is the epoch: the highest one stays, in any order of writes.
            activate: self
                .read(format!(
                    "update {activations} using timestamp ? set epoch = ?, live = ? \
                     where instance = ? and shard = ? and identity = ?"
                ))
                .await?,
            activations: self
                .read(format!("select shard, epoch, live from {activations} where instance = ?"))
                .await?,
            records: self
                .read(format!(
                    "select epoch, number, bound_epoch, bound_number, fenced, datasets, content \
                     from {records} where instance = ?"
                ))
                .await?,
            keep_records: self
                .write(format!(
                    "update {records} set epoch = ?, number = ?, fenced = ?, datasets = ?, content = ? \
                     where instance = ? if epoch = ? and number = ?"
                ))
                .await?,
            bind_records: self
                .write(format!(
                    "update {records} set bound_epoch = ?, bound_number = ? \
                     where instance = ? if epoch = ? and number = ?"
                ))
                .await?,
        })
    }
}

impl Statements {
    pub(crate) async fn prepare(session: &Session, keyspace: &str) -> Result<Self, PrepareError> {
        let with = Preparer { session, keyspace };
        let buckets = with.table("buckets");
        let guard = format!("select tag, guard from {buckets} where {BUCKET} and {GUARD}");
        let mut guard_serial = with.read(guard.clone()).await?;
        guard_serial.set_consistency(Consistency::LocalSerial);
        // A second one contends with the first.
        guard_serial.set_is_idempotent(false);
        let delete = |rest: &str| format!("delete from {buckets} where {BUCKET} and {rest}");
        let set_guard = format!(
            "update {buckets} set tag = ?, guard = ? where {BUCKET} and {GUARD} if tag = ?"
        );
        let put = format!(
            "update {buckets} using ttl ? set about = ?, value = ?, apart = ? where {BUCKET} and {PLACE}"
        );
        Ok(Self {
            guard: with.read(guard).await?,
            guard_serial,
            set_guard: with.write(set_guard).await?,
            put: with.write(put).await?,
            delete: with.write(delete(PLACE)).await?,
            delete_range: with.write(delete(PLACES)).await?,
            fast: with.fast().await?,
            rows: with.row_reads().await?,
            own: with.own().await?,
        })
    }
}
