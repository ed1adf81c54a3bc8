//! `doctor` and `bench`, against a healthy server and a badly configured one.

use redis_concurrent::{CancellationToken, Client, Wait};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{LONG, done};

#[test]
fn a_healthy_server_is_found_so_and_a_bad_one_is_not() {
    let healthy = RedisServer::builder().appendonly(true).start().unwrap();
    let it = done(&healthy.url(), &["doctor"]);
    assert!(it.code.unwrap() < 2 && !it.out.contains("fail"), "{it:?}");
    for check in ["reach", "version", "memory", "persistence", "role", "locks", "held"] {
        assert!(it.out.contains(check), "{check}: {it:?}");
    }
    assert!(it.out.contains("noeviction") || it.out.contains("no limit"), "{it:?}");
    let bad = RedisServer::builder().arg("maxmemory", "50mb").arg("maxmemory-policy", "allkeys-lru");
    let bad = bad.arg("timeout", "60").password("hush").start().unwrap();
    let it = done(&bad.url(), &["doctor", "--json"]).ends(2);
    let state = |check: &str| {
        let lines = it.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.into_iter().find(|line| line["check"] == check).unwrap()["state"].clone()
    };
    assert_eq!(
        (state("memory"), state("timeout"), state("persistence")),
        ("fail".into(), "warn".into(), "warn".into())
    );
    assert!(!format!("{it:?}").contains("hush"));
    assert!(
        done("redis://127.0.0.1:1/", &["doctor"]).ends(2).out.contains("127.0.0.1:1: Connection refused")
    );
}

#[test]
fn a_server_on_this_host_is_said_to_have_a_shorter_way() {
    let [has_one, has_none] =
        [true, false].map(|it| RedisServer::builder().appendonly(true).unix_socket(it).start().unwrap());
    let path = has_one.unix_url().unwrap();
    let it = done(&has_one.url(), &["doctor"]);
    assert!(
        it.code.unwrap() < 2 && it.out.contains(&format!("this host, over TCP; {path} would save")),
        "{it:?}"
    );
    for url in [path, has_none.url()] {
        let it = done(&url, &["doctor"]);
        assert!(it.out.contains("reach") && !it.out.contains("over TCP"), "{it:?}");
    }
}

/// A waiter itself chooses how often it sends heartbeats; Redis lists no waiter that has missed them for too
/// long.
#[test]
fn a_waiter_that_is_seldom_heard_is_no_cause_for_concern() {
    let server = RedisServer::builder().appendonly(true).start().unwrap();
    let connect = || Client::builder().url(&server.url()).waiter_timeout(LONG).connect().unwrap();
    let (client, other, stop) = (connect(), connect(), CancellationToken::new());
    let guard = client.reentrant_lock("seldom").lock_owned().unwrap();
    let lock = other.reentrant_lock("seldom");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock_owned_with(Wait::forever().cancelled_by(&stop)).map(drop));
        wait_until(LONG, "it was not heard for a while", || {
            let found = client.inspect("seldom").unwrap().unwrap();
            found.waiters.iter().any(|it| it.last_heartbeat.as_millis() > 2600)
        });
        let it = done(&server.url(), &["doctor"]);
        stop.cancel();
        assert!(waits.join().unwrap().is_err_and(|e| e.is_cancelled()));
        assert!(!it.out.contains("seldom"), "{it:?}");
    });
    guard.unlock().unwrap();
}

#[test]
fn what_it_measures_it_removes() {
    let server = RedisServer::start().unwrap();
    let it = done(&server.url(), &["bench", "--seconds", "1s"]).ends(0);
    for measure in ["PING", "lock and unlock", "hand-off", "renewal lag"] {
        assert!(it.out.contains(measure), "{measure}: {it:?}");
    }
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connection().unwrap()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}
