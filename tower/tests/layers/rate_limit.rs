//! Requests that are limited by a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually};
use redis_concurrent_tower::RateLimitLayer;

use crate::web::{Answer, LONG, Web, ask};

const HOUR: Duration = Duration::from_secs(3600);

fn customer(request: &axum::http::request::Parts) -> Option<String> {
    Some(request.headers.get("customer")?.to_str().ok()?.to_owned())
}

/// A server that counts the runs of its handler.
fn limited(layers: &[RateLimitLayer]) -> (Web, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let handler = move || async move { counted.fetch_add(1, Ordering::SeqCst).to_string() };
    let router = Router::new().route("/", get(handler));
    let router = layers.iter().fold(router, |router, layer| router.layer(layer.clone()));
    (Web::start(router), runs)
}

fn visit(web: &Web, customer: &str) -> Answer {
    ask(web.address, "GET /", &[("customer", customer)], b"")
}

/// The parameters `r` and `t` of the field of the policy "api".
fn left(answer: &Answer) -> (u64, u64) {
    let field = answer.header("ratelimit").unwrap().strip_prefix("\"api\";r=").unwrap();
    let (left, window) = field.split_once(";t=").unwrap();
    (left.parse().unwrap(), window.parse().unwrap())
}

#[test]
fn each_key_has_its_limit_over_all_servers() {
    let redis = RedisServer::start().unwrap();
    let server = || {
        let client = Client::connect(&redis.url()).unwrap();
        limited(&[RateLimitLayer::new(&client, "api", 2, HOUR, customer).fixed_window()])
    };
    let ((one, runs), (other, more)) = (server(), server());

    let first = visit(&one, "ann");
    assert_eq!((first.status, left(&first).0), (200, 1));
    assert_eq!(first.header("ratelimit-policy"), Some("\"api\";q=2;w=3600"));
    assert_eq!(first.header("retry-after"), None);
    let second = visit(&other, "ann");
    assert_eq!((second.status, left(&second).0), (200, 0));
    let third = visit(&one, "ann");
    assert_eq!((third.status, left(&third).0), (429, 0));
    assert_eq!(third.header("ratelimit-policy"), Some("\"api\";q=2;w=3600"));
    assert_eq!(third.header("content-type"), Some("application/problem+json"));
    let problem = r#"{"title":"Too Many Requests","status":429,"detail":"too many requests"}"#;
    assert_eq!(String::from_utf8_lossy(&third.body).trim_end(), problem);
    // A window began with the first request: its end is the same for both fields, but for what is rounded.
    let again: u64 = third.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&again) && left(&third).1 == again, "{third:?}");

    assert_eq!((visit(&one, "bob").status, runs.load(Ordering::SeqCst)), (200, 2));
    assert_eq!(more.load(Ordering::SeqCst), 1);
    // Without a key, without a limit.
    let answer = ask(one.address, "GET /", &[], b"");
    assert_eq!(
        (answer.status, answer.header("ratelimit"), answer.header("ratelimit-policy")),
        (200, None, None)
    );
}

/// `t` is for how long the client can use no more than `r`, and `Retry-After` does not end before that.
#[test]
fn the_fields_do_not_contradict_each_other() {
    let redis = RedisServer::start().unwrap();
    let client = Client::connect(&redis.url()).unwrap();
    let (web, _) = limited(&[RateLimitLayer::new(&client, "api", 3, HOUR, customer)]);
    // The next permit is free twenty minutes after the first was used.
    for n in [2, 1, 0] {
        let (left, window) = left(&visit(&web, "ann"));
        assert!(left == n && (600..=1200).contains(&window), "{left} for {window} s");
    }
    let rejected = visit(&web, "ann");
    let (left, window) = left(&rejected);
    assert!(rejected.status == 429 && left == 0 && (600..=1200).contains(&window), "{rejected:?}");
    assert_eq!(rejected.header("retry-after"), Some(&*window.to_string()));
}

