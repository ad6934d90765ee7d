//! Rows of a range or scan, page after page, each page checked against its `end` line.

use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::try_unfold;
use reqwest::Response;
use umbo_api::Problem;
use umbo_api::row::JsonRow;
use umbo_api::stream::{End, EndReason};

use crate::block::{LastLine, Lines, divide};
use crate::client::Client;
use crate::error::Error;
use crate::pacer::Sent;
use crate::request::RepeatableRequest;
use crate::retry::Failures;
use crate::send::StreamedBody;

/// Makes the request for the page at a cursor, with an optional limit on its rows.
pub(crate) type PageRequest =
    Box<dyn Fn(Option<&str>, Option<u64>) -> Result<RepeatableRequest, Error> + Send>;

/// Reads rows in order, following cursors until there are no more or the limit is reached. It is read
/// block by block, or page by page, not both.
///
/// [`PageReader::next_block`] yields rows as they come and holds some kilobytes, however many rows there
/// are. A page that is refused half-way is continued at the cursor of its error line, as often as requests
/// are repeated. After an error it yields nothing more: rows yielded before are good, but it is not known
/// which rows are missing.
///
/// [`PageReader::next_page`] holds a page and yields it only once it is whole, so that after an error it can
/// be called again and no row is missing or comes twice.
pub struct PageReader {
    client: Client,
    request: PageRequest,
    page: Option<OpenPage>,
    cursor: Option<String>,
    left: Option<u64>,
    rows: u64,
    failures: Failures,
    is_done: bool,
}

/// A whole page, or its part before a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowPage {
    /// NDJSON lines of [`JsonRow`], each with its newline.
    pub lines: Bytes,
    /// Number of rows.
    pub rows: u64,
    /// Where the next page begins; `None` after the last one.
    pub cursor: Option<String>,
}

struct OpenPage {
    response: Response,
    sent: Option<Sent>,
    lines: Lines,
    rows: u64,
    end: Option<End>,
    failure: Option<PageFailure>,
}

/// A page that ended with an error line.
struct PageFailure {
    problem: Box<Problem>,
    cursor: Option<String>,
}

impl fmt::Debug for PageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowReader")
            .field("rows", &self.rows)
            .field("is_done", &self.is_done)
            .finish_non_exhaustive()
    }
}

impl PageReader {
    pub(crate) fn new(client: Client, limit: Option<u64>, request: PageRequest) -> Self {
        Self {
            client,
            request,
            page: None,
            cursor: None,
            left: limit,
            rows: 0,
            failures: Failures::default(),
            is_done: limit == Some(0),
        }
    }

    /// Continues at the cursor of a page of the same range or scan.
    #[must_use]
    pub fn starting_at(mut self, cursor: String) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Returns the number of rows yielded so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the next rows as they came: NDJSON lines of [`JsonRow`], each with its newline. `None` once
    /// there are no more.
    pub async fn next_block(&mut self) -> Result<Option<Bytes>, Error> {
        let result = loop {
            match self.block().await {
                Err(error) if self.goes_on_after(&error).await => {}
                result => break result,
            }
        };
        if !matches!(result, Ok(Some(_))) {
            self.is_done = true;
            self.page = None;
        }
        result
    }

    /// Returns the next page that is not empty, whole; `None` once there are no more. After an error the
    /// same page can be asked for again. The `page_bytes` of the options bound its size.
    pub async fn next_page(&mut self) -> Result<Option<RowPage>, Error> {
        let mut lines = BytesMut::new();
        while !self.is_done {
            match self.part().await {
                Ok(Some((block, _))) => {
                    lines.extend_from_slice(&block);
                    continue;
                }
                // It is not known which rows of a cut-off page are missing, so it is read again.
                Err(error) if !self.turn_after_failure() || lines.is_empty() => {
                    self.page = None;
                    return Err(error);
                }
                Ok(None) | Err(_) => {}
            }
            if !lines.is_empty() {
                let rows = memchr::memchr_iter(b'\n', &lines).count() as u64;
                self.rows += rows;
                return Ok(Some(RowPage {
                    lines: lines.freeze(),
                    rows,
                    cursor: self.cursor.clone().filter(|_| !self.is_done),
                }));
            }
        }
        Ok(None)
    }

