//! The messages as they are on the wire, field by field as `shard.proto` has them.
//!
//! Bytes that are often empty are optional: what is not there is not compared with the default, and
//! comparing nothing with nothing is slow where the C library does it by masked loads (measured: a
//! sixth of a remote get). Field numbers are never used again. A field that a peer does not know is skipped; a message that
//! asks for what it does not know is answered with an error and harms no other one.

use bytes::Bytes;
use prost::{Message, Oneof};

/// What a dispatcher sends at once.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestBatch {
    /// Only in the first frame.
    #[prost(message, optional, tag = "1")]
    pub(crate) hello: Option<Hello>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) requests: Vec<Request>,
}

/// What a node sends at once.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnswerBatch {
    /// Only in the first frame.
    #[prost(message, optional, tag = "1")]
    pub(crate) welcome: Option<Welcome>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) answers: Vec<Answer>,
    /// The node stops: what was sent is answered, nothing more is to be sent.
    #[prost(bool, tag = "3")]
    pub(crate) is_draining: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) version_min: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) version_max: u32,
    #[prost(string, tag = "3")]
    pub(crate) cluster_id: String,
    #[prost(string, tag = "4")]
    pub(crate) node: String,
    #[prost(uint64, tag = "5")]
    pub(crate) map_version: u64,
    #[prost(string, tag = "6")]
    pub(crate) software: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    #[prost(string, tag = "2")]
    pub(crate) cluster_id: String,
    #[prost(string, tag = "3")]
    pub(crate) node: String,
    #[prost(uint64, tag = "4")]
    pub(crate) map_version: u64,
    /// Why the stream is refused; empty where it is not.
    #[prost(string, tag = "5")]
    pub(crate) refusal: String,
    #[prost(uint32, tag = "6")]
    pub(crate) refusal_kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Time left, in microseconds; absent for none.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timeout_us: Option<u64>,
    #[prost(uint32, tag = "3")]
    pub(crate) criticality: u32,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(crate) caller: Option<Bytes>,
    #[prost(uint64, tag = "5")]
    pub(crate) price_micro_ru: u64,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(crate) traceparent: Option<Bytes>,
    /// A part of a request that was charged to the shard with an earlier one.
    #[prost(bool, tag = "7")]
    pub(crate) is_continued: bool,
    /// Boxed: hardly any request has them.
    #[prost(message, optional, boxed, tag = "8")]
    pub(crate) names: Option<Box<Names>>,
    #[prost(oneof = "Ask", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub(crate) ask: Option<Ask>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Ask {
    #[prost(message, tag = "10")]
    Get(Get),
    #[prost(message, tag = "11")]
    MultiGet(MultiGet),
    #[prost(message, tag = "12")]
    Range(Range),
    #[prost(message, tag = "13")]
    Scan(Scan),
    #[prost(message, tag = "14")]
    Write(Write),
    #[prost(message, tag = "15")]
    DeleteRange(DeleteRange),
    #[prost(message, tag = "16")]
    Purge(Purge),
    /// Id of a request whose answer nobody waits for any more.
    #[prost(uint64, tag = "17")]
    Cancel(u64),
    #[prost(message, tag = "18")]
    Probe(Empty),
    #[prost(message, tag = "19")]
    ClusterMap(Empty),
}

/// Whom the caller calls for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Names {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) user: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) session: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) org: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Key {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) partition: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) sort: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Get {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) partition: Bytes,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) sort: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MultiGet {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) keys: Vec<Key>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SortRange {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) start: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) end: Option<Bytes>,
}

