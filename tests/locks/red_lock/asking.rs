//! How servers are asked: all at once, those that are slow or away last, and nobody for long.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, Guard, RedLock, RedLockClient};
use redis_concurrent_testkit::{Proxy, RedisServer, released_all, wait_until};

use crate::red_lock::fixture::{Fixture, LEASE, LONG, NAME, PATIENT, ms};
use crate::support::connected;

/// Servers behind proxies that may be slow.
struct Far {
    fixture: Fixture,
    proxies: Vec<Proxy>,
}

impl Far {
    fn five() -> Far {
        Far::before(Fixture::five())
    }

    fn before(fixture: Fixture) -> Far {
        let proxies = fixture.servers.iter().map(|server| Proxy::start(server.port()).unwrap()).collect();
        Far { fixture, proxies }
    }

    fn red(&self) -> RedLockClient {
        self.red_for(LEASE)
    }

    fn red_for(&self, lease: Duration) -> RedLockClient {
        // A connection to one that is slow takes its time, too.
        let client = |proxy: &Proxy| Client::builder().url(&proxy.url()).lease(lease).connect_timeout(LONG);
        let connect = |proxy: &Proxy| connected(|| client(proxy));
        let clients: Vec<_> = self.proxies.iter().map(connect).collect();
        RedLockClient::new(clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT)
    }
}

#[test]
fn all_are_asked_before_one_is_waited_for() {
    const SLOW: Duration = ms(200);
    let far = Far::five();
    let lock = far.red().lock(NAME);
    lock.lock().unwrap().unlock().unwrap();
    far.proxies.iter().for_each(|proxy| proxy.delay(SLOW));
    // A machine that stands still may make one take longer, not each.
    let quick = (0..5).any(|_| {
        let began = Instant::now();
        let guard = lock.lock().unwrap();
        let locked = began.elapsed();
        assert!(locked >= SLOW, "nobody answers within {locked:?}");
        let began = Instant::now();
        guard.unlock().unwrap();
        let unlocked = began.elapsed();
        println!("locked after {locked:?}, unlocked after {unlocked:?}");
        locked < SLOW * 3 && unlocked < SLOW * 3
    });
    assert!(quick, "three in turn would take {:?}", SLOW * 3);
}

#[test]
fn slow_servers_are_not_waited_for_and_their_late_answers_count() {
    const SLOW: Duration = ms(1000);
    let far = Far::five();
    let lock = far.red_for(3 * LEASE).with_node_timeout(LEASE).lock(NAME);
    // While a late reply is on its way, the next call does not ask that server.
    wait_until(LONG, "no reply is on its way", || {
        let guard = lock.lock().unwrap();
        let all = guard.servers() == 5;
        guard.unlock().unwrap();
        all
    });
    for slow in &far.proxies[..2] {
        slow.delay(SLOW);
    }
    // Then it is known which servers are slow.
    let all_of_them = |guard: &Guard<RedLock>| {
        wait_until(LONG, "the late answers count", || guard.servers() == 5);
    };
    let guard = lock.lock().unwrap();
    all_of_them(&guard);
    guard.unlock().unwrap();
    let quick = (0..5).any(|_| {
        let began = Instant::now();
        let guard = lock.lock().unwrap();
        let took = began.elapsed();
        let at_once = guard.servers();
        all_of_them(&guard);
        assert_eq!(far.fixture.held_on(), 5);
        guard.unlock().unwrap();
        println!("{at_once} servers after {took:?}");
        took < SLOW / 2 && at_once == 3
    });
    assert!(quick, "the slow servers were waited for each time");
    // One that is given back before they come leaves nothing to them.
    for _ in 0..3 {
        drop(lock.lock().unwrap());
    }
    far.proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
    far.fixture.nothing_stays();
}

/// What this process itself asks of a silent server does not make the lock busy there.
#[test]
fn a_late_answer_that_does_not_come_is_no_vote() {
    const SLOW: Duration = ms(300);
    let far = Far::before(Fixture::of(3));
    let lock = far.red().with_node_timeout(LEASE / 2).lock(NAME);
    far.proxies[2].delay(SLOW);
    let guard = || {
        let guard = lock.lock().unwrap();
        let at_once = guard.servers();
        wait_until(LONG, "the late answer counts", || guard.servers() == 3);
        (guard, at_once)
    };
    wait_until(LONG, "it is not waited for", || guard().1 == 2);
    // Held by the other two; then one of them is silent, too.
    far.proxies[2].black_hole(true);
    drop(lock.lock().unwrap());
    far.proxies[1].black_hole(true);
    let error = lock.try_lock_for(ms(1000)).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    far.proxies.iter().for_each(|proxy| proxy.black_hole(false));
    far.fixture.nothing_stays();
}

