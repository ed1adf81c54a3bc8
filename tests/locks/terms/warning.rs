//! A token that is cancelled while a margin of the hold is still certain.

use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client, ErrorKind, MultiLock, RedLockClient};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{LONG, SOON, builder, channels, connect, connected, ms};

const LEASE: Duration = Duration::from_secs(4);

fn short(server: &RedisServer) -> Client {
    connected(|| builder(&server.url()).lease(LEASE).renew_every(ms(300)))
}

fn warned(stop: &CancellationToken) -> bool {
    stop.wait_timeout(LONG)
}

#[test]
fn it_comes_before_the_hold_ends_while_redis_is_silent() {
    let server = RedisServer::start().unwrap();
    let client = short(&server);
    let lock = client.reentrant_lock("job");
    let guard = lock.lock().unwrap();
    let (early, late) = (guard.ends_within(ms(2000)), guard.ends_within(ms(700)));
    // More than a lease, in which it is renewed.
    assert!(!early.wait_timeout(LEASE + ms(500)), "it is renewed");
    server.stop().unwrap();
    assert!(warned(&early));
    let left = guard.remaining();
    assert!(left <= ms(2000), "{left:?}");
    // On a machine that stood still there may be nothing left.
    assert!(!left.is_zero() || guard.loss().is_some());
    assert!(warned(&late) && guard.remaining() <= ms(700));
    assert!(warned(&guard.lost()));
    assert_eq!(guard.loss().unwrap().kind(), ErrorKind::LeaseLost);
    server.cont().unwrap();
}

#[test]
fn it_comes_when_a_renewal_without_a_reply_has_left_less() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).lease(Duration::from_secs(60)));
    let guard = client.reentrant_lock("job").lock_owned().unwrap();
    // It takes two seconds to say so.
    let stop = guard.ends_within(LEASE + ms(2500));
    server.stop().unwrap();
    assert!(guard.renew_for(2 * LEASE).unwrap_err().is_outcome_unknown());
    assert!(warned(&stop) && !guard.remaining().is_zero(), "before the end");
    server.cont().unwrap();
}

#[test]
fn a_fixed_lease_comes_to_it_in_any_case_and_a_longer_one_later() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("job").with_lease(Duration::from_secs(60));
    let guard = lock.lock().unwrap();
    let stop = guard.ends_within(Duration::from_secs(50));
    assert!(!stop.is_cancelled());
    let began = Instant::now();
    // By another guard of the hold, which then goes.
    lock.lock().unwrap().renew_for(Duration::from_secs(52)).unwrap();
    assert!(warned(&stop), "the lease was shortened");
    assert!(began.elapsed() > ms(1000) && guard.remaining() > Duration::from_secs(20));
    assert!(guard.ends_within(Duration::from_secs(55)).is_cancelled(), "less than that is left already");
    assert!(guard.loss().is_none());
}

#[test]
fn a_first_lease_is_no_reason_and_half_of_it_is_the_margin() {
    let server = RedisServer::start().unwrap();
    let other = connect(&server).reentrant_lock("job");
    // A hold of 60 s that was waited for: its first lease is `first`.
    let waited_for = |first| {
        let client = connected(|| builder(&server.url()).lease(ms(60_000)).waiter_timeout(first));
        let before = other.lock().unwrap();
        let waits = std::thread::spawn(move || client.reentrant_lock("job").lock_owned().unwrap());
        wait_until(LONG, "it waits", || other.queue_length().unwrap() == 1);
        before.unlock().unwrap();
        waits.join().unwrap()
    };
    let guard = waited_for(ms(20_000));
    let stop = guard.ends_within(ms(25_000));
    assert!(!stop.wait_timeout(ms(1_000)), "a first lease is renewed soon");
    guard.unlock().unwrap();
    // Redis falls silent before that, if this thread is not kept from running.
    let is_told_of_half = |guard: redis_concurrent::OwnedGuard<_>| {
        let stop = guard.ends_within(ms(25_000));
        server.stop().unwrap();
        let is_first = guard.remaining() < ms(3_000);
        let in_time = !is_first || (warned(&stop) && guard.remaining() <= ms(1_500));
        server.cont().unwrap();
        assert!(in_time, "{:?} are left", guard.remaining());
        is_first
    };
    assert!((0..20).any(|_| is_told_of_half(waited_for(ms(3_000)))));
}

#[test]
fn a_loss_gives_it_and_a_release_does_not() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let lock = client.reentrant_lock("job");
    let guard = lock.lock().unwrap();
    let released = guard.ends_within(ms(1));
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    let stop = guard.ends_within(ms(1));
    wait_until(SOON, "the holder listens", || {
        assert!(!stop.is_cancelled());
        !channels(&server).is_empty()
    });
    assert_eq!(other.reentrant_lock("job").force_unlock().unwrap().notified, 1);
    assert!(warned(&stop));
    assert!(guard.unlock().is_err() && !released.is_cancelled());
}

#[test]
fn nothing_is_kept_of_a_token_that_was_dropped() {
    let servers = [0; 3].map(|_| RedisServer::start().unwrap());
    let clients: Vec<_> = servers.iter().map(connect).collect();
    let (a, b) = (clients[0].reentrant_lock("a"), clients[0].reentrant_lock("b"));
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay();
    let (one, two) = (a.lock_owned().unwrap(), MultiLock::new(&[&b]).lock_owned().unwrap());
    let three = red.lock("c").lock_owned().unwrap();
    // Its channel is disconnected when nothing keeps the token.
    let receivers = [one.ends_within(ms(1)), two.ends_within(ms(1)), three.ends_within(ms(1))].map(|token| {
        assert!(!token.is_cancelled());
        token.receiver()
    });
    for receiver in receivers {
        wait_until(SOON, "the token is gone", || receiver.try_recv().is_err_and(|e| e.is_disconnected()));
    }
    assert!(one.loss().is_none() && two.loss().is_none() && three.loss().is_none());
}

#[test]
fn several_locks_and_several_servers_have_it_too() {
    let servers = [0; 3].map(|_| RedisServer::start().unwrap());
    let clients: Vec<_> = servers.iter().map(short).collect();
    let (a, b) = (clients[0].reentrant_lock("a"), clients[1].reentrant_lock("b"));
    let both = MultiLock::new(&[&a, &b]);
    let guard = both.lock().unwrap();
    let stop = guard.ends_within(ms(1000));
    servers[1].stop().unwrap();
    assert!(warned(&stop), "one of the two is no longer renewed");
    assert!(guard.remaining() <= ms(1000));
    servers[1].cont().unwrap();
    wait_until(LONG, "it is there again", || {
        clients[1].reentrant_lock("c").try_lock().is_ok_and(|it| it.is_some())
    });
    drop(guard);

    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay();
    let lock = red.lock("job");
    let guard = lock.try_lock_for(LONG).unwrap().expect("servers that have been up for long enough");
    let stop = guard.ends_within(ms(1000));
    assert!(!stop.wait_timeout(ms(100)));
    servers[0].stop().unwrap();
    servers[1].stop().unwrap();
    assert!(warned(&stop), "one of three is left");
    assert!(guard.remaining() <= ms(1000));
    assert!(warned(&guard.lost()) && guard.loss().unwrap().is_lease_lost());
    servers[0].cont().unwrap();
    servers[1].cont().unwrap();
}
