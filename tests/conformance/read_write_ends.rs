//! The read/write lock: how holds of either half end by themselves, or are ended.

use std::thread;
use std::time::Instant;

use redis_concurrent::Client;
use redis_concurrent::kinds::Write;
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent, wait_until};

use crate::conformance::fixture::{EVERY, Fixture, LASTING, LATE, LEASE, NAME, in_vain};
use crate::conformance::read_write::elsewhere;
use crate::conformance::rows::rows;
use crate::support::{LONG, env, ms, nothing_left, queued};

rows! { read_write_lock:
    readers_come_in_when_the_writers_lease_ends
    a_writer_comes_in_when_the_writers_lease_ends
    a_reader_is_no_obstacle_to_readers_however_long_its_lease
    one_half_is_taken_away_and_not_the_other
    a_writer_that_is_gone_holds_it_for_its_lease
    a_read_that_a_restart_forgot_is_lost_and_the_next_is_renewed
}

/// Redisson RedissonReadWriteLockTest.testReadLockLeaseTimeoutDiffThreadsWRR (10 s there).
fn readers_come_in_when_the_writers_lease_ends(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let others = [lock.clone(), fixture.read_write()];
    let lease = ms(1000);
    let began = Instant::now();
    let leased = lock.write_lock().with_lease(lease);
    let write = leased.lock().unwrap();
    thread::scope(|scope| {
        let readers = others.each_ref().map(|other| {
            scope.spawn(move || {
                let guard = other.read_lock().try_lock_for(LONG).unwrap().expect("the lease is over");
                let took = began.elapsed();
                guard.unlock().unwrap();
                took
            })
        });
        for reader in readers {
            let took = reader.join().unwrap();
            // Its process gives it up a drift (1 %) before Redis would.
            assert!(took >= lease * 98 / 100 && took < lease + LATE, "{took:?}");
        }
    });
    assert!(write.unlock().unwrap_err().is_lease_lost());
}

/// Redisson RedissonReadWriteLockTest.testExpireWrite (2 s there).
fn a_writer_comes_in_when_the_writers_lease_ends(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let lease = ms(1000);
    let began = Instant::now();
    let leased = lock.write_lock().with_lease(lease);
    let write = leased.lock().unwrap();
    let next = other.write_lock().try_lock_for(LONG).unwrap().unwrap();
    let took = began.elapsed();
    assert!(took >= lease * 98 / 100 && took < lease + LATE, "{took:?}");
    assert!(next.token() > write.token());
    assert!(write.unlock().unwrap_err().is_lease_lost());
    assert!(!next.is_lost(), "a late unlock does not hurt the next writer");
    next.unlock().unwrap();
}

/// Redisson RedissonReadWriteLockTest.testExpireRead.
fn a_reader_is_no_obstacle_to_readers_however_long_its_lease(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let leased = lock.read_lock().with_lease(4 * LATE);
    let read = leased.lock().unwrap();
    let began = Instant::now();
    let concurrent = other.read_lock().lock().unwrap();
    elsewhere(|| lock.read_lock().lock().unwrap().unlock().unwrap());
    assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
    concurrent.unlock().unwrap();
    read.unlock().unwrap();
}

/// Redisson RedissonReadWriteLockTest.testForceUnlock.
fn one_half_is_taken_away_and_not_the_other(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let read = lock.read_lock().lock().unwrap();
    assert!(other.write_lock().force_unlock().unwrap().holders == 0);
    assert!(other.read_lock().is_locked().unwrap() && !read.is_lost());
    assert!(other.read_lock().force_unlock().unwrap().holders > 0);
    assert!(!other.read_lock().is_locked().unwrap());
    assert!(read.unlock().unwrap_err().is_lease_lost());

    let write = lock.write_lock().lock().unwrap();
    assert!(other.read_lock().force_unlock().unwrap().holders == 0);
    assert!(other.write_lock().is_locked().unwrap() && !write.is_lost());
    assert!(other.write_lock().force_unlock().unwrap().holders > 0);
    assert!(!other.write_lock().is_locked().unwrap());
    other.write_lock().try_lock().unwrap().expect("it is free").unlock().unwrap();
    assert!(write.unlock().unwrap_err().is_lease_lost());
}

/// Redisson RedissonReadWriteLockTest.testAutoExpire (a watchdog of 1 s there).
fn a_writer_that_is_gone_holds_it_for_its_lease(fixture: &Fixture<Write>) {
    let (url, namespace) = (fixture.place.url(), fixture.place.namespace());
    let env = [("URL", url.as_str()), ("NAMESPACE", &namespace)];
    let mut child = Child::spawn("conformance::read_write_ends::role_writes", &env).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "writes");
    let lock = fixture.read_write();
    assert!(lock.read_lock().try_lock().unwrap().is_none());
    child.kill9().unwrap();
    let began = Instant::now();
    let guard = lock.write_lock().try_lock_for(LONG).unwrap().unwrap();
    assert!(began.elapsed() < LEASE + LATE, "{:?}", began.elapsed());
    guard.unlock().unwrap();
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_writes() {
    if !is_role("conformance::read_write_ends::role_writes") {
        return;
    }
    let builder =
        Client::builder().url(&env("URL")).namespace(&env("NAMESPACE")).lease(LEASE).renew_every(EVERY);
    let lock = builder.connect().unwrap().read_write_lock(NAME);
    let _guard = lock.write_lock().lock().unwrap();
    tell_parent("writes").unwrap();
    // Until it is killed.
    hear_parent().unwrap();
}

/// Redisson RedissonLockExpirationRenewalTest.testReadLockAfterTimeout (a watchdog of 1 s there).
fn a_read_that_a_restart_forgot_is_lost_and_the_next_is_renewed(fixture: &Fixture<Write>) {
    let server = RedisServer::start().unwrap();
    let clients = [(); 2].map(|()| {
        fixture.client_with(|b| b.url(&server.url()).namespace("rc").lease(LASTING).renew_every(EVERY))
    });
    let [lock, other] = clients.each_ref().map(|client| fixture.read_write_of(client));
    let read = lock.read_lock().lock().unwrap();
    server.restart().unwrap();
    wait_until(LONG, "it is lost", || read.is_lost());
    assert!(read.unlock().unwrap_err().is_lease_lost());
    assert_eq!(lock.read_lock().hold_count(), 0);

    let read = lock.read_lock().lock().unwrap();
    in_vain(LASTING * 3 / 2, |limit| other.write_lock().try_lock_for(limit));
    queued(other.write_lock(), 0);
    assert!(!read.is_lost());
    read.unlock().unwrap();
    drop((lock, other));
    nothing_left(&server);
    // While the server is there.
    for client in clients {
        client.close().unwrap();
    }
}
