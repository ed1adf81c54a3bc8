//! A play in which everything happens to a lock that an observer can hear of.

use std::thread;

use redis_concurrent::observe::{AcquiredVia, KeptEnd, LossReason};
use redis_concurrent::{CancellationToken, Client, ClientBuilder, ErrorKind};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, released_all, wait_until};

use crate::diary::{Diary, Event};
use crate::observers::LONG;
use crate::support::{builder, connect, connected, ms};

/// What must have been heard in the end.
pub fn all_there_is() -> Vec<Event> {
    vec![
        Event::Acquired(AcquiredVia::Free),
        Event::Acquired(AcquiredVia::Granted),
        Event::Acquired(AcquiredVia::HandedOff),
        Event::NotAcquired(None),
        Event::NotAcquired(Some(ErrorKind::Cancelled)),
        Event::NotAcquired(Some(ErrorKind::Deadlock)),
        Event::Deadlock { chosen: true },
        Event::Released,
        Event::NoLongerKept(KeptEnd::Wanted),
        Event::Renewed,
        Event::RenewalFailed,
        Event::Lost(LossReason::Expired),
        Event::Lost(LossReason::Revoked),
        Event::Lost(LossReason::Forced),
        Event::Lost(LossReason::Closed),
        Event::Deferred,
        Event::Abandoned,
        Event::UnlockFailed(ErrorKind::LeaseLost),
        Event::UnlockFailed(ErrorKind::OutcomeUnknown),
        Event::Reconnected,
    ]
}

/// Plays it before `diary` and the observers that `add` adds. When it returns, nothing happens any more.
pub fn play(diary: &Diary, add: impl Fn(ClientBuilder) -> ClientBuilder) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let watched = |url: &str, set: fn(ClientBuilder) -> ClientBuilder| {
        connected(|| {
            let builder = set(builder(url)).renew_every(ms(60)).local_handoff(LONG);
            add(builder.observer(diary.clone()))
        })
    };
    let near = watched(&server.url(), |b| b);
    // Its silence is waited for.
    let far = watched(&proxy.url(), |b| b.lease(ms(5000)).command_timeout(ms(500)));
    let others = connect(&server);
    waits(&near, &others);
    deadlocks(&near);
    keeps(&near, &others, diary);
    losses(&near, &others, &server, diary);
    silence(&far, &proxy, diary);
    for client in [near, far, others] {
        // Nothing is held any more; a busy machine may leave no time to hear so.
        let _ = released_all(&client.close());
    }
    // (Other tests of this process have threads of their own.)
    wait_until(LONG, "nobody tells it any more", || diary.is_complete());
}

/// Of two threads, the one that waits last gives up.
fn deadlocks(client: &Client) {
    let (lock, also) = (&client.reentrant_lock("played"), &client.reentrant_lock("also played"));
    let held = also.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let held = lock.lock().unwrap();
            also.lock().unwrap().unlock().unwrap();
            held.unlock().unwrap();
        });
        wait_until(LONG, "it waits", || also.local_queue_length() == 1);
        // Their clocks count in milliseconds.
        thread::sleep(ms(20));
        assert_eq!(lock.lock().map(drop).unwrap_err().kind(), ErrorKind::Deadlock);
        held.unlock().unwrap();
    });
}

fn keeps(client: &Client, others: &Client, diary: &Diary) {
    let lock = client.simple_lock("played").linger(LONG);
    let other = others.simple_lock("played");
    wait_until(LONG, "it was kept", || {
        // On a busy machine one of them may come too late.
        let _ = lock.with(|_| ()).and_then(|()| other.with(|_| ()));
        diary.has(&Event::NoLongerKept(KeptEnd::Wanted))
    });
}

fn waits(client: &Client, others: &Client) {
    let (lock, other) = (client.reentrant_lock("played"), others.reentrant_lock("played"));
    lock.lock().unwrap().unlock().unwrap();
    let held = other.lock_owned().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert!(lock.lock_interruptibly(&cancelled).unwrap_err().is_cancelled());
    thread::scope(|scope| {
        scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || other.queue_length().unwrap() == 1);
        held.unlock().unwrap();
    });
    let simple = client.simple_lock("played");
    let held = simple.lock_owned().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| simple.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || simple.local_queue_length() == 1);
        held.unlock().unwrap();
    });
}

fn losses(client: &Client, others: &Client, server: &RedisServer, diary: &Diary) {
    let lock = client.reentrant_lock("played");
    let lose = |how: &dyn Fn()| {
        let renewed = diary.count(&Event::Renewed);
        let guard = lock.lock().unwrap();
        wait_until(LONG, "a renewal", || diary.count(&Event::Renewed) > renewed);
        how();
        assert!(guard.lost().wait_timeout(LONG));
        drop(guard);
    };
    // A renewal may find out before the message comes, and then it was revoked.
    wait_until(LONG, "the message comes first", || {
        lose(&|| {
            let _ = others.reentrant_lock("played").force_unlock().unwrap();
        });
        diary.has(&Event::Lost(LossReason::Forced))
    });
    lose(&|| server.flush_all().unwrap());
    let guard = lock.with_lease(ms(150)).lock_owned().unwrap();
    wait_until(LONG, "its end", || diary.has(&Event::Lost(LossReason::Expired)));
    drop(guard);
    server.kill_clients(ClientKind::PubSub).unwrap();
    wait_until(LONG, "a new inbox", || diary.has(&Event::Reconnected));
    let guard = lock.lock_owned().unwrap();
    // A busy machine may leave it no time to hear that all was given back.
    let _ = released_all(&client.close());
    drop(guard);
}

fn silence(client: &Client, proxy: &Proxy, diary: &Diary) {
    let lock = client.reentrant_lock("played");
    let renewed = diary.count(&Event::Renewed);
    let guard = lock.lock_owned().unwrap();
    wait_until(LONG, "a renewal", || diary.count(&Event::Renewed) > renewed);
    proxy.black_hole(true);
    wait_until(LONG, "a renewal fails", || diary.has(&Event::RenewalFailed));
    proxy.heal().unwrap();
    // On a slow machine it is lost by now.
    drop(guard);
    let deferred = diary.count(&Event::Deferred);
    wait_until(LONG, "it goes on in the background", || {
        proxy.heal().unwrap();
        let guard = lock.try_lock_for(LONG).unwrap().expect("it was given back");
        proxy.black_hole(true);
        // The same.
        drop(guard);
        diary.count(&Event::Deferred) > deferred
    });
    wait_until(LONG, "it is left to its lease", || diary.has(&Event::Abandoned));
    proxy.heal().unwrap();
}
