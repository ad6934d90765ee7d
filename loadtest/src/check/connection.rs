//! A connection of one request at a time, and its answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::Failure;

/// Longest wait for a server to accept, and for the next bytes of an answer.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A connection of one request at a time.
pub(super) struct Connection(BufReader<TcpStream>);

/// An answer.
pub(super) struct Answer {
    /// The head as it was sent.
    raw_head: String,
    /// The head in lower case.
    head: String,
    pub(super) body: Vec<u8>,
}

impl Connection {
    /// Connects to a server of this machine.
    pub(super) fn open(port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT);
        let stream = stream.map_err(Failure::io("cannot connect to the server"))?;
        stream.set_nodelay(true).map_err(Failure::io("socket"))?;
        let timeout = stream.set_read_timeout(Some(TIMEOUT));
        timeout.map_err(Failure::io("socket"))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks for something, and reads the whole answer.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<Answer, Failure> {
        let sent = self.0.get_mut().write_all(request);
        sent.map_err(Failure::io("cannot send"))?;
        let (mut raw_head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            self.line(&mut line)?;
            raw_head.push_str(&line);
        }
        let mut answer = Answer {
            head: raw_head.to_ascii_lowercase(),
            raw_head,
            body: Vec::new(),
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            while self.chunk(&mut answer.body)? {}
        } else if !answer.is_empty() {
            let len = answer.number("\r\ncontent-length:")? as usize;
            self.read(&mut answer.body, len)?;
        }
        Ok(answer)
    }

    fn line(&mut self, line: &mut String) -> Result<(), Failure> {
        line.clear();
        let read = self.0.read_line(line);
        if read.map_err(Failure::io("cannot receive"))? == 0 {
            return Err(Failure::WrongAnswer("half an answer".to_owned()));
        }
        Ok(())
    }

    fn read(&mut self, body: &mut Vec<u8>, len: usize) -> Result<(), Failure> {
        let begin = body.len();
        body.resize(begin + len, 0);
        let read = self.0.read_exact(&mut body[begin..]);
        read.map_err(Failure::io("cannot receive"))
    }

    /// Reads a chunk; returns whether another one follows.
    fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut line = String::new();
        self.line(&mut line)?;
        let len = usize::from_str_radix(line.trim(), 16);
        let len = len.map_err(|_| Failure::WrongAnswer(format!("a chunk of length {line}")))?;
        self.read(body, len)?;
        self.line(&mut line)?;
        Ok(len > 0)
    }
}

impl Answer {
    /// Returns the status; 0 where the head has none.
    pub(super) fn status(&self) -> u16 {
        let status = self.head.get(9..12).and_then(|status| status.parse().ok());
        status.unwrap_or(0)
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status())
    }

    /// Returns whether answers of this status have no body and no length.
    fn is_empty(&self) -> bool {
        matches!(self.status(), 204 | 304)
    }

    pub(super) fn is_rejected(&self) -> bool {
        self.status() == 429
    }

    /// Returns a field of the head, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self
            .raw_head
            .lines()
            .filter_map(|line| line.split_once(':'));
        let field = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.trim())
    }

    /// Returns the number that stands behind a name.
    pub(super) fn number(&self, name: &str) -> Result<f64, Failure> {
        let found = self.head.split_once(name).and_then(|(_, rest)| {
            let end = rest.find(['\r', ',', ';'])?;
            rest[..end].trim().parse().ok()
        });
        found.ok_or_else(|| self.unexpected())
    }

    /// Returns the failure that an answer of another kind is.
    pub(super) fn unexpected(&self) -> Failure {
        let body = String::from_utf8_lossy(&self.body);
        Failure::WrongAnswer(format!("{}{body}", self.head))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn answers_are_read_to_their_end_whatever_their_framing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let answers = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: \"7\"\r\n\r\nabc\
                 HTTP/1.1 204 No Content\r\n\r\n\
                 HTTP/1.1 207 Multi-Status\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n\
                 HTTP/1.1 200 OK\r\ncontent-le";
            socket.write_all(answers.as_bytes()).unwrap();
            // The client has sent its requests by the time at which it closes.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let mut connection = Connection::open(port).unwrap();
        let mut ask = || connection.ask(b"x");
        let first = ask().unwrap();
        assert_eq!((first.status(), &first.body[..]), (200, &b"abc"[..]));
        assert_eq!(first.header("etag"), Some("\"7\""));
        assert_eq!(ask().unwrap().status(), 204);
        assert_eq!(ask().unwrap().body, b"abc");
        assert!(ask().is_err(), "half an answer is none");
        drop(connection);
        server.join().unwrap();
    }
}