#[expect(clippy::struct_field_names, reason = "named as in shard.proto")]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Range {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) partition: Bytes,
    #[prost(message, optional, tag = "3")]
    pub(crate) range: Option<SortRange>,
    #[prost(bool, tag = "4")]
    pub(crate) reverse: bool,
    #[prost(uint32, tag = "5")]
    pub(crate) rows_max: u32,
    #[prost(uint32, tag = "6")]
    pub(crate) bytes_max: u32,
    #[prost(bool, tag = "7")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scan {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) first_slot: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) last_slot: u32,
    /// A request is for one shard.
    #[prost(uint32, tag = "4")]
    pub(crate) shard: u32,
    /// Key of the row where the chunk before ended.
    #[prost(message, optional, tag = "5")]
    pub(crate) after: Option<Key>,
    #[prost(uint32, tag = "6")]
    pub(crate) rows_max: u32,
    #[prost(uint32, tag = "7")]
    pub(crate) bytes_max: u32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mutation {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) partition: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) sort: Option<Bytes>,
    /// Absent for a removal.
    #[prost(message, optional, tag = "3")]
    pub(crate) put: Option<Put>,
    /// 0 always, 1 absent, 2 present, 3 one of `versions`.
    #[prost(uint32, tag = "4")]
    pub(crate) condition: u32,
    #[prost(fixed64, repeated, tag = "5")]
    pub(crate) versions: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) value: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) content_type: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) content_encoding: Option<Bytes>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) expires_at_us: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Write {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mutations: Vec<Mutation>,
    #[prost(bool, tag = "3")]
    pub(crate) is_atomic: bool,
    #[prost(bool, tag = "4")]
    pub(crate) is_async: bool,
    #[prost(fixed64, tag = "5")]
    pub(crate) proposed: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRange {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) partition: Bytes,
    #[prost(message, optional, tag = "3")]
    pub(crate) range: Option<SortRange>,
    #[prost(uint32, tag = "4")]
    pub(crate) rows_max: u32,
    #[prost(bool, tag = "5")]
    pub(crate) is_async: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Purge {
    #[prost(uint32, tag = "1")]
    pub(crate) namespace: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) rows_max: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Answer {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) service_time_ns: u64,
    /// More parts of the same answer follow.
    #[prost(bool, tag = "3")]
    pub(crate) has_more: bool,
    /// Rows touched.
    #[prost(uint64, tag = "4")]
    pub(crate) rows: u64,
    /// Bytes of keys and values touched.
    #[prost(uint64, tag = "5")]
    pub(crate) bytes: u64,
    #[prost(oneof = "Outcome", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20")]
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Outcome {
    #[prost(message, tag = "10")]
    Row(Row),
    #[prost(message, tag = "11")]
    Absent(Empty),
    /// A part of the rows of a multi-get, in order.
    #[prost(message, tag = "12")]
    MultiGot(MultiGot),
    #[prost(message, tag = "13")]
    Page(Page),
    #[prost(message, tag = "14")]
    Scanned(Scanned),
    #[prost(message, tag = "15")]
    Written(Written),
    #[prost(message, tag = "16")]
    Deleted(Deleted),
    #[prost(message, tag = "17")]
    Purged(Purged),
    #[prost(message, tag = "18")]
    Status(Status),
    /// The map of the cluster, as its file has it.
    #[prost(string, tag = "19")]
    ClusterMap(String),
    #[prost(message, tag = "20")]
    Error(Error),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Row {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) value: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) content_type: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) content_encoding: Option<Bytes>,
    #[prost(fixed64, tag = "4")]
    pub(crate) version: u64,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) expires_at_us: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GotRow {
    #[prost(oneof = "Got", tags = "1, 2, 3")]
    pub(crate) got: Option<Got>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Got {
    #[prost(message, tag = "1")]
    Row(Row),
    #[prost(message, tag = "2")]
    Absent(Empty),
    #[prost(message, tag = "3")]
    Error(Error),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MultiGot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rows: Vec<GotRow>,
}

/// Rows in columns around one buffer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rows {
    /// Of each row: partition key, sort key, content type, content encoding, value.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) buffer: Bytes,
    /// Six of each row: the lengths of those five, and that of the stored value.
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) lengths: Vec<u32>,
    #[prost(fixed64, repeated, tag = "3")]
    pub(crate) versions: Vec<u64>,
    /// One more than the instant; 0 for a row that stays.
    #[prost(uint64, repeated, tag = "4")]
    pub(crate) expires_at_us: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Page {
    #[prost(message, optional, tag = "1")]
    pub(crate) rows: Option<Rows>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) resume_after: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scanned {
    #[prost(message, optional, tag = "1")]
    pub(crate) rows: Option<Rows>,
    #[prost(message, optional, tag = "2")]
    pub(crate) resume_after: Option<Key>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteResult {
    #[prost(oneof = "WriteOutcome", tags = "1, 2, 3, 4")]
    pub(crate) outcome: Option<WriteOutcome>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WriteOutcome {
    #[prost(message, tag = "1")]
    Applied(Applied),
    #[prost(message, tag = "2")]
    ConditionFailed(ConditionFailed),
    #[prost(uint64, tag = "3")]
    GroupAborted(u64),
    #[prost(message, tag = "4")]
    Error(Error),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Applied {
    #[prost(fixed64, tag = "1")]
    pub(crate) version: u64,
    #[prost(bool, tag = "2")]
    pub(crate) existed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ConditionFailed {
    #[prost(fixed64, optional, tag = "1")]
    pub(crate) current: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Written {
    #[prost(message, repeated, tag = "1")]
    pub(crate) results: Vec<WriteResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Deleted {
    #[prost(uint64, tag = "1")]
    pub(crate) rows: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) resume_after: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Purged {
    #[prost(uint64, tag = "1")]
    pub(crate) rows: u64,
    #[prost(bool, tag = "2")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(uint64, tag = "1")]
    pub(crate) map_version: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) shards: Vec<ShardStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ShardStatus {
    #[prost(uint32, tag = "1")]
    pub(crate) shard: u32,
    /// 0 available, 1 read-only, 2 unavailable.
    #[prost(uint32, tag = "2")]
    pub(crate) state: u32,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
    #[prost(uint64, tag = "4")]
    pub(crate) rows: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) file_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) queued: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) commits: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) mutations: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) reclaimed: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Error {
    /// Which one; see `shard.proto`.
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) shard: u32,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
    /// Whether a write took effect: 0 unknown, 1 not applied, 2 applied.
    #[prost(uint32, tag = "4")]
    pub(crate) outcome: u32,
    #[prost(uint64, tag = "5")]
    pub(crate) retry_after_us: u64,
    /// Version of the map that says so, of a node that does not own the shard.
    #[prost(uint64, tag = "6")]
    pub(crate) map_version: u64,
    /// What was asked for a second of a quota that is used up, in millionths of its unit or bytes.
    #[prost(uint64, optional, tag = "7")]
    pub(crate) observed: Option<u64>,
}
