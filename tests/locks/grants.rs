//! A grant is its request's alone: where the thread that asked for it gives up in the instant of the grant,
//! the next thread of its process has it only if it asked for the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use redis_concurrent::inventory::Order;
use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::{CancellationToken, Client, ErrorKind, RedisLock};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::bulkhead::Bulkhead;
use crate::support::*;

/// A process whose threads wait, and another one that holds meanwhile.
struct Fixture {
    server: RedisServer,
    proxy: Proxy,
    /// Through the proxy.
    waits: Client,
    holds: Client,
}

fn fixture() -> Fixture {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (waits, holds) = (connected(|| builder(&proxy.url())), connect(&server));
    Fixture { server, proxy, waits, holds }
}

impl Fixture {
    /// Waits until the queue of this name has so many positions.
    fn positions(&self, name: &str, n: u64) {
        let mut redis = self.server.connection().unwrap();
        let mut positions =
            || redis::cmd("ZCARD").arg(format!("rc:{{{name}}}:queue")).query::<u64>(&mut redis).unwrap();
        wait_until(SOON, "so many have a queue position", || positions() == n);
    }

    /// A thread waits by `first`, and is granted that by `release` without being told. It is cancelled then.
    /// Returns what comes of `second`, by which another thread waits behind it.
    fn inherits<K: Kind, T: Send>(
        &self,
        first: &RedisLock<K>,
        release: impl FnOnce(),
        second: impl FnOnce() -> T + Send,
    ) -> T {
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let head = scope.spawn(|| first.lock_owned_with(&cancel).map(drop));
            self.positions(first.name(), 1);
            let next = scope.spawn(second);
            wait_until(SOON, "the next one waits behind it", || first.local_queue_length() == 2);
            self.proxy.swallow_replies_with(b" in ");
            release();
            self.positions(first.name(), 0);
            cancel.cancel();
            assert!(head.join().unwrap().unwrap_err().is_cancelled());
            self.proxy.heal().unwrap();
            next.join().unwrap()
        })
    }
}

#[test]
fn of_one_permit_is_not_that_of_three() {
    let fixture = fixture();
    let (here, there) = (fixture.waits.semaphore("it"), fixture.holds.semaphore("it"));
    there.set_permits(4).unwrap();
    let _one = there.acquire(1).unwrap();
    let mut three = Some(there.acquire(3).unwrap());
    let one = fixture.waits.lock_with_kind("it", redis_concurrent::kinds::Permits::of(1).unwrap());
    let release = || drop(three.take());
    let permit = fixture.inherits(&one, release, || here.acquire_with(3, LONG).unwrap().unwrap());
    assert_eq!(permit.permits(), 3);
    assert_eq!(there.available().unwrap(), 0);
    assert!(there.try_acquire(1).unwrap().is_none());
    permit.release().unwrap();
    assert_eq!(there.available().unwrap(), 3, "what was granted to the first is back");
}

#[test]
fn of_one_sku_is_not_that_of_another() {
    let fixture = fixture();
    let gate = fixture.holds.inventory("sale");
    gate.add_stock("tee", 1).unwrap();
    gate.add_stock("mug", 1).unwrap();
    gate.try_reserve(&Order::of("mug", 1)).unwrap().unwrap().commit().unwrap();
    let here = fixture.waits.inventory("sale");
    let (tee, mug) = (here.inventory_lock("tee", 1), here.inventory_lock("mug", 1));
    let held = gate.inventory_lock("tee", 1).lock_owned().unwrap();
    let came = fixture.inherits(&tee, || held.unlock().unwrap(), || mug.lock().map(drop));
    assert_eq!(came.unwrap_err().kind(), ErrorKind::Refused, "there is no mug left");
    assert!(
        gate.inventory_lock("tee", 1).try_lock_for(SOON).unwrap().is_some(),
        "what the first got is back"
    );
}

#[test]
fn of_a_rule_of_ones_own_is_that_of_its_arguments() {
    let fixture = fixture();
    let there = fixture.holds.lock_with_kind("it", Bulkhead(9));
    let mut held: Vec<_> = (0..3).map(|_| there.lock_owned().unwrap()).collect();
    let [first, second] = [3, 1].map(|n| fixture.waits.lock_with_kind("it", Bulkhead(n)));
    let last = held.pop().unwrap();
    let came = fixture.inherits(
        &first,
        || last.unlock().unwrap(),
        || replied(|| second.try_lock_for(ms(500))).map(|guard| guard.unlock().unwrap()),
    );
    assert_eq!(came, None, "two are inside, and it wants to be alone");
    drop(held);
    wait_until(SOON, "nobody is inside", || !there.is_locked().unwrap());
}

