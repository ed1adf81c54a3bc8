//! The layer that makes a handler idempotent.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use redis_concurrent::{CancellationToken, Client, Error, Once};
use redis_concurrent_tokio::{AsyncAttempt, AsyncBegun, AsyncOnce};
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{Kept, LONGEST, digest, fingerprint, is_final, record};
use crate::body::Body;
use crate::onward::{Answering, Onward, ready};
use crate::problem::{problem, undecided};

const KEY: &str = "idempotency-key";
/// The longest request by default.
const LONGEST_REQUEST: usize = 2 * 1024 * 1024;

/// Makes a handler idempotent by the field `Idempotency-Key` of its requests: the first request with a key runs the
/// handler, and those that repeat it, at any server on the same Redis, get the answer that is kept. It follows the
/// draft *The Idempotency-Key HTTP Header Field* (`draft-ietf-httpapi-idempotency-key-header-07`), and also takes a
/// key without quotes. Cheap to clone.
///
/// Requests without the field pass as if the layer were not there, unless it is
/// [required](IdempotencyLayer::required); so do `GET`, `HEAD`, `OPTIONS` and `TRACE`, which change nothing.
///
/// | answer | when |
/// | --- | --- |
/// | the one that is kept, with `Idempotent-Replayed: true` | the work is done |
/// | 409, with `Retry-After` | another request with this key is in progress |
/// | 422 | the key is that of a finished request with another method, path, query or body |
/// | 410 | the work is done, and its answer was too long to keep |
/// | 400 | the field is not valid, missing though required, or the request broke off |
/// | 413 | the request has more than 2 MiB, or [another limit][longest]: it is held in memory |
/// | 503, with `Retry-After` | Redis does not answer; the handler did not run |
/// | 500 | Redis holds something else under this key; [the time to keep][time] is not valid; the answer broke off |
///
/// In none of these cases but the last does the handler run. Where Redis is the reason, the response has the
/// [`Error`] as an extension, for a layer outside of this one to log: the client is not told more than that.
///
/// [longest]: IdempotencyLayer::longest_request
/// [time]: IdempotencyLayer::expire_after
///
/// # What is kept
///
/// An answer that ends the work: each status below 500 except 401, 408, 409, 425 and 429, after which a client is
/// expected to try again. After these, a status from 500, an error, and a panic, the attempt is given back: the next
/// request with the key runs the handler. Only a finished request has a fingerprint, so until then the key is not bound
/// to a method, path or body.
///
/// Kept are the status, the body, and the headers except `Set-Cookie`, `Date`, `RateLimit`, `RateLimit-Policy` and
/// those of the connection (`Content-Length` is computed again); no trailers. All of it together has at most 256 KiB,
/// in which each byte from 128 counts twice: an answer in JSON of a quarter of a mebibyte fits, and so does any one
/// of 120 KiB with usual headers. A longer answer goes to its client whole, and the work is kept as done without it:
/// repetitions are told so (410). An answer is read to its end, or to that limit, and kept, before it is sent: this
/// is not for streams of events.
///
/// It is kept for a day, or for as long as [`expire_after`](IdempotencyLayer::expire_after) says, in Redis alone:
/// then, or if Redis loses its data, the handler runs again.
///
/// # Attempts
///
/// The handler finds its [`Attempt`] among the extensions of its request. If its server dies, the key is in progress
/// until the attempt's lease ends ([`ClientBuilder::lease`](redis_concurrent::ClientBuilder::lease)); then the next
/// request runs the handler again, **under a higher token**. So the work is done once, unless a server dies, or loses
/// its attempt, between the effects of the work and the end of the handler: let what the handler changes [reject the
/// lower token](redis_concurrent::Fenced), or record there, in the same transaction, that the work is done. If the
/// attempt was lost, or Redis failed, by the time the handler answered, that answer still goes to the client, since
/// it says what happened, but it is not kept: the response has the [`Error`] as an extension.
///
/// A handler that has begun goes on if its client disconnects, or a timeout outside of this layer ends the wait: it
/// becomes a task of the runtime, and the client that asks again gets 409, and then its answer. (A timeout inside of
/// this layer ends the handler.) At the end of the program, a graceful shutdown of the server does not wait for such
/// tasks.
///
/// # Where it belongs
///
/// Inside of what authenticates and limits requests, outside of what changes bodies, such as compression. It sees the
/// path as its place in the router has it.
#[derive(Clone)]
pub struct IdempotencyLayer(Arc<Settings>);

