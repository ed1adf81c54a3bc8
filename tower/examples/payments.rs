//! A web server that charges once per `Idempotency-Key`, and admits ten requests a minute from each customer.
//!
//! `cargo run --package redis-concurrent-tower --example payments [address:port]`, on the server that `REDIS_URL` names
//! or on a private one; then, a few times, the `curl` that it prints. Any number of such servers on one Redis act as one.

use std::env;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Extension, Router};
use redis_concurrent::Client;
use redis_concurrent_testkit::RedisServer;
use redis_concurrent_tower::{Attempt, IdempotencyLayer, RateLimitLayer};

/// A stand-in for what has authenticated the customer.
fn customer(request: &Parts) -> Option<String> {
    Some(request.headers.get("customer")?.to_str().ok()?.to_owned())
}

/// The charge itself, at a service that refuses a token that is lower than one it has seen.
async fn charge(Extension(attempt): Extension<Attempt>, order: String) -> (StatusCode, String) {
    (StatusCode::CREATED, format!("charged for {order}, under token {}\n", attempt.token()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = redis.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let client = Client::connect(&url)?; // blocks for a moment: before the runtime starts
    let scope = |request: &Parts| customer(request).unwrap_or_default();
    let app = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotencyLayer::new(&client, "charge", scope).required())
        .layer(RateLimitLayer::new(&client, "api", 10, Duration::from_secs(60), customer)); // the outer one
    tokio::runtime::Runtime::new()?.block_on(async {
        let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
        let listener = tokio::net::TcpListener::bind(address).await?;
        let url = format!("http://{}/charges", listener.local_addr()?);
        println!("curl -i {url} -H 'Customer: ann' -H 'Idempotency-Key: \"8f3a\"' -d 'a lamp'");
        axum::serve(listener, app).await
    })?;
    Ok(())
}
