//! The ten phases of a request, the words that spans share with the pipeline and the documents.

/// A phase of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// HTTP becomes a typed operation.
    Decode,
    /// The caller is identified, and its criticality determined.
    Classify,
    /// The request is priced.
    Price,
    /// Whether the caller may.
    Admit,
    /// Which shard owns the key.
    Locate,
    /// Whether the answer is at hand already.
    Shield,
    /// For one of the shard's slots.
    Wait,
    /// The store call.
    Fetch,
    /// The request is charged.
    Settle,
    /// The outcome becomes HTTP.
    Encode,
}

impl Phase {
    /// All phases, in the order of the pipeline.
    pub const ALL: [Self; 10] = [
        Self::Decode,
        Self::Classify,
        Self::Price,
        Self::Admit,
        Self::Locate,
        Self::Shield,
        Self::Wait,
        Self::Fetch,
        Self::Settle,
        Self::Encode,
    ];

    /// Returns the name of the phase's span.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Classify => "classify",
            Self::Price => "price",
            Self::Admit => "admit",
            Self::Locate => "locate",
            Self::Shield => "shield",
            Self::Wait => "wait",
            Self::Fetch => "fetch",
            Self::Settle => "settle",
            Self::Encode => "encode",
        }
    }
}
