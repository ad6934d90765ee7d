//! Runs a future on a runtime to its end.
//!
//! `Runtime::block_on` is compiled once for each type of future, with the future in it three times over: for some
//! fifty commands that was a tenth of the program. Here it is compiled once, for a future behind a pointer.

use std::pin::Pin;

use tokio::runtime::Runtime;

/// Runs a future on the current thread and returns its result.
pub(crate) fn run_to_end<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let mut result = None;
    run(runtime, Box::pin(async { result = Some(future.await) }));
    result.expect("a runtime blocks until the future has ended")
}

fn run(runtime: &Runtime, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
    runtime.block_on(future);
}
