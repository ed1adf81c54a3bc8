//! What a lock over several servers says of those that refuse it.

use std::time::Instant;

use redis_concurrent::{Client, ErrorKind, RedLockClient};
use redis_concurrent_testkit::RedisServer;

use crate::support::*;

fn later(url: &str) -> Client {
    builder(url).connect_later().unwrap()
}

#[test]
fn the_cause_is_shown_for_each_server() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
    let clients: Vec<_> = servers.iter().map(|server| later(&server.url())).collect();
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(SOON);
    for dead in &servers[..2] {
        dead.kill().unwrap();
    }
    // The first one finds the connections that were there before.
    let _ = red.lock("x").try_lock();
    for _ in 0..3 {
        let error = red.lock("x").try_lock().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        for dead in &servers[..2] {
            let address = format!("127.0.0.1:{}: ", dead.port());
            let answer = text.split(&address).nth(1).unwrap_or_else(|| panic!("{address} is not in {text}"));
            let answer = answer.split(';').next().unwrap_or_default();
            assert!(answer.to_lowercase().contains("refused"), "{text}");
        }
    }
}

#[test]
fn what_is_for_good_on_a_majority_is_told_at_once() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::builder().password("right").start().unwrap()).collect();
    let url = |server: &RedisServer, password| format!("redis://:{password}@127.0.0.1:{}/", server.port());
    let clients: Vec<_> = servers
        .iter()
        .zip(["right", "wrong", "wrong"])
        .map(|(server, word)| later(&url(server, word)))
        .collect();
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(SOON);
    let began = Instant::now();
    let error = red.lock("x").try_lock_for(3 * LONG).map(drop).unwrap_err();
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
    assert!(error.to_string().to_lowercase().contains("authentication"), "{error}");
}
