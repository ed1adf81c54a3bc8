//! The layer that limits requests by a key.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use redis_concurrent::Client;
use redis_concurrent::rate_limiter::{Decision, Rate};
use redis_concurrent_tokio::AsyncRateLimiter;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::problem::{problem, undecided};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Limits requests by a key that is taken from each: an address, a customer, a token. All servers on one Redis share
/// the count. Cheap to clone.
///
/// Each answer has the fields `RateLimit-Policy: "api";q=100;w=60` (100 requests in 60 s) and `RateLimit:
/// "api";r=99;t=1` (99 more now; all of them again in 1 s) of the draft *RateLimit header fields for HTTP*
/// (`draft-ietf-httpapi-ratelimit-headers-10`). Of several layers, each adds its own.
///
/// | answer | when |
/// | --- | --- |
/// | 429, with `Retry-After` in seconds | the limit is reached; the request was not counted, and the handler did not run |
/// | 503, with `Retry-After` | Redis does not answer, unless [such requests are allowed](RateLimitLayer::allow_when_unavailable) |
/// | 500 | the key is empty or longer than 1,024 bytes with the layer's name and a colon, or the limit is not valid |
///
/// The last two have the [`Error`](redis_concurrent::Error) as an extension of the response, for a layer outside of
/// this one to log: the client is not told more than that.
///
/// A request takes one round trip to Redis, and at most eight are on their way at once per process: see [the
/// threads](redis_concurrent_tokio#threads).
#[derive(Clone)]
pub struct RateLimitLayer(Arc<Limit>);

#[derive(Clone)]
struct Limit {
    client: Client,
    name: Arc<str>,
    /// Permits, and the window.
    limit: (u32, Duration),
    rate: Rate,
    key: Arc<Key>,
    is_open: bool,
    policy: HeaderValue,
}

type Key = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl RateLimitLayer {
    /// Admits `limit` requests per `window` and key, evenly, and at most `limit` at once
    /// ([`Rate::smooth`]). The limit of each key is named `name:key` in Redis, and `name` in the header fields. A request
    /// for which `key` returns `None` is not limited.
    ///
    /// An invalid limit is told by the answer to each request: see [`Rate`] for the values.
    pub fn new(
        client: &Client,
        name: &str,
        limit: u32,
        window: Duration,
        key: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        RateLimitLayer(Arc::new(Limit {
            client: client.clone(),
            name: name.into(),
            limit: (limit, window),
            rate: Rate::smooth(limit, window),
            key: Arc::new(key),
            is_open: false,
            policy: field(format!("{};q={limit};w={}", quoted(name), seconds(window))),
        }))
    }

    /// The same layer, which after a pause admits at most `burst` requests at once
    /// ([`Rate::smooth_with_burst`]).
    #[must_use]
    pub fn burst(&self, burst: u32) -> Self {
        let (limit, window) = self.0.limit;
        self.with(|it| it.rate = Rate::smooth_with_burst(limit, window, burst))
    }

    /// The same layer, whose count starts again from 0 when the window ends ([`Rate::fixed_window`]).
    #[must_use]
    pub fn fixed_window(&self) -> Self {
        let (limit, window) = self.0.limit;
        self.with(|it| it.rate = Rate::fixed_window(limit, window))
    }

    /// The same layer, which lets requests pass uncounted, and without the fields, while Redis does not answer. Each
    /// waits for that as long as the client's command timeout says.
    #[must_use]
    pub fn allow_when_unavailable(&self) -> Self {
        self.with(|it| it.is_open = true)
    }

    fn with(&self, change: impl FnOnce(&mut Limit)) -> Self {
        let mut limit = (*self.0).clone();
        change(&mut limit);
        RateLimitLayer(Arc::new(limit))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { limit: self.0.clone(), inner }
    }
}

/// The service of a [`RateLimitLayer`].
#[derive(Clone)]
pub struct RateLimit<S> {
    limit: Arc<Limit>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: HttpBody<Data = Bytes>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = self.limit.clone();
        // The one that is ready.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let decision = match (limit.key)(&parts) {
                None => None,
                Some(key) => match limit.decide(&key).await {
                    Ok(decision) if !decision.allowed => return Ok(limit.reject(&decision)),
                    Ok(decision) => Some(decision),
                    Err(error) if limit.is_open && (error.is_unavailable() || error.is_outcome_unknown()) => {
                        None
                    }
                    Err(error) => return Ok(undecided(error)),
                },
            };
            let mut response = inner.call(Request::from_parts(parts, body)).await?.map(Body::unread);
            if let Some(decision) = decision {
                limit.tell(&decision, response.headers_mut());
            }
            Ok(response)
        })
    }
}

impl Limit {
    async fn decide(&self, key: &str) -> Result<Decision, redis_concurrent::Error> {
        let limiter = self.client.rate_limiter(&format!("{}:{key}", self.name), self.rate);
        AsyncRateLimiter::new(limiter).try_acquire(1).await
    }

    fn reject<R>(&self, decision: &Decision) -> Response<Body<R>> {
        let again = seconds(decision.retry_after).max(1);
        let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "too many requests", Some(again));
        self.tell(decision, response.headers_mut());
        response
    }

    fn tell(&self, decision: &Decision, headers: &mut HeaderMap) {
        let (left, reset) = (decision.remaining, seconds(decision.reset_after));
        headers.append(POLICY, self.policy.clone());
        headers.append(LIMIT, field(format!("{};r={left};t={reset}", quoted(&self.name))));
    }
}

/// Whole seconds; rounded down, they would be too few.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A string of a structured field (RFC 9651), without what it cannot contain.
fn quoted(name: &str) -> String {
    let plain = name.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\'));
    format!("\"{}\"", plain.collect::<String>())
}

fn field(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("plain characters make a field")
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("name", &self.0.name).field("rate", &self.0.rate).finish()
    }
}

impl<S> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("name", &self.limit.name).finish_non_exhaustive()
    }
}
