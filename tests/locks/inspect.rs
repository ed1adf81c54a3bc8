//! What is inspected of any name, the listing of all names, and the forced unlock of whatever is there.

use std::thread;
use std::time::{Duration, SystemTime};

use redis_concurrent::admin::{HeldBy, Inspection};
use redis_concurrent::inventory::Order;
use redis_concurrent::kinds::Permits;
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::support::{LONG, SOON, builder, channels, connect, connected, ms, queued};

fn waiting(found: &Inspection) -> usize {
    found.waiters.iter().map(|it| it.threads).sum()
}

fn inspect(client: &Client, name: &str) -> Inspection {
    client.inspect(name).unwrap().expect("it is there")
}

#[test]
fn each_kind_is_known_by_its_name_alone() {
    let server = RedisServer::start().unwrap();
    let (client, viewer) = (connected(|| builder(&server.url()).client_name("billing")), connect(&server));
    let simple = client.simple_lock("simple").lock_owned().unwrap();
    let reentrant = client.reentrant_lock("reentrant").lock_owned().unwrap();
    let writer = client.read_write_lock("writer").write_lock().lock_owned().unwrap();
    let _reader = client.read_write_lock("reader").read_lock().lock_owned().unwrap();
    client.semaphore("semaphore").set_permits(5).unwrap();
    let _permits = client.semaphore("semaphore").acquire(3).unwrap();
    client.count_down_latch("latch").try_set_count(7).unwrap();
    let inventory = client.inventory("inventory");
    inventory.add_stock("mug", 2).unwrap();
    let _reserved = inventory.try_reserve(&Order::of("mug", 1)).unwrap().unwrap();
    let _ = client
        .rate_limiter("limiter", redis_concurrent::rate_limiter::Rate::fixed_window(9, ms(60_000)))
        .try_acquire(1)
        .unwrap();

    for (name, kind, token) in [
        ("simple", "simple lock", Some(simple.token())),
        ("reentrant", "reentrant lock", Some(reentrant.token())),
        ("writer", "read-write lock", Some(writer.token())),
        ("reader", "read-write lock", None),
        ("semaphore", "semaphore", None),
        ("inventory", "inventory", None),
    ] {
        let found = inspect(&viewer, name);
        assert_eq!((&*found.name, &*found.kind, found.holders.len()), (name, kind, 1), "{found:?}");
        let holder = &found.holders[0];
        assert_eq!(holder.token, token, "{name}");
        assert!(!holder.stays && holder.remaining.unwrap() > Duration::from_secs(10), "{name}: {holder:?}");
        if name != "simple" {
            let process = holder.process.as_ref().unwrap();
            assert_eq!((process.pid, &*process.client_name), (std::process::id(), "billing"));
        }
        if token.is_some() || name == "semaphore" {
            let age = SystemTime::now().duration_since(holder.since.unwrap()).unwrap_or_default();
            assert!(age < Duration::from_secs(3600), "{name}: {age:?}");
        }
        let state = found.keys.iter().find(|it| it.key == format!("rc:{{{name}}}")).unwrap();
        assert!(
            state.bytes.unwrap() > 10 && (state.ttl.is_some() || ["semaphore", "inventory"].contains(&name))
        );
    }
    assert_eq!(inspect(&viewer, "semaphore").counts, [("permits", 5), ("used", 3)]);
    assert_eq!(inspect(&viewer, "semaphore").holders[0].permits, Some(3));
    assert_eq!(inspect(&viewer, "latch").counts, [("count", 7)]);
    assert_eq!(inspect(&viewer, "limiter").kind, "rate limiter");
    assert_eq!(inspect(&viewer, "limiter").counts, [("used", 1)]);
    let stock = inspect(&viewer, "inventory").stock;
    let (sku, of) = &stock[0];
    assert_eq!((stock.len(), &**sku, of.stocked, of.available, of.reserved, of.sold), (1, "mug", 2, 1, 1, 0));
    assert!(viewer.inspect("nothing").unwrap().is_none());
    assert_eq!(viewer.inspect("").unwrap_err().kind(), ErrorKind::InvalidInput);

    // A fenced resource, and a free lock of which the last number is kept.
    client.fenced("reentrant").set(reentrant.token(), "1").unwrap();
    assert_eq!(inspect(&viewer, "reentrant").fenced, Some(reentrant.token()));
    simple.unlock().unwrap();
    assert_eq!(inspect(&viewer, "simple").kind, "not in use");

    let mut names: Vec<_> = viewer.list().map(|it| it.unwrap().name).collect();
    names.sort();
    assert_eq!(names, ["inventory", "reader", "reentrant", "semaphore", "writer"]);
    let all = viewer.list().with_free().count();
    assert_eq!(all, 8);
}

