//! What a user needs on a cluster, beside what it needs on one server.

use std::thread;

use redis::cmd;
use redis_concurrent::Client;
use redis_concurrent_testkit::eventually;

use super::{calm, has_shards, home, spread};
use crate::support::{LONG, SOON, queued};

#[test]
fn those_of_the_page() {
    let (_, rights) =
        include_str!("../../../docs/operations.md").split_once("redis-cli ACL SETUSER locks ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let rights: Vec<_> = rights.split_whitespace().map(|it| it.trim_matches('\'')).collect();
    let rights: Vec<_> = rights.into_iter().filter(|it| *it != "\\").collect();
    for node in calm().nodes() {
        let mut admin = node.connection().unwrap();
        let mut user = |name: &str, more: &[&str]| {
            cmd("ACL").arg("SETUSER").arg(name).arg("reset").arg(&rights).arg(more).exec(&mut admin).unwrap();
        };
        let mut more = vec!["+cluster|slots", "&rc:{*"];
        if has_shards(&node) {
            more.extend(["+ssubscribe", "+sunsubscribe", "+spublish", "+pubsub|shardnumsub"]);
        }
        user("locks", &more);
        user("less", &[]);
    }
    let url = |user: &str| calm().url().replace("://", &format!("://{user}:secret@"));
    let (holder, waiter) = (Client::connect(&url("locks")).unwrap(), Client::connect(&url("locks")).unwrap());
    for name in spread(calm(), "rights") {
        let lock = holder.reentrant_lock(&name);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                waiter.reentrant_lock(&name).try_lock_for(LONG).unwrap().unwrap().unlock().unwrap()
            });
            queued(&lock, 1);
            guard.unlock().unwrap();
        });
    }
    let error = Client::connect(&url("less")).unwrap_err();
    assert!(error.is_unavailable() && format!("{error:#}").contains("cluster"), "{error:#}");
}

/// A user that may listen to some locks only: who waits for another is told, and nobody else is.
#[test]
fn a_channel_that_is_denied_is_that_locks_trouble() {
    let node = calm().nodes().remove(0);
    let rights = |channels: &[&str]| {
        for node in calm().nodes() {
            let mut set = cmd("ACL");
            set.arg("SETUSER").arg("some").arg("on").arg(">secret").arg("~*").arg("+@all").arg(channels);
            set.exec(&mut node.connection().unwrap()).unwrap();
        }
    };
    rights(&["resetchannels", "&rc:inbox:*", "&rc:{mine*"]);
    let named = |start: &str| {
        let mut names = (0..).map(|i| format!("{start} {i}"));
        names.find(|name| home(calm(), name).port() == node.port()).unwrap()
    };
    let holder = Client::connect(&calm().url()).unwrap();
    let client = Client::connect(&calm().url().replace("://", "://some:secret@")).unwrap();
    let [before, after, denied] =
        ["mine before", "mine after", "theirs"].map(|it| holder.reentrant_lock(&named(it)));
    let guards = [&before, &after, &denied].map(|lock| lock.lock().unwrap());
    let waits = |name: &str| client.reentrant_lock(name).try_lock_for(LONG).unwrap().unwrap().unlock();
    thread::scope(|scope| {
        let first = scope.spawn(|| waits(before.name()));
        queued(&before, 1);
        for _ in 0..2 {
            let error = client.reentrant_lock(denied.name()).try_lock_for(LONG).unwrap_err();
            assert!(error.is_unavailable() && format!("{error:#}").contains("subscribe"), "{error:#}");
        }
        let second = scope.spawn(|| waits(after.name()));
        queued(&after, 1);
        // As soon as it may.
        rights(&["&rc:{*"]);
        let third = scope.spawn(|| {
            let lock = client.reentrant_lock(denied.name());
            eventually(SOON, || lock.try_lock_for(LONG).ok()).expect("in time").unlock()
        });
        queued(&denied, 1);
        for guard in guards {
            guard.unlock().unwrap();
        }
        for waiting in [first, second, third] {
            waiting.join().unwrap().unwrap();
        }
    });
}