#[test]
fn hung_servers_cost_their_limit_once() {
    const ROUNDS: u32 = 20;
    let fixture = Fixture::five();
    let red = fixture.red();
    let lock = red.lock(NAME);
    lock.lock().unwrap().unlock().unwrap();
    for hung in &fixture.servers[1..3] {
        hung.stop().unwrap();
    }
    // This waits for them, unless they were slow before as well.
    lock.lock().unwrap().unlock().unwrap();
    let began = Instant::now();
    for i in 0..ROUNDS {
        // Names of their own too: what is known of a server is known for all.
        let lock = if i % 2 == 0 { lock.clone() } else { red.lock(&format!("other-{i}")) };
        let guard = lock.lock().unwrap();
        assert_eq!(guard.servers(), 3);
        // All three have to answer: where one is late, it is unlocked in the background.
        released_all(&guard.unlock());
    }
    let took = began.elapsed();
    assert!(took < PATIENT * ROUNDS * 3 / 4, "{took:?} for {ROUNDS}");
    for hung in &fixture.servers[1..3] {
        hung.cont().unwrap();
    }
    // They come back by themselves, and what was sent to them leaves nothing there.
    wait_until(LONG, "all are asked again", || {
        let guard = lock.lock().unwrap();
        let all = guard.servers() == 5;
        guard.unlock().unwrap();
        all
    });
    fixture.nothing_stays();
}

#[test]
fn a_server_that_hangs_while_it_is_held_does_not_hold_up_the_unlock() {
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME);
    // So that the scripts are known: one that is sent twice has no time left behind a server that hangs.
    lock.lock().unwrap().unlock().unwrap();
    let guard = fixture.by_all(|| lock.lock().unwrap());
    for hung in &fixture.servers[3..] {
        hung.stop().unwrap();
    }
    let began = Instant::now();
    guard.unlock().unwrap();
    assert!(began.elapsed() < PATIENT * 3, "{:?}", began.elapsed());
    // Others get in meanwhile.
    let others = red_of(&fixture.servers[..3]).lock(NAME);
    let guard = others.try_lock_for(LONG).unwrap().unwrap();
    for hung in &fixture.servers[3..] {
        hung.cont().unwrap();
    }
    // The renewal thread gives the rest back, well within the lease.
    wait_until(LEASE / 2, "given back on those two as well", || fixture.held_on() == 3);
    guard.unlock().unwrap();
    fixture.nothing_stays();
}

/// A RedLock of another process, over some of the servers.
fn red_of(servers: &[RedisServer]) -> RedLockClient {
    let connect = |server: &RedisServer| connected(|| Client::builder().url(&server.url()));
    let clients: Vec<_> = servers.iter().map(connect).collect();
    RedLockClient::new(clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT)
}

#[test]
fn refused_connections_and_dead_servers_cost_little_and_come_back() {
    const ROUNDS: u32 = 20;
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME);
    lock.lock().unwrap().unlock().unwrap();
    for dead in &fixture.servers[..2] {
        dead.kill().unwrap();
    }
    lock.lock().unwrap().unlock().unwrap();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let guard = lock.lock().unwrap();
        assert_eq!(guard.servers(), 3);
        // As above.
        released_all(&guard.unlock());
    }
    assert!(began.elapsed() < PATIENT * ROUNDS / 4, "{:?} for {ROUNDS}", began.elapsed());
    for dead in &fixture.servers[..2] {
        dead.restart().unwrap();
    }
    wait_until(LONG, "all are asked again", || {
        let guard = lock.lock().unwrap();
        let all = guard.servers() == 5;
        guard.unlock().unwrap();
        all
    });
    fixture.nothing_stays();
}

#[test]
fn many_threads_with_a_hung_server_neither_wait_nor_use_its_pool_up() {
    // Waited for each time, it would cost 80 of them, ten in each thread.
    const LIMIT: Duration = ms(4000);
    let fixture = Fixture::of(3);
    let red = fixture.red().with_node_timeout(LIMIT);
    red.lock(NAME).lock().unwrap().unlock().unwrap();
    fixture.servers[0].stop().unwrap();
    red.lock(NAME).lock().unwrap().unlock().unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        for i in 0..8 {
            let lock = red.lock(&format!("of-{i}"));
            scope.spawn(move || {
                for _ in 0..10 {
                    lock.lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert!(began.elapsed() < LIMIT * 6, "{:?}", began.elapsed());
    fixture.servers[0].cont().unwrap();
    fixture.nothing_stays();
}
