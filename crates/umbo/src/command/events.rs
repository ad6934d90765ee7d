//! `umbo events`: lists changes by operators and other events, or follows them. Needs the `admin` permission on every
//! namespace.

use std::time::Duration;

use clap::Args;
use umbo_api::observe::Event;
use umbo_api::time_to_live;

use crate::cli_error::CliError;
use crate::clock::millis_ago;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing};

/// How long one request waits for an event, in seconds.
const WAIT_SECONDS: u64 = 20;

/// Arguments of `umbo events`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only events of the last time span (like 10m, 1h, 7d) [default: all that are kept]
    #[arg(long, value_name = "DURATION", value_parser = time_to_live::span)]
    since: Option<Duration>,
    /// Go on with new events, until interrupted
    #[arg(long, short)]
    follow: bool,
}

fn listing() -> Listing<Event> {
    Listing::new("TIME  KIND  SUBJECT  BY  REASON  TEXT")
        .with("TIME", |event: &Event| output::instant(Some(event.at_ms)))
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        block_on(async {
            let client = connection.client()?;
            let format = connection.listing_format();
            let list = client.events("0", 0).await?;
            let begin = self.since.map_or(0, millis_ago);
            let mut events = list.events;
            events.retain(|event| event.at_ms >= begin);
            if !self.follow {
                return listing().write(format, &events);
            }
            let mut next = list.next;
            loop {
                for event in &events {
                    write_line(format, event)?;
                }
                let list = client.events(&next, WAIT_SECONDS).await?;
                (events, next) = (list.events, list.next);
            }
        })
    }
}

/// Writes an event as one line, as soon as it arrives.
fn write_line(format: Format, event: &Event) -> Result<(), CliError> {
    output::write_report(format, event, || {
        let line = listing().cells(event).join("  ") + "\n";
        output::write_bytes(line.as_bytes())
    })
}
