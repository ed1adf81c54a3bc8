//! Handlers that are idempotent by the key of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Extension, Router, middleware};
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, wait_until};
use redis_concurrent_tower::{Attempt, IdempotencyLayer};
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

use crate::web::{Answer, LONG, Web, ask, hear, send, send_raw};

const KEY: (&str, &str) = ("idempotency-key", "\"8f3a\"");

fn customer(request: &Parts) -> String {
    request.headers.get("customer").map_or_else(String::new, |it| it.to_str().unwrap().to_owned())
}

fn layer(redis: &RedisServer) -> IdempotencyLayer {
    IdempotencyLayer::new(&Client::connect(&redis.url()).unwrap(), "charge", customer)
}

/// How often a handler has run, and the token of its last attempt.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>, Arc<AtomicU64>);

impl Runs {
    /// Counts a run, which must be under a higher token than the last one.
    fn add(&self, attempt: &Attempt) -> usize {
        assert!(self.1.swap(attempt.token(), Ordering::SeqCst) < attempt.token());
        1 + self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Has the kind of the error that the response carries as a header, as a server's own log would.
async fn with_kind(mut response: Response) -> Response {
    if let Some(error) = response.extensions().get::<Error>() {
        let kind = format!("{:?}", error.kind()).parse().unwrap();
        response.headers_mut().insert("kind", kind);
    }
    response
}

fn serve(router: Router, layer: &IdempotencyLayer) -> Web {
    Web::start(router.layer(layer.clone()).layer(middleware::map_response(with_kind)))
}

/// Answers as the request's header `wants` says: a status.
async fn as_wanted(runs: Runs, attempt: Attempt, headers: HeaderMap) -> Response {
    let n = runs.add(&attempt);
    let wants = headers.get("wants").map_or("201", |it| it.to_str().unwrap());
    (wants.parse::<StatusCode>().unwrap(), format!("run {n}")).into_response()
}

fn awaited(runs: &Runs) -> Router {
    let runs = runs.clone();
    let handler = |Extension(attempt), headers| as_wanted(runs, attempt, headers);
    Router::new().fallback(any(handler))
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed").is_some_and(|it| it == "true")
}

#[test]
fn a_repetition_gets_the_kept_answer_at_any_server() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let bytes = || (0..=u8::MAX).cycle().take(2000).collect::<Vec<_>>();
    let router = || {
        let runs = runs.clone();
        let handler = async move |Extension(attempt): Extension<Attempt>, body: Bytes| {
            assert_eq!(body, "a lamp");
            let n = runs.add(&attempt).to_string();
            let headers = [
                ("x-run", &*n),
                ("set-cookie", "a=b"),
                ("x-two", "1"),
                ("content-type", "a/b"),
                ("x-empty", ""),
            ];
            let mut response = (StatusCode::CREATED, headers, bytes()).into_response();
            response.headers_mut().append("x-two", "2".parse().unwrap());
            response
        };
        Router::new().route("/charges", post(handler))
    };
    let (one, other) = (serve(router(), &layer(&redis)), serve(router(), &layer(&redis)));
    let charge =
        |web: &Web, key| ask(web.address, "POST /charges?x=1", &[("idempotency-key", key)], b"a lamp");

    let first = charge(&one, "\"8f3a\"");
    assert_eq!((first.status, first.body.clone(), first.header("x-run")), (201, bytes(), Some("1")));
    assert_eq!((replayed(&first), first.header("set-cookie")), (false, Some("a=b")));
    // With quotes or without.
    for again in [charge(&one, "\"8f3a\""), charge(&other, "8f3a")] {
        assert_eq!((again.status, &again.body, again.header("x-run")), (201, &first.body, Some("1")));
        assert_eq!((replayed(&again), again.header("set-cookie")), (true, None));
        assert_eq!(again.headers("x-two").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(
            (again.header("content-type"), again.header("content-length")),
            (Some("a/b"), Some("2000"))
        );
        assert!(again.header("x-empty").is_some() && again.header("date").is_some());
    }
    assert_eq!(charge(&other, "\"8f3b\"").header("x-run"), Some("2"));
}

#[test]
fn a_key_that_is_used_for_another_request_is_refused() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let web = serve(awaited(&runs), &layer(&redis));
    let charge = |line, customer, body: &[u8]| ask(web.address, line, &[KEY, ("customer", customer)], body);
    assert_eq!(charge("POST /charges?x=1", "ann", b"a lamp").status, 201);
    let others = [
        ("PUT /charges?x=1", "a lamp"),
        ("POST /charge?x=1", "a lamp"),
        ("POST /charges?x=2", "a lamp"),
        ("POST /charges?x=1", "a lamb"),
    ];
    for (line, body) in others {
        let refused = charge(line, "ann", body.as_bytes());
        assert_eq!((refused.status, refused.header("content-type")), (422, Some("application/problem+json")));
    }
    assert_eq!(runs.count(), 1);
    // Another customer's key is another one.
    let other = charge("POST /charges?x=1", "bob", b"a lamp");
    assert_eq!((other.status, &*other.body, replayed(&other)), (201, &b"run 2"[..], false));
    assert!(replayed(&charge("POST /charges?x=1", "ann", b"a lamp")));
}

#[test]
fn requests_without_a_key_pass_unless_it_is_required() {
    let redis = RedisServer::start().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let router = || {
        let runs = runs.clone();
        let handler = async move |attempt: Option<Extension<Attempt>>, body: Bytes| {
            runs.fetch_add(1, Ordering::SeqCst);
            (StatusCode::ACCEPTED, format!("{} {}", attempt.is_some(), body.len()))
        };
        Router::new().fallback(any(handler))
    };
    let layer = layer(&redis);
    let (free, strict) = (serve(router(), &layer), serve(router(), &layer.required()));
    let long = vec![b'x'; 100_000];
    for (web, line, key) in [
        (&free, "POST /", None),
        (&free, "GET /", Some(KEY)),
        (&strict, "GET /", Some(KEY)),
        (&strict, "PUT /", None),
        (&strict, "DELETE /", None),
    ] {
        for _ in 0..2 {
            let before = runs.load(Ordering::SeqCst);
            let answer = ask(web.address, line, key.as_slice(), &long);
            assert_eq!((answer.status, &*answer.body), (202, &b"false 100000"[..]), "{line}");
            assert_eq!(runs.load(Ordering::SeqCst), before + 1);
        }
    }
    let before = runs.load(Ordering::SeqCst);
    assert_eq!(ask(strict.address, "POST /", &[], b"").status, 400);
    assert_eq!(ask(strict.address, "PATCH /", &[], b"").status, 400);
    for bad in ["", "\"\"", "\"a", "a\"b", "\"a\"b\"", "\"a\\b\"", "\"a\";x=1", "\u{e9}"] {
        let answer = ask(free.address, "POST /", &[("idempotency-key", bad)], b"");
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (400, Some("application/problem+json")),
            "{bad}"
        );
    }
    assert_eq!(ask(free.address, "POST /", &[KEY, KEY], b"").status, 400);
    assert_eq!(runs.load(Ordering::SeqCst), before);
    // The same key in both forms.
    assert_eq!(
        &*ask(strict.address, "PUT /", &[("idempotency-key", "\"a\\\"\\\\ b\"")], b"").body,
        b"true 0"
    );
    assert!(layer.once("", "a\"\\ b").ending().unwrap().is_some());
}

