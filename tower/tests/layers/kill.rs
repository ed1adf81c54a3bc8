//! Servers that are killed while they work, and clients that send their request again to another one.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::post;
use axum::{Extension, Router};
use redis_concurrent::Client;
use redis_concurrent_testkit::{Child, RedisServer, eventually, hear_parent, is_role, tell_parent};
use redis_concurrent_tower::{Attempt, IdempotencyLayer};

use crate::web::{Answer, LONG, Web, ask, hear, send};

/// Longer than a server on a busy machine is without a processor.
const LEASE: Duration = Duration::from_secs(3);
const ROLE: &str = "kill::role_server";

fn stops(headers: &HeaderMap, at: &str) -> bool {
    headers.get("stops").is_some_and(|it| it == at)
}

/// Tells the parent of each run of its handler, which stops in the middle if the request has the header `stops:
/// within`; with `stops: after` the server stops when the answer is kept, and tells that.
#[test]
#[ignore = "a role, played by a child process"]
fn role_server() {
    if !is_role(ROLE) {
        return; // somebody ran the ignored tests
    }
    let url = std::env::var("ROLE_URL").unwrap();
    let client = Client::builder().url(&url).lease(LEASE).connect().unwrap();
    let handler = async move |Extension(attempt): Extension<Attempt>, headers: HeaderMap, order: String| {
        tell_parent(&format!("{order} {}", attempt.token())).unwrap();
        if stops(&headers, "within") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        (StatusCode::CREATED, format!("{order} {}", attempt.token()))
    };
    let outside = middleware::from_fn(async move |request: Request, next: Next| {
        let is_last = stops(request.headers(), "after");
        let response = next.run(request).await;
        if is_last {
            tell_parent("kept").unwrap();
            std::future::pending::<()>().await;
        }
        response
    });
    let layer = IdempotencyLayer::new(&client, "order", |_| String::new());
    let web = Web::start(Router::new().route("/", post(handler)).layer(layer).layer(outside));
    tell_parent(&web.address.to_string()).unwrap();
    hear_parent().unwrap();
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(redis: &RedisServer) -> Server {
        let child = Child::spawn(ROLE, &[("ROLE_URL", &redis.url())]).unwrap();
        let address = child.read_line_within(LONG).unwrap().parse().unwrap();
        Server { child, address }
    }

    /// The next run that it has told: the order and the token.
    fn run(&self) -> (String, u64) {
        let line = self.child.read_line_within(LONG).unwrap();
        let (order, token) = line.rsplit_once(' ').unwrap();
        (order.to_owned(), token.parse().unwrap())
    }

    /// Kills it; returns the orders and tokens of the runs that it had told besides.
    fn killed(mut self) -> Vec<(String, u64)> {
        self.child.kill9().unwrap();
        let lines = std::iter::from_fn(|| self.child.read_line_within(LONG).ok());
        let run = |line: String| {
            Some((line.rsplit_once(' ')?.0.to_owned(), line.rsplit_once(' ')?.1.parse().unwrap()))
        };
        lines.filter_map(run).collect()
    }
}

fn headers(order: &str) -> [(&str, &str); 1] {
    [("idempotency-key", order)]
}

/// Sends the order until it is answered by another status than 409.
fn deliver(to: SocketAddr, order: &str) -> Answer {
    eventually(LONG, || {
        Some(ask(to, "POST /", &headers(order), order.as_bytes())).filter(|it| it.status != 409)
    })
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed").is_some()
}

