//! `umbo top`: the present load of a server in the terminal, once a second: hot keys, callers, shards, quotas,
//! overload; of each dispatcher of a fleet in turn.
//!
//! Owns the loop. Rates come from the server's history, which has a value for each second, and from its list of hot
//! keys. The server keeps no state for it. The terminal is restored however the program ends.

mod draw;
mod frame;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use umbo_api::time_to_live;
use umbo_client::Client;

use self::frame::ScreenFrame;
use self::screen::Screen;
use self::view::{Pressed, Tab, TableView};
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::history::RecentHistory;
use crate::output::{self, Format};
use crate::signals::Signals;

const HELP: &str = "\
Keys: 1 to 6, Tab and the arrows choose a tab; s and S the column to sort by, r turns the order round; / filters
(Enter keeps the filter, Esc drops it); d shows the next server of those that --dispatcher names; q or Ctrl-C ends
it. Callers, shards, quotas and totals need the permission observe on every namespace; the hot keys of a namespace
need it on that namespace. Callers are the twenty that use most now; 'umbo quota usage' has all of them.";

/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval.
const INTERVAL_MAX: Duration = Duration::from_hours(1);

/// Arguments of `umbo top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Interval between two frames, 100ms to 1h; all rates are averages over it, or over 1s if it is shorter
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one frame of the last interval, and exit
    #[arg(long)]
    once: bool,
    /// Subject to begin with
    #[arg(long, value_enum, value_name = "TAB", default_value = "overview")]
    tab: Tab,
    /// Show only rows that contain this text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// Another dispatcher of the same fleet, which the key d shows; can be repeated
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
        block_on(async {
            let client = connection.client()?;
            match connection.listing_format() {
                Format::Table if self.once => {
                    let (frame, _) = self.frame(&client, &RecentHistory::default()).await?;
                    let view = TableView::new(self.tab, self.filter);
                    let lines = draw::lines(&frame, &view, draw::WIDE);
                    output::write_bytes((lines.join("\n") + "\n").as_bytes())
                }
                Format::Table => self.watch(connection).await,
                Format::Json | Format::Ndjson => self.print(&client).await,
            }
        })
    }

    async fn frame(
        &self,
        client: &Client,
        last: &RecentHistory,
    ) -> Result<(ScreenFrame, RecentHistory), CliError> {
        Ok(ScreenFrame::ask(client, self.interval, last).await?)
    }

    /// Prints each frame as a line of JSON, repeatedly or once.
    async fn print(&self, client: &Client) -> Result<(), CliError> {
        let mut last = RecentHistory::default();
        loop {
            let (frame, history) = self.frame(client, &last).await?;
            output::write_json(&frame)?;
            if self.once {
                return Ok(());
            }
            last = history;
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Shows frame after frame, until the user ends it.
    async fn watch(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        if !std::io::stdout().is_terminal() {
            let message =
                "stdout is not a terminal; add --once, or -o ndjson for one line per interval";
            return Err(CliError::Usage(message.to_owned()));
        }
        let others = self.dispatchers.iter();
        let others = others.map(|address| connection.with_server(address));
        let servers: Vec<ConnectionArgs> =
            std::iter::once(connection.clone()).chain(others).collect();
        let mut view = TableView::new(self.tab, self.filter.clone());
        // A server that cannot be reached at all is reported before the screen is taken.
        ScreenFrame::ask(
            &connection.client()?,
            self.interval,
            &RecentHistory::default(),
        )
        .await?;
        let mut screen = Screen::take().map_err(CliError::from_output)?;
        for server in servers.iter().cycle() {
            if self.watch_one(server, &mut view, &mut screen).await? == Pressed::Quit {
                break;
            }
        }
        Ok(())
    }

    /// Shows a server, until the user wants another one or ends it.
    async fn watch_one(
        &self,
        server: &ConnectionArgs,
        view: &mut TableView,
        screen: &mut Screen,
    ) -> Result<Pressed, CliError> {
        let client = server.client()?;
        let mut signals = Signals::begin()?;
        let mut hang_ups = signal(SignalKind::hangup()).map_err(CliError::start)?;
        let mut shown = Shown {
            server: server.server(),
            frame: None,
            note: "waiting for the server".to_owned(),
        };
        let mut last = RecentHistory::default();
        let mut wait = Duration::ZERO;
        shown.draw(view, screen)?;
        loop {
            let looked = {
                let mut looking = pin!(async {
                    tokio::time::sleep(wait).await;
                    self.frame(&client, &last).await
                });
                loop {
                    tokio::select! {
                        biased;
                        looked = &mut looking => break looked,
                        key = screen.key() => {
                            match view.press(key, draw::columns(view.tab).len()) {
                                Pressed::Nothing => {}
                                Pressed::Redraw => shown.draw(view, screen)?,
                                end => return Ok(end),
                            }
                        }
                        _ = signals.stop_requested() => return Ok(Pressed::Quit),
                        _ = hang_ups.recv() => return Ok(Pressed::Quit),
                    }
                }
            };
            match looked {
                Ok((frame, history)) => (shown.frame, last) = (Some(frame), history),
                // A server that restarts may come back.
                Err(failure) => {
                    shown.frame = None;
                    shown.note = format!("{failure}; trying again");
                }
            }
            wait = self.interval;
            shown.draw(view, screen)?;
        }
    }
}

/// What the screen shows of one server.
struct Shown {
    server: String,
    frame: Option<ScreenFrame>,
    /// Text to show without a frame.
    note: String,
}

impl Shown {
    fn draw(&self, view: &TableView, screen: &mut Screen) -> Result<(), CliError> {
        let mut size = screen.size();
        let tabs = draw::tabs_line(view, &self.server, size.columns);
        size.lines = size.lines.saturating_sub(1);
        let mut lines = vec![tabs];
        match &self.frame {
            Some(frame) => lines.extend(draw::lines(frame, view, size)),
            None => lines.push(draw::cut(&self.note, size.columns)),
        }
        screen.show(&lines)
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