#[test]
fn while_a_request_is_in_progress_its_repetition_is_told_to_wait() {
    let redis = RedisServer::start().unwrap();
    let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let router = Router::new().route("/", {
        let (runs, gate) = (runs.clone(), gate.clone());
        post(async move |Extension(attempt): Extension<Attempt>| {
            let n = runs.add(&attempt);
            drop(gate.acquire().await);
            n.to_string()
        })
    });
    let ended = Arc::new(());
    let waits = ended.clone();
    let outside = middleware::from_fn(move |request: Request, next: middleware::Next| {
        let waits = waits.clone();
        async move { (next.run(request).await, waits).0 }
    });
    let web = Web::start(router.layer(layer(&redis)).layer(outside));
    let idle = Arc::strong_count(&ended);
    let first = send(web.address, "POST /", &[KEY], b"").unwrap();
    wait_until(LONG, "the handler runs", || runs.count() == 1);
    let again = ask(web.address, "POST /", &[KEY], b"");
    assert_eq!((again.status, again.header("retry-after")), (409, Some("1")));
    // A client that gives up does not end the handler.
    drop(first);
    wait_until(LONG, "the server has noticed", || Arc::strong_count(&ended) == idle);
    let held = send(web.address, "POST /", &[("idempotency-key", "other")], b"").unwrap();
    wait_until(LONG, "the other handler runs", || runs.count() == 2);
    assert_eq!(ask(web.address, "POST /", &[KEY], b"").status, 409);
    gate.add_permits(2);
    assert_eq!(hear(held).unwrap().status, 200);
    let mut last = None;
    wait_until(LONG, "the handler whose client has gone ends", || {
        let answer = ask(web.address, "POST /", &[KEY], b"");
        let ended = answer.status == 200;
        last = Some(answer);
        ended
    });
    let last = last.unwrap();
    assert_eq!((replayed(&last), &*last.body, runs.count()), (true, &b"1"[..], 2));
}

