//! What other suites check of a semaphore with many clients, and of permits with leases.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Semaphore;
use redis_concurrent::internals::lock_count;
use redis_concurrent_testkit::{Barrier, Proxy, closes_in_time, wait_until};

use crate::conformance::fixture::{Fixture, LATE, LEASE, NAME, Tried};
use crate::conformance::rows::rows;
use crate::conformance::semaphore::It;
use crate::support::{LONG, Random, SetOnDrop, in_brief, ms};

rows! { one_lock:
    threads_of_one_client_count_to_15
    clients_that_come_back_count_to_1600
    leases_bring_permits_back
    a_waiter_gets_in_when_a_lease_ends
    each_permit_comes_back_for_itself
    what_remains_of_a_lease_is_told
    the_fourth_gets_what_one_of_three_gave_back
    a_closed_client_gives_its_permits_back
    never_more_are_out_than_there_are
    ten_clients_share_five
    work_stops_while_the_server_is_away
}

/// A thread for each semaphore, all at once, each working so often under one permit; how often an
/// increment in two steps was done then, which is lost if two are inside.
fn work(semaphores: &[Semaphore], rounds: usize, during: Duration) -> u64 {
    let (inside, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(semaphores.len());
    thread::scope(|scope| {
        for semaphore in semaphores {
            scope.spawn(|| {
                start.wait();
                for _ in 0..rounds {
                    let permit = semaphore.acquire(1).unwrap();
                    assert!(!inside.swap(true, SeqCst), "two are inside");
                    let seen = count.load(SeqCst);
                    thread::sleep(during);
                    count.store(seen + 1, SeqCst);
                    inside.store(false, SeqCst);
                    permit.release().unwrap();
                }
            });
        }
    });
    count.into_inner()
}

/// Redisson RedissonSemaphoreTest.testConcurrency_SingleInstance.
fn threads_of_one_client_count_to_15<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    let client = fixture.patient();
    let semaphores: Vec<_> = (0..15).map(|_| client.semaphore(NAME)).collect();
    assert_eq!(work(&semaphores, 1, ms(1)), 15);
    assert_eq!(it.available().unwrap(), 1);
}

/// Redisson RedissonSemaphoreTest.testConcurrencyLoop_MultiInstance and the same of
/// RedissonPermitExpirableSemaphoreTest.
fn clients_that_come_back_count_to_1600<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    let semaphores: Vec<_> = (0..16).map(|_| fixture.patient().semaphore(NAME)).collect();
    assert_eq!(work(&semaphores, 100, Duration::ZERO), 1600);
    assert_eq!(it.available().unwrap(), 1);
}

/// Redisson RedissonPermitExpirableSemaphoreTest.testAvailablePermits.
fn leases_bring_permits_back<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 2);
    let take = |lease| it.with_lease(lease).try_acquire(1).unwrap();
    let (brief, long) = (take(LONG).unwrap(), take(LONG).unwrap());
    assert!(take(ms(600)).is_none());
    long.renew_for(ms(1500)).unwrap();
    brief.renew_for(ms(600)).unwrap();
    wait_until(LONG, "one is back", || it.available().unwrap() >= 1);
    assert!(brief.is_lost());
    let again = take(ms(300)).unwrap();
    wait_until(LONG, "all are back", || it.available().unwrap() == 2);
    assert!(long.is_lost() && again.is_lost());
    for permit in [brief, long, again] {
        assert!(permit.release().unwrap_err().is_lease_lost());
    }
}

/// Redisson RedissonPermitExpirableSemaphoreTest.testExpire.
fn a_waiter_gets_in_when_a_lease_ends<K: Tried>(fixture: &Fixture<K>) {
    const LEASE: Duration = ms(1000);
    let (it, other) = (It::of(fixture, 1), fixture.client().semaphore(NAME));
    let began = Instant::now();
    let permit = it.with_lease(LEASE).acquire(1).unwrap();
    let next = other.acquire(1).unwrap();
    let took = began.elapsed();
    assert!(took + LEASE / 50 >= LEASE && took < LEASE + LATE, "{took:?}");
    assert!(permit.release().unwrap_err().is_lease_lost(), "it is too late for that");
    assert!(!next.is_lost());
    assert_eq!(it.available().unwrap(), 0);
}

/// Redisson RedissonPermitExpirableSemaphoreTest.testRelease.
fn each_permit_comes_back_for_itself<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 10);
    let mut permits: Vec<_> = (0..6).map(|_| it.acquire(1).unwrap()).collect();
    for (rest, available) in [(2, 8), (0, 10)] {
        for permit in permits.drain(rest..) {
            permit.release().unwrap();
        }
        assert_eq!(it.available().unwrap(), available);
    }
}

/// Redisson RedissonPermitExpirableSemaphoreTest.testGetLeaseTime.
fn what_remains_of_a_lease_is_told<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 2);
    let (renewed, fixed) = (it.acquire(1).unwrap(), it.with_lease(ms(1100)).acquire(1).unwrap());
    assert!(renewed.remaining() > ms(20_000), "{:?}", renewed.remaining());
    wait_until(LONG, "less is left", || fixed.remaining() <= ms(1000));
    wait_until(LONG, "it has ended", || fixed.remaining().is_zero());
}

/// Curator TestInterProcessSemaphore.testSimple2.
fn the_fourth_gets_what_one_of_three_gave_back<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 3);
    let mut permits: Vec<_> = (0..3).map(|_| it.acquire_with(1, LONG).unwrap().unwrap()).collect();
    assert!(in_brief(it.acquire_with(1, ms(300))).is_none());
    drop(permits.remove(0));
    assert!(it.acquire_with(1, LONG).unwrap().is_some());
}