#[test]
fn the_stock_of_each_of_many_skus_is_shown_once() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let inventory = client.inventory("sale");
    let name = |i: u64| format!("sku|{i:03}");
    for i in 0..300 {
        inventory.add_stock(&name(i), i + 1).unwrap();
    }
    let _reserved = inventory.try_reserve(&Order::of(&name(7), 3)).unwrap().unwrap();
    let stock = inspect(&client, "sale").stock;
    assert_eq!(stock.len(), 300);
    for (i, (sku, it)) in (0..).zip(&stock) {
        let reserved = if i == 7 { 3 } else { 0 };
        assert_eq!(
            (sku, it.stocked, it.available, it.reserved, it.sold),
            (&name(i), i + 1, i + 1 - reserved, reserved, 0)
        );
    }
    assert!(client.list().next().unwrap().unwrap().stock.is_empty());
}

/// The name of the thread that Redis granted the lock of this name to.
fn thread_of(client: &Client, name: &str) -> Option<String> {
    inspect(client, name).holders.first()?.process.as_ref()?.thread.clone()
}

#[test]
fn the_thread_that_was_granted_a_lock_is_known_by_its_name() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    let (free, lock, fair) =
        (client.reentrant_lock("free"), other.reentrant_lock("free"), other.reentrant_lock("fair").fair());
    thread::scope(|scope| {
        let granted = named("the\tfirst").spawn_scoped(scope, || free.lock_owned().unwrap());
        let first = granted.unwrap().join().unwrap();
        assert_eq!(thread_of(&client, "free").unwrap(), "the first");
        // One that waits, and its request by a heartbeat or by a release: to another process, and within this one.
        let waits = named("waits").spawn_scoped(scope, || lock.lock_owned().unwrap()).unwrap();
        wait_until(LONG, "it waits", || !inspect(&client, "free").waiters.is_empty());
        let shown = inspect(&client, "free").waiters.swap_remove(0).process.unwrap();
        assert_eq!(shown.thread.as_deref(), Some("waits"));
        first.unlock().unwrap();
        let second = waits.join().unwrap();
        assert_eq!(thread_of(&client, "free").unwrap(), "waits");
        second.unlock().unwrap();
        // A releasing thread asks for the next one of its process: under that one's name.
        let guard = fair.lock_owned().unwrap();
        let next = named("next").spawn_scoped(scope, || fair.lock_owned().unwrap()).unwrap();
        wait_until(LONG, "it waits", || fair.local_queue_length() == 1);
        guard.unlock().unwrap();
        let third = next.join().unwrap();
        // (Where it was not asleep yet, Redis learns its name by a later request only.)
        assert!(matches!(thread_of(&client, "fair").as_deref(), None | Some("next")));
        third.unlock().unwrap();
        // A thread without a name, which no test has.
        let unnamed = scope.spawn(|| client.reentrant_lock("plain").lock_owned().unwrap()).join().unwrap();
        assert_eq!(thread_of(&client, "plain"), None);
        unnamed.unlock().unwrap();
    });
}

#[test]
fn a_lock_shared_with_redisson_is_looked_at_by_its_key() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).client_name("billing"));
    assert!(client.inspect_key("stock").unwrap().is_none());
    // A fenced lock's tokens are another counter's, so an inspection has none.
    let guard = client.redisson_fenced_lock("stock").lock_owned().unwrap();
    assert_eq!(client.inspect_key("stock").unwrap().unwrap().holders[0].token, None);
    guard.unlock().unwrap();
    let guard = client.redisson_lock("stock").lock_owned().unwrap();
    let last = guard.token();
    let it = client.inspect_key("stock").unwrap().unwrap();
    assert_eq!((&*it.kind, it.holders[0].token), ("Redisson lock", Some(last)));
    assert_eq!(it.holders[0].process.as_ref().unwrap().client_name, "billing");
    guard.unlock().unwrap();
    let mut redis = server.connection().unwrap();
    let theirs = "67e55044-10b1-426f-9247-bb680e5fe0c8:7";
    redis::cmd("HSET").arg(&["stock", theirs, "2"]).exec(&mut redis).unwrap();
    redis::cmd("PEXPIRE").arg(&["stock", "60000"]).exec(&mut redis).unwrap();
    let it = client.inspect_key("stock").unwrap().unwrap();
    let holder = &it.holders[0];
    assert_eq!((&*it.kind, &*holder.owner, &holder.process), ("Redisson lock", theirs, &None));
    assert_eq!((holder.token, holder.since), (None, None));
    // Its hold has no token; and as it would go on to renew it, it is taken away at once.
    let lock = client.redisson_lock("stock");
    assert_eq!(lock.force_unlock_if(&HeldBy::Token(last), "", true).unwrap().skipped, 1);
    assert_eq!(lock.force_unlock_if(&HeldBy::Owner(theirs.to_owned()), "", true).unwrap().holders, 1);
    assert!(lock.try_lock().unwrap().is_some());
    // Another hash is none.
    redis::cmd("HSET").arg(&["map", "a", "b"]).exec(&mut redis).unwrap();
    let map = client.inspect_key("map").unwrap().unwrap();
    assert_eq!((&*map.kind, map.holders.len()), ("a hash", 0));
}

