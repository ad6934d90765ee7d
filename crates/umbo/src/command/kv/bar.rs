//! The progress bar of bulk work, on a terminal.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::interval;

use crate::cli_error::CliError;
use crate::signals::Interrupts;

/// How often a bar is drawn.
const TICK: Duration = Duration::from_millis(100);

/// Does work until it ends or Ctrl-C ends it. Draws its progress meanwhile, and removes the bar then.
pub(in crate::command) async fn with_bar<T>(
    bar: &ProgressBar,
    work: impl Future<Output = Result<T, CliError>>,
    mut draw: impl FnMut(),
) -> Result<T, CliError> {
    let (mut interrupts, mut ticks) = (Interrupts::begin()?, interval(TICK));
    let mut work = pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done,
            () = interrupts.next() => break Err(CliError::Interrupted),
            _ = ticks.tick() => draw(),
        }
    };
    bar.finish_and_clear();
    done
}

/// Makes a progress bar on stderr, invisible if that is not a terminal. Its length is in bytes if the size is
/// known.
pub(crate) fn bar(size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(size, ProgressDrawTarget::hidden());
    }
    let template = match size {
        Some(_) => "{wide_bar} {percent}%  {bytes}/{total_bytes}  {msg}",
        None => "{spinner} {bytes}  {msg}  {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
