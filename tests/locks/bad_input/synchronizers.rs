//! What cannot be asked of semaphores, latches, barriers, read/write locks and conditions: an error names it
//! and what it is about, and nothing in Redis is another than before.

use std::thread;
use std::time::Duration;

use redis_concurrent::inventory::Order;
use redis_concurrent::once::Begun;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::calls::KINDS;
use crate::server_days::*;
use crate::support::{Content, LONG, content};

/// Every key with its content, and whether it has an end. Without tombstones: a request leaves one, done or not.
pub fn everything(server: &RedisServer) -> Vec<(String, Option<Content>, bool)> {
    let mut connection = server.connection().unwrap();
    let keys = server.keys().unwrap().into_iter().filter(|key| !key.ends_with(":tombstones"));
    keys.map(|key| {
        let content = content(&mut connection, &key);
        let ends = on::<i64>(&mut connection, &["PTTL", &key]) != -1;
        (key, content, ends)
    })
    .collect()
}

/// Renews nothing, and says of nobody that it lives, while a test runs: that would change keys too.
pub fn quiet(server: &RedisServer) -> Client {
    let long = Duration::from_secs(3600);
    connected(|| brisk(&server.url()).lease(long).waiter_timeout(long).command_timeout(LONG))
}

/// Calls that come to an error of this kind, about this name, which says this.
pub type Bad<'a> = (ErrorKind, &'a str, &'a str, Vec<Result<(), Error>>);

#[track_caller]
pub fn all_say((kind, name, why, outcomes): Bad<'_>) {
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let Err(error) = outcome else { panic!("{name}, call {i}: no error where {kind:?} was due") };
        assert_eq!((error.kind(), error.name()), (kind, name), "call {i}: {error}");
        assert!(error.to_string().contains(why), "{name}, call {i}: {error}");
    }
}

#[test]
fn what_a_semaphore_cannot_do_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    let it = client.semaphore("it");
    it.set_permits(3).unwrap();
    let one = it.acquire(1).unwrap();
    let before = everything(&server);
    let asks = |n| {
        let forms = [it.acquire(n), it.acquire_with(n, SURELY).map(Option::unwrap)];
        forms.into_iter().chain([it.try_acquire(n).map(Option::unwrap)]).map(|it| it.map(drop)).collect()
    };
    let changes = |n: u32| vec![it.add_permits(n.into()), it.add_permits(-i64::from(n))];
    let most = i32::MAX as u32;
    for none in [asks(0), changes(0)] {
        all_say((ErrorKind::InvalidInput, "it", "got 0", none));
    }
    for huge in [most + 1, u32::MAX] {
        let sets = vec![it.set_permits(huge), it.try_set_permits(huge).map(drop)];
        for calls in [asks(huge), changes(huge), sets] {
            all_say((ErrorKind::InvalidInput, "it", &format!("got {huge}"), calls));
        }
    }
    let beyond = 1 << 40;
    let calls = vec![it.add_permits(beyond), it.add_permits(-beyond)];
    all_say((ErrorKind::InvalidInput, "it", &format!("between 1 and {most}, got {beyond}"), calls));
    let sets = vec![it.set_permits(u32::MAX), it.try_set_permits(u32::MAX).map(drop)];
    all_say((ErrorKind::InvalidInput, "it", &format!("between 0 and {most}"), sets));
    for more in [4, most] {
        all_say((ErrorKind::Refused, "it", "3 permits", asks(more)));
    }
    all_say((ErrorKind::Refused, "it", &most.to_string(), vec![it.add_permits(most.into())]));
    assert!(!it.try_set_permits(7).unwrap());
    assert_eq!(everything(&server), before);
    let never = client.semaphore("never-set");
    let calls = vec![never.acquire(1).map(drop), never.try_acquire(1).map(drop)];
    all_say((ErrorKind::Refused, "never-set", "set_permits comes first", calls));
    assert_eq!(everything(&server), before);
    one.release().unwrap();
}

#[test]
fn what_a_latch_cannot_do_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    let it = client.count_down_latch("it");
    it.try_set_count(2).unwrap();
    let before = everything(&server);
    assert!(!it.try_set_count(5).unwrap());
    for count in [0, i32::MAX as u64 + 1, u64::MAX] {
        let calls = vec![it.try_set_count(count).map(drop), it.reset(count)];
        all_say((ErrorKind::InvalidInput, "it", &format!("got {count}"), calls));
    }
    let never = client.count_down_latch("never-set");
    let calls = vec![never.count_down().map(drop), never.wait(), never.wait_with(SURELY).map(drop)];
    all_say((ErrorKind::Refused, "never-set", "try_set_count comes first", calls));
    assert_eq!(everything(&server), before);
}

