//! Criticality: the importance of a request when not every request can be served.

use std::fmt;
use std::str::FromStr;

/// Four tiers, from the first to be shed under overload to the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criticality {
    /// Batch work that expects to be shed.
    Sheddable,
    /// Ordinary work; the default.
    #[default]
    SheddablePlus,
    /// A user waits for it.
    Critical,
    /// The business depends on it.
    CriticalPlus,
}

impl Criticality {
    /// All tiers, lowest first.
    pub const ALL: [Self; 4] = [
        Self::Sheddable,
        Self::SheddablePlus,
        Self::Critical,
        Self::CriticalPlus,
    ];

    /// Returns the name used on the wire, in configuration and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sheddable => "sheddable",
            Self::SheddablePlus => "sheddable-plus",
            Self::Critical => "critical",
            Self::CriticalPlus => "critical-plus",
        }
    }
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text is not the name of a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such criticality: '{0}' (critical-plus, critical, sheddable-plus, sheddable)")]
pub struct UnknownCriticality(pub String);

impl FromStr for Criticality {
    type Err = UnknownCriticality;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.as_str() == text)
            .ok_or_else(|| UnknownCriticality(text.to_owned()))
    }
}