#[test]
fn a_hold_that_only_stays_is_told_apart() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("job");
    lock.lock().unwrap().unlock_staying(Duration::from_secs(60)).unwrap();
    assert!(inspect(&client, "job").holders[0].stays);
    assert!(client.list().next().unwrap().unwrap().holders[0].stays);
}

#[test]
fn waiters_are_shown_with_process_threads_and_heartbeat() {
    let server = RedisServer::start().unwrap();
    let (holder, waits, viewer) =
        (connect(&server), connected(|| builder(&server.url()).client_name("shop")), connect(&server));
    let guard = holder.reentrant_lock("job").lock_owned().unwrap();
    let lock = waits.reentrant_lock("job");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| lock.try_lock_for(LONG).unwrap().map(|guard| guard.unlock().unwrap())))
            .collect();
        queued(&lock, 2);
        wait_until(LONG, "a heartbeat counts both", || waiting(&inspect(&viewer, "job")) == 2);
        let found = inspect(&viewer, "job");
        let waiter = &found.waiters[0];
        assert_eq!((found.waiters.len(), waiter.threads), (1, 2));
        assert_eq!(waiter.process.as_ref().unwrap().client_name, "shop");
        assert!(waiter.last_heartbeat <= ms(3000), "{waiter:?}");
        let age = SystemTime::now().duration_since(waiter.since).unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{age:?}");
        assert_eq!(waiting(&viewer.list().next().unwrap().unwrap()), 2);
        guard.unlock().unwrap();
        assert!(threads.into_iter().all(|it| it.join().unwrap().is_some()));
    });
    // And those that wait for a signal.
    let waits = thread::spawn(move || {
        let condition = lock.condition("not|empty");
        let mut guard = lock.lock().unwrap();
        condition.wait_with(&mut guard, LONG).unwrap()
    });
    wait_until(LONG, "it waits for the signal", || {
        viewer.inspect("job").unwrap().is_some_and(|found| !found.condition_waiters.is_empty())
    });
    let waiter = inspect(&viewer, "job").condition_waiters.swap_remove(0);
    assert_eq!(
        (&*waiter.condition, waiter.waiter.process.unwrap().client_name),
        ("not|empty", "shop".to_owned())
    );
    let lock = viewer.reentrant_lock("job");
    let guard = lock.lock().unwrap();
    lock.condition("not|empty").signal(&guard).unwrap();
    drop(guard);
    waits.join().unwrap();
}

#[test]
fn a_listing_has_each_of_many_once_and_holds_its_rate() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let guards: Vec<_> =
        (0..300).map(|i| client.reentrant_lock(&format!("l{i}")).lock_owned().unwrap()).collect();
    let other = connected(|| builder(&server.url()).namespace("other"));
    let _theirs = other.reentrant_lock("theirs").lock_owned().unwrap();
    let mut names: Vec<_> = client.list().map(|it| it.unwrap().name).collect();
    names.sort();
    let before = names.len();
    names.dedup();
    assert_eq!((before, names.len()), (300, 300));
    let began = std::time::Instant::now();
    assert_eq!(client.list().rate(600).count(), 300);
    assert!(began.elapsed() > ms(400), "{:?}", began.elapsed());
    // Also of those in its first second.
    let mut slow = client.list().rate(3);
    assert!(slow.next().unwrap().is_ok());
    assert!(format!("{slow:?}").contains("looked: 3,"), "{slow:?}");
    assert_eq!(other.list().count(), 1);
    drop(guards);
    wait_until(LONG, "nothing is held", || client.list().count() == 0);
}

