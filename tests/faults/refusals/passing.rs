//! What may pass is waited for as long as a call may wait, by everything that waits, and told at once where
//! nothing does.

use std::thread;
use std::time::Instant;

use redis_concurrent::{Client, Error, MultiLock};
use redis_concurrent_testkit::{RedisServer, closes_in_time, wait_until};

use crate::refusals::{AskOnce, tell};
use crate::server_days::{connected, refused_for};
use crate::support::*;

/// A server that says no, and how to end that.
struct Refusing {
    /// What the error has in it.
    says: &'static str,
    on: &'static [&'static str],
    off: &'static [&'static str],
}

const ALL: [Refusing; 3] = [
    Refusing {
        says: "NOREPLICAS",
        on: &["CONFIG", "SET", "min-replicas-to-write", "1"],
        off: &["CONFIG", "SET", "min-replicas-to-write", "0"],
    },
    Refusing {
        says: "OOM",
        on: &["CONFIG", "SET", "maxmemory", "1"],
        off: &["CONFIG", "SET", "maxmemory", "0"],
    },
    Refusing { says: "READONLY", on: &["REPLICAOF", "127.0.0.1", "1"], off: &["REPLICAOF", "NO", "ONE"] },
];

fn rejected(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO").arg("errorstats").query(&mut server.connection().unwrap()).unwrap();
    info.lines().filter_map(|line| line.trim().rsplit_once('=')?.1.parse::<u64>().ok()).sum()
}

type Call = fn(&Client) -> Result<(), Error>;

/// Everything that takes something, and may wait for it.
const WAITING: [(&str, Call); 7] = [
    ("simple lock", |c| c.simple_lock("simple").lock().map(drop)),
    ("reentrant lock", |c| c.reentrant_lock("reentrant").try_lock_for(LONG).map(|it| drop(it.unwrap()))),
    ("read lock", |c| c.read_write_lock("rw").read_lock().lock().map(drop)),
    ("write lock", |c| c.read_write_lock("rw2").write_lock().lock().map(drop)),
    ("semaphore", |c| c.semaphore("permits").acquire(1).map(drop)),
    ("inventory lock", |c| c.inventory("goods").inventory_lock("sku", 1).lock().map(drop)),
    ("multi-lock", |c| MultiLock::new(&[&c.simple_lock("a"), &c.reentrant_lock("b")]).lock().map(drop)),
];

#[test]
fn what_may_pass_is_waited_for_by_everything_that_waits() {
    for Refusing { says, on, off } in ALL {
        let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap();
        let client = connect(&server);
        client.semaphore("permits").set_permits(1).unwrap();
        client.inventory("goods").add_stock("sku", 5).unwrap();
        tell(&server, on);
        thread::scope(|scope| {
            let before = rejected(&server);
            let calls: Vec<_> =
                WAITING.iter().map(|(what, call)| (what, scope.spawn(|| call(&client)))).collect();
            // Each of them has heard it, most of them more than once.
            wait_until(LONG, says, || rejected(&server) >= before + 3 * WAITING.len() as u64);
            let ended: Vec<_> =
                calls.iter().filter(|(_, call)| call.is_finished()).map(|(it, _)| it).collect();
            assert!(ended.is_empty(), "{says}: {ended:?} did not wait");
            tell(&server, off);
            for (what, call) in calls {
                call.join().unwrap().unwrap_or_else(|error| panic!("{says}: {what}: {error}"));
            }
        });
    }
}

#[test]
fn what_may_pass_is_told_at_once_where_nothing_waits_and_at_the_deadline() {
    for Refusing { says, on, off } in ALL {
        let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap();
        let client = connected(|| builder(&server.url()).unreachable_timeout(ms(700)));
        let lock = client.reentrant_lock("x");
        drop(lock.lock().unwrap());
        tell(&server, on);
        let calls: [(&str, u64, AskOnce<'_>); 3] = [
            ("try_lock", 0, &|| lock.try_lock().map(drop)),
            ("try_lock_for", 500, &|| lock.try_lock_for(ms(500)).map(drop)),
            ("lock", 700, &|| lock.lock().map(drop)),
        ];
        for (what, least, call) in calls {
            refused_for(&[&says.to_lowercase()], "x", || {
                let began = Instant::now();
                let outcome = call();
                let took = began.elapsed();
                assert!(took + ms(5) >= ms(least) && took < ms(least) + SOON, "{says}: {what} took {took:?}");
                outcome
            });
        }
        tell(&server, off);
        free_at_once(&lock);
    }
}

/// A waiter that has its queue position when the server begins to refuse.
#[test]
fn a_waiter_in_the_queue_stays_there() {
    for Refusing { says, on, off } in ALL {
        let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap();
        let (mine, yours) = (connect(&server), connected(|| builder(&server.url()).waiter_timeout(ms(900))));
        let (held, awaited) = (mine.reentrant_lock("x"), yours.reentrant_lock("x"));
        let guard = held.lock().unwrap();
        thread::scope(|scope| {
            // (It is given back in the background where its answer comes later than in the waiter timeout.)
            let waits = scope.spawn(|| drop(awaited.lock().unwrap()));
            queued(&held, 1);
            let before = server.command_calls().unwrap()["evalsha"];
            tell(&server, on);
            // It says several times that it lives.
            wait_until(LONG, says, || server.command_calls().unwrap()["evalsha"] >= before + 4);
            assert!(!waits.is_finished(), "{says}: it did not wait");
            tell(&server, off);
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
    }
}

/// A full server refuses no release.
#[test]
fn what_a_client_that_closes_is_refused_is_sent_again_as_long_as_it_may_take() {
    for Refusing { says, on, off } in ALL.iter().filter(|refusing| refusing.says != "OOM") {
        closes_in_time(|| {
            let server = RedisServer::start().unwrap();
            let client = connect(&server);
            let (simple, reentrant) = (client.simple_lock("s"), client.reentrant_lock("r"));
            let take = || (simple.lock_owned().unwrap(), reentrant.lock_owned().unwrap());
            // So that the server knows the scripts, and refuses none as unknown.
            drop(take());
            let _held = take();
            tell(&server, on);
            let before = rejected(&server);
            let closed = thread::scope(|scope| {
                let closing = scope.spawn(|| client.close());
                // A read-only server is asked twice each time, as another may be the primary now.
                wait_until(LONG, says, || closing.is_finished() || rejected(&server) >= before + 4);
                tell(&server, off);
                closing.join().unwrap()
            });
            assert!(closed.is_err() || !["s", "r"].iter().any(|it| exists(&server, &format!("rc:{{{it}}}"))));
            closed
        });
    }
}

/// What is refused for longer is reported with the reason.
#[test]
fn what_a_client_that_closes_cannot_release_is_reported_with_the_reason() {
    for Refusing { says, on, .. } in ALL.iter().filter(|refusing| refusing.says != "OOM") {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let _held = client.simple_lock("s").lock_owned().unwrap();
        tell(&server, on);
        let error = client.close().unwrap_err();
        assert!(error.is_outcome_unknown(), "{says}: {error}");
        assert!(format!("{error:#}").to_lowercase().contains(&says.to_lowercase()), "{says}: {error:#}");
    }
}
