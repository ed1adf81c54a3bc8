//! What a user needs on a cluster, beside what it needs on one server.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use redis::{FromRedisValue, Value, cmd};
use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use super::{calm, connect, has_shards, home, key, spread};
use crate::support::{Event, LONG, Recorder, SOON, builder, comes_in, connected, ms, queued};

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
    let (holder, waiter) = (connected(|| builder(&url("locks"))), connected(|| builder(&url("locks"))));
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

/// Has `name` be a user that may listen to these channels only. (Its connections that listen to others end.)
fn may_listen_to(name: &str, channels: &[&str]) {
    for node in calm().nodes() {
        let mut set = cmd("ACL");
        set.arg("SETUSER").arg(name).arg("on").arg(">secret").arg("~*").arg("+@all").arg(channels);
        set.exec(&mut node.connection().unwrap()).unwrap();
    }
}

/// A name that begins so, of a lock that is on this node.
fn named(start: &str, node: &RedisServer) -> String {
    let mut names = (0..).map(|i| format!("{start} {i}"));
    names.find(|name| home(calm(), name).port() == node.port()).unwrap()
}

/// How often this node has refused the channel of the lock `name`.
fn refusals(node: &RedisServer, name: &str) -> u64 {
    let log: Vec<HashMap<String, Value>> =
        cmd("ACL").arg("LOG").query(&mut node.connection().unwrap()).unwrap();
    let text = |entry: &HashMap<String, Value>, field| String::from_redis_value_ref(&entry[field]).unwrap();
    let its = log.iter().filter(|it| text(it, "object").starts_with(&key(name)));
    its.map(|it| u64::from_redis_value_ref(&it["count"]).unwrap()).sum()
}

/// Longer than the reads of a listener last that hears nothing: it skips errors from then on.
const IDLE: Duration = ms(800);

/// A client of a user that may listen to the channels of these locks only.
fn listens_to(user: &str, locks: &str, recorder: &Recorder) -> Client {
    may_listen_to(user, &["resetchannels", "&rc:inbox:*", locks]);
    let url = calm().url().replace("://", &format!("://{user}:secret@"));
    connected(|| builder(&url).observer(recorder.clone()))
}

/// A user that may listen to some locks only: who waits for another is told, and nobody else is.
#[test]
fn a_channel_that_is_denied_is_that_locks_trouble() {
    let node = calm().nodes().remove(0);
    let (recorder, holder) = (Recorder::default(), connect(calm()));
    let client = listens_to("some", "&rc:{mine*", &recorder);
    let [before, after, denied] =
        ["mine before", "mine after", "theirs"].map(|it| holder.reentrant_lock(&named(it, &node)));
    let guards = [&before, &after, &denied].map(|lock| lock.lock().unwrap());
    let waits = |name: &str| client.reentrant_lock(name).try_lock_for(LONG).unwrap().unwrap().unlock();
    thread::scope(|scope| {
        let first = scope.spawn(|| waits(before.name()));
        queued(&before, 1);
        for _ in 0..2 {
            thread::sleep(IDLE);
            let error = client.reentrant_lock(denied.name()).try_lock_for(LONG).unwrap_err();
            assert!(error.is_unavailable() && format!("{error:#}").contains("subscribe"), "{error:#}");
        }
        let second = scope.spawn(|| waits(after.name()));
        queued(&after, 1);
        // As soon as it may.
        may_listen_to("some", &["&rc:{*"]);
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
    assert_eq!(recorder.count(Event::Reconnected), 0, "it listened to the others all the time");
}

/// Who waits behind a holder of its own process wants the channel again and again, and can do without.
#[test]
fn a_channel_that_is_denied_does_not_disturb_others_while_a_thread_waits_without_it() {
    let node = calm().nodes().remove(0);
    let (recorder, holder) = (Recorder::default(), connect(calm()));
    let client = listens_to("few", "&rc:{ours*", &recorder);
    let heard = holder.reentrant_lock(&named("ours", &node));
    let denied = client.reentrant_lock(&named("not ours", &node));
    let (other, mine) = (heard.lock().unwrap(), denied.lock().unwrap());
    thread::scope(|scope| {
        let first = scope.spawn(|| comes_in(&client.reentrant_lock(heard.name())));
        queued(&heard, 1);
        thread::sleep(IDLE);
        let second = scope.spawn(|| comes_in(&denied));
        wait_until(LONG, "it is refused again and again", || refusals(&node, denied.name()) >= 4);
        mine.unlock().unwrap();
        second.join().unwrap();
        other.unlock().unwrap();
        first.join().unwrap();
    });
    assert_eq!(recorder.count(Event::Reconnected), 0);
}