/// As after two hours: only a lock without a record has no other number than the last one.
#[test]
fn a_hold_that_outlasts_the_last_number_has_its_age_and_token() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let reentrant = client.reentrant_lock("reentrant").lock_owned().unwrap();
    let writer = client.read_write_lock("writer").write_lock().lock_owned().unwrap();
    let leader = client.election("leader").campaign().unwrap();
    let simple = client.simple_lock("simple").lock_owned().unwrap();
    let before: Vec<_> = ["reentrant", "writer", "leader"].map(|it| inspect(&client, it).holders).into();
    let mut redis = server.connection().unwrap();
    for name in ["reentrant", "writer", "leader", "simple"] {
        let deleted: u32 = redis::cmd("DEL").arg(format!("rc:{{{name}}}:fence")).query(&mut redis).unwrap();
        assert_eq!(deleted, 1, "{name}");
    }
    for (name, before) in ["reentrant", "writer", "leader"].into_iter().zip(before) {
        let now = inspect(&client, name).holders;
        assert!(now[0].since.is_some() && now[0].token.is_some(), "{name}: {now:?}");
        assert_eq!((now[0].since, now[0].token), (before[0].since, before[0].token), "{name}");
    }
    let now = inspect(&client, "simple").holders;
    assert_eq!((now.len(), now[0].since, now[0].token), (1, None, None));
    assert!(
        !server.keys().unwrap().contains(&"rc:{simple}:fence".to_owned()),
        "an inspection writes nothing"
    );
    let token = HeldBy::Token(reentrant.token());
    assert_eq!(client.force_unlock_if("reentrant", &token, "", false).unwrap().holders, 1);
    drop((reentrant, writer, leader, simple));
}

/// For two hours Redis keeps the last number of each, and for a time what was kept for its terms or requests.
#[test]
fn a_listing_examines_no_name_that_is_only_remembered() {
    const RELEASED: u64 = 300;
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    for i in 0..RELEASED {
        client.reentrant_lock(&format!("order:{i}")).lock().unwrap().unlock().unwrap();
    }
    client.election("leader").campaign().unwrap().resign().unwrap();
    client.fenced("value").set(1, "1").unwrap();
    let simple = client.simple_lock("simple").lock_owned().unwrap();
    // A waiter of which nothing is heard is all that there is of this name.
    let proxy = Proxy::start(server.port()).unwrap();
    let waits = connected(|| builder(&proxy.url()).waiter_timeout(LONG));
    let (holder, awaited) = (client.reentrant_lock("awaited"), waits.reentrant_lock("awaited"));
    let guard = holder.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| awaited.try_lock_for(LONG).map(drop));
        queued(&holder, 1);
        proxy.black_hole(true);
        let mut redis = server.connection().unwrap();
        redis::cmd("DEL").arg("rc:{awaited}").exec(&mut redis).unwrap();
        server.reset_stats().unwrap();
        let mut all: Vec<_> = client.list().map(Result::unwrap).collect();
        let calls = server.command_calls().unwrap();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let shown: Vec<_> = all.iter().map(|it| (&*it.name, it.holders.len(), waiting(it))).collect();
        assert_eq!(shown, [("awaited", 0, 1), ("simple", 1, 0)]);
        assert_eq!(calls["type"], 2, "{calls:?}");
        let all = client.list().with_free().count() as u64;
        assert_eq!(all, RELEASED + 4);
        proxy.black_hole(false);
        waiter.join().unwrap().unwrap();
    });
    drop((guard, simple));
}

/// More than one script removes. Nobody but the listing asks, and the process that had them cannot.
#[test]
fn a_listing_has_what_is_held_right_after_many_leases_were_over() {
    const LAPSED: u32 = 150;
    let server = RedisServer::start().unwrap();
    let viewer = connect(&server);
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()));
    let semaphores = ["held", "free"].map(|name| viewer.semaphore(name));
    let goods = ["reserved", "stocked"];
    let inventories = goods.map(|name| viewer.inventory(name));
    semaphores.iter().for_each(|it| it.set_permits(2 * LAPSED).unwrap());
    inventories.iter().for_each(|it| it.add_stock("mug", 2 * u64::from(LAPSED)).unwrap());
    let _permit = semaphores[0].acquire(1).unwrap();
    let _reserved = inventories[0].try_reserve(&Order::of("mug", 1)).unwrap().unwrap();
    for _ in 0..LAPSED {
        for it in &semaphores {
            std::mem::forget(client.semaphore(it.name()).with_lease(ms(3000)).try_acquire(1).unwrap());
        }
        for name in goods {
            let brief = client.inventory(name).with_lease(ms(3000));
            std::mem::forget(brief.try_reserve(&Order::of("mug", 1)).unwrap());
        }
    }
    proxy.black_hole(true);
    thread::sleep(ms(3200));
    let mut all: Vec<_> = viewer.list().map(Result::unwrap).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let shown: Vec<_> = all.iter().map(|it| (&*it.name, it.holders.len(), it.more)).collect();
    assert_eq!(shown, [("held", 1, false), ("reserved", 1, false)]);
    assert_eq!(all[0].counts, [("permits", 300), ("used", 1)]);
    proxy.black_hole(false);
}