#[test]
fn failed_work_is_done_again_and_done_work_is_not() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let web = serve(awaited(&runs), &layer(&redis));
    let charge = |key, wants: &str| {
        ask(web.address, "POST /", &[("idempotency-key", key), ("wants", wants)], b"a lamp")
    };
    for passing in ["500", "503", "401", "408", "409", "425", "429"] {
        let before = runs.count();
        assert_eq!(charge("tries", passing).status.to_string(), passing);
        assert_eq!(runs.count(), before + 1);
    }
    let done = charge("tries", "201");
    assert_eq!((done.status, &*done.body), (201, &b"run 8"[..]));
    assert_eq!((charge("tries", "500").body, runs.count()), (done.body, 8));
    for lasting in ["200", "303", "400", "403", "404", "422"] {
        let first = charge(lasting, lasting);
        let again = charge(lasting, lasting);
        assert_eq!((again.status, &again.body, replayed(&again)), (first.status, &first.body, true));
    }
    assert_eq!(runs.count(), 14);
}

#[test]
fn an_answer_is_kept_as_long_as_was_asked() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let layer = layer(&redis);
    let short = serve(awaited(&runs), &layer.expire_after(Duration::from_millis(100)));
    ask(short.address, "POST /", &[KEY], b"");
    wait_until(LONG, "it expires", || layer.once("", "8f3a").ending().unwrap().is_none());
    assert!(!replayed(&ask(short.address, "POST /", &[KEY], b"")));
    let wrong = serve(awaited(&runs), &layer.expire_after(Duration::ZERO));
    let answer = ask(wrong.address, "POST /", &[("idempotency-key", "other")], b"");
    assert_eq!((answer.status, answer.header("kind"), runs.count()), (500, Some("InvalidInput"), 2));
}

#[test]
fn what_is_too_long_is_refused_or_not_kept() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let router = Router::new().route("/", {
        let runs = runs.clone();
        post(async move |Extension(attempt): Extension<Attempt>, body: String| {
            runs.add(&attempt);
            vec![b'x'; body.parse().unwrap()]
        })
    });
    let web = serve(router, &layer(&redis).longest_request(6));
    let charge = |key, body| ask(web.address, "POST /", &[("idempotency-key", key)], body);
    assert_eq!(charge("a", b"0250000").status, 413);
    // Of an unknown length: in chunks.
    let chunked = [("idempotency-key", "a"), ("transfer-encoding", "chunked")];
    let body = b"4\r\n0250\r\n3\r\n000\r\n0\r\n\r\n";
    assert_eq!(send_raw(web.address, "POST /", &chunked, body).and_then(hear).unwrap().status, 413);
    assert_eq!(runs.count(), 0);

    let first = charge("a", b"250000");
    assert_eq!((first.status, first.body.len()), (200, 250_000));
    let again = charge("a", b"250000");
    assert_eq!((again.status, again.body.len(), replayed(&again), runs.count()), (200, 250_000, true, 1));

    // The longest record is shorter than this with its headers; the other is longer than what is read.
    for (key, length) in [("b", &b"262144"[..]), ("c", b"999999")] {
        let before = runs.count();
        let long = charge(key, length);
        assert_eq!((long.status, long.body.len().to_string().as_bytes()), (200, length));
        assert_eq!(long.header("content-length").map(str::as_bytes), Some(length));
        let again = charge(key, length);
        assert_eq!((again.status, again.header("content-type")), (410, Some("application/problem+json")));
        assert_eq!(charge(key, b"1").status, 422);
        assert_eq!(runs.count(), before + 1);
    }
}

#[test]
fn without_redis_no_handler_runs() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let command = Duration::from_millis(300);
    let connect = || Client::builder().url(&proxy.url()).command_timeout(command).connect();
    // On a busy machine connecting may time out, and is then repeated.
    let client = eventually(LONG, || connect().ok());
    let runs = Runs::default();
    let web = serve(awaited(&runs), &IdempotencyLayer::new(&client, "charge", customer));
    proxy.black_hole(true);
    let silent = ask(web.address, "POST /", &[KEY], b"");
    assert_eq!((silent.status, silent.header("retry-after")), (503, Some("1")));
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    let gone = ask(web.address, "POST /", &[KEY], b"");
    assert_eq!((gone.status, gone.header("kind").is_some(), runs.count()), (503, true, 0));
    assert!(!String::from_utf8_lossy(&gone.body).contains("127.0.0.1"), "{gone:?}");
    proxy.heal().unwrap();
    wait_until(LONG, "it is there again", || ask(web.address, "POST /", &[KEY], b"").status == 201);
    assert_eq!(runs.count(), 1);
}