#[test]
fn work_of_a_server_killed_in_the_middle_is_done_again_under_a_higher_token() {
    let redis = RedisServer::start().unwrap();
    let (one, other) = (Server::start(&redis), Server::start(&redis));
    let stops = [headers("lamp")[0], ("stops", "within")];
    let lost = send(one.address, "POST /", &stops, b"lamp").unwrap();
    let (_, token) = one.run();
    assert_eq!(one.killed(), []);
    assert!(hear(lost).is_err());
    let answer = deliver(other.address, "lamp");
    let (order, higher) = other.run();
    assert!(higher > token, "{higher} after {token}");
    assert_eq!(
        (answer.status, &*answer.body, replayed(&answer)),
        (201, format!("{order} {higher}").as_bytes(), false)
    );
    let again = deliver(other.address, "lamp");
    assert_eq!((&again.body, replayed(&again)), (&answer.body, true));
    assert_eq!(other.killed(), []);
}

#[test]
fn work_of_a_server_killed_once_its_answer_is_kept_is_done_once() {
    let redis = RedisServer::start().unwrap();
    let (one, other) = (Server::start(&redis), Server::start(&redis));
    let stops = [headers("lamp")[0], ("stops", "after")];
    let lost = send(one.address, "POST /", &stops, b"lamp").unwrap();
    let (order, token) = one.run();
    assert_eq!(one.child.read_line_within(LONG).unwrap(), "kept");
    assert_eq!(one.killed(), []);
    assert!(hear(lost).is_err());
    // At once: there is no lease to wait for.
    let answer = ask(other.address, "POST /", &headers("lamp"), b"lamp");
    assert_eq!(
        (answer.status, &*answer.body, replayed(&answer)),
        (201, format!("{order} {token}").as_bytes(), true)
    );
    assert_eq!(other.killed(), []);
}

#[test]
fn of_twenty_deliveries_to_two_servers_one_is_done() {
    let redis = RedisServer::start().unwrap();
    let servers = [Server::start(&redis), Server::start(&redis)];
    let orders: Vec<_> = (0..5).map(|n| format!("order {n}")).collect();
    for order in &orders {
        let answers: Vec<_> = thread::scope(|scope| {
            let deliveries = [servers[0].address, servers[1].address].repeat(10);
            let started: Vec<_> =
                deliveries.into_iter().map(|to| scope.spawn(move || deliver(to, order))).collect();
            started.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|it| it.status == 201 && it.body == answers[0].body), "{answers:?}");
        assert_eq!(answers.iter().filter(|it| !replayed(it)).count(), 1);
    }
    let mut done: Vec<_> = servers.into_iter().flat_map(Server::killed).map(|run| run.0).collect();
    done.sort();
    assert_eq!(done, orders);
}

/// Servers are killed at any moment of their work, and the orders sent to the next one.
#[test]
fn killed_at_any_moment_an_order_has_one_answer_that_of_its_highest_token() {
    let seed = std::env::var("SEED").map_or_else(|_| u64::from(std::process::id()), |it| it.parse().unwrap());
    println!("SEED={seed}");
    let redis = RedisServer::start().unwrap();
    let mut next = Server::start(&redis);
    for round in 0..4u64 {
        let (one, other) = (next, Server::start(&redis));
        let order = format!("order {round}");
        let kept = send(one.address, "POST /", &headers(&order), order.as_bytes()).unwrap();
        let moment = seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        thread::sleep(Duration::from_micros(moment % 15_000));
        let first = one.killed().into_iter().filter(|run| run.0 == order).collect::<Vec<_>>();
        let (received, answer) = (hear(kept).ok(), deliver(other.address, &order));
        assert_eq!(answer.status, 201);
        if let Some(received) = received {
            assert_eq!((received.status, &received.body, replayed(&answer)), (201, &answer.body, true));
        }
        let token = if replayed(&answer) {
            assert_eq!(first.len(), 1);
            first[0].1
        } else {
            let (_, token) = other.run();
            assert!(first.len() <= 1 && first.iter().all(|run| run.1 < token), "{first:?}, {token}");
            token
        };
        assert_eq!(answer.body, format!("{order} {token}").into_bytes());
        let again = deliver(other.address, &order);
        assert_eq!((&again.body, replayed(&again)), (&answer.body, true));
        next = other;
    }
    assert_eq!(next.killed(), []);
}
