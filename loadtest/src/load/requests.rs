//! Prepared requests in a file: each its length (32 bits, little-endian) and its bytes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use crate::failure::Failure;

/// Requests, held whole.
#[derive(Debug)]
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    /// Where each begins and ends.
    places: Vec<(usize, usize)>,
}

impl Prepared {
    /// Reads a file of requests.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(Failure::io(path.display().to_string()))?;
        let mut places = Vec::new();
        let mut at = 0;
        while let Some(len) = bytes.get(at..at + 4) {
            let len = u32::from_le_bytes(std::array::from_fn(|index| len[index])) as usize;
            places.push((at + 4, at + 4 + len));
            at += 4 + len;
        }
        if places.is_empty() || at != bytes.len() {
            let path = path.display();
            return Err(Failure::WrongAnswer(format!(
                "{path} holds no whole requests"
            )));
        }
        Ok(Self { bytes, places })
    }

    /// Writes a file of requests.
    pub(crate) fn write(
        path: &Path,
        requests: impl Iterator<Item = Vec<u8>>,
    ) -> Result<(), Failure> {
        write(path, requests).map_err(Failure::io(path.display().to_string()))
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns a request; after the last one comes the first again.
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let (begin, end) = self.places[at % self.places.len()];
        &self.bytes[begin..end]
    }
}

fn write(path: &Path, requests: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for request in requests {
        out.write_all(&(request.len() as u32).to_le_bytes())?;
        out.write_all(&request)?;
    }
    out.flush()
}

/// Makes an HTTP/1.1 request.
pub(crate) fn http(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}").into_bytes();
    if method != "GET" {
        request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written_and_come_round_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests");
        let requests = [
            http("GET", "/a", "", b""),
            http("PUT", "/b", "X: y\r\n", b"body"),
        ];
        Prepared::write(&path, requests.clone().into_iter()).unwrap();
        let read = Prepared::read(&path).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(
            [read.get(2), read.get(1)],
            [&requests[0][..], &requests[1][..]]
        );
        assert!(requests[1].ends_with(b"Content-Length: 4\r\n\r\nbody"));
        fs::write(&path, [9, 0, 0, 0, 1]).unwrap();
        assert!(Prepared::read(&path).is_err());
    }
}