#[test]
fn a_lost_attempt_is_told_to_its_handler_and_its_answer_is_not_kept() {
    let redis = RedisServer::start().unwrap();
    let client = Client::builder().url(&redis.url()).lease(Duration::from_secs(3)).connect().unwrap();
    let runs = Runs::default();
    let router = Router::new().route("/", {
        let runs = runs.clone();
        post(async move |Extension(attempt): Extension<Attempt>| {
            if runs.add(&attempt) == 1 {
                attempt.lost().cancelled().await;
            }
            "done"
        })
    });
    let web = serve(router, &IdempotencyLayer::new(&client, "charge", customer));
    let first = send(web.address, "POST /", &[KEY], b"").unwrap();
    wait_until(LONG, "the handler runs", || runs.count() == 1);
    redis.flush_all().unwrap();
    let first = hear(first).unwrap();
    assert_eq!((first.status, first.header("kind")), (200, Some("LeaseLost")));
    // The token is higher although Redis has lost its data.
    let again = ask(web.address, "POST /", &[KEY], b"");
    assert_eq!((again.status, replayed(&again), again.header("kind"), runs.count()), (200, false, None, 2));
}

#[test]
fn what_is_not_an_answer_is_not_replayed() {
    let redis = RedisServer::start().unwrap();
    let (layer, runs) = (layer(&redis), Runs::default());
    let web = serve(awaited(&runs), &layer);
    for (key, record) in
        [("a", ""), ("b", "2 ff 200\n\n"), ("c", "1 ff 99\n\n"), ("d", "1 ff 200\nx\n\n"), ("e", "\u{20ac}")]
    {
        layer.once("", key).run(|_| Ok(record.to_owned())).unwrap();
        assert_eq!(ask(web.address, "POST /", &[("idempotency-key", key)], b"").status, 500, "{key}");
    }
    layer.once("", "f").run(|_| Err("by hand".to_owned())).unwrap();
    assert_eq!(ask(web.address, "POST /", &[("idempotency-key", "f")], b"").status, 500);
    assert_eq!(runs.count(), 0);
}

/// A body that ends in an error.
struct Broken;

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("broken"))))
    }
}

#[test]
fn after_a_panic_and_a_broken_answer_the_work_is_done_again() {
    let redis = RedisServer::start().unwrap();
    let runs = Runs::default();
    let router = Router::new().route("/", {
        let runs = runs.clone();
        post(async move |Extension(attempt): Extension<Attempt>| match runs.add(&attempt) {
            1 => Body::new(Broken),
            2 => {
                tokio::task::yield_now().await;
                std::panic::resume_unwind(Box::new("as wanted"))
            }
            n => Body::from(n.to_string()),
        })
    });
    let web = serve(router, &layer(&redis));
    assert_eq!(ask(web.address, "POST /", &[KEY], b"").status, 500);
    // The server closes the connection.
    assert!(send(web.address, "POST /", &[KEY], b"").and_then(hear).is_err());
    let mut last = None;
    // The attempt is given back in the background.
    wait_until(LONG, "the attempt is given back", || {
        last = Some(ask(web.address, "POST /", &[KEY], b"")).filter(|it| it.status != 409);
        last.is_some()
    });
    assert_eq!(&*last.unwrap().body, b"3");
}

/// A service that fails at first, and whose clones share their state.
#[derive(Clone, Default)]
struct Failing(Runs);

impl<B: Send + 'static> Service<axum::http::Request<B>> for Failing {
    type Response = axum::http::Response<Body>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let n = self.0.add(request.extensions().get().unwrap());
        Box::pin(async move { if n == 1 { Err("failed") } else { Ok(Response::new(Body::from("done"))) } })
    }
}

#[test]
fn an_error_of_the_service_gives_the_attempt_back_and_is_passed_on() {
    let redis = RedisServer::start().unwrap();
    let failing = Failing::default();
    let mut service = layer(&redis).layer(failing.clone());
    let mut call = || {
        let request = Request::post("/").header(KEY.0, KEY.1).body(Body::empty()).unwrap();
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(service.call(request))
    };
    assert_eq!(call().unwrap_err(), "failed");
    assert_eq!(call().unwrap().status(), 200);
    assert!(call().unwrap().headers().contains_key("idempotent-replayed"));
    assert_eq!(failing.0.count(), 2);
}
