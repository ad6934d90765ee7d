//! A parsed scrape: series by name and labels, their differences, and quantiles of histograms.
//!
//! Reads the text that Umbo's servers write (Prometheus 0.0.4); a line that cannot be parsed is skipped. A
//! counter that has decreased was reset by a restart of the server.

use std::collections::BTreeMap;

/// The series of one scrape.
#[derive(Debug, Default)]
pub(crate) struct ScrapedSeries {
    by_name: BTreeMap<String, Vec<One>>,
}

#[derive(Debug)]
struct One {
    labels: BTreeMap<String, String>,
    value: f64,
}

impl ScrapedSeries {
    /// Reads a scrape.
    pub(crate) fn parse(text: &str) -> Self {
        let mut series = Self::default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, one) in lines.filter_map(parse_line) {
            series.by_name.entry(name).or_default().push(one);
        }
        series
    }

    fn of(&self, name: &str) -> &[One] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the sum of the series of a name whose label passes.
    pub(crate) fn sum(&self, name: &str, label: &str, passes: impl Fn(&str) -> bool) -> f64 {
        let of_label = |one: &&One| one.labels.get(label).is_some_and(|value| passes(value));
        self.of(name)
            .iter()
            .filter(of_label)
            .map(|one| one.value)
            .sum()
    }

    /// Returns the value of a series without labels; 0 if there is none.
    pub(crate) fn single(&self, name: &str) -> f64 {
        self.of(name).first().map_or(0.0, |one| one.value)
    }

    /// Returns the sums of a name by one of its labels.
    pub(crate) fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        self.fold_by(name, label, |sum, value| sum + value)
    }

    /// Returns the values of a name by one of its labels; what has the same label is folded.
    pub(crate) fn fold_by(
        &self,
        name: &str,
        label: &str,
        fold: impl Fn(f64, f64) -> f64,
    ) -> BTreeMap<String, f64> {
        let mut values: BTreeMap<String, f64> = BTreeMap::new();
        for one in self.of(name) {
            if let Some(label) = one.labels.get(label) {
                let folded = values
                    .get(label)
                    .map_or(one.value, |held| fold(*held, one.value));
                values.insert(label.clone(), folded);
            }
        }
        values
    }

    /// Returns the cumulative counts of a histogram by bound, over the series whose label passes.
    pub(crate) fn counts(
        &self,
        name: &str,
        label: &str,
        passes: impl Fn(&str) -> bool,
    ) -> Vec<(f64, f64)> {
        let mut counts: Vec<(f64, f64)> = Vec::new();
        let buckets = self.of(&format!("{name}_bucket")).iter();
        for one in buckets.filter(|one| one.labels.get(label).is_some_and(|value| passes(value))) {
            let bound = match one.labels.get("le").map(String::as_str) {
                Some("+Inf") => f64::INFINITY,
                Some(bound) => bound.parse().unwrap_or(f64::INFINITY),
                None => continue,
            };
            match counts
                .iter_mut()
                .find(|(held, _)| held.total_cmp(&bound).is_eq())
            {
                Some((_, count)) => *count += one.value,
                None => counts.push((bound, one.value)),
            }
        }
        counts.sort_by(|one, other| one.0.total_cmp(&other.0));
        counts
    }
}

fn parse_line(line: &str) -> Option<(String, One)> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = head.split_once('{') else {
        let labels = BTreeMap::new();
        return Some((head.to_owned(), One { labels, value }));
    };
    let labels = parse_labels(labels.strip_suffix('}')?)?;
    Some((name.to_owned(), One { labels, value }))
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

/// Returns how much a counter has grown; all of it if it was reset.
pub(crate) fn growth(before: f64, after: f64) -> f64 {
    if after < before {
        after
    } else {
        after - before
    }
}

/// Returns a quantile of the observations between two scrapes of a histogram, by interpolation within its
/// bucket; none without observations, and the last finite bound if the quantile is beyond it.
pub(crate) fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> Option<f64> {
    let grown = |(bound, count): &(f64, f64)| {
        let held = before
            .iter()
            .find(|(held, _)| held.total_cmp(bound).is_eq());
        (*bound, growth(held.map_or(0.0, |held| held.1), *count))
    };
    let counts: Vec<(f64, f64)> = after.iter().map(grown).collect();
    let total = counts.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let wanted = total * share;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in counts {
        if count >= wanted && count > below {
            if bound.is_infinite() {
                return Some(low);
            }
            return Some(
                low + (bound - low) * ((wanted - below) / (count - below)).clamp(0.0, 1.0),
            );
        }
        if bound.is_finite() {
            (low, below) = (bound, count);
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total Help.\n# TYPE a_total counter\n\
        a_total{operation=\"get\",status=\"200\"} 7\na_total{operation=\"get\",status=\"404\"} 1\n\
        a_total{operation=\"admin\",status=\"200\"} 100\nb 2.5\n\
        c_total{caller=\"a \\\"b\\\\\\n\"} 3\nbroken{x=\"} 1\nnothing\n\
        d_bucket{operation=\"get\",le=\"1\"} 5\nd_bucket{operation=\"get\",le=\"2\"} 9\n\
        d_bucket{operation=\"get\",le=\"+Inf\"} 10\n";

    #[test]
    fn a_scrape_is_read_and_what_is_none_of_it_left_out() {
        let series = ScrapedSeries::parse(TEXT);
        let is_get = |operation: &str| operation == "get";
        let sum = series.sum("a_total", "operation", is_get);
        let counts = series.counts("d", "operation", is_get);
        let expected = [(1.0, 5.0), (2.0, 9.0), (f64::INFINITY, 10.0)];
        assert_eq!(
            (sum, series.single("b"), series.single("x")),
            (8.0, 2.5, 0.0)
        );
        let by_caller = series.by("c_total", "caller");
        assert_eq!(by_caller, BTreeMap::from([("a \"b\\\n".to_owned(), 3.0)]));
        assert_eq!(counts, expected);
        assert!(!series.by_name.contains_key("broken"));
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let before = [(1.0, 5.0), (2.0, 5.0), (f64::INFINITY, 5.0)];
        let after = [(1.0, 5.0), (2.0, 15.0), (f64::INFINITY, 15.0)];
        assert_eq!(quantile(&before, &after, 0.5), Some(1.5));
        assert_eq!(quantile(&after, &after, 0.5), None);
        assert_eq!(quantile(&[], &[], 0.5), None);
        // All beyond the last bound: what is certain is the bound.
        let beyond = [(1.0, 0.0), (f64::INFINITY, 3.0)];
        assert_eq!(quantile(&[], &beyond, 0.99), Some(1.0));
        // A server that was restarted begins at zero.
        assert_eq!(
            quantile(&after, &[(1.0, 4.0), (f64::INFINITY, 4.0)], 0.5),
            Some(0.5)
        );
    }

    #[test]
    fn a_counter_that_went_down_was_begun_anew() {
        assert_eq!((growth(5.0, 8.0), growth(5.0, 2.0)), (3.0, 2.0));
    }
}
