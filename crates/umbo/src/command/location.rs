//! The location of the files that a command reads or writes: a folder, or a place in an object store.
//!
//! A backup has a [`Location`], with many small files. The file of an import, load or export may be an object
//! ([`is_object`]). [`ObjectReader`] reads an object in chunks from any place. [`ObjectWriter`] writes an object, which
//! appears when it is complete.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::absolute;
use std::sync::{Arc, LazyLock, mpsc};

use bytes::{Bytes, BytesMut};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _,
    parse_url_opts,
};
use tokio::runtime::{Builder, Runtime};

use crate::cli_error::CliError;

/// Prefixes of the environment variables that configure access to object stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];
/// Bytes of one read of an object: a request takes much longer to begin than to read this many bytes.
const CHUNK_LEN: u64 = 8 << 20;
/// Bytes of each part of an object but the last: stores accept up to 10,000 parts, which are 312 GiB.
const PART_LEN: usize = 32 << 20;

/// The location of a backup.
pub(super) struct Location {
    store: Arc<dyn ObjectStore>,
    path: Path,
    text: String,
}

impl Location {
    /// Opens a folder, which is created if it is absent, or a place in an object store.
    pub(super) fn open(text: &str) -> Result<Self, CliError> {
        let text = text.trim_end_matches('/');
        let (store, path) =
            open_store(text).map_err(|error| CliError::backup(format_args!("{text}: {error}")))?;
        Ok(Self {
            store,
            path,
            text: text.to_owned(),
        })
    }

    /// Returns the name of a file, for people.
    pub(super) fn name_of(&self, file: &str) -> String {
        format!("{}/{file}", self.text)
    }

    /// Returns the content of a file, or `None` if it is absent.
    pub(super) async fn find(&self, file: &str) -> Result<Option<Bytes>, CliError> {
        let failed = |error| self.failed(file, &error);
        match self.store.get(&self.path.clone().join(file)).await {
            Ok(found) => Ok(Some(found.bytes().await.map_err(failed)?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Stores a file; it is on the disk, or in the store, when this returns.
    pub(super) async fn put(&self, file: &str, bytes: Bytes) -> Result<(), CliError> {
        let path = self.path.clone().join(file);
        let stored = self.store.put(&path, bytes.into()).await;
        stored.map(drop).map_err(|error| self.failed(file, &error))
    }

    fn failed(&self, file: &str, error: &Error) -> CliError {
        CliError::backup(format_args!("{}: {}", self.name_of(file), named(error)))
    }
}

/// Opens the store of a folder, which is created if it is absent, or of an address. Also returns the place in the
/// store.
fn open_store(text: &str) -> io::Result<(Arc<dyn ObjectStore>, Path)> {
    match text.parse() {
        Ok(url) if text.contains("://") => {
            // Another provider may be installed already; either one works.
            drop(rustls::crypto::ring::default_provider().install_default());
            let variables = std::env::vars()
                .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
            let variables = variables.map(|(name, value)| (name.to_lowercase(), value));
            let (store, path) = parse_url_opts(&url, variables).map_err(|error| named(&error))?;
            Ok((store.into(), path))
        }
        _ => {
            let folder = absolute(text)?;
            std::fs::create_dir_all(&folder)?;
            let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| named(&error))?;
            Ok((Arc::new(store.with_fsync(true)), Path::default()))
        }
    }
}

/// Describes why a store has failed, in the terms of the commands, followed by the store's message.
fn named(error: &Error) -> io::Error {
    let (kind, said) = match error {
        Error::NotFound { .. } => (
            io::ErrorKind::NotFound,
            "there is no such object or no such bucket",
        ),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (
            io::ErrorKind::PermissionDenied,
            "the credentials of the environment do not permit it",
        ),
        Error::Precondition { .. } => (
            io::ErrorKind::Other,
            "the object was replaced while it was read",
        ),
        _ => return io::Error::other(error.to_string()),
    };
    io::Error::new(kind, format!("{said} ({error})"))
}

/// Runs work of an object store on a separate thread, and waits for it: files are read and written by threads that
/// may wait, and by the runtime of a command, which may not wait for itself.
fn wait<T: Send + 'static>(
    work: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> io::Result<T> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build()
    });
    let runtime = RUNTIME.as_ref().map_err(io::Error::other)?;
    let (sender, done) = mpsc::channel();
    runtime.spawn(async move { sender.send(work.await) });
    done.recv()
        .map_err(io::Error::other)?
        .map_err(|error| named(&error))
}

/// Returns whether the name of a file is the address of an object, like `s3://bucket/key`.
pub(super) fn is_object(file: &std::path::Path) -> bool {
    file.to_str().is_some_and(|text| text.contains("://"))
}

fn open_object(file: &std::path::Path) -> io::Result<(Arc<dyn ObjectStore>, Path)> {
    let (store, path) = open_store(&file.to_string_lossy())?;
    if path == Path::default() {
        return Err(io::Error::other(
            "it names no object: an address is like s3://bucket/key",
        ));
    }
    Ok((store, path))
}

/// Reads an object from any place, and holds one chunk. All bytes are from the version of the object that was opened.
pub(super) struct ObjectReader {
    store: Arc<dyn ObjectStore>,
    /// The object as it was opened: its length, its tag and when it was stored.
    pub(super) meta: ObjectMeta,
    at: u64,
    /// The bytes from [`Self::chunk_at`] on.
    chunk: Bytes,
    chunk_at: u64,
}

