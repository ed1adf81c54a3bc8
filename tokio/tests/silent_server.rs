//! A server that does not reply does not delay users of another one.

use std::time::Duration;

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};
use redis_concurrent_tokio::{AsyncLock, AsyncRateLimiter};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a request to the silent server takes.
const SILENCE: Duration = Duration::from_secs(60);
/// Long enough for anything that is sure to happen, and shorter than `SILENCE`.
const LONG: Duration = Duration::from_secs(30);

/// A proxy that can make this server silent, and a client that waits for it.
fn silent(server: &RedisServer) -> (Proxy, Client) {
    let proxy = Proxy::start(server.port()).unwrap();
    let client =
        Client::builder().url(&proxy.url()).lease(4 * SILENCE).command_timeout(SILENCE).connect().unwrap();
    (proxy, client)
}

/// More attempts than there are threads for, all of which have asked.
async fn attempts(silent: &Client) -> JoinSet<Result<(), Error>> {
    let mut attempts = JoinSet::new();
    for i in 0..20 {
        let lock = AsyncLock::new(silent.reentrant_lock(&format!("tried {i}")));
        attempts.spawn(async move { lock.try_lock().await.map(drop) });
    }
    // On this thread all of them ask before this task continues.
    tokio::task::yield_now().await;
    attempts
}

#[test]
fn releases_do_not_wait_for_attempts_or_releases_at_a_silent_server() {
    let (server, behind) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let (proxy, silent) = silent(&behind);
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let guard = AsyncLock::new(client.reentrant_lock("x")).lock().await.unwrap();
        let mut held = Vec::new();
        for i in 0..20 {
            held.push(AsyncLock::new(silent.reentrant_lock(&format!("held {i}"))).lock().await.unwrap());
        }
        proxy.hold_requests(true);
        drop(held);
        let attempts = attempts(&silent).await;
        wait_until(LONG, "the server is asked", || proxy.held() > 0);
        timeout(LONG, guard.unlock()).await.expect("it is sent at once").unwrap();
        proxy.hold_requests(false);
        attempts.join_all().await.into_iter().for_each(Result::unwrap);
    });
}

/// All threads for attempts wait for the silent server when it is given up: nothing is counted for it later.
#[test]
fn an_attempt_that_is_given_up_before_a_thread_is_free_is_not_made() {
    let (server, behind) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let (proxy, silent) = silent(&behind);
    let client = Client::connect(&server.url()).unwrap();
    let limiter = AsyncRateLimiter::new(client.rate_limiter("api", Rate::fixed_window(5, 10 * LONG)));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        proxy.hold_requests(true);
        let attempts = attempts(&silent).await;
        timeout(Duration::from_millis(20), limiter.acquire(1)).await.expect_err("no thread is free");
        proxy.hold_requests(false);
        assert_eq!(limiter.try_acquire(1).await.unwrap().remaining, 4);
        attempts.join_all().await.into_iter().for_each(Result::unwrap);
    });
}
