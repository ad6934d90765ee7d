//! Names from closed lists, and the nearest of them to an unknown one.

/// Most edits between a misspelt name and the name suggested for it.
const EDITS_MAX: usize = 2;

/// A name is not in its closed list. Holds the names of the list, and the nearest of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such {what}: '{name}'{} (there are: {})", suggestion(*.nearest), .known.join(", "))]
pub struct UnknownName {
    /// Kind of the name, like `unit`.
    pub what: &'static str,
    /// As written.
    pub name: String,
    /// All names of the list.
    pub known: Vec<&'static str>,
    /// The name that looks like it.
    pub nearest: Option<&'static str>,
}

fn suggestion(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// Finds the item with a name.
pub(crate) fn find<T: Copy>(
    what: &'static str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    as_str: impl Fn(T) -> &'static str,
) -> Result<T, UnknownName> {
    let mut known = Vec::new();
    for one in all {
        if as_str(one) == name {
            return Ok(one);
        }
        known.push(as_str(one));
    }
    let nearest = nearest(name, &known);
    Err(UnknownName {
        what,
        name: name.to_owned(),
        known,
        nearest,
    })
}

/// Returns the known name that looks most like a misspelt one, or `None` if all of them differ too
/// much.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = name.to_lowercase().replace('_', "-");
    let near = known.iter().map(|known| (edits(&plain, known), *known));
    let (distance, nearest) = near.min_by_key(|(distance, _)| *distance)?;
    // A short name allows fewer edits: otherwise it would resemble unrelated names.
    let allowed = EDITS_MAX.min(nearest.len() / 2);
    (distance <= allowed).then_some(nearest)
}

/// Counts the letters to insert, remove or replace (Levenshtein 1965).
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &opposite) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != opposite);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["ru", "requests", "read-bytes", "write-bytes"];

    #[test]
    fn a_misspelt_name_is_told_which_is_near() {
        for (name, nearest) in [
            ("request", Some("requests")),
            ("reqeusts", Some("requests")),
            ("READ_BYTES", Some("read-bytes")),
            ("RU", Some("ru")),
            ("rus", Some("ru")),
            ("rows", None),
            ("", None),
        ] {
            let error = find("unit", name, KNOWN, |name| name).unwrap_err();
            assert_eq!(error.nearest, nearest, "{name}");
        }
        assert_eq!(
            find("unit", "request", KNOWN, |name| name)
                .unwrap_err()
                .to_string(),
            "no such unit: 'request'; did you mean 'requests'? \
             (there are: ru, requests, read-bytes, write-bytes)"
        );
    }

    #[test]
    fn edits_are_counted() {
        for (one, other, count) in [
            ("", "", 0),
            ("a", "", 1),
            ("kitten", "sitting", 3),
            ("é", "e", 1),
        ] {
            assert_eq!(edits(one, other), count);
            assert_eq!(edits(other, one), count);
        }
    }
}
