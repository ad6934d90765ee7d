//! A parsed scrape, and the growth of its series from one to the next.
//!
//! Reads the text that Umbo's servers write (Prometheus 0.0.4); a line that cannot be parsed is skipped. A
//! counter that has decreased was reset by a restart of the server.

use std::collections::BTreeMap;

/// The series of one scrape.
#[derive(Debug, Default)]
pub(crate) struct ScrapedSeries(Vec<ScrapedValue>);

#[derive(Debug)]
struct ScrapedValue {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Values of a metric by one of its labels.
pub(crate) type ByLabel = BTreeMap<String, f64>;

impl ScrapedSeries {
    /// Reads a scrape.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(ScrapedValue::parse).collect())
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &ScrapedValue> {
        self.0.iter().filter(move |series| series.name == name)
    }

    /// Returns the value of a series without labels; 0 if there is none.
    pub(crate) fn single(&self, name: &str) -> f64 {
        self.of(name).next().map_or(0.0, |series| series.value)
    }

    /// Returns the sums of a name by one of its labels.
    pub(crate) fn by(&self, name: &str, label: &str) -> ByLabel {
        self.fold_by(name, label, |sum, value| sum + value)
    }

    /// Returns the values of a name by one of its labels; values of the same label are folded.
    pub(crate) fn fold_by(
        &self,
        name: &str,
        label: &str,
        fold: impl Fn(f64, f64) -> f64,
    ) -> ByLabel {
        folded(self.of(name), label, fold)
    }
}

fn folded<'a>(
    series: impl Iterator<Item = &'a ScrapedValue>,
    label: &str,
    fold: impl Fn(f64, f64) -> f64,
) -> ByLabel {
    let mut values = ByLabel::new();
    for one in series {
        if let Some(label) = one.labels.get(label) {
            let held = values.get(label);
            let value = held.map_or(one.value, |held| fold(*held, one.value));
            values.insert(label.clone(), value);
        }
    }
    values
}

impl ScrapedValue {
    fn parse(line: &str) -> Option<Self> {
        let (head, value) = line.rsplit_once(' ')?;
        let (name, labels) = match head.split_once('{') {
            None => (head, BTreeMap::new()),
            Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}')?)?),
        };
        Some(Self {
            name: name.to_owned(),
            labels,
            value: value.parse().ok()?,
        })
    }
}

/// Parses `name="value",…`, with the escapes `\\`, `\"` and `\n` in values.
fn parse_labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.trim_start_matches(',').to_owned(), value);
        text = &rest[end + 1..];
    }
    Some(labels)
}

/// Two scrapes of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth<'a> {
    pub(crate) before: &'a ScrapedSeries,
    pub(crate) after: &'a ScrapedSeries,
    /// Seconds from the one to the other.
    pub(crate) seconds: f64,
}

impl Growth<'_> {
    /// Returns the growth a second of a series without labels.
    pub(crate) fn rate(&self, name: &str) -> f64 {
        growth(self.before.single(name), self.after.single(name)) / self.seconds
    }

    /// Returns the growth a second of a name by one of its labels.
    pub(crate) fn rates(&self, name: &str, label: &str) -> ByLabel {
        let (before, mut values) = (self.before.by(name, label), self.after.by(name, label));
        for (label, value) in &mut values {
            let held = before.get(label).copied().unwrap_or_default();
            *value = growth(held, *value) / self.seconds;
        }
        values
    }

    /// Returns quantiles of the observations of a histogram, by interpolation within their buckets, over the series
    /// whose label passes; none without observations, and the last finite bound if a quantile is beyond it.
    pub(crate) fn quantiles<const N: usize>(
        &self,
        name: &str,
        label: &str,
        passes: impl Fn(&str) -> bool,
        shares: [f64; N],
    ) -> [Option<f64>; N] {
        let name = format!("{name}_bucket");
        let counts = [self.before, self.after].map(|scrape| {
            let of_label =
                |one: &&ScrapedValue| one.labels.get(label).is_some_and(|value| passes(value));
            folded(scrape.of(&name).filter(of_label), "le", |sum, value| {
                sum + value
            })
        });
        let grown = counts[1].iter().map(|(bound, count)| {
            let held = counts[0].get(bound).copied().unwrap_or_default();
            (bound.parse().unwrap_or(f64::INFINITY), growth(held, *count))
        });
        let mut grown: Vec<(f64, f64)> = grown.collect();
        grown.sort_by(|one, other| one.0.total_cmp(&other.0));
        shares.map(|share| quantile(&grown, share))
    }
}

