//! Reads what a server says of its quotas: the fields `RateLimit-Policy` and `RateLimit`
//! (draft-ietf-httpapi-ratelimit-headers-10), which are lists of structured fields (RFC 9651).
//! Pure. A field that cannot be read says nothing: a client that is told nothing is not paced.

/// In what a policy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaUnit {
    /// Request units.
    Ru,
    /// Requests.
    Requests,
    /// Rows read.
    Reads,
    /// Rows written or removed.
    Writes,
    /// Bytes read.
    ReadBytes,
    /// Bytes written.
    WriteBytes,
    /// Bytes read or written.
    Bytes,
}

impl QuotaUnit {
    /// Returns the unit of a name on the wire; requests where there is none, as the draft says,
    /// and none where it is one of a newer server.
    pub fn from_name(name: Option<&str>) -> Option<Self> {
        Some(match name {
            None | Some("requests") => Self::Requests,
            Some("ru") => Self::Ru,
            Some("reads") => Self::Reads,
            Some("writes") => Self::Writes,
            Some("read-bytes") => Self::ReadBytes,
            Some("write-bytes") => Self::WriteBytes,
            Some("bytes") => Self::Bytes,
            Some(_) => return None,
        })
    }
}

/// What a server says of one policy that counts the request it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Advertised {
    /// Name of the policy.
    pub policy: String,
    /// In what it counts.
    pub unit: QuotaUnit,
    /// The most that can be there at once.
    pub quota: f64,
    /// Seconds in which that comes back, rounded up; 1 at least.
    pub window: f64,
    /// What is left, rounded down; 0 in debt.
    pub remaining: f64,
    /// Seconds until all of it is there again, rounded up, where the server says.
    pub full_after: Option<f64>,
}

impl Advertised {
    /// Reads both fields. A policy that only one of them names, or whose unit is not known, is
    /// left out.
    pub fn parse(policies: &str, limits: &str) -> Vec<Self> {
        let (policies, limits) = (list(policies), list(limits));
        let limits = limits.unwrap_or_default();
        let advertised = policies
            .unwrap_or_default()
            .into_iter()
            .filter_map(|policy| {
                let limit = limits.iter().find(|limit| limit.name == policy.name)?;
                Some(Self {
                    unit: QuotaUnit::from_name(policy.text("qu"))?,
                    quota: policy.number("q")?,
                    window: policy.number("w").unwrap_or(1.0).max(1.0),
                    remaining: limit.number("r")?,
                    full_after: limit.number("t"),
                    policy: policy.name,
                })
            });
        advertised.collect()
    }
}

/// A member of a list: a name with parameters.
#[derive(Debug, PartialEq)]
struct Item {
    name: String,
    parameters: Vec<(String, Bare)>,
}

impl Item {
    fn parameter(&self, key: &str) -> Option<&Bare> {
        // Of a key that stands twice the last one counts.
        let mut found = self.parameters.iter().filter(|(name, _)| name == key);
        found.next_back().map(|(_, value)| value)
    }

