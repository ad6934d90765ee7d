//! Long work that lets shorter work run.

/// Rows between which work gives way, where each takes a fraction of a microsecond: some 100 µs. With a quarter of them the
/// latency of gets beside a load is the same and the load takes longer; with four times as many its p95 is a third higher.
pub const GIVES_WAY_EVERY: usize = 256;

/// Lets a thread that waits for this core run, once in `every` rows. To be called with the number of each row by work on
/// thousands of rows that makes no pause; `every` rows should take about 100 µs.
///
/// Priority alone is not enough: since Linux 6.6 a thread keeps its core for its slice, a millisecond or more, also
/// where one of a higher priority has something to do. With this, the p99 of gets beside a load that is built on the same
/// core is a third of what it is without.
pub fn give_way(row: usize, every: usize) {
    if row % every == every - 1 {
        std::thread::yield_now();
    }
}
