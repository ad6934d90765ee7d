//! How often this program asks for memory, and how much of it a piece of it holds.
//!
//! The counting itself is in the allocator that `main` installs.

use alloc_tracker::Session;

/// Runs something on this thread, and returns the most bytes that it held at a time.
pub(crate) fn held<T>(run: impl FnOnce() -> T) -> (u64, T) {
    let session = Session::new().no_stdout().no_file();
    let operation = session.operation("held");
    let result = {
        let _span = operation.measure_thread().iterations(1);
        run()
    };
    let report = session.to_report();
    let peak = report
        .operations()
        .filter_map(|(_, operation)| operation.peak_outstanding_bytes())
        .fold(0.0, f64::max);
    (peak as u64, result)
}

/// Runs something on this thread, and returns how often it asked for memory.
pub(crate) fn count<T>(run: impl FnOnce() -> T) -> (u64, T) {
    let session = Session::new().no_stdout().no_file();
    let operation = session.operation("count");
    let result = {
        let _span = operation.measure_thread().iterations(1);
        run()
    };
    let report = session.to_report();
    let counts = report
        .operations()
        .map(|(_, operation)| operation.total_allocations_count());
    (counts.sum(), result)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn what_is_allocated_is_counted_and_what_is_freed_is_not_held() {
        assert_eq!(count(|| {}).0, 0);
        let allocate = || {
            for _ in 0..10 {
                drop(black_box(vec![0_u8; 1_000]));
            }
        };
        assert_eq!(count(allocate).0, 10);
        let (held, ()) = held(allocate);
        assert!((1_000..2_000).contains(&held), "{held}");
    }
}
