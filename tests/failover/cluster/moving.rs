//! Slots that an operator moves, and nodes that come and go.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::{RedisCluster, eventually, wait_until};

use super::{home, key, patient};
use crate::support::{LONG, Recorder, SOON, builder, connected, ms, pttl, queued, renewed_again};

/// A lock whose slot moves while it is held and waited for: the hold goes with it, is renewed there, and the waiter
/// is let in there.
#[test]
fn a_slot_may_move_while_its_lock_is_held_and_waited_for() {
    let cluster = RedisCluster::start(2).unwrap();
    let name = "moved";
    let (from, slot) = (home(&cluster, name), cluster.slot_of(&key(name)).unwrap());
    let to = cluster.primaries().unwrap().into_iter().find(|node| node.port() != from.port()).unwrap();
    let recorder = Recorder::default();
    let holder = builder(&cluster.url()).lease(ms(9000)).renew_every(ms(300)).observer(recorder.clone());
    let holder = holder.connect().unwrap();
    let waiter = patient(&cluster).connect().unwrap();
    let lock = holder.reentrant_lock(name);
    let guard = lock.lock().unwrap();
    let token = guard.token();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let lock = waiter.reentrant_lock(name);
            let guard = lock.lock().unwrap();
            let token = guard.token();
            guard.unlock().unwrap();
            token
        });
        queued(&lock, 1);
        cluster.move_slot(slot, &to).unwrap();
        assert!(from.keys().unwrap().is_empty() && to.keys().unwrap().contains(&key(name)));
        renewed_again(|| ms(pttl(&to, &key(name)).try_into().unwrap_or_default()));
        assert!(!guard.is_lost());
        queued(&lock, 1);
        guard.unlock().unwrap();
        assert!(waiting.join().unwrap() > token);
    });
    assert_eq!(recorder.losses(), 0);
    // And a lock that nobody held.
    lock.try_lock_for(SOON).unwrap().expect("it is free").unlock().unwrap();
}

/// A slot that stays half moved: locks without keys there answer after a short while, one that is held goes on when
/// the slot has moved.
#[test]
fn a_slot_that_is_half_moved_is_unavailable_for_as_long_as_that_lasts() {
    let cluster = RedisCluster::start(2).unwrap();
    let name = "half";
    let (from, slot) = (home(&cluster, name), cluster.slot_of(&key(name)).unwrap());
    let to = cluster.primaries().unwrap().into_iter().find(|node| node.port() != from.port()).unwrap();
    let client = connected(|| builder(&cluster.url()));
    let lock = client.reentrant_lock(name);
    lock.lock().unwrap().unlock().unwrap();
    cluster.begin_move(slot, &to).unwrap();
    let began = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unavailable(), "{error:#}");
    let text = format!("{error:#}").to_uppercase();
    assert!(text.contains("ASK") || text.contains("TRYAGAIN"), "{error:#}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        // Others are not held up.
        let other =
            (0..).map(|i| format!("other {i}")).find(|name| cluster.slot_of(&key(name)).unwrap() != slot);
        client.reentrant_lock(&other.unwrap()).lock().unwrap().unlock().unwrap();
        cluster.finish_move(slot, &to).unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(home(&cluster, name).port(), to.port());
}

/// `close` sends what it was refused again for as long as it may take.
#[test]
fn a_client_that_is_closed_while_a_slot_moves_releases_what_it_held_there() {
    let cluster = RedisCluster::start(2).unwrap();
    let mut names = (0..).map(|i| format!("closed {i}"));
    // On a busy machine a move may take longer than `close`, but not each time.
    let (to, name) = eventually(3 * LONG, || {
        let name = names.next()?;
        let (from, slot) = (home(&cluster, &name), cluster.slot_of(&key(&name)).unwrap());
        let to = cluster.primaries().unwrap().into_iter().find(|node| node.port() != from.port())?;
        let client = patient(&cluster).connect().unwrap();
        let _guard = client.reentrant_lock(&name).lock_owned().unwrap();
        cluster.begin_move(slot, &to).unwrap();
        thread::scope(|scope| {
            let asked = client.request_count();
            let closing = scope.spawn(|| client.close());
            // The leave and the map, twice.
            wait_until(SOON, "it was refused twice", || client.request_count() >= asked + 4);
            cluster.finish_move(slot, &to).unwrap();
            closing.join().unwrap().is_ok()
        })
        .then_some((to, name))
    });
    assert!(!to.keys().unwrap().contains(&key(&name)));
}

#[test]
fn nodes_come_and_go() {
    let cluster = RedisCluster::start(2).unwrap();
    let name = "nodes";
    let slot = cluster.slot_of(&key(name)).unwrap();
    let client = patient(&cluster).connect().unwrap();
    let lock = client.reentrant_lock(name);
    let guard = lock.lock().unwrap();
    let (first, added) = (home(&cluster, name), cluster.add_primary().unwrap());
    cluster.move_slot(slot, &added).unwrap();
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    assert!(added.keys().unwrap().contains(&key(name)));
    // It goes, with its one slot; the client knew it, and does without.
    cluster.remove(&added, &first).unwrap();
    guard.renew_for(Duration::from_secs(30)).unwrap();
    guard.unlock().unwrap();
    assert!(first.keys().unwrap().iter().all(|key| !key.ends_with(":queue")));
    lock.lock().unwrap().unlock().unwrap();
}