/// Returns how much a counter has grown; all of it if it was reset.
fn growth(before: f64, after: f64) -> f64 {
    if after < before {
        after
    } else {
        after - before
    }
}

/// Returns a quantile of cumulative counts by bound.
fn quantile(counts: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = counts.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let wanted = total * share;
    let (mut low, mut below) = (0.0, 0.0);
    for &(bound, count) in counts {
        if bound.is_infinite() {
            break;
        }
        if count >= wanted && count > below {
            let part = (wanted - below) / (count - below);
            return Some(low + (bound - low) * part.clamp(0.0, 1.0));
        }
        (low, below) = (bound, count);
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total Help.\n# TYPE a_total counter\n\
        a_total{operation=\"get\",status=\"200\"} 7\na_total{operation=\"get\",status=\"404\"} 1\n\
        a_total{operation=\"admin\",status=\"200\"} 100\nb 2.5\n\
        c_total{caller=\"a \\\"b\\\\\\n\"} 3\nbroken{x=\"} 1\nnothing\n";

    #[test]
    fn a_scrape_is_read_and_what_is_none_of_it_left_out() {
        let scrape = ScrapedSeries::parse(TEXT);
        let by_operation = scrape.by("a_total", "operation");
        assert_eq!(
            (by_operation["get"], scrape.single("b"), scrape.single("x")),
            (8.0, 2.5, 0.0)
        );
        let by_caller = scrape.by("c_total", "caller");
        assert_eq!(by_caller, ByLabel::from([("a \"b\\\n".to_owned(), 3.0)]));
        assert!(scrape.of("broken").next().is_none());
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let scrape = |counts: [(&str, u32); 3]| {
            let line =
                |(bound, count)| format!("d_bucket{{operation=\"get\",le=\"{bound}\"}} {count}\n");
            ScrapedSeries::parse(&counts.map(line).concat())
        };
        let median = |before: &ScrapedSeries, after: &ScrapedSeries| {
            let growth = Growth {
                before,
                after,
                seconds: 1.0,
            };
            let [median, of_others] = [true, false].map(|passes| {
                let of_label = move |operation: &str| (operation == "get") == passes;
                growth.quantiles("d", "operation", of_label, [0.5])[0]
            });
            assert_eq!(of_others, None);
            median
        };
        let none = ScrapedSeries::default();
        let before = scrape([("1", 5), ("2", 5), ("+Inf", 5)]);
        let after = scrape([("1", 5), ("2", 15), ("+Inf", 15)]);
        assert_eq!(median(&before, &after), Some(1.5));
        assert_eq!(median(&after, &after), None);
        assert_eq!(median(&none, &none), None);
        // All beyond the last bound: the bound is certain.
        let beyond = scrape([("1", 0), ("2", 0), ("+Inf", 3)]);
        assert_eq!(median(&none, &beyond), Some(2.0));
        // A server that was restarted begins at zero.
        let restarted = scrape([("1", 4), ("2", 4), ("+Inf", 4)]);
        assert_eq!(median(&after, &restarted), Some(0.5));
    }

    #[test]
    fn a_counter_that_went_down_was_begun_anew() {
        assert_eq!((growth(5.0, 8.0), growth(5.0, 2.0)), (3.0, 2.0));
    }
}