    async fn block(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.is_done {
            if let Some((block, rows)) = self.part().await? {
                self.rows += rows;
                self.failures = Failures::default();
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Returns the next block of the page and its number of rows; `None` after a page has ended.
    async fn part(&mut self) -> Result<Option<(Bytes, u64)>, Error> {
        let page = if let Some(page) = &mut self.page {
            page
        } else {
            let request = (self.request)(self.cursor.as_deref(), self.left)?;
            let streamed = self.client.send_for_stream(&request).await?;
            self.page.insert(OpenPage::new(streamed))
        };
        if let Some(part) = page.next(&self.client, self.rows).await? {
            return Ok(Some(part));
        }
        let page = self.page.take();
        if let Some((rows, end)) = page.and_then(|page| page.end.map(|end| (page.rows, end))) {
            self.turn(rows, end)?;
        }
        Ok(None)
    }

    /// Waits before a page that was refused half-way is continued; returns false if it is not.
    async fn goes_on_after(&mut self, error: &Error) -> bool {
        let has_place = self.turn_after_failure();
        has_place && self.client.wait_to_repeat(&mut self.failures, error).await
    }

    /// Continues at the cursor of an error line; returns whether there was one.
    fn turn_after_failure(&mut self) -> bool {
        let Some(page) = self.page.take() else {
            return false;
        };
        let Some(cursor) = page.failure.and_then(|failure| failure.cursor) else {
            return false;
        };
        self.left = self.left.map(|left| left.saturating_sub(page.rows));
        self.cursor = Some(cursor);
        true
    }

    /// Continues with the next page.
    fn turn(&mut self, rows: u64, end: End) -> Result<(), Error> {
        self.left = self.left.map(|left| left.saturating_sub(rows));
        if !end.more || self.left == Some(0) {
            self.is_done = true;
            return Ok(());
        }
        let is_stuck = rows == 0 && end.cursor == self.cursor && end.why != EndReason::Deadline;
        if end.cursor.is_none() || is_stuck {
            return Err(Error::Malformed(
                "a page says that more rows follow, but has no new cursor".to_owned(),
            ));
        }
        self.cursor = end.cursor;
        Ok(())
    }

    /// Returns the next rows, at least one, as [`Self::next_block`] does.
    pub async fn next_rows(&mut self) -> Result<Option<VecDeque<JsonRow>>, Error> {
        let block = self.next_block().await?;
        block.map(|block| parse_rows(&block)).transpose()
    }

    /// Returns the rows one by one.
    pub fn into_rows(self) -> impl Stream<Item = Result<JsonRow, Error>> {
        try_unfold((self, VecDeque::new()), async |(mut reader, mut rows)| {
            while rows.is_empty() {
                let Some(next) = reader.next_rows().await? else {
                    return Ok(None);
                };
                rows = next;
            }
            Ok(rows.pop_front().map(|row| (row, (reader, rows))))
        })
    }
}

impl OpenPage {
    fn new(streamed: StreamedBody) -> Self {
        Self {
            response: streamed.response,
            sent: streamed.sent,
            lines: Lines::default(),
            rows: 0,
            end: None,
            failure: None,
        }
    }

    /// Returns the next block and its number of rows; `None` once the `end` line has come and its count is
    /// right.
    async fn next(&mut self, client: &Client, before: u64) -> Result<Option<(Bytes, u64)>, Error> {
        let truncated = |page: &Self| Error::TruncatedStream {
            rows: before.max(page.rows),
        };
        loop {
            if let Some(failure) = &self.failure {
                let problem = failure.problem.clone();
                return Err(Error::Problem { problem });
            }
            let chunk = match client.chunk(&mut self.response).await {
                Ok(chunk) => chunk,
                Err(Error::Transport(_)) => return Err(truncated(self)),
                Err(error) => return Err(error),
            };
            let Some(chunk) = chunk else {
                let is_whole = self.end.as_ref().is_some_and(|end| end.rows == self.rows);
                if is_whole && !self.lines.has_rest() {
                    return Ok(None);
                }
                return Err(truncated(self));
            };
            if self.end.is_some() && !chunk.trim_ascii().is_empty() {
                return Err(Error::Malformed("bytes follow its last line".to_owned()));
            }
            self.lines.push(&chunk)?;
            let Some(block) = self.lines.take() else {
                continue;
            };
            let (block, rows, last) = divide(block)?;
            self.rows += rows;
            match last {
                Some(LastLine::Error(problem, cursor)) => {
                    self.failure = Some(PageFailure { problem, cursor });
                }
                Some(LastLine::End(end)) => {
                    // A server that does not send the charge says nothing about prices.
                    if let Some(sent) = self.sent.take().filter(|_| end.ru.as_f64() > 0.0) {
                        client.charged_late(&sent, end.ru.as_f64());
                    }
                    self.end = Some(end);
                }
                None => {}
            }
            if rows > 0 {
                return Ok(Some((block, rows)));
            }
        }
    }
}

fn parse_rows(block: &[u8]) -> Result<VecDeque<JsonRow>, Error> {
    block
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .map(|line| serde_json::from_slice(line).map_err(|error| Error::json(&error)))
        .collect()
}
