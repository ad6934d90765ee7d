//! Where an HTTP/1.1 answer ends. Only what the measured servers send is understood.

use memchr::memmem;

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Status.
    pub(super) status: u16,
    /// Length with the empty line.
    len: usize,
    framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Head {
    /// Reads a head; none where it has not arrived whole.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let len = memmem::find(bytes, b"\r\n\r\n")? + 4;
        let digits = bytes.get(9..12)?;
        let status = digits.iter().fold(0, |status, digit| {
            status * 10 + u16::from(digit.wrapping_sub(b'0'))
        });
        let mut framing = Framing::Length(0);
        let mut rest = &bytes[..len - 2];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if let Some(value) = value_of(line, b"content-length:") {
                let length = std::str::from_utf8(value).ok()?.parse().ok()?;
                framing = Framing::Length(length);
            } else if let Some(value) = value_of(line, b"transfer-encoding:")
                && value.eq_ignore_ascii_case(b"chunked")
            {
                framing = Framing::Chunked;
            }
        }
        Some(Self {
            status,
            len,
            framing,
        })
    }
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (given, value) = line.split_at_checked(name.len())?;
    given.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Returns the length of the body as it stands on the wire; none where it has not arrived whole.
pub(super) fn body_len(head: &Head, bytes: &[u8]) -> Option<usize> {
    let body = bytes.get(head.len..)?;
    match head.framing {
        Framing::Length(len) => (body.len() >= len).then_some(len),
        Framing::Chunked => {
            let mut at = 0;
            loop {
                let line = memmem::find(body.get(at..)?, b"\r\n")?;
                let size = std::str::from_utf8(&body[at..at + line]).ok()?;
                let size = usize::from_str_radix(size, 16).ok()?;
                at += line + 2 + size + 2;
                if size == 0 {
                    return (body.len() >= at).then_some(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Option<(u16, usize)> {
        let head = Head::parse(text.as_bytes())?;
        body_len(&head, text.as_bytes()).map(|len| (head.status, len))
    }

    #[test]
    fn every_framing_has_its_end_and_no_earlier() {
        let answers = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", (200, 3)),
            ("HTTP/1.1 204 No Content\r\netag: \"1\"\r\n\r\n", (204, 0)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                (200, 12),
            ),
        ];
        for (text, expected) in answers {
            assert_eq!(whole(text), Some(expected), "{text}");
            for end in 0..text.len() {
                assert_eq!(whole(&text[..end]), None, "{}", &text[..end]);
            }
        }
    }
}