#[derive(Clone)]
struct Settings {
    client: Client,
    name: Arc<str>,
    scope: Arc<Scope>,
    kept: Option<Duration>,
    longest: usize,
    is_required: bool,
}

type Scope = dyn Fn(&Parts) -> String + Send + Sync;

impl IdempotencyLayer {
    /// Creates the layer. Makes no request.
    ///
    /// `scope` says whose key it is, such as the id of the authenticated customer: clients choose their keys, and one
    /// that sends another's key and request would get the other's answer. If all clients may see each other's
    /// answers, it may return the same for all. In Redis, a key is the idempotency key named `name:` and a digest of
    /// scope and key: see [`once`](IdempotencyLayer::once).
    pub fn new(
        client: &Client,
        name: &str,
        scope: impl Fn(&Parts) -> String + Send + Sync + 'static,
    ) -> Self {
        IdempotencyLayer(Arc::new(Settings {
            client: client.clone(),
            name: name.into(),
            scope: Arc::new(scope),
            kept: None,
            longest: LONGEST_REQUEST,
            is_required: false,
        }))
    }

    /// The same layer, which rejects each `POST` and `PATCH` without an `Idempotency-Key` (400).
    #[must_use]
    pub fn required(&self) -> Self {
        self.with(|it| it.is_required = true)
    }

    /// The same layer, with answers that are kept for `time`: from 100 ms to a year. Another time is told by the
    /// answer to each request (500).
    #[must_use]
    pub fn expire_after(&self, time: Duration) -> Self {
        self.with(|it| it.kept = Some(time))
    }

    /// The same layer, for requests with a body of at most `bytes`, which is held in memory until the handler has it.
    #[must_use]
    pub fn longest_request(&self, bytes: usize) -> Self {
        self.with(|it| it.longest = bytes)
    }

    /// The work of a key, without its quotes, in a scope: to [forget](Once::forget) its answer, or to see whether it is
    /// [finished](Once::ending). Makes no request; the calls of the handle block their thread.
    pub fn once(&self, scope: &str, key: &str) -> Once {
        self.0.once(scope, key)
    }

    fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = (*self.0).clone();
        change(&mut settings);
        IdempotencyLayer(Arc::new(settings))
    }
}

impl Settings {
    fn once(&self, scope: &str, key: &str) -> Once {
        let digest = digest(&[scope.as_bytes(), key.as_bytes()]);
        let once = self.client.once(&format!("{}:{digest}", self.name));
        self.kept.map_or_else(|| once.clone(), |time| once.expire_after(time))
    }

    /// The key of a request that is to be idempotent, or what is wrong with it.
    fn key(&self, request: &Parts) -> Result<Option<String>, &'static str> {
        if request.method.is_safe() {
            return Ok(None);
        }
        let key = key(&request.headers)?;
        if key.is_none() && self.is_required && [Method::POST, Method::PATCH].contains(&request.method) {
            return Err("the field Idempotency-Key is missing");
        }
        Ok(key)
    }
}

/// The key in the headers: a string of a structured field (RFC 9651), or the same characters without its quotes.
fn key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bad = "the field Idempotency-Key is not one string";
    let text = value.to_str().ok().filter(|_| values.next().is_none()).ok_or(bad)?.trim();
    let key = match text.strip_prefix('"') {
        None => Some(text.to_owned()).filter(|it| !it.contains('"')),
        Some(quoted) => quoted.strip_suffix('"').and_then(unescaped),
    };
    key.filter(|it| !it.is_empty()).map(Some).ok_or(bad)
}

/// What is between the quotes, without backslashes that stand before a quote or a backslash.
fn unescaped(quoted: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::new(), quoted.chars());
    while let Some(c) = rest.next() {
        plain.push(match c {
            '\\' => rest.next().filter(|c| matches!(c, '"' | '\\'))?,
            '"' => return None,
            c => c,
        });
    }
    Some(plain)
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency { settings: self.0.clone(), inner }
    }
}

/// The attempt of a handler to do the work of its key: an extension of its request.
#[derive(Clone, Debug)]
pub struct Attempt {
    token: u64,
    lost: CancellationToken,
}

