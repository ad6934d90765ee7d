//! Long work that lets shorter work run.

/// Lets a thread run that waits for this core, once every so many rows, of which this one has a number. To be called for
/// each row by what works on thousands of them without a pause; `every` is what takes some 50 µs.
///
/// Priority alone is not enough: since Linux 6.6 a thread keeps its core for its slice, a millisecond or more, also
/// where one of a higher priority has something to do. With this, the p99 of gets beside a load that is built on the same
/// core is about half of what it is without.
pub fn give_way(row: usize, every: usize) {
    if row % every == every - 1 {
        std::thread::yield_now();
    }
}
