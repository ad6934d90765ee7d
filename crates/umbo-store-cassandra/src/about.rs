//! What a row tells of its value, in one column: the cluster has to do as much for each further column.

use bytes::{Buf as _, BufMut as _, Bytes, TryGetError};
use umbo_types::{LargeRef, StoredForm, Timestamp, Version};

use crate::error::ClusterError;

/// The bit that the first byte of a mark has, and the flags of a row without one never have.
const IS_MARK: u8 = 128;
/// Length of a mark.
pub(crate) const MARK_LEN: usize = 8;

const HAS_VERSION: u8 = 1;
const HAS_END: u8 = 2;
const HAS_AS_OF: u8 = 4;
const IS_BY_CLIENT: u8 = 8;
const IS_LARGE: u8 = 16;

/// The longest value that walks read with its row, in bytes: it bounds their answers, as the cluster counts rows only.
pub(crate) const VALUE_OF_WALK_MAX: usize = 8 << 10;

/// Everything of a row but its key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// `None` in the mark of a client's removal, which has no row, and in rows of other kinds.
    pub(crate) version: Option<Version>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) as_of: Option<Timestamp>,
    pub(crate) by_client: bool,
    pub(crate) form: StoredForm,
    /// Length of the value as the client stored it.
    pub(crate) len: u64,
    /// Length of its bytes as they are kept.
    pub(crate) held: u64,
    pub(crate) large: Option<LargeRef>,
    pub(crate) content_type: Bytes,
    pub(crate) content_encoding: Bytes,
    /// The mark of the process whose fast write has made the row. All cells of the row begin with it.
    pub(crate) mark: Option<[u8; MARK_LEN]>,
}

/// Returns the mark of the writes of a process. No process gives a version twice, and no other process has its mark.
pub(crate) fn mark_of(process: i64) -> [u8; MARK_LEN] {
    let mut mark = process.to_be_bytes();
    mark[0] |= IS_MARK;
    mark
}

impl Default for About {
    fn default() -> Self {
        Self {
            version: None,
            expires_at: None,
            as_of: None,
            by_client: false,
            form: StoredForm::Plain,
            len: 0,
            held: 0,
            large: None,
            content_type: Bytes::new(),
            content_encoding: Bytes::new(),
            mark: None,
        }
    }
}

impl About {
    /// Returns whether the row has a value that a walk leaves.
    pub(crate) const fn is_apart(&self) -> bool {
        self.large.is_none() && self.held > VALUE_OF_WALK_MAX as u64
    }

    /// Encodes it: the mark of a fast write, flags, form, the instants that are set, lengths, reference, type and encoding. Numbers are
    /// big-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let instants = [
            (HAS_VERSION, self.version.map(|version| version.0)),
            (HAS_END, self.expires_at.map(|at| at.0)),
            (HAS_AS_OF, self.as_of.map(|at| at.0)),
        ];
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = instants.iter().map(|&(of, at)| flag(at.is_some(), of));
        let flags = flags.chain([
            flag(self.by_client, IS_BY_CLIENT),
            flag(self.large.is_some(), IS_LARGE),
        ]);
        let mut out: Vec<u8> = self.mark.into_iter().flatten().collect();
        out.extend([flags.sum(), self.form.code()]);
        for at in instants.into_iter().filter_map(|(_, at)| at) {
            out.put_u64(at);
        }
        out.put_u64(self.len);
        out.put_u64(self.held);
        if let Some(large) = &self.large {
            out.extend_from_slice(&large.encode());
        }
        for text in [&self.content_type, &self.content_encoding] {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
        out
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, ClusterError> {
        let damaged = |error: TryGetError| ClusterError::damaged(&format!("a row is cut: {error}"));
        Self::read(bytes).map_err(damaged)?.ok_or_else(|| {
            ClusterError::damaged("a row has a form or a reference that this version does not know")
        })
    }

    fn read(mut bytes: Bytes) -> Result<Option<Self>, TryGetError> {
        let mark = match bytes.first() {
            Some(first) if first & IS_MARK != 0 => Some(take(&mut bytes, MARK_LEN)?),
            _ => None,
        };
        let (flags, form) = (bytes.try_get_u8()?, bytes.try_get_u8()?);
        let mut instant = |flag: u8| match flags & flag {
            0 => Ok(None),
            _ => bytes.try_get_u64().map(Some),
        };
        let (version, expires_at) = (instant(HAS_VERSION)?, instant(HAS_END)?);
        let as_of = instant(HAS_AS_OF)?;
        let (len, held) = (bytes.try_get_u64()?, bytes.try_get_u64()?);
        let is_large = flags & IS_LARGE != 0;
        let large = if is_large {
            LargeRef::decode(&take(&mut bytes, LargeRef::LEN)?)
        } else {
            None
        };
        let mut text = || {
            let len = bytes.try_get_u8()?;
            take(&mut bytes, len.into())
        };
        let (content_type, content_encoding) = (text()?, text()?);
        let Ok(form) = StoredForm::from_code(form) else {
            return Ok(None);
        };
        Ok((large.is_some() == is_large).then_some(Self {
            version: version.map(Version),
            expires_at: expires_at.map(Timestamp),
            as_of: as_of.map(Timestamp),
            by_client: flags & IS_BY_CLIENT != 0,
            form,
            len,
            held,
            large,
            content_type,
            content_encoding,
            mark: mark.and_then(|mark| mark.as_ref().try_into().ok()),
        }))
    }
}

fn take(bytes: &mut Bytes, len: usize) -> Result<Bytes, TryGetError> {
    if bytes.len() < len {
        return Err(TryGetError {
            requested: len,
            available: bytes.len(),
        });
    }
    Ok(bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use umbo_types::UploadId;

    use super::*;

    fn all() -> Vec<About> {
        let whole = About {
            version: Some(Version(u64::MAX)),
            expires_at: Some(Timestamp(0)),
            as_of: Some(Timestamp(7)),
            by_client: true,
            form: StoredForm::Plain,
            len: 1 << 40,
            held: 3,
            large: Some(LargeRef {
                upload: UploadId([9; UploadId::LEN]),
                len: 1 << 21,
                sha256: [5; LargeRef::DIGEST_LEN],
            }),
            content_type: Bytes::from_static(b"text/plain"),
            content_encoding: Bytes::from(vec![b'x'; 255]),
            mark: None,
        };
        let small = About {
            version: Some(Version(1)),
            content_encoding: Bytes::from_static(b"gzip"),
            ..About::default()
        };
        let marked = About {
            mark: Some(mark_of(7)),
            ..whole.clone()
        };
        vec![About::default(), small, whole, marked]
    }

    #[test]
    fn it_comes_back_as_it_was_and_nothing_cut_is_read() {
        for about in all() {
            let bytes = Bytes::from(about.encode());
            assert_eq!(About::decode(bytes.clone()).unwrap(), about);
            for len in 0..bytes.len() {
                let error = About::decode(bytes.slice(..len)).unwrap_err();
                assert!(error.to_string().contains("cut"), "{len}: {error}");
            }
        }
    }

    #[test]
    fn a_form_of_a_later_version_is_refused() {
        let mut bytes = About::default().encode();
        bytes[1] = 250;
        let error = About::decode(bytes.into()).unwrap_err();
        assert!(error.to_string().contains("does not know"), "{error}");
    }
}
