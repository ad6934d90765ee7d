//! The progress bar of bulk work, on a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
