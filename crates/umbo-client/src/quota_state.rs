//! Reads the header field `Umbo-Quota-State`: the bucket of the policy that has least left, exactly.
//! Pure. A field that cannot be read says nothing: without a field the client is not paced.

use std::time::Duration;

/// Longest name of a policy that is kept.
const NAME_LEN_MAX: usize = 256;

/// The unit that a policy counts.
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
    /// Returns the unit of a name on the wire, or `None` if it is from a newer server.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "requests" => Self::Requests,
            "ru" => Self::Ru,
            "reads" => Self::Reads,
            "writes" => Self::Writes,
            "read-bytes" => Self::ReadBytes,
            "write-bytes" => Self::WriteBytes,
            "bytes" => Self::Bytes,
            _ => return None,
        })
    }
}

/// The state of one bucket, as an answer gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaState {
    /// Name of the policy.
    pub policy: String,
    /// The unit that it counts.
    pub unit: QuotaUnit,
    /// Units a second.
    pub rate: f64,
    /// The most that can be there at once.
    pub burst: f64,
    /// The balance; negative in debt.
    pub balance: f64,
    /// How often the bucket is refilled.
    pub refill: Duration,
}

impl QuotaState {
    /// Reads the field, like `listing-reads;unit=ru;rate=1000;burst=1000;balance=-12.5;ms=50`. `None`
    /// if a part is missing or invalid; other parameters are ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let policy = parts.next().filter(|name| !name.is_empty())?;
        if policy.len() > NAME_LEN_MAX {
            return None;
        }
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let text = |key: &str| {
            let mut found = parameters.iter().filter(|(name, _)| *name == key);
            found.next().map(|(_, value)| *value)
        };
        let number = |key: &str| {
            let number: f64 = text(key)?.parse().ok()?;
            number.is_finite().then_some(number)
        };
        let positive = |key: &str| number(key).filter(|number| *number > 0.0);
        Some(Self {
            policy: policy.to_owned(),
            unit: QuotaUnit::from_name(text("unit")?)?,
            rate: positive("rate")?,
            burst: positive("burst")?,
            balance: number("balance")?,
            refill: Duration::from_millis(text("ms")?.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_umbo_sends_is_read() {
        let text = "listing-reads;unit=ru;rate=1000;burst=1000.5;balance=-12.062744;ms=50";
        let state = QuotaState {
            policy: "listing-reads".to_owned(),
            unit: QuotaUnit::Ru,
            rate: 1_000.0,
            burst: 1_000.5,
            balance: -12.062_744,
            refill: Duration::from_millis(50),
        };
        assert_eq!(QuotaState::parse(text), Some(state.clone()));
        let later = format!("{text}; more=7");
        assert_eq!(QuotaState::parse(&later), Some(state));
    }

    #[test]
    fn what_is_malformed_says_nothing() {
        let good = "a;unit=ru;rate=1;burst=1;balance=0;ms=50";
        assert!(QuotaState::parse(good).is_some());
        for (part, bad) in [
            ("a;", ";"),
            ("ru", "moons"),
            ("rate=1;", ""),
            ("rate=1", "rate=0"),
            ("rate=1", "rate=inf"),
            ("burst=1", "burst=-1"),
            ("balance=0", "balance=NaN"),
            ("ms=50", "ms=0.5"),
        ] {
            let text = good.replace(part, bad);
            assert_eq!(QuotaState::parse(&text), None, "{text}");
        }
        assert_eq!(QuotaState::parse(""), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = QuotaState::parse(&text);
        }
    }
}
