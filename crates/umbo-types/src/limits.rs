//! Every hard limit of the data model and of the data plane.
//!
//! A hard limit is part of the contract: it is the same on every deployment, so that a client that works with
//! one Umbo works with all. Limits that an operator may change are in the configuration instead. Units are at
//! the end of each name.

/// Hash slots of all partition keys. Fixed permanently: it is part of the stored format.
pub const SLOTS: u16 = 4_096;
/// Longest namespace name, in bytes.
pub const NAMESPACE_LEN_MAX: usize = 64;
/// Longest partition key, in bytes. The shortest is 1.
pub const PARTITION_KEY_LEN_MAX: usize = 1_024;
/// Longest sort key, in bytes. The empty sort key is plain key-value.
pub const SORT_KEY_LEN_MAX: usize = 2_048;
/// Largest value that is stored in its row, in bytes. Longer ones are large values, stored in chunks next to the row.
pub const VALUE_LEN_MAX: usize = 1 << 20;
/// Largest value of all, in bytes.
pub const LARGE_VALUE_LEN_MAX: u64 = 64 << 20;
/// Bytes of each chunk of a large value but the last. With its key, its checksum and the head of a page it just fits
/// 256 KiB. An engine of 4 KiB pages gives room in powers of two: a chunk of 256 KiB would take 512.
pub const LARGE_CHUNK_LEN: usize = 252 << 10;
/// Longest stored `Content-Type` or `Content-Encoding`, in bytes.
pub const CONTENT_FIELD_LEN_MAX: usize = 255;
/// Most keys in one multi-get.
pub const MULTI_GET_KEYS_MAX: usize = 1_000;
/// Most bytes of values one multi-get returns; later rows are answered with status 413.
pub const MULTI_GET_BYTES_MAX: usize = 8 << 20;
/// Most rows in one batch write.
pub const BATCH_ROWS_MAX: usize = 10_000;
/// Largest batch request body, in bytes.
pub const BATCH_BODY_LEN_MAX: usize = 16 << 20;
/// Most rows of one atomic group (one partition of an atomic batch).
pub const ATOMIC_ROWS_MAX: usize = 1_000;
/// Byte limit of a range or scan page whose request has none.
pub const PAGE_BYTES_DEFAULT: u64 = 2 << 20;
/// Highest byte limit that the request of a range or scan page may have.
pub const PAGE_BYTES_MAX: u64 = 1 << 30;
/// Most rows of a range or scan that is answered as one JSON array.
pub const JSON_ARRAY_ROWS_MAX: u64 = 1_000;
/// Most segments a scan may be divided into: one per slot.
pub const SCAN_SEGMENTS_MAX: u32 = SLOTS as u32;
/// Longest time to live, in seconds: ten years.
pub const TTL_SECONDS_MAX: u64 = 315_360_000;
/// Most rows a store returns in one chunk of a range or scan.
pub const CHUNK_ROWS_MAX: u32 = 1_024;
/// Bytes after which a store ends a chunk of a range or scan; one row may exceed it.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;
/// Most bytes of keys and idempotency records that a namespace has in a shard. A record of one row takes about 150, so
/// this is 7 million of them: 2,000 new keys a second at the default of one hour.
pub const IDEMPOTENCY_BYTES_MAX: u64 = 1 << 30;
/// Longest idempotency key, in characters.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 255;
/// How long an idempotency record is in effect if the request does not say it, in seconds: longer than any client of
/// Umbo repeats a request.
pub const IDEMPOTENCY_SECONDS_DEFAULT: u64 = 3_600;
/// Longest time that an idempotency record is in effect, in seconds.
pub const IDEMPOTENCY_SECONDS_MAX: u64 = 86_400;

const _: () = assert!(VALUE_LEN_MAX <= MULTI_GET_BYTES_MAX);
const _: () = assert!((VALUE_LEN_MAX as u64) < LARGE_VALUE_LEN_MAX);
const _: () = assert!(LARGE_CHUNK_LEN <= VALUE_LEN_MAX);
const _: () = assert!(VALUE_LEN_MAX < BATCH_BODY_LEN_MAX);
const _: () = assert!(ATOMIC_ROWS_MAX <= BATCH_ROWS_MAX);
const _: () = assert!(PAGE_BYTES_DEFAULT <= PAGE_BYTES_MAX);
const _: () = assert!(IDEMPOTENCY_SECONDS_DEFAULT <= IDEMPOTENCY_SECONDS_MAX);