impl Attempt {
    /// The fencing token: greater than that of every earlier attempt with this key, at any server.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// A token that is cancelled when the attempt is lost: another request may then run the handler.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotency<S> {
    settings: Arc<Settings>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Send,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Answering<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (settings, mut inner) = (self.settings.clone(), ready(&mut self.inner));
        Box::pin(async move {
            match settings.begin(request).await {
                Begun::Unkeyed(request) => Ok(inner.call(request).await?.map(Body::unread)),
                Begun::Yours(request, attempt, fingerprint) => {
                    Onward::new(finish(inner.call(request), attempt, fingerprint)).await
                }
                Begun::Answered(response) => Ok(response),
            }
        })
    }
}

/// What becomes of a request.
enum Begun<B, R> {
    /// It passes.
    Unkeyed(Request<Body<B>>),
    /// It passes, as an attempt, with its fingerprint.
    Yours(Request<Body<B>>, AsyncAttempt, String),
    Answered(Response<Body<R>>),
}

impl Settings {
    async fn begin<B: HttpBody<Data = Bytes>, R>(&self, request: Request<B>) -> Begun<B, R> {
        let (mut parts, body) = request.into_parts();
        let mut body = Body::unread(body);
        let refused = |status, why| Begun::Answered(problem(status, why, None));
        let key = match self.key(&parts) {
            Ok(Some(key)) => key,
            Ok(None) => return Begun::Unkeyed(Request::from_parts(parts, body)),
            Err(why) => return refused(StatusCode::BAD_REQUEST, why),
        };
        match body.read(self.longest).await {
            Ok(true) => {}
            Ok(false) => {
                return refused(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the request is too long for an Idempotency-Key",
                );
            }
            Err(_) => return refused(StatusCode::BAD_REQUEST, "the request broke off"),
        }
        let fingerprint = fingerprint(&parts, body.as_read());
        let once = AsyncOnce::new(self.once(&(self.scope)(&parts), &key));
        let attempt = match once.try_begin().await {
            Ok(AsyncBegun::Yours(attempt)) => attempt,
            Ok(AsyncBegun::InProgress) => {
                let what = "a request with this Idempotency-Key is in progress";
                return Begun::Answered(problem(StatusCode::CONFLICT, what, Some(1)));
            }
            Ok(AsyncBegun::Done(record)) => {
                return Begun::Answered(repeat(Kept::read(&record), &fingerprint));
            }
            Ok(_) => return Begun::Answered(repeat(None, &fingerprint)),
            Err(error) => return Begun::Answered(undecided(error)),
        };
        parts.extensions.insert(Attempt { token: attempt.token(), lost: attempt.lost() });
        Begun::Yours(Request::from_parts(parts, body), attempt, fingerprint)
    }
}

/// The answer to the repetition of a finished request.
fn repeat<R>(kept: Option<Kept>, fingerprint: &str) -> Response<Body<R>> {
    let (status, what) = match kept {
        Some(kept) if kept.fingerprint != fingerprint => {
            (StatusCode::UNPROCESSABLE_ENTITY, "this Idempotency-Key was used for another request")
        }
        Some(Kept { answer: Some(answer), .. }) => {
            let mut answer = answer.map(Body::text);
            answer.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
            return answer;
        }
        Some(_) => (StatusCode::GONE, "the request is done; its answer was too long to keep"),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "what is kept for this Idempotency-Key cannot be read"),
    };
    problem(status, what, None)
}

/// Waits for the answer of the handler, and ends the attempt as it says.
async fn finish<R: HttpBody<Data = Bytes>, E>(
    handler: impl Future<Output = Result<Response<R>, E>>,
    attempt: AsyncAttempt,
    fingerprint: String,
) -> Result<Response<Body<R>>, E> {
    let (mut head, mut body) = match handler.await {
        Ok(response) => response.map(Body::unread).into_parts(),
        Err(error) => {
            // An error is reported to the observer, and the lease ends by itself.
            let _ = attempt.give_back().await;
            return Err(error);
        }
    };
    let ended: Result<(), Error> = if is_final(head.status) {
        match body.read(LONGEST).await {
            Ok(whole) => attempt.done(&record(&fingerprint, &head, whole.then(|| body.as_read()))).await,
            Err(_) => {
                let broken = problem(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off", None);
                (head, body) = broken.into_parts();
                attempt.give_back().await
            }
        }
    } else {
        attempt.give_back().await
    };
    if let Err(error) = ended {
        head.extensions.insert(error);
    }
    Ok(Response::from_parts(head, body))
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("name", &self.settings.name).finish_non_exhaustive()
    }
}
