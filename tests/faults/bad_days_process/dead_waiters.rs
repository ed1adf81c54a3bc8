//! Waiters that die when their turn has all but come, with their connections open: what that costs those behind
//! them, and that the living pay nothing for it.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::Permits;
use redis_concurrent::{Client, Lock};
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent, wait_until};

use crate::support::*;

const ROLE: &str = "bad_days_process::dead_waiters::role_waiter";
/// Far more than any bound that is tested here.
const LEASE: Duration = Duration::from_secs(30);
/// A waiter timeout, a heartbeat, and what a loaded machine may add.
const BOUND: Duration = Duration::from_secs(12);

type Make = fn(&Client) -> Box<dyn Lock>;

const ALL: [Make; 6] = [
    |c| Box::new(c.simple_lock("simple")),
    |c| Box::new(c.reentrant_lock("reentrant")),
    |c| Box::new(c.reentrant_lock("fixed").with_lease(LEASE)),
    |c| Box::new(c.read_write_lock("read-write").write_lock().clone()),
    |c| Box::new(c.lock_with_kind("permit", Permits::default())),
    |c| Box::new(c.inventory("gate").inventory_lock("sku", 1)),
];

fn client(url: &str) -> Client {
    let client = connected(|| builder(url).lease(LEASE));
    client.semaphore("permit").try_set_permits(1).unwrap();
    client
}

/// Waits for each of them, and says when it has had all.
#[test]
#[ignore = "a role, played by a child process"]
fn role_waiter() {
    if !is_role(ROLE) {
        return;
    }
    let client = client(&env("URL"));
    thread::scope(|scope| {
        for lock in ALL {
            let lock = lock(&client);
            scope.spawn(move || lock.lock().unwrap().unlock().unwrap());
        }
    });
    tell_parent("had all").unwrap();
    hear_parent().unwrap();
}

fn positions(server: &RedisServer) -> usize {
    let mut connection = server.connection().unwrap();
    let keys = server.keys().unwrap().into_iter().filter(|key| key.ends_with(":queue"));
    keys.map(|key| redis::cmd("ZCARD").arg(key).query::<usize>(&mut connection).unwrap()).sum()
}

#[test]
fn a_waiter_that_stands_still_at_its_turn_costs_a_waiter_timeout_and_not_its_lease() {
    let server = RedisServer::start().unwrap();
    let (holder, next) = (client(&server.url()), client(&server.url()));
    holder.inventory("gate").add_stock("sku", 5).unwrap();
    let locks = ALL.map(|lock| lock(&holder));
    let held: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let mut child = Child::spawn(ROLE, &[("URL", &server.url())]).unwrap();
    wait_until(LONG, "the child waits for all", || positions(&server) == ALL.len());
    thread::scope(|scope| {
        let waits: Vec<_> = ALL
            .map(|lock| {
                let lock = lock(&next);
                scope.spawn(move || {
                    let guard = lock.lock().unwrap();
                    let got_in = Instant::now();
                    assert!(!guard.is_lost() && !guard.remaining().is_zero());
                    guard.unlock().unwrap();
                    (lock.name().to_owned(), got_in)
                })
            })
            .into_iter()
            .collect();
        wait_until(LONG, "so do others behind it", || positions(&server) == 2 * ALL.len());
        child.stop().unwrap();
        let began = Instant::now();
        held.into_iter().for_each(|guard| guard.unlock().unwrap());
        for waits in waits {
            let (name, got_in) = waits.join().unwrap();
            let waited = got_in.duration_since(began);
            println!("{name}: {waited:?}");
            assert!(waited < BOUND, "{name}: {waited:?} behind a waiter that stands still");
        }
    });
    // What it believes when it goes on is over: it asks again.
    child.cont().unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "had all");
    child.kill9().unwrap();
    assert_eq!(positions(&server), 0);
}

/// What a waiter was let in for is less than its lease, until it is renewed for all of it, once.
#[test]
fn a_living_waiter_has_its_whole_lease_by_one_renewal() {
    let server = RedisServer::start().unwrap();
    let waiter_timeout = ms(2000);
    for fixed in [false, true] {
        let recorder = Recorder::default();
        let waiter =
            builder(&server.url()).lease(LEASE).waiter_timeout(waiter_timeout).observer(recorder.clone());
        let waiter = waiter.connect().unwrap().reentrant_lock("x");
        let waiter = if fixed { waiter.with_lease(LEASE) } else { waiter };
        let holder = connect(&server).reentrant_lock("x");
        let held = holder.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = waiter.lock().unwrap();
                assert!(guard.remaining() <= waiter_timeout, "{:?}", guard.remaining());
                wait_until(SOON, "it has its whole lease", || guard.remaining() > waiter_timeout);
                // Not for longer than was asked for, and counted from its grant.
                assert!(pttl(&server, "rc:{x}") <= LEASE.as_millis() as i64);
                let began = Instant::now();
                wait_until(SOON, "its first lease is over", || began.elapsed() > waiter_timeout);
                assert!(!guard.is_lost() && guard.remaining() > LEASE - SOON - SOON);
                guard.unlock().unwrap();
            });
            queued(&holder, 1);
            held.unlock().unwrap();
            waits.join().unwrap();
        });
        assert_eq!(recorder.count(Event::Renewed), 1, "fixed: {fixed}: {:?}", recorder.all());
        assert_eq!(recorder.losses(), 0);
    }
    nothing_left(&server);
}
