//! What both layers do with the service within, and work that goes on when nobody waits for it any more.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use tokio::runtime::Handle;

use crate::body::Body;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The future of a layer's service.
pub(crate) type Answering<R, E> = Work<Result<Response<Body<R>>, E>>;

/// Takes the service that is ready; the one in its place has to get ready.
pub(crate) fn ready<S: Clone>(service: &mut S) -> S {
    let next = service.clone();
    mem::replace(service, next)
}

/// A future that, dropped before its end, goes on as a task of the runtime; outside of a runtime it ends. `None`
/// at its end, and while it is polled: if it panics, that is what drops it.
pub(crate) struct Onward<T: Send + 'static>(Option<Work<T>>);

impl<T: Send + 'static> Onward<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Onward(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Onward<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Onward<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}
