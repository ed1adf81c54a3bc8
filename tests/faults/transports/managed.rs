//! What managed services forbid, each by itself, on a real server that forbids it too.

use std::thread;

use redis_concurrent::RedLockClient;
use redis_concurrent_testkit::Proxy;

use super::wrong_server::without_command;
use super::*;
use crate::server_days::{ask, brisk, connected, lively};
use crate::support::SOON;

/// No lock needs them; and a `RedLock` counts servers of unknown age only if it is told to.
#[test]
fn a_service_without_info_or_client() {
    for right in ["-info", "-client"] {
        // The test kit asks for INFO as it starts: so these are rights that a user lacks.
        let servers = [(); 3].map(|()| RedisServer::start().unwrap());
        let client = |server: &RedisServer| {
            ask::<()>(server, &["ACL", "SETUSER", "app", "on", ">pass", "~*", "&*", "+@all", right]);
            let url = format!("redis://app:pass@127.0.0.1:{}/", server.port());
            Client::builder().url(&url).client_name("app").connect().unwrap()
        };
        works(&client(&servers[0]), &client(&servers[0]));
        let all = RedLockClient::new(servers.each_ref().map(client)).unwrap();
        if right == "-info" {
            let error = all.lock("red").try_lock().map(drop).unwrap_err();
            assert!(error.is_unavailable(), "{error:#}");
        }
        all.skip_startup_delay().with_node_timeout(SOON).lock("red").lock().unwrap().unlock().unwrap();
    }
}

/// A hold that must be replicated cannot be had; all others can.
#[test]
fn a_service_without_wait() {
    let server = without_command("WAIT").start().unwrap();
    works_at(&server.url());
    let client = Client::connect(&server.url()).unwrap();
    let error =
        client.simple_lock("it").with_replicas(1, Duration::from_millis(100)).lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(format!("{error:#}").to_lowercase().contains("unknown command"), "{error:#}");
    // It was given back.
    assert!(client.simple_lock("it").try_lock().unwrap().is_some());
}

/// Three for each client that waits: for its requests, its inbox and its renewals.
#[test]
fn a_service_with_few_connections() {
    let server = RedisServer::builder().arg("maxclients", "8").start().unwrap();
    let client = || connected(|| lively(&server.url()).lease(Duration::from_secs(3)).max_connections(1));
    let (one, two) = (client(), client());
    works(&one, &two);
    // All the others are in use: the error says so, at once.
    let other = || {
        let mut connection = server.connection().ok()?;
        cmd("PING").exec(&mut connection).ok().map(|()| connection)
    };
    let others: Vec<_> = std::iter::from_fn(other).take(8).collect();
    let error = brisk(&server.url()).connect().unwrap_err();
    assert!(error.is_unavailable(), "{error:#}");
    works(&one, &two);
    drop(others);
}

/// Idle connections are closed after a second: holds are renewed, and free locks acquired, by new ones.
#[test]
fn a_service_that_closes_idle_connections() {
    let server = RedisServer::builder().arg("timeout", "1").start().unwrap();
    let client = Client::builder().url(&server.url()).lease(Duration::from_secs(9)).connect().unwrap();
    let held = client.simple_lock("held").lock_owned().unwrap();
    // Two renewals, each of which comes after the connection was closed.
    let renewed = || held.remaining() > Duration::from_millis(8500);
    for _ in 0..2 {
        wait_until(LONG, "the lease runs down", || !renewed());
        wait_until(LONG, "it is renewed", renewed);
    }
    assert!(!held.is_lost());
    client.simple_lock("free").lock().unwrap().unlock().unwrap();
    held.unlock().unwrap();
}

/// A proxy that cuts every connection, the inbox's too, again and again.
#[test]
fn a_proxy_that_closes_connections_now_and_then() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = || Client::builder().url(&door.url()).lease(Duration::from_secs(9)).connect().unwrap();
    let (one, two) = (client(), client());
    let (held, awaited) = (one.reentrant_lock("it"), two.reentrant_lock("it"));
    let guard = held.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| awaited.lock().unwrap().unlock());
        for _ in 0..4 {
            wait_until(LONG, "it waits", || held.queue_length().unwrap() == 1);
            door.cut_all();
        }
        assert!(!guard.is_lost());
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// A proxy before several nodes may subscribe at another one than the one that has the locks, where nobody is seen
/// to listen: a waiter is granted nothing behind its back, and gets in by asking.
#[test]
fn a_proxy_that_hides_where_it_subscribes() {
    let flock = crate::flock::Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let (one, two) = (Client::connect(&flock.primary.url()).unwrap(), connected(|| lively(&door.url())));
    let (held, awaited) = (one.reentrant_lock("it"), two.reentrant_lock("it"));
    // A connection for requests, to the primary.
    awaited.lock().unwrap().unlock().unwrap();
    let guard = held.lock_owned().unwrap();
    door.set_target(flock.replicas[0].port());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| awaited.try_lock_for(LONG).unwrap().expect("it asks").unlock());
        wait_until(LONG, "it waits", || held.queue_length().unwrap() == 1);
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
}
