//! Placeholder (helper POLICY replaces this whole file).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ru,
    Requests,
    Reads,
    Writes,
    ReadBytes,
    WriteBytes,
    Bytes,
}
#[allow(missing_docs)]
impl Unit {
    pub const fn atoms_per_unit(self) -> u64 {
        match self {
            Self::ReadBytes | Self::WriteBytes | Self::Bytes => 1,
            _ => 1_000_000,
        }
    }
    pub const fn as_str(self) -> &'static str {
        "x"
    }
}