#[test]
fn a_hold_is_taken_away_by_the_name_alone() {
    let server = RedisServer::start().unwrap();
    let (client, viewer) = (connect(&server), connect(&server));
    let _simple = client.simple_lock("simple").lock_owned().unwrap();
    let _reentrant = client.reentrant_lock("reentrant").lock_owned().unwrap();
    let _writer = client.read_write_lock("writer").write_lock().lock_owned().unwrap();
    let _reader = client.read_write_lock("reader").read_lock().lock_owned().unwrap();
    client.semaphore("semaphore").set_permits(5).unwrap();
    let _permits = client.semaphore("semaphore").acquire(3).unwrap();
    let inventory = client.inventory("inventory");
    inventory.add_stock("mug", 2).unwrap();
    let _reserved = inventory.try_reserve(&Order::of("mug", 1)).unwrap().unwrap();
    for name in ["simple", "reentrant", "writer", "reader", "semaphore", "inventory"] {
        let owner = inspect(&viewer, name).holders[0].owner.clone();
        let wrong = HeldBy::Owner(format!("{owner}1"));
        assert_eq!(viewer.force_unlock_if(name, &wrong, "", false).unwrap().skipped, 1, "{name}");
        assert_eq!(
            viewer.force_unlock_if(name, &HeldBy::Owner(owner), "", false).unwrap().holders,
            1,
            "{name}"
        );
        assert!(inspect(&viewer, name).holders.is_empty(), "{name}");
    }
    assert_eq!(client.semaphore("semaphore").available().unwrap(), 5);
    assert_eq!(inventory.stock("mug").unwrap().available, 2);
    client.count_down_latch("latch").try_set_count(7).unwrap();
    for (name, kind) in [("latch", ErrorKind::Refused), ("nothing", ErrorKind::NotOwner)] {
        assert_eq!(viewer.force_unlock_if(name, &HeldBy::Anyone, "", false).unwrap_err().kind(), kind);
    }
}

#[test]
fn a_revoked_hold_keeps_others_out_even_if_a_renewal_of_it_had_no_reply() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    // With a heartbeat of its own only: the loss is told, or found out by a renewal that is asked for.
    for notified in [true, false] {
        let client = connected(|| builder(&proxy.url()).lease(ms(60_000)));
        let other = connect(&server);
        let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
        proxy.swallow_next_reply_and_reset();
        guard.renew().unwrap();
        if !notified {
            proxy.swallow_replies_with(b"no:forced");
        }
        assert_eq!(view.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().holders, 1);
        assert!(notified || guard.renew().is_err());
        assert!(lost.wait_timeout(LONG));
        // Whatever there is to give back in the background has been given back.
        client.close().unwrap();
        assert!(view.try_lock().unwrap().is_none(), "its work may not have ended yet, told: {notified}");
        assert_eq!(view.force_unlock().unwrap().holders, 1);
        proxy.swallow_replies_with(b"");
    }
}

#[test]
fn a_revoked_hold_keeps_others_out_until_its_lease_is_over() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).lease(ms(60_000)));
    let other = connect(&server);
    let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
    let owner = HeldBy::Owner(view.holder().unwrap().unwrap().owner);
    assert!(view.force_unlock_if(&owner, "maintenance", true).unwrap().notified == 1);
    assert!(lost.wait_timeout(SOON) && guard.loss().unwrap().to_string().ends_with("by force: maintenance"));
    assert!(view.try_lock().unwrap().is_none(), "its work may not have ended yet");
    assert!(inspect(&other, "job").holders[0].stays);
    let left = view.holder().unwrap().and_then(|it| it.remaining).unwrap();
    assert!(
        guard.renew().is_err() && view.holder().unwrap().and_then(|it| it.remaining).unwrap() <= left,
        "it is not renewed"
    );
    // Its work has ended.
    assert_eq!(lock.force_unlock_if(&owner, "", false).unwrap().holders, 1);
    assert!(view.try_lock().unwrap().is_some());
    drop(guard);
    let permits = client.lock_with_kind("gpu", Permits::of(1).unwrap());
    client.semaphore("gpu").set_permits(1).unwrap();
    let _held = permits.lock_owned().unwrap();
    assert_eq!(permits.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().holders, 1);
    assert_eq!(client.semaphore("gpu").available().unwrap(), 0, "it stays");
}
