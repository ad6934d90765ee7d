//! Bounds on the memory that clients may hold and on how slow they may be. Each number is defined here; the table of
//! all of them is `umbo_dispatcher::bounds`.

use std::time::Duration;

/// Bodies and answers up to this length, in bytes, take no part of a budget: the bound on requests in flight (4,096 by
/// default) bounds them to 16 MiB, and a put or get of a small row costs nothing here.
pub const FREE_LEN: usize = 4 << 10;
/// A connection holds at most one of this many parts of the free memory of answers: alone a sixteenth of the budget,
/// the next one a sixteenth of the rest. A sixteenth of the default budget (16 MiB) holds the longest multi-get.
pub const ANSWER_PARTS: usize = 15;
/// A caller holds at most as much of the memory of bodies as it leaves free: a single caller one half, each of two
/// greedy callers a third. The share is not counted by connection, because a client can open any number of them.
pub const BODY_PARTS: usize = 1;
/// The first answer of a connection, and the first body of a caller, may take one of this many parts of the free
/// memory. The shares above do not bound a single long one, and it still leaves room.
pub const FIRST_SHARES: usize = 2;
/// Lowest rate, in bytes a second, of a client that takes an answer or sends a streamed body. Both hold memory
/// meanwhile; a line under 8 kbit/s is of no use.
pub const RATE_MIN: u64 = 1 << 10;
/// Lowest rate, in bytes a second, of a body while another one waits for its memory.
pub const CROWDED_RATE_MIN: u64 = 64 << 10;
/// How long such a body may pause: shorter than the patience of the bodies that wait for its memory.
pub const CROWDED_PAUSE_MAX: Duration = Duration::from_millis(500);
/// When a request is turned away because too many are in flight, one of this many parts of them give way, if their
/// bodies come slower than [`CROWDED_RATE_MIN`]: enough to serve the next requests, and not all.
pub const CROWD_PARTS: usize = 4;
/// How long a body waits for memory before it is shed.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// Bodies and values that are inflated at a time. Each takes 64 ms at most and waits for no client meanwhile. The
/// decoder of each holds up to the largest window, 8 MiB.
pub const INFLATIONS_MAX: usize = 8;
/// Answers that are compressed at a time; further ones are sent as they are. Each holds about 1 MiB.
pub const COMPRESSIONS_MAX: usize = 128;
/// Refused bodies that are read and forgotten after their answers at a time, of all ports. Each holds a few KiB, and
/// the work of reading.
pub const REFUSED_BODIES_MAX: usize = 64;
/// HTTP/2 flow control windows: bytes that one stream, and all streams of a connection, may have sent before the
/// handler reads them.
pub const STREAM_WINDOW: u32 = 256 << 10;
/// See [`STREAM_WINDOW`].
pub const CONNECTION_WINDOW: u32 = 1 << 20;
/// HTTP/2 answers buffered per stream.
pub const SEND_BUFFER_LEN: usize = 64 << 10;
