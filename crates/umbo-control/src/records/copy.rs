//! The whole set of records as one text of bytes, for [`RecordsCopy::content`].
//!
//! `format: u8, last_namespace: u32, records: u32`, then each record as `name length: u16, name, content
//! length: u32, content`; numbers are big-endian. A content that is longer, shorter, of another format,
//! or names a record that this version does not know is unreadable as a whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use umbo_store::{IdRange, RecordsCopy, RecordsRevision};

use super::{RecordKey, RecordSet, Unreadable};

const FORMAT: u8 = 1;

impl RecordSet {
    /// Makes the copy that stores keep.
    pub(crate) fn to_copy(&self) -> Result<RecordsCopy, Unreadable> {
        let mut content = BytesMut::new();
        content.put_u8(FORMAT);
        content.put_u32(self.last_namespace);
        content.put_u32(self.rows.len() as u32);
        for (key, value) in &self.rows {
            let key = key.to_string();
            content.put_u16(key.len() as u16);
            content.put_slice(key.as_bytes());
            content.put_u32(value.len() as u32);
            content.put_slice(value);
        }
        Ok(RecordsCopy {
            revision: self.revision,
            fenced: self.fenced()?,
            datasets: self.datasets()?,
            content: content.freeze(),
        })
    }

    /// Reads a copy.
    pub(crate) fn from_copy(copy: &RecordsCopy) -> Result<Self, Unreadable> {
        let set = Self::from_content(copy.content.clone(), copy.revision)?;
        let damaged = |reason: &str| damaged(copy.revision, reason.to_owned());
        let own = set.fenced()?;
        // A server of the version before tells of a range its first id alone.
        let is_told =
            |(told, own): (&IdRange, &IdRange)| told.first == own.first && told.last <= own.last;
        if copy.fenced.len() != own.len() || !copy.fenced.iter().zip(&own).all(is_told) {
            return Err(damaged("its fences do not match its records"));
        }
        if set.datasets()? != copy.datasets {
            return Err(damaged("its datasets do not match its records"));
        }
        Ok(set)
    }

    /// Reads the content of a copy.
    pub(crate) fn from_content(
        mut rest: Bytes,
        revision: RecordsRevision,
    ) -> Result<Self, Unreadable> {
        let damaged = |reason: String| damaged(revision, reason);
        let format = rest
            .try_get_u8()
            .map_err(|error| damaged(error.to_string()))?;
        if format != FORMAT {
            let reason = format!("it has format {format}, and this version reads {FORMAT}");
            return Err(damaged(reason));
        }
        let set = read(&mut rest, revision).map_err(|error| match error {
            CopyError::Short => damaged("it ends too early".to_owned()),
            CopyError::Record(error) => error,
        })?;
        if !rest.is_empty() {
            return Err(damaged(format!("{} bytes follow its end", rest.len())));
        }
        Ok(set)
    }
}

fn damaged(revision: RecordsRevision, reason: String) -> Unreadable {
    Unreadable {
        record: format!("copy of revision {}", revision.number),
        reason,
    }
}

enum CopyError {
    Short,
    Record(Unreadable),
}

fn read(rest: &mut Bytes, revision: RecordsRevision) -> Result<RecordSet, CopyError> {
    let mut set = RecordSet {
        revision,
        last_namespace: rest.try_get_u32().map_err(|_| CopyError::Short)?,
        ..RecordSet::default()
    };
    let records = rest.try_get_u32().map_err(|_| CopyError::Short)?;
    for _ in 0..records {
        let len = rest.try_get_u16().map_err(|_| CopyError::Short)?;
        let key = take(rest, usize::from(len))?;
        let key = RecordKey::parse(&key).map_err(CopyError::Record)?;
        let len = rest.try_get_u32().map_err(|_| CopyError::Short)?;
        let content = take(rest, len as usize)?;
        set.rows.insert(key, content);
    }
    Ok(set)
}

fn take(rest: &mut Bytes, len: usize) -> Result<Bytes, CopyError> {
    if rest.len() < len {
        return Err(CopyError::Short);
    }
    Ok(rest.split_to(len))
}
