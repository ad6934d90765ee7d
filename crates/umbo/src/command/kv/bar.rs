//! The progress bar of bulk work, on a terminal.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::interval;

use crate::cli_error::CliError;
use crate::signals::interrupts;

/// How often a bar is drawn.
const TICK: Duration = Duration::from_millis(100);

/// Does work until it ends or Ctrl-C ends it. Draws its progress meanwhile, and removes the bar then.
pub(in crate::command) async fn with_bar<T>(
    bar: &ProgressBar,
    work: impl Future<Output = Result<T, CliError>>,
    mut draw: impl FnMut(),
) -> Result<T, CliError> {
    let (mut interrupts, mut ticks) = (interrupts()?, interval(TICK));
    let mut work = pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done,
            _ = interrupts.recv() => break Err(CliError::Interrupted),
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

/// Returns the rate of a bar a second and the time left at this rate as text: `, 1200 rows/s, 40s left`. Empty while
/// there is no progress.
pub(in crate::command) fn rate_text(bar: &ProgressBar, unit: impl Fn(u64) -> String) -> String {
    #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
    let whole = |number: f64| number.ceil() as u64;
    let rate = bar.per_sec();
    // The rate of a bar that stands decays and never ends.
    if rate < 1.0 {
        return String::new();
    }
    let mut text = format!(", {}/s", unit(whole(rate)));
    // Without a length it is zero.
    let left = Duration::from_secs(whole(bar.eta().as_secs_f64()));
    if !left.is_zero() {
        // Writing to a String cannot fail.
        let _ = write!(text, ", {} left", humantime::format_duration(left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_rate_before_any_progress_and_no_time_left_at_the_end() {
        let rows = |rows: u64| format!("{rows} rows");
        let bar = ProgressBar::with_draw_target(Some(10), ProgressDrawTarget::hidden());
        assert_eq!(rate_text(&bar, rows), "");
        bar.set_position(5);
        let text = rate_text(&bar, rows);
        assert!(
            text.starts_with(", ") && text.contains(" rows/s, "),
            "{text}"
        );
        assert!(text.ends_with(" left"), "{text}");
        bar.set_position(10);
        let text = rate_text(&bar, rows);
        assert!(text.ends_with(" rows/s"), "{text}");
    }
}
