//! The body of an answer: a stream, or nothing but how it ended.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use hyper::body::Incoming;

use umbo_protocol::Parts;

use crate::exchange::{Exchange, trailers};
use crate::node::Node;

/// A method that there is not, as gRPC numbers it.
const UNIMPLEMENTED: u16 = 12;

/// Body of an answer.
pub(super) enum Reply {
    Exchange(Box<Exchange>),
    Trailers(Option<HeaderMap>),
    Nothing,
}

impl Reply {
    pub(super) fn exchange(
        node: Arc<Node>,
        body: Incoming,
        parts: Parts,
        counted: Arc<()>,
    ) -> Self {
        Self::Exchange(Box::new(Exchange::new(node, body, parts, counted)))
    }

    pub(super) fn unimplemented(path: &str) -> Self {
        let message = format!("there is no method {path}");
        Self::Trailers(Some(trailers(UNIMPLEMENTED, &message)))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Exchange(exchange) => Pin::new(&mut **exchange).poll_frame(context),
            Self::Trailers(trailers) => {
                Poll::Ready(trailers.take().map(|last| Ok(Frame::trailers(last))))
            }
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Nothing | Self::Trailers(None))
    }
}