    /// Returns a parameter that is a number; none where it is negative.
    fn number(&self, key: &str) -> Option<f64> {
        match self.parameter(key)? {
            Bare::Number(number) if *number >= 0.0 => Some(*number),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.parameter(key)? {
            Bare::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A bare item, as far as it matters here.
#[derive(Debug, PartialEq)]
enum Bare {
    Number(f64),
    /// A string or token.
    Text(String),
    /// A boolean or bytes.
    Other,
}

/// Reads a list; none where any of it is malformed.
fn list(text: &str) -> Option<Vec<Item>> {
    let mut cursor = Cursor { rest: text };
    let mut items = Vec::new();
    cursor.skip(&[' ', '\t']);
    while !cursor.rest.is_empty() {
        let Bare::Text(name) = cursor.bare()? else {
            return None;
        };
        let parameters = cursor.parameters()?;
        items.push(Item { name, parameters });
        cursor.skip(&[' ', '\t']);
        if cursor.rest.is_empty() {
            break;
        }
        cursor.take(',')?;
        cursor.skip(&[' ', '\t']);
        // A comma at the end is not allowed.
        cursor.peek()?;
    }
    Some(items)
}

struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, expected: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    fn skip(&mut self, characters: &[char]) {
        self.rest = self.rest.trim_start_matches(characters);
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|character| !is_part(character));
        let (taken, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn parameters(&mut self) -> Option<Vec<(String, Bare)>> {
        let mut parameters = Vec::new();
        while self.peek() == Some(';') {
            self.take(';')?;
            self.skip(&[' ']);
            let is_first = |character: char| character.is_ascii_lowercase() || character == '*';
            if !self.peek().is_some_and(is_first) {
                return None;
            }
            let is_part = |character: char| {
                is_first(character)
                    || character.is_ascii_digit()
                    || matches!(character, '_' | '-' | '.')
            };
            let key = self.take_while(is_part).to_owned();
            let value = match self.peek() {
                Some('=') => {
                    self.take('=')?;
                    self.bare()?
                }
                _ => Bare::Other,
            };
            parameters.push((key, value));
        }
        Some(parameters)
    }

    fn bare(&mut self) -> Option<Bare> {
        match self.peek()? {
            '"' => self.string().map(Bare::Text),
            '-' | '0'..='9' => self.number().map(Bare::Number),
            '?' => {
                self.take('?')?;
                self.take('0').or_else(|| self.take('1'))?;
                Some(Bare::Other)
            }
            ':' => {
                self.take(':')?;
                self.take_while(|character| character != ':');
                self.take(':')?;
                Some(Bare::Other)
            }
            first if first.is_ascii_alphabetic() || first == '*' => {
                let is_part = |character: char| {
                    character.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(character)
                };
                Some(Bare::Text(self.take_while(is_part).to_owned()))
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<String> {
        self.take('"')?;
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                (_, '\\') => {
                    let (_, escaped) = characters.next()?;
                    if !matches!(escaped, '"' | '\\') {
                        return None;
                    }
                    text.push(escaped);
                }
                (_, ' '..='~') if text.len() >= NAME_LEN_MAX => return None,
                (_, character @ ' '..='~') => text.push(character),
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<f64> {
        let is_part = |character: char| character.is_ascii_digit() || "-.".contains(character);
        let digits = self.take_while(is_part);
        // RFC 9651 has at most 15 digits, a sign and a point.
        if digits.len() > 17 {
            return None;
        }
        digits.parse().ok()
    }
}

/// Longest string that is read; a policy's name has 64 characters at most.
const NAME_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_umbo_sends_is_read() {
        let advertised = Advertised::parse(
            "\"listing-reads\";q=1000;w=1;qu=\"ru\"",
            "\"listing-reads\";r=812;t=1",
        );
        assert_eq!(
            advertised,
            [Advertised {
                policy: "listing-reads".to_owned(),
                unit: QuotaUnit::Ru,
                quota: 1_000.0,
                window: 1.0,
                remaining: 812.0,
                full_after: Some(1.0),
            }]
        );
    }

    #[test]
    fn a_list_is_matched_by_name_whatever_stands_beside() {
        let advertised = Advertised::parse(
            "\"a\";q=5;w=60;x;y=?1;z=:AAA=:, \"b\\\"\";q=1.5;qu=requests ,c;q=7",
            "c;r=6,\t\"b\\\"\"; r=1;t=2, \"d\";r=1",
        );
        let found: Vec<_> = advertised
            .iter()
            .map(|one| (one.policy.as_str(), one.quota, one.window, one.remaining))
            .collect();
        assert_eq!(found, [("b\"", 1.5, 1.0, 1.0), ("c", 7.0, 1.0, 6.0)]);
        assert_eq!(advertised[0].full_after, Some(2.0));
        assert_eq!(advertised[1].full_after, None);
    }

    #[test]
    fn what_is_malformed_says_nothing() {
        let good = ("\"a\";q=5;w=1", "\"a\";r=1;t=1");
        assert_eq!(Advertised::parse(good.0, good.1).len(), 1);
        for bad in [
            "",
            "\"a",
            "\"a\";q",
            "\"a\";q=",
            "\"a\";q=-5",
            "\"a\";Q=5",
            "\"a\";q=5,",
            "5;q=5",
            "\"a\";q=5 \"b\"",
            "\"\\a\";q=5",
            "\"é\";q=5",
            "\"a\";q=1234567890123456789",
            "\"a\";q=\"5\"",
            "\"a\";q=5;qu=\"moons\"",
            "\"a\";q=5;qu=?2",
        ] {
            assert_eq!(Advertised::parse(bad, good.1), [], "{bad}");
        }
        assert_eq!(Advertised::parse(good.0, "\"a\";t=1"), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(one in "[\"\\\\;=,? a-c0-9.:-]{0,40}", other in "\\PC{0,20}") {
            let _ = Advertised::parse(&one, &one);
            let _ = Advertised::parse(&one, &other);
            let _ = Advertised::parse(&other, &one);
        }

        #[test]
        fn what_is_written_is_read(name in "[ -~]{1,40}", quota in 0_u32.., remaining in 0_u32..) {
            let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
            let advertised = Advertised::parse(
                &format!("\"{quoted}\";q={quota};w=3;qu=\"bytes\""),
                &format!("\"{quoted}\";r={remaining};t=9"),
            );
            prop_assert_eq!(advertised.len(), 1);
            prop_assert_eq!(&advertised[0].policy, &name);
            prop_assert!((advertised[0].quota - f64::from(quota)).abs() < 1e-9);
            prop_assert!((advertised[0].remaining - f64::from(remaining)).abs() < 1e-9);
        }
    }
}
