//! Overload: the right work is shed early, and the rest stays fast.
//!
//! Owns the two answers of a dispatcher to a store that cannot keep up. The **signal** says whether
//! it can: quantiles of service times, the latency ratio of a shard and operation class, and the
//! penalty on the price of work that can wait. The **queue** holds what must wait: a limit of
//! requests in flight that adapts, and behind it a queue with a controlled delay for each shard.
//!
//! Deliberately knows nothing of HTTP, stores and runtimes, reads no clock and makes no random
//! numbers: both come with each call, so that all of it runs under a simulated clock.
