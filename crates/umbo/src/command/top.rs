//! `umbo top`: the present load of a server in the terminal, once a second: hot keys, callers, shards.
//!
//! Owns the loop. Rates are differences of two scrapes of the server's metrics; hot keys have rates of their
//! own. The server keeps no state for it, and the terminal is restored however the program ends.

mod draw;
mod frame;
mod screen;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use umbo_api::ErrorCode;
use umbo_client::{Client, Error};

use self::frame::{Frame, Sample};
use self::screen::Screen;
use crate::cli_error::CliError;
use crate::connection::{Connection, block_on};
use crate::output::{self, Format};
use crate::series::Series;

const HELP: &str = "\
q or Ctrl-C ends it. Callers, shards and totals need the admin permission on every namespace; the hot keys of a
namespace need it on that namespace. Callers are the ten that have used most since the server's start; 'umbo quota
usage' has all of them.";

/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval.
const INTERVAL_MAX: Duration = Duration::from_hours(1);

/// Arguments of `umbo top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Interval between two samples (like 500ms, 1s, 10s); all rates are averages over it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one frame after one interval, and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err("expected 100ms to 1h".to_owned())
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &Connection) -> Result<(), CliError> {
        block_on(async {
            let client = connection.client()?;
            match connection.listing_format() {
                Format::Table if self.once => {
                    let (_, frame) = next(&client, &sample(&client).await?, self.interval).await?;
                    let lines = draw::lines(&frame, draw::WIDE);
                    output::write_bytes((lines.join("\n") + "\n").as_bytes())
                }
                Format::Table => self.watch(&client).await,
                Format::Json | Format::Ndjson => self.print(&client).await,
            }
        })
    }

    /// Prints each frame as a line of JSON, repeatedly or once.
    async fn print(&self, client: &Client) -> Result<(), CliError> {
        let mut last = sample(client).await?;
        loop {
            let (newer, frame) = next(client, &last, self.interval).await?;
            output::write_json(&frame)?;
            if self.once {
                return Ok(());
            }
            last = newer;
        }
    }

    /// Shows frame after frame, until the user ends it.
    async fn watch(&self, client: &Client) -> Result<(), CliError> {
        if !std::io::stdout().is_terminal() {
            let message =
                "stdout is not a terminal; add --once, or -o ndjson for one line per interval";
            return Err(CliError::Usage(message.to_owned()));
        }
        // A server that cannot be reached at all is reported before the screen is taken.
        let mut last = sample(client).await?;
        let mut terminate = signal(SignalKind::terminate()).map_err(CliError::start)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(CliError::start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::start)?;
        let mut screen = Screen::take().map_err(CliError::from_output)?;
        screen.show(&["waiting for the first interval to end".to_owned()])?;
        loop {
            let looked = tokio::select! {
                looked = next(client, &last, self.interval) => looked,
                () = screen.quit() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
            };
            match looked {
                Ok((newer, frame)) => {
                    screen.show(&draw::lines(&frame, screen.size()))?;
                    last = newer;
                }
                // A server that restarts may come back.
                Err(failure) => screen.show(&[failure.to_string(), "trying again".to_owned()])?,
            }
        }
    }
}

/// Takes the next sample one interval from now, and makes a frame of both.
async fn next(
    client: &Client,
    last: &Sample,
    interval: Duration,
) -> Result<(Sample, Frame), CliError> {
    tokio::time::sleep(interval).await;
    let newer = sample(client).await?;
    let frame = Frame::between(last, &newer);
    Ok((newer, frame))
}

async fn sample(client: &Client) -> Result<Sample, CliError> {
    let taken_at = Instant::now();
    let hot = match client.hot().await {
        Ok(report) => Some(report),
        Err(error) if error.code() == Some(ErrorCode::HotKeysDisabled) => None,
        Err(error) => return Err(error.into()),
    };
    // An admin of a namespace sees its hot keys, and nothing of the server.
    let metrics = allowed(client.metrics().await)?.unwrap_or_default();
    let shards = allowed(client.shards().await)?;
    Ok(Sample {
        taken_at,
        series: Series::parse(&metrics),
        hot,
        shards: shards.map_or_else(Vec::new, |list| list.shards),
    })
}

/// Returns an answer, none if the caller may not have it.
pub(super) fn allowed<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.code() == Some(ErrorCode::Forbidden) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_two_ends() {
        assert_eq!(interval("100ms"), Ok(INTERVAL_MIN));
        assert_eq!(interval("1h"), Ok(INTERVAL_MAX));
        for text in ["99ms", "61m", "0s", "soon"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