/// Curator TestInterProcessSemaphore.testClientClose.
fn a_closed_client_gives_its_permits_back<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    closes_in_time(|| {
        let client = fixture.client_with(|b| b.lease(LEASE));
        let permit = client.semaphore(NAME).acquire(1).unwrap();
        assert!(it.try_acquire(1).unwrap().is_none());
        let closed = client.close();
        assert!(permit.is_lost());
        assert!(closed.is_err() || it.try_acquire(1).unwrap().is_some());
        closed
    });
}

/// Curator TestInterProcessSemaphore.testMaxPerSession.
fn never_more_are_out_than_there_are<K: Tried>(fixture: &Fixture<K>) {
    let mut random = Random::new("never_more_are_out_than_there_are");
    let most = 25 + random.below(75) as u32;
    let it = It::of(fixture, most);
    let (out, highest) = (AtomicI64::new(0), AtomicI64::new(0));
    let players: Vec<_> = (0..10).map(|_| (fixture.patient().semaphore(NAME), random.fork())).collect();
    thread::scope(|scope| {
        for (semaphore, mut random) in players {
            let (out, highest) = (&out, &highest);
            scope.spawn(move || {
                for _ in 0..100 {
                    let n = 1 + random.below(most.into()) as u32;
                    let permit = semaphore.acquire(n).unwrap();
                    let now = out.fetch_add(n.into(), SeqCst) + i64::from(n);
                    highest.fetch_max(now, SeqCst);
                    thread::sleep(random.micros(500));
                    out.fetch_sub(n.into(), SeqCst);
                    permit.release().unwrap();
                }
            });
        }
    });
    assert!(highest.into_inner() <= most.into());
    assert_eq!((out.into_inner(), it.available().unwrap()), (0, i64::from(most)));
}

/// Curator TestInterProcessSemaphore.testRelease1AtATime.
fn ten_clients_share_five<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 5);
    let (inside, highest, uses) = (AtomicI64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    // The first five wait for each other inside, so that so many are there together.
    let together = Barrier::new(5);
    let semaphores: Vec<_> = (0..10).map(|_| fixture.patient().semaphore(NAME)).collect();
    thread::scope(|scope| {
        for semaphore in &semaphores {
            scope.spawn(|| {
                let permit = semaphore.acquire(1).unwrap();
                highest.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                together.wait();
                uses.fetch_add(1, SeqCst);
                inside.fetch_sub(1, SeqCst);
                permit.release().unwrap();
            });
        }
    });
    assert_eq!((uses.into_inner(), highest.into_inner()), (10, 5));
    assert_eq!(it.available().unwrap(), 5);
}

/// Curator TestInterProcessSemaphoreCluster.testCluster, on one server that is out of reach for a while.
fn work_stops_while_the_server_is_away<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    let proxy = Proxy::start(fixture.place.port).unwrap();
    let url = fixture.place.url_at(proxy.port());
    // (A server that is away is told at once, and what is slow is not away.)
    let clients: Vec<_> = (0..20).map(|_| fixture.client_with(|b| b.url(&url).lease(LONG))).collect();
    let (grants, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    // How often each has tried in vain, and how often it could not give back.
    let vain: Vec<_> = clients.iter().map(|_| AtomicU64::new(0)).collect();
    let stuck: Vec<_> = clients.iter().map(|_| AtomicU64::new(0)).collect();
    let rises = |what: &str| {
        let before = grants.load(SeqCst);
        wait_until(LONG, what, || grants.load(SeqCst) > before + 20);
    };
    thread::scope(|scope| {
        for (client, (vain, stuck)) in clients.iter().zip(vain.iter().zip(&stuck)) {
            let semaphore = client.semaphore(NAME);
            let (grants, ends) = (&grants, &ends);
            scope.spawn(move || {
                while !ends.load(SeqCst) {
                    match semaphore.acquire_with(1, ms(500)) {
                        Ok(Some(permit)) => {
                            grants.fetch_add(1, SeqCst);
                            // With the server away it goes on in the background.
                            if permit.release().is_err() {
                                stuck.fetch_add(1, SeqCst);
                            }
                        }
                        Ok(None) => _ = vain.fetch_add(1, SeqCst),
                        Err(e) => {
                            assert!(e.is_unavailable(), "{e}");
                            vain.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
        let _ends = SetOnDrop(&ends);
        rises("work goes on");
        proxy.refuse_connections(true).unwrap();
        proxy.cut_all();
        // So that whatever was granted before is counted.
        let tried: Vec<_> = vain.iter().map(|n| n.load(SeqCst)).collect();
        wait_until(LONG, "all have tried in vain", || {
            vain.iter().zip(&tried).all(|(now, before)| now.load(SeqCst) > *before)
        });
        let before = grants.load(SeqCst);
        thread::sleep(ms(1000));
        assert_eq!(grants.load(SeqCst), before, "nobody gets in");
        proxy.heal().unwrap();
        rises("work goes on again");
    });
    wait_until(LONG, "it is back", || it.available().unwrap() == 1);
    // More than one may have been inside: a release whose answer was lost let the next one in, and that
    // one's release was lost with the same cut.
    assert!(stuck.iter().all(|n| n.load(SeqCst) <= 1), "each at most once, then it stays outside");
    for client in clients {
        wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
        // While the proxy is there.
        client.close().unwrap();
    }
}
