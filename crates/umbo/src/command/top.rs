//! `umbo top`: the present load of a server in the terminal, once a second: hot keys, callers, shards, quotas,
//! overload; of several dispatchers of a fleet below each other.
//!
//! Owns the loop. Rates come from the server's history, which has a value for each second, and from its list of hot
//! keys. The server keeps no state for it. Options choose the tables and their order. No key is read, so the terminal
//! keeps its mode. The alternate screen shows the frames until the program ends.

mod draw;
mod frame;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use umbo_api::time_to_live;
use umbo_client::{Client, Error};

use self::draw::{ScreenSize, TopView, WIDE};
use self::frame::ScreenFrame;
use crate::cli_error::{CliError, usage};
use crate::connection::{ConnectionArgs, block_on};
use crate::history::RecentHistory;
use crate::output::{self, Format, table};
use crate::signals::Signals;

/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// Switches to the alternate screen and hides the cursor.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Shows the cursor and the previous screen.
const GIVE_BACK: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Size for a terminal that does not report its own.
const USUAL: ScreenSize = ScreenSize {
    columns: 80,
    lines: 24,
};

/// Arguments of `umbo top`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Interval between two frames, 100ms to 1h; all rates are averages over it, or over 1s if it is shorter
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one frame of the last interval, and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    view: TopView,
    /// Another dispatcher of the same fleet, to show below the server; can be repeated
    #[arg(long = "dispatcher", value_name = "ADDRESS")]
    dispatchers: Vec<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = time_to_live::span(text)?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err("expected 100ms to 1h".to_owned())
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        self.view.check()?;
        let format = connection.listing_format();
        let is_watched = format == Format::Table && !self.once;
        if is_watched && !std::io::stdout().is_terminal() {
            return Err(usage!(
                "stdout is not a terminal; add --once, or -o ndjson for one line per interval"
            ));
        }
        block_on(async {
            let mut server = WatchedServer::new(connection)?;
            // A server that cannot be reached at all is reported before the screen is taken.
            let mut frame = server.frame(self.interval).await?;
            if is_watched {
                return self.watch(connection).await;
            }
            loop {
                output::write_report(format, &frame, || {
                    let lines = self.view.lines(&frame, WIDE).join("\n") + "\n";
                    output::write_bytes(lines.as_bytes())
                })?;
                if self.once {
                    return Ok(());
                }
                sleep(self.interval).await;
                frame = server.frame(self.interval).await?;
            }
        })
    }

    /// Shows frame after frame, until a signal ends it.
    async fn watch(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let others = self.dispatchers.iter();
        let others = others.map(|address| connection.with_server(address));
        let servers = std::iter::once(connection.clone()).chain(others);
        let servers = servers.map(|connection| WatchedServer::new(&connection));
        let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
        let mut signals = Signals::begin()?;
        let mut hang_ups = signal(SignalKind::hangup()).map_err(CliError::start)?;
        let _screen = Screen::take()?;
        loop {
            let shown = async {
                let mut size = Screen::size();
                size.lines /= servers.len();
                let mut lines = Vec::new();
                for server in &mut servers {
                    lines.extend(server.lines(self, size).await);
                }
                Screen::show(&lines)?;
                sleep(self.interval).await;
                Ok::<(), CliError>(())
            };
            tokio::select! {
                biased;
                shown = shown => shown?,
                _ = signals.stop_requested() => return Ok(()),
                _ = hang_ups.recv() => return Ok(()),
            }
        }
    }
}

/// A server that is asked for each frame.
struct WatchedServer {
    address: String,
    client: Client,
    /// The history of the last frame.
    last: RecentHistory,
}

impl WatchedServer {
    fn new(connection: &ConnectionArgs) -> Result<Self, CliError> {
        Ok(Self {
            address: connection.server(),
            client: connection.client()?,
            last: RecentHistory::default(),
        })
    }

    async fn frame(&mut self, interval: Duration) -> Result<ScreenFrame, Error> {
        let (frame, history) = ScreenFrame::ask(&self.client, interval, &self.last).await?;
        self.last = history;
        Ok(frame)
    }

    /// Returns the lines of the next frame. A server that restarts may come back, so a failure is a line.
    async fn lines(&mut self, arguments: &Arguments, mut size: ScreenSize) -> Vec<String> {
        let frame = self.frame(arguments.interval).await;
        size.lines = size.lines.saturating_sub(1);
        let (state, lines) = match frame {
            Ok(frame) => (String::new(), arguments.view.lines(&frame, size)),
            Err(failure) => (format!(": {failure}; trying again"), Vec::new()),
        };
        let heading = table::cut(&format!("{}{state}", self.address), size.columns);
        std::iter::once(heading).chain(lines).collect()
    }
}

/// The alternate screen of the terminal. Dropping it gives the screen back, also on a panic.
struct Screen;

impl Screen {
    fn take() -> Result<Self, CliError> {
        output::write_bytes(TAKE).map(|()| Self)
    }

    /// Returns the current size of the terminal.
    fn size() -> ScreenSize {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => ScreenSize {
                columns: usize::from(size.ws_col),
                lines: usize::from(size.ws_row),
            },
            _ => USUAL,
        }
    }

    /// Replaces the shown lines.
    fn show(lines: &[String]) -> Result<(), CliError> {
        // Each line clears the rest of its old content, the last one everything below.
        let text = lines.join("\x1b[K\r\n");
        output::write_bytes(format!("\x1b[H{text}\x1b[K\x1b[J").as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone there is nothing to restore.
        let _ = output::write_bytes(GIVE_BACK);
    }
}