#[test]
fn what_a_barrier_cannot_do_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let (mine, yours) = (quiet(&server), quiet(&server));
    let waits = |parties| {
        let it = mine.cyclic_barrier("it", parties);
        let waits = [
            it.wait(),
            it.wait_with(SURELY),
            it.wait_with(Duration::ZERO),
            it.wait_then(|| panic!("nobody completed it")),
        ];
        waits.into_iter().map(|it| it.map(drop)).collect()
    };
    let looks = |parties| {
        let it = mine.cyclic_barrier("it", parties);
        vec![it.is_broken().map(drop), it.number_waiting().map(drop), it.reset()]
    };
    thread::scope(|scope| {
        let waiter = scope.spawn(|| yours.cyclic_barrier("it", 2).wait_with(LONG));
        wait_for_queue(&server, "it");
        let before = everything(&server);
        for parties in [0, 10_001, usize::MAX] {
            for calls in [waits(parties), looks(parties)] {
                all_say((ErrorKind::InvalidInput, "it", &format!("got {parties}"), calls));
            }
        }
        for others in [1, 3, 10_000] {
            all_say((ErrorKind::Refused, "it", "expect 2 parties", waits(others)));
        }
        assert_eq!(everything(&server), before);
        assert_eq!(mine.cyclic_barrier("it", 2).wait().unwrap(), 0);
        assert_eq!(waiter.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn what_a_condition_cannot_do_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    let (lock, other) = (client.reentrant_lock("it"), client.reentrant_lock("other"));
    let halves = client.read_write_lock("halves");
    let (mut mine, mut theirs) = (lock.lock().unwrap(), other.lock().unwrap());
    let mut write = halves.write_lock().lock().unwrap();
    let tokens = (mine.token(), theirs.token(), write.token());
    let before = everything(&server);
    macro_rules! every_call {
        ($condition:expr, $guard:expr) => {{
            let (it, never) = ($condition, redis_concurrent::CancellationToken::new());
            vec![
                it.wait(&mut $guard),
                it.wait_with(&mut $guard, SURELY).map(drop),
                it.wait_with(&mut $guard, &never).map(drop),
                it.wait_while(&mut $guard, || true),
                it.signal(&$guard),
                it.signal_all(&$guard),
                it.wait_queue_length(&$guard).map(drop),
            ]
        }};
    }
    // Of another lock; and of one of the same name that another client has.
    all_say((ErrorKind::NotOwner, "it", "", every_call!(lock.condition("c"), theirs)));
    all_say((ErrorKind::NotOwner, "other", "", every_call!(other.condition("c"), mine)));
    let elsewhere = quiet(&server).reentrant_lock("it");
    all_say((ErrorKind::NotOwner, "it", "", every_call!(elsewhere.condition("c"), mine)));
    let strange = client.read_write_lock("it");
    all_say((ErrorKind::NotOwner, "it", "", every_call!(strange.write_lock().condition("c"), write)));
    // Of a bad name.
    for (name, why) in [("", "empty"), (&*"x".repeat(1025), "1025")] {
        all_say((ErrorKind::InvalidInput, "it", why, every_call!(lock.condition(name), mine)));
        all_say((
            ErrorKind::InvalidInput,
            "halves",
            why,
            every_call!(halves.write_lock().condition(name), write),
        ));
    }
    assert_eq!(everything(&server), before);
    assert_eq!((mine.token(), theirs.token(), write.token()), tokens);
    for unlocked in [mine.unlock(), theirs.unlock(), write.unlock()] {
        unlocked.unwrap();
    }
}

#[test]
fn a_reader_that_would_write_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    let lock = client.read_write_lock("it");
    let read = lock.read_lock().lock().unwrap();
    let before = everything(&server);
    let write = lock.write_lock();
    let calls = vec![write.lock().map(drop), write.try_lock_for(SURELY).map(drop)];
    all_say((ErrorKind::WouldDeadlock, "it", "", calls));
    assert!(write.try_lock().unwrap().is_none());
    assert_eq!(everything(&server), before);
    read.unlock().unwrap();
}

// ---- names in use --------------------------------------------------------------------------

/// With its article.
fn a(kind: &str) -> String {
    format!("{} {kind}", if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" })
}

/// Every call of every kind but the owner says that the name is not its own, and whose it is, and leaves all keys as
/// they are.
#[track_caller]
fn is_only(owner: &str, server: &RedisServer, clients: [&Client; 2]) {
    is_not_for_others(&[owner], server, clients, |kind| format!("is {}, not {}", a(owner), a(kind)));
}

#[track_caller]
fn is_not_for_others(
    owners: &[&str],
    server: &RedisServer,
    clients: [&Client; 2],
    why: impl Fn(&str) -> String,
) {
    let before = everything(server);
    assert!(!before.is_empty());
    for (kind, calls) in KINDS.into_iter().filter(|(kind, _)| !owners.contains(kind)) {
        for client in clients {
            all_say((ErrorKind::WrongType, "it", &why(kind), calls(client, "it")));
            assert_eq!(everything(server), before, "a {kind} has changed it: {owners:?}");
        }
    }
}

#[test]
fn a_name_in_use_by_one_kind_is_kept_from_all_others() {
    let server = RedisServer::start().unwrap();
    let (mine, yours) = (quiet(&server), quiet(&server));
    let clients = [&mine, &yours];
    let simple = mine.simple_lock("it").lock_owned().unwrap();
    is_only("simple lock", &server, clients);
    simple.unlock().unwrap();
    let reentrant = mine.reentrant_lock("it").lock_owned().unwrap();
    is_only("reentrant lock", &server, clients);
    reentrant.unlock().unwrap();
    let reads = mine.read_write_lock("it").read_lock().lock_owned().unwrap();
    is_only("read-write lock", &server, clients);
    reads.unlock().unwrap();
    let writes = mine.read_write_lock("it").write_lock().lock_owned().unwrap();
    is_only("read-write lock", &server, clients);
    writes.unlock().unwrap();
    // What is its users' stays though nobody has it in hands, until they end it.
    let permits = mine.semaphore("it");
    permits.set_permits(2).unwrap();
    is_only("semaphore", &server, clients);
    let permit = permits.acquire(1).unwrap();
    is_only("semaphore", &server, clients);
    permit.release().unwrap();
    permits.delete().unwrap();
    let gate = mine.inventory("it");
    gate.add_stock("tee", 2).unwrap();
    is_only("inventory", &server, clients);
    let held = (
        gate.try_reserve(&Order::of("tee", 1)).unwrap(),
        gate.inventory_lock("tee", 1).lock_owned().unwrap(),
    );
    is_only("inventory", &server, clients);
    drop(held);
    gate.delete().unwrap();
    let latch = mine.count_down_latch("it");
    latch.try_set_count(1).unwrap();
    is_only("count-down latch", &server, clients);
    latch.count_down().unwrap();
    is_only("count-down latch", &server, clients);
    latch.delete().unwrap();
    let limiter = mine.rate_limiter("it", Rate::smooth(10, Duration::from_secs(3600)));
    assert!(limiter.try_acquire(5).unwrap().allowed);
    is_only("rate limiter", &server, clients);
    limiter.delete().unwrap();
    let barrier = mine.cyclic_barrier("it", 2);
    // A party whose time was up before it arrived breaks nothing.
    wait_until(SURELY, "it is broken", || {
        barrier.wait_with(ms(20)).unwrap_err();
        barrier.is_broken().unwrap()
    });
    is_only("cyclic barrier", &server, clients);
    barrier.reset().unwrap();
    drop(barrier);
    server.flush_all().unwrap();
    let term = mine.election("it").campaign().unwrap();
    is_only("election", &server, clients);
    term.resign().unwrap();
    server.flush_all().unwrap();
    let once = mine.once("it");
    let Begun::Yours(attempt) = once.begin().unwrap() else { panic!("nobody had begun") };
    is_only("idempotency key", &server, clients);
    attempt.done("it is").unwrap();
    is_only("idempotency key", &server, clients);
    once.forget().unwrap();
}

#[test]
fn a_name_that_is_waited_for_is_kept_from_all_others() {
    let server = RedisServer::start().unwrap();
    let (mine, yours) = (quiet(&server), quiet(&server));
    let latch = mine.count_down_latch("it");
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait());
        wait_for_queue(&server, "it");
        is_only("count-down latch", &server, [&mine, &yours]);
        latch.count_down().unwrap();
        waiter.join().unwrap().unwrap();
        latch.delete().unwrap();
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mine.cyclic_barrier("it", 2).wait());
        wait_for_queue(&server, "it");
        is_only("cyclic barrier", &server, [&mine, &yours]);
        assert_eq!(yours.cyclic_barrier("it", 2).wait().unwrap(), 0);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_foreign_key_is_kept_from_all() {
    let server = RedisServer::start().unwrap();
    let (mine, yours) = (quiet(&server), quiet(&server));
    let key = key("it");
    let foreign: [&[&str]; 6] = [
        &["SET", &key, "theirs"],
        &["HSET", &key, "field", "theirs"],
        &["RPUSH", &key, "theirs"],
        &["SADD", &key, "theirs"],
        &["ZADD", &key, "1", "theirs"],
        &["XADD", &key, "1-1", "field", "theirs"],
    ];
    for value in foreign {
        server.flush_all().unwrap();
        ask::<redis::Value>(&server, value);
        // A string is what a simple lock is made of.
        let owners: &[&str] = if value[0] == "SET" { &["simple lock"] } else { &[] };
        is_not_for_others(owners, &server, [&mine, &yours], |_| String::new());
    }
}
