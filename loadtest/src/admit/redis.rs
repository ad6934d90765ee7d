//! A token bucket in Redis: a script for each request, or for a batch of tokens that are spent here.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::iter;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::decision::{DISPATCHERS, Decider, Decision, RATE};
use super::frame;

/// Tokens of a batch: a tenth of a second of an equal share.
pub(super) const BATCH: u32 = RATE / DISPATCHERS / 10;
/// How long an empty bucket is not asked again for a batch.
const EMPTY: Duration = Duration::from_millis(10);
/// Pause before a connection is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// The bucket: how many of the wanted tokens there are, by the clock of Redis.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local held = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = burst
if held[1] then
  level = math.min(burst, tonumber(held[1]) + (now - tonumber(held[2])) * rate / 1000000)
end
local got = math.floor(math.min(level, wanted))
redis.call('HSET', KEYS[1], 'level', tostring(level - got), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], 60000)
return got";

/// A client with one connection.
pub(super) struct Redis {
    port: u16,
    batch: u32,
    /// The connection, and the request of a batch.
    connection: Option<(BufReader<TcpStream>, Vec<u8>)>,
    /// Tokens that are left of a batch.
    tokens: u32,
    /// Until when nothing is asked: the bucket is empty, or Redis does not answer.
    pause: Option<(Instant, Decision)>,
}

impl Redis {
    pub(super) const fn new(port: u16, batch: u32) -> Self {
        Self {
            port,
            batch,
            connection: None,
            tokens: 0,
            pause: None,
        }
    }

    fn connect(&self) -> io::Result<(BufReader<TcpStream>, Vec<u8>)> {
        let mut stream = BufReader::new(frame::connect(self.port)?);
        let sha = ask(&mut stream, &command(&["SCRIPT", "LOAD", SCRIPT]))?;
        let (rate, batch) = (RATE.to_string(), self.batch.to_string());
        let request = command(&["EVALSHA", &sha, "1", "limit", &rate, &rate, &batch]);
        Ok((stream, request))
    }

    /// Takes a batch of tokens.
    fn take(&mut self) -> io::Result<u32> {
        let (mut stream, request) = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = ask(&mut stream, &request)?;
        self.connection = Some((stream, request));
        let tokens = answer.parse();
        tokens.map_err(|_| io::Error::other(format!("Redis says {answer}")))
    }
}

impl Decider for Redis {
    fn decide(&mut self) -> Decision {
        if self.tokens == 0 {
            if let Some((until, decision)) = self.pause
                && Instant::now() < until
            {
                return decision;
            }
            self.pause = None;
            match self.take() {
                Ok(tokens) => self.tokens = tokens,
                Err(_) => self.pause = Some((Instant::now() + AGAIN, Decision::Failed)),
            }
        }
        if self.tokens > 0 {
            self.tokens -= 1;
            return Decision::Admitted;
        }
        if let Some((_, decision)) = self.pause {
            return decision;
        }
        if self.batch > 1 {
            self.pause = Some((Instant::now() + EMPTY, Decision::Refused));
        }
        Decision::Refused
    }
}

/// Returns a command as Redis reads it.
fn command(words: &[&str]) -> Vec<u8> {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    let words: Vec<String> = iter::once(format!("*{}\r\n", words.len()))
        .chain(words.iter().map(word))
        .collect();
    words.concat().into_bytes()
}

/// Sends a command; returns the text or the number of its answer.
fn ask(stream: &mut BufReader<TcpStream>, command: &[u8]) -> io::Result<String> {
    stream.get_mut().write_all(command)?;
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some((":" | "+", answer)) => Ok(answer.to_owned()),
        Some(("$", len)) => {
            let len: usize = len.parse().map_err(io::Error::other)?;
            let mut text = vec![0; len + 2];
            stream.read_exact(&mut text)?;
            text.truncate(len);
            String::from_utf8(text).map_err(io::Error::other)
        }
        _ => Err(io::Error::other(format!("Redis says {line}"))),
    }
}