impl ObjectReader {
    /// Opens an object.
    pub(super) fn open(file: &std::path::Path) -> io::Result<Self> {
        let (store, path) = open_object(file)?;
        let asked = Arc::clone(&store);
        Ok(Self {
            meta: wait(async move { asked.head(&path).await })?,
            store,
            at: 0,
            chunk: Bytes::new(),
            chunk_at: 0,
        })
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let chunk = self.chunk_at..self.chunk_at + self.chunk.len() as u64;
        if !chunk.contains(&self.at) && self.at < self.meta.size {
            let (store, path) = (Arc::clone(&self.store), self.meta.location.clone());
            let end = self.meta.size.min(self.at + CHUNK_LEN);
            let options = GetOptions {
                range: Some((self.at..end).into()),
                if_match: self.meta.e_tag.clone(),
                ..GetOptions::default()
            };
            self.chunk = wait(async move { store.get_opts(&path, options).await?.bytes().await })?;
            self.chunk_at = self.at;
        }
        let offset = usize::try_from(self.at - self.chunk_at).unwrap_or(usize::MAX);
        let rest = self.chunk.get(offset..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.meta.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// An object that is written in parts. It appears with [`Self::appear`]; dropped before that, its upload is aborted.
pub(super) struct ObjectWriter {
    /// `None` once the object is complete.
    upload: Option<Box<dyn MultipartUpload>>,
    part: BytesMut,
}

impl ObjectWriter {
    /// Begins an upload.
    pub(super) fn create(file: &std::path::Path) -> io::Result<Self> {
        let (store, path) = open_object(file)?;
        let upload = wait(async move { store.put_multipart(&path).await })?;
        Ok(Self {
            upload: Some(upload),
            part: BytesMut::new(),
        })
    }

    fn send(&mut self) -> io::Result<()> {
        let part = self.part.split().freeze();
        match &mut self.upload {
            Some(upload) => wait(upload.put_part(part.into())),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Sends the last part, and lets the object appear; an existing one is replaced.
    pub(super) fn appear(&mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            self.send()?;
        }
        let Some(mut upload) = self.upload.take() else {
            return Ok(());
        };
        wait(async move {
            let done = upload.complete().await;
            if done.is_err() {
                // The first error says more.
                let _ = upload.abort().await;
            }
            done.map(drop)
        })
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(PART_LEN - self.part.len());
        self.part.extend_from_slice(&bytes[..len]);
        if self.part.len() == PART_LEN {
            self.send()?;
        }
        Ok(len)
    }

    /// Does nothing: an object has no bytes before it is complete.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            // The object is absent in any case; the store removes remaining parts by its own rules.
            let _ = wait(async move { upload.abort().await });
        }
    }
}

/// Returns the files in a folder, or the objects directly below an address, in the order of their names. Leaves out
/// names that begin with `.` or `_`: other programs keep notes under them.
pub(super) fn files_in(folder: &std::path::Path) -> io::Result<Vec<std::path::PathBuf>> {
    let text = folder.to_string_lossy();
    let (store, path) = open_store(&text)?;
    let listed = wait(async move { store.list_with_delimiter(Some(&path)).await })?;
    let names = listed
        .objects
        .iter()
        .filter_map(|object| object.location.filename());
    let names = names.filter(|name| !name.starts_with(['.', '_']));
    let mut files: Vec<_> = if is_object(folder) {
        // Encoded as in an address, because opening an address decodes it.
        let encoded = |name: &str| {
            let name = name.replace('%', "%25");
            name.replace('?', "%3F").replace('#', "%23")
        };
        let folder = text.trim_end_matches('/');
        names
            .map(|name| format!("{folder}/{}", encoded(name)).into())
            .collect()
    } else {
        names.map(|name| folder.join(name)).collect()
    };
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_from_any_place_and_is_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let bytes: Vec<u8> = (0..=255).cycle().take(CHUNK_LEN as usize + 7).collect();
        std::fs::write(&path, &bytes).unwrap();
        let address = format!("file://{}", path.display());
        let mut object = ObjectReader::open(address.as_ref()).unwrap();
        let mut read = Vec::new();
        object.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        for (to, expected) in [
            (SeekFrom::End(-3), &bytes[bytes.len() - 3..]),
            (SeekFrom::Start(1), &bytes[1..4]),
            (SeekFrom::Current(-1), &bytes[3..6]),
        ] {
            object.seek(to).unwrap();
            let mut three = [0; 3];
            object.read_exact(&mut three).unwrap();
            assert_eq!(three, expected, "{to:?}");
        }
        assert!(object.seek(SeekFrom::Current(-100)).is_err());
        std::fs::write(&path, "another").unwrap();
        // Beyond the chunk that is held.
        object.seek(SeekFrom::Start(CHUNK_LEN + 1)).unwrap();
        let replaced = object.read(&mut [0]).unwrap_err().to_string();
        assert!(replaced.contains("was replaced"), "{replaced}");
    }

    #[test]
    fn an_object_is_complete_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let address = format!("file://{}", path.display());
        let bytes = vec![7; PART_LEN + 1];
        for is_complete in [false, true] {
            let mut writer = ObjectWriter::create(address.as_ref()).unwrap();
            writer.write_all(&bytes).unwrap();
            if is_complete {
                writer.appear().unwrap();
            }
            drop(writer);
            let found = std::fs::read(&path).ok();
            assert!(found == is_complete.then(|| bytes.clone()));
            let left = std::fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, usize::from(is_complete));
        }
    }
}
