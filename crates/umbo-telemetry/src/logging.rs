//! The log of the process: on standard error, for people or for machines, and at a collector.
//!
//! Owns the set-up of `tracing` and the filter, which can be changed while the process runs. The code that
//! logs decides the level; nothing logs once per request at `info`.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use crate::log_export::Bridge;
pub use crate::log_export::LogExport;

/// Libraries that send lines to a collector. Their lines are not sent, because each could cause another.
const EXPORT_TARGETS: [&str; 5] = ["h2", "hyper", "opentelemetry", "tonic", "tower"];

/// Format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people if standard error is a terminal, else for machines.
    #[default]
    Auto,
    /// A readable line, coloured on a terminal unless `NO_COLOR` is set.
    Human,
    /// One JSON object a line.
    Json,
}

/// Settings of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Format of the log.
    pub format: LogFormat,
    /// The filter: a level, or directives like `info,umbo_dispatcher=debug`.
    pub filter: String,
}

/// Why the log cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be parsed.
    #[error(
        "'{filter}' is no log filter (expected a level, off, error, warn, info, debug or trace, \
         or directives like info,umbo_dispatcher=debug)"
    )]
    Filter {
        /// The filter as configured.
        filter: String,
        /// The error.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The log of the process is already set up.
    #[error("the log was set up twice")]
    Twice,
}

/// A handle to change the log of the running process.
#[derive(Debug, Clone)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    collector: Collector,
}

impl LogHandle {
    /// Replaces the filter; keeps the old one if the new one is invalid.
    pub fn set_filter(&self, filter: &str) -> Result<(), LogError> {
        let filter = parse_filter(filter)?;
        // Fails only after the log itself is gone.
        let _ = self.filter.reload(filter);
        Ok(())
    }

    /// Sends the lines from now on to a collector too, if there is one. Only the first call with one has an effect.
    pub fn export(&self, export: Option<&LogExport>) {
        if let Some(export) = export {
            let _ = self.collector.0.set(export.bridge());
        }
    }
}

/// Passes lines on to a collector, once there is one.
#[derive(Clone, Default)]
struct Collector(Arc<OnceLock<Bridge>>);

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = self.0.get().is_some();
        f.debug_tuple("Collector").field(&is_set).finish()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let of_export = |target: &&str| event.metadata().target().starts_with(target);
        if let Some(bridge) = self.0.get()
            && !EXPORT_TARGETS.iter().any(of_export)
        {
            bridge.on_event(event, context);
        }
    }
}

/// Returns whether a text is a valid filter, without using it.
pub fn check_filter(filter: &str) -> Result<(), LogError> {
    parse_filter(filter).map(drop)
}

/// Sets up the log of the process, on standard error. May be called once per process.
pub fn init(settings: &LogSettings) -> Result<LogHandle, LogError> {
    let is_terminal = io::stderr().is_terminal();
    let has_colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let is_json = match settings.format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let (subscriber, handle) = build(&settings.filter, is_json, has_colour, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok(handle)
}

fn parse_filter(filter: &str) -> Result<Targets, LogError> {
    filter.parse().map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

fn build<W>(
    filter: &str,
    is_json: bool,
    has_colour: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + use<W>, LogHandle), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse_filter(filter)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = if is_json {
        lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed()
    } else {
        lines
            .with_ansi(has_colour)
            .with_timer(Milliseconds)
            .compact()
            .boxed()
    };
    let collector = Collector::default();
    let subscriber = Registry::default()
        .with(filter)
        .with(collector.clone())
        .with(lines);
    let filter = handle;
    Ok((subscriber, LogHandle { filter, collector }))
}

/// Time of day in UTC with milliseconds.
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(
            writer,
            "{}",
            humantime::format_rfc3339_millis(SystemTime::now())
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn log(is_json: bool, say: impl FnOnce(&LogHandle)) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, handle) = build("info", is_json, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || say(&handle));
        lines.text()
    }

    #[test]
    fn a_line_for_machines_is_one_object_with_a_time_that_parses() {
        let text = log(true, |_| {
            tracing::info!(shard = 3, "opened \"a\"\nfile");
            tracing::debug!("not said");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "opened \"a\"\nfile");
        assert_eq!(line["shard"], 3);
        assert_eq!(line["level"], "INFO");
        humantime::parse_rfc3339(line["timestamp"].as_str().unwrap()).unwrap();
    }

    #[test]
    fn a_line_for_people_has_no_colour_codes_off_a_terminal() {
        let text = log(false, |_| tracing::warn!(shard = 3, "disk is full"));
        assert!(
            text.contains("WARN") && text.contains("disk is full shard=3"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
        humantime::parse_rfc3339(text.split_whitespace().next().unwrap()).unwrap();
    }

    #[test]
    fn the_filter_can_change_and_a_bad_one_changes_nothing() {
        let text = log(true, |handle| {
            tracing::debug!("one");
            handle.set_filter("debug").unwrap();
            tracing::debug!("two");
            let error = handle.set_filter("umbo=loud").unwrap_err();
            assert!(error.to_string().contains("'umbo=loud' is no log filter"));
            tracing::debug!("three");
            handle.set_filter("off").unwrap();
            tracing::error!("four");
        });
        let said: Vec<_> = ["one", "two", "three", "four"]
            .into_iter()
            .filter(|word| text.contains(word))
            .collect();
        assert_eq!(said, ["two", "three"]);
    }
}
