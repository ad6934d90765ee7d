//! The caller of a request, by name. The last one is kept: the next request often has the same.

use bytes::Bytes;
use umbo_types::CallerId;

/// Longest name of a caller, in bytes.
const NAME_LEN_MAX: usize = 1_024;

/// The caller of the last request.
#[derive(Debug, Default)]
pub(super) struct CallerCache {
    last: Option<(Bytes, CallerId)>,
}

impl CallerCache {
    /// Returns the caller of this name, or `None` if the name is empty. Fails if the name is invalid.
    pub(super) fn named(&mut self, name: &[u8]) -> Result<Option<CallerId>, String> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some((last, caller)) = &self.last
            && last == name
        {
            return Ok(Some(caller.clone()));
        }
        if name.len() > NAME_LEN_MAX {
            return Err(format!("a caller of {} bytes", name.len()));
        }
        let text = std::str::from_utf8(name).map_err(|error| format!("caller: {error}"))?;
        let caller = CallerId::new(text);
        self.last = Some((Bytes::copy_from_slice(name), caller.clone()));
        Ok(Some(caller))
    }
}
