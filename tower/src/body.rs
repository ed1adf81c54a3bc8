//! The body of a request or of an answer: what was read of it, and the rest.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

/// The body of each request that a layer of this crate passes on, and of each answer that it returns: an inner body
/// `B`, of which the layer may have read the beginning or all, or a short text of the layer's own.
pub struct Body<B> {
    read: Bytes,
    trailers: Option<HeaderMap>,
    rest: Option<Pin<Box<B>>>,
}

impl<B> Body<B> {
    /// A body of which nothing was read.
    pub(crate) fn unread(body: B) -> Self {
        Body { read: Bytes::new(), trailers: None, rest: Some(Box::pin(body)) }
    }

    /// A body without an inner one.
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Body { read: text.into(), trailers: None, rest: None }
    }

    /// What was read of it.
    pub(crate) fn as_read(&self) -> &[u8] {
        &self.read
    }
}

impl<B: HttpBody<Data = Bytes>> Body<B> {
    /// Reads the body; returns whether all of it is read: if not, it has more than `most` bytes.
    pub(crate) async fn read(&mut self, most: usize) -> Result<bool, B::Error> {
        // In one piece: a sender could choose tiny ones, each of which would take more memory than it has bytes.
        let mut read = BytesMut::new();
        while let Some(rest) = &mut self.rest {
            let expected = usize::try_from(rest.size_hint().lower()).unwrap_or(usize::MAX);
            if read.len().saturating_add(expected) > most {
                break;
            }
            match poll_fn(|cx| rest.as_mut().poll_frame(cx)).await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => read.extend_from_slice(&data),
                Some(Err(frame)) => self.trailers = frame.into_trailers().ok(),
                None => self.rest = None,
            }
        }
        self.read = read.freeze();
        Ok(self.rest.is_none())
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(rest.as_mut().poll_frame(cx));
        if frame.is_none() {
            self.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let read = self.read.len() as u64;
        if let Some(upper) = size.upper() {
            size.set_upper(upper.saturating_add(read));
        }
        size.set_lower(size.lower().saturating_add(read));
        size
    }
}

impl<B> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("read", &self.read.len()).finish_non_exhaustive()
    }
}