#[test]
fn after_the_time_that_a_rejected_client_is_told_it_is_admitted() {
    let redis = RedisServer::start().unwrap();
    let client = Client::connect(&redis.url()).unwrap();
    let layer = RateLimitLayer::new(&client, "api", 60, Duration::from_secs(60), customer).burst(1);
    let (web, _) = limited(&[layer]);
    assert_eq!(visit(&web, "ann").status, 200);
    let rejected = std::iter::repeat_with(|| visit(&web, "ann")).find(|it| it.status == 429).unwrap();
    assert_eq!((rejected.header("retry-after"), left(&rejected)), (Some("1"), (0, 1)));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(visit(&web, "ann").status, 200);
}

#[test]
fn each_of_several_layers_adds_its_fields() {
    let redis = RedisServer::start().unwrap();
    let client = Client::connect(&redis.url()).unwrap();
    let layer = |name, limit| RateLimitLayer::new(&client, name, limit, HOUR, customer).fixed_window();
    let (web, runs) = limited(&[layer("a\"p\\i\u{e9}", 3), layer("all", 1)]);
    let answer = visit(&web, "ann");
    let policies: Vec<_> = answer.headers("ratelimit-policy").collect();
    assert_eq!(policies, [r#""a\"p\\i";q=3;w=3600"#, r#""all";q=1;w=3600"#]);
    assert_eq!(answer.headers("ratelimit").count(), 2);
    // The outer one rejects, and the inner one does not count it.
    assert_eq!((visit(&web, "ann").status, runs.load(Ordering::SeqCst)), (429, 1));
    assert_eq!(
        client
            .rate_limiter("a\"p\\i\u{e9}:ann", redis_concurrent::rate_limiter::Rate::fixed_window(3, HOUR))
            .available()
            .unwrap(),
        2
    );
}

/// Has the kind of the error that the response carries as a field, as a server's own log would.
async fn with_kind(mut response: axum::response::Response) -> axum::response::Response {
    if let Some(error) = response.extensions().get::<Error>() {
        let kind = format!("{:?}", error.kind()).parse().unwrap();
        response.headers_mut().insert("kind", kind);
    }
    response
}

#[test]
fn without_redis_requests_are_rejected_or_pass_as_was_chosen() {
    let redis = RedisServer::start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let command = Duration::from_millis(300);
    let connect = || Client::builder().url(&proxy.url()).command_timeout(command).connect();
    // On a busy machine connecting may time out, and is then repeated.
    let client = eventually(LONG, || connect().ok());
    let strict = RateLimitLayer::new(&client, "api", 100, HOUR, customer);
    let (open, passed) = limited(&[strict.allow_when_unavailable()]);
    let (strict, runs) = limited(&[strict]);
    proxy.black_hole(true);
    let answer = visit(&strict, "ann");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!((visit(&open, "ann").status, passed.load(Ordering::SeqCst)), (200, 1));
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    assert_eq!((visit(&strict, "ann").status, runs.load(Ordering::SeqCst)), (503, 0));
    let answer = visit(&open, "ann");
    assert_eq!((answer.status, answer.header("ratelimit")), (200, None));
}

#[test]
fn what_the_server_did_wrong_is_told_to_its_log_alone() {
    let redis = RedisServer::start().unwrap();
    let client = Client::connect(&redis.url()).unwrap();
    let layer = RateLimitLayer::new(&client, "api", 0, HOUR, customer).allow_when_unavailable();
    let router = Router::new().route("/", get(|| async { "never" })).layer(layer);
    let web = Web::start(router.layer(axum::middleware::map_response(with_kind)));
    let answer = visit(&web, "ann");
    let kind = format!("{:?}", ErrorKind::InvalidInput);
    assert_eq!(
        (answer.status, answer.header("kind"), answer.header("retry-after")),
        (500, Some(&*kind), None)
    );
    assert!(!String::from_utf8_lossy(&answer.body).contains("limit"), "{answer:?}");
}