#[test]
fn for_one_lease_is_not_that_for_another() {
    let fixture = fixture();
    let there = fixture.holds.reentrant_lock("it");
    let here = fixture.waits.reentrant_lock("it");
    let (brief, long) = (here.with_lease(ms(15_000)), here.with_lease(ms(20_000)));
    let held = there.lock_owned().unwrap();
    let left = fixture.inherits(
        &brief,
        || held.unlock().unwrap(),
        || long.try_lock_for(LONG).unwrap().map(|guard| guard.remaining()),
    );
    let left = left.expect("it is free");
    assert!(left > ms(15_000), "of 20 s only {left:?}");
}

/// A thread that writes asks to read beside, and gives that up without an answer. A reader after it in this
/// process does so when it writes no more.
#[test]
fn of_a_writer_that_reads_is_not_that_of_a_reader() {
    let fixture = fixture();
    let lock = fixture.waits.read_write_lock("it");
    let (read, write) = (lock.read_lock(), lock.write_lock());
    let writing = write.lock().unwrap();
    fixture.proxy.only_matching(b"rc:{it}");
    fixture.proxy.swallow_replies(1);
    let came = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            wait_until(SOON, "the writer asks to read", || fixture.proxy.struck() > 0);
            let guard = read.lock().unwrap();
            came.store(true, SeqCst);
            guard.unlock().unwrap();
        });
        assert!(read.try_lock_for(ms(700)).is_err(), "its answer was lost");
        let theirs = fixture.holds.read_write_lock("it");
        let waits = || theirs.read_lock().queue_length().unwrap() > 0;
        wait_until(SOON, "the reader waits, or is in", || came.load(SeqCst) || waits());
        assert!(!came.load(SeqCst), "it reads while another thread writes");
        writing.unlock().unwrap();
        reader.join().unwrap();
    });
    nothing_left(&fixture.server);
}

const ROUNDS: usize = 300;
const PERMITS: u32 = 4;

/// In each round one thread of a process asks for 1 permit and gives up just when that is there, another one
/// behind it asks for 3, and another process takes whatever is left.
#[test]
fn never_more_permits_are_out_than_there_are() {
    let mut random = Random::new("never_more_permits_are_out_than_there_are");
    let server = RedisServer::start().unwrap();
    let clients = [connect(&server), connect(&server)];
    let [here, there] = [0, 1].map(|i| clients[i].semaphore("it"));
    there.set_permits(PERMITS).unwrap();
    let (out, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let has = |n: u64, pause: Duration| {
        most.fetch_max(out.fetch_add(n, SeqCst) + n, SeqCst);
        thread::sleep(pause);
        out.fetch_sub(n, SeqCst);
    };
    for _ in 0..ROUNDS {
        let all = there.acquire_with(PERMITS, LONG).unwrap().unwrap();
        let cancel = CancellationToken::new();
        let (pause, late) = (random.micros(1500), random.micros(1500));
        thread::scope(|scope| {
            let head = scope.spawn(|| here.acquire_with(1, &cancel).map(drop));
            wait_until(SOON, "the first one waits", || there.queue_length().unwrap() == 1);
            let next = scope.spawn(|| {
                let permit = here.acquire_with(3, LONG).unwrap().unwrap();
                has(3, ms(2));
                permit.release().unwrap();
            });
            wait_until(SOON, "the second one waits", || {
                clients[0].lock_with_kind("it", Permits::default()).local_queue_length() == 2
            });
            scope.spawn(|| {
                thread::sleep(late);
                cancel.cancel();
            });
            thread::sleep(pause);
            all.release().unwrap();
            let concurrent = there.acquire_with(3, LONG).unwrap().unwrap();
            has(3, ms(2));
            concurrent.release().unwrap();
            assert!(head.join().unwrap().is_ok_and(|()| true) || cancel.is_cancelled());
            next.join().unwrap();
        });
    }
    let most = most.into_inner();
    assert!(most <= PERMITS.into(), "{most} of {PERMITS} permits were out");
    wait_until(SOON, "all are back", || there.available().unwrap() == i64::from(PERMITS));
}
