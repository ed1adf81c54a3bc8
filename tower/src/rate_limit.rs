//! The layer that limits requests by a key.

use std::fmt;
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
use crate::onward::{Answering, ready};
use crate::problem::{problem, undecided};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Limits requests by a key that is taken from each: an address, a customer, a token. All servers on one Redis share
/// the count. Cheap to clone.
///
/// Each answer has the fields `RateLimit-Policy: "api";q=100;w=60` (100 requests in 60 s) and `RateLimit:
/// "api";r=99;t=1` (for 1 s no more than 99; then there may be more) of the draft *RateLimit header fields for
/// HTTP* (`draft-ietf-httpapi-ratelimit-headers-11`). Of several layers, each adds its own. A part of a second
/// counts as a whole one in all fields, as they have none.
///
/// | answer | when |
/// | --- | --- |
/// | 429, with `Retry-After` in seconds | the limit is reached; nothing was counted, and the handler did not run |
/// | 503, with `Retry-After` | Redis does not answer, unless [such requests are allowed][allowed] |
/// | 500 | the key is empty or, with the layer's name and a colon, over 1,024 bytes; or the limit is not valid |
///
/// The last two have the [`Error`](redis_concurrent::Error) as an extension of the response, for a layer outside of
/// this one to log: the client is not told more than that.
///
/// A request takes one round trip to Redis, and at most eight are on their way at once per process: see [the
/// threads](redis_concurrent_tokio#threads).
///
/// [allowed]: RateLimitLayer::allow_when_unavailable
#[derive(Clone)]
pub struct RateLimitLayer(Arc<Limit>);

#[derive(Clone)]
struct Limit {
    client: Client,
    name: Arc<str>,
    limit: u32,
    window: Duration,
    /// How many at once; `None`: the window is fixed.
    burst: Option<u32>,
    key: Arc<Key>,
    is_open: bool,
    policy: HeaderValue,
}

type Key = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl RateLimitLayer {
    /// Admits `limit` requests per `window` and key, evenly, and at most `limit` at once
    /// ([`Rate::smooth`]). The limit of each key is named `name:key` in Redis, and `name` in the header fields.
    /// A request for which `key` returns `None` is not limited.
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
            limit,
            window,
            burst: Some(limit),
            key: Arc::new(key),
            is_open: false,
            policy: field(format!("{};q={limit};w={}", quoted(name), seconds(window))),
        }))
    }

    /// The same layer, which after a pause admits at most `burst` requests at once
    /// ([`Rate::smooth_with_burst`]).
    #[must_use]
    pub fn burst(&self, burst: u32) -> Self {
        self.with(|it| it.burst = Some(burst))
    }

    /// The same layer, whose count starts again from 0 when the window ends ([`Rate::fixed_window`]).
    #[must_use]
    pub fn fixed_window(&self) -> Self {
        self.with(|it| it.burst = None)
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
    type Future = Answering<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (limit, mut inner) = (self.limit.clone(), ready(&mut self.inner));
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
    fn rate(&self) -> Rate {
        let smooth = |burst| Rate::smooth_with_burst(self.limit, self.window, burst);
        self.burst.map_or_else(|| Rate::fixed_window(self.limit, self.window), smooth)
    }

    async fn decide(&self, key: &str) -> Result<Decision, redis_concurrent::Error> {
        let limiter = self.client.rate_limiter(&format!("{}:{key}", self.name), self.rate());
        AsyncRateLimiter::new(limiter).try_acquire(1).await
    }

    fn reject<R>(&self, decision: &Decision) -> Response<Body<R>> {
        let again = seconds(decision.retry_after).max(1);
        let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "too many requests", Some(again));
        self.tell(decision, response.headers_mut());
        response
    }

    fn tell(&self, decision: &Decision, headers: &mut HeaderMap) {
        let (left, window) = (decision.remaining, seconds(self.effective_window(decision)));
        headers.append(POLICY, self.policy.clone());
        headers.append(LIMIT, field(format!("{};r={left};t={window}", quoted(&self.name))));
    }

    /// For how long no more than what remains is admitted: until the window ends, or the next permit is free.
    fn effective_window(&self, decision: &Decision) -> Duration {
        let Some(burst) = self.burst.filter(|_| decision.allowed) else {
            return if decision.allowed { decision.reset_after } else { decision.retry_after };
        };
        // By then the others that are used are free, too.
        let others = u128::from(burst.saturating_sub(decision.remaining).saturating_sub(1));
        let later = self.window.as_micros() * others / u128::from(self.limit.max(1));
        let later = Duration::from_micros(u64::try_from(later).unwrap_or(u64::MAX));
        decision.reset_after.saturating_sub(later)
    }
}

/// Whole seconds; rounded down, they would be too few.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A string of a structured field (RFC 9651), without what it cannot contain.
fn quoted(name: &str) -> String {
    let plain: String = name.chars().filter(|c| matches!(c, ' '..='~')).collect();
    format!("\"{}\"", plain.replace('\\', r"\\").replace('"', "\\\""))
}

fn field(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("plain characters make a field")
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("name", &self.0.name).field("rate", &self.0.rate()).finish()
    }
}

impl<S> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("name", &self.limit.name).finish_non_exhaustive()
    }
}
