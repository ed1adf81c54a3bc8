//! What other suites check of a lock over several servers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::guard::Ownership;
use redis_concurrent::{Client, ErrorKind, Guard, MultiLock, RedLock, RedLockClient};
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use crate::conformance::fixture::{EVERY, Fixture, LEASE, NAME, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, builder, connected, in_brief, ms};

rows! { one_lock:
    ten_threads_count_to_50_by_three_servers
    ten_threads_that_try_count_to_50
    it_is_got_whichever_server_is_taken
    locks_side_by_side_each_have_a_majority
    a_second_try_is_none
    a_renewal_is_one_on_every_server
    it_is_valid_while_it_is_held_and_nobody_else_gets_it
    it_is_taken_renewed_and_given_back
    two_names_are_taken_renewed_and_given_back
    it_ends_by_itself
    two_exclude_each_other_until_the_time_is_up
    work_longer_than_the_lease_keeps_it
    a_lease_is_in_whole_milliseconds
    of_two_servers_both_are_needed
    what_is_lost_is_released_at_once
}

/// Servers that know nothing of each other.
struct Servers(Vec<RedisServer>);

impl Servers {
    fn of(n: usize) -> Servers {
        Servers((0..n).map(|_| RedisServer::start().unwrap()).collect())
    }

    /// Another process. These servers have granted nothing before.
    fn red(&self) -> RedLockClient {
        let connect = |s: &RedisServer| {
            Client::builder().url(&s.url()).lease(LEASE).renew_every(EVERY).connect().unwrap()
        };
        let red = RedLockClient::new(self.0.iter().map(connect).collect::<Vec<_>>()).unwrap();
        red.skip_startup_delay().with_node_timeout(ms(1000))
    }

    fn lock(&self) -> RedLock {
        self.red().lock(NAME)
    }

    fn each<T: redis::FromRedisValue>(&self, command: &str, name: &str) -> Vec<T> {
        let key = format!("rc:{{{name}}}");
        let ask =
            |s: &RedisServer| redis::cmd(command).arg(&key).query(&mut s.connection().unwrap()).unwrap();
        self.0.iter().map(ask).collect()
    }

    /// The holder on each server.
    fn owners(&self, name: &str) -> Vec<Option<String>> {
        self.each("GET", name)
    }

    /// For how long yet, in milliseconds.
    fn leases(&self, name: &str) -> Vec<i64> {
        self.each("PTTL", name)
    }

    /// A majority was enough for the call: the other's reply counts when it comes.
    #[track_caller]
    fn all_have<O: Ownership>(&self, guard: &Guard<RedLock, O>) {
        wait_until(LONG, "all have granted it", || guard.servers() == self.0.len());
    }

    #[track_caller]
    fn gone(&self, name: &str) {
        wait_until(LONG, "gone everywhere", || self.owners(name).iter().all(Option::is_none));
    }
}

/// Ten threads that count under it, five times each.
fn count_to_50(take: impl Fn(&RedLock, &AtomicU32) + Sync) {
    let servers = Servers::of(3);
    let lock = servers.lock().with_lease(LEASE);
    let counter = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| (0..5).for_each(|_| take(&lock, &counter)));
        }
    });
    assert_eq!(counter.into_inner(), 50);
    servers.gone(NAME);
}

/// Reads, and a while later writes.
fn increment(counter: &AtomicU32) {
    let before = counter.load(Ordering::SeqCst);
    thread::sleep(ms(10));
    counter.store(before + 1, Ordering::SeqCst);
}

/// Redisson RedissonRedLockTest.testLockLeasetimeWithSeconds.
fn ten_threads_count_to_50_by_three_servers<K: Tried>(_: &Fixture<K>) {
    count_to_50(|lock, counter| lock.with(|_| increment(counter)).unwrap());
}

/// Redisson RedissonRedLockTest.testTryLockLeasetime.
fn ten_threads_that_try_count_to_50<K: Tried>(_: &Fixture<K>) {
    count_to_50(|lock, counter| {
        loop {
            if let Some(guard) = in_brief(lock.try_lock_for(ms(400))) {
                increment(counter);
                return guard.unlock().unwrap();
            }
        }
    });
}

/// Redisson RedissonRedLockTest.testLockSuccess.
fn it_is_got_whichever_server_is_taken<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let lock = servers.lock();
    for server in &servers.0 {
        let client = connected(|| builder(&server.url()));
        let single = client.simple_lock(NAME);
        let taken = single.lock().unwrap();
        let guard = lock.try_lock_for(LONG).unwrap().expect("two are a majority");
        assert_eq!(guard.servers(), 2);
        guard.unlock().unwrap();
        assert!(single.force_unlock().unwrap().holders > 0);
        assert!(taken.unlock().is_err());
        lock.try_lock_for(LONG).unwrap().expect("all are free").unlock().unwrap();
        client.close().unwrap();
    }
}

/// redsync TestMutex.
fn locks_side_by_side_each_have_a_majority<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(7);
    let reds: Vec<_> = (0..4).map(|_| servers.red()).collect();
    thread::scope(|scope| {
        for red in &reds {
            scope.spawn(|| {
                let lock = red.lock(NAME);
                let guard = lock.try_lock_for(LONG).unwrap().expect("in turn");
                let owners = servers.owners(NAME);
                assert!(owners.iter().flatten().count() >= 4 && guard.servers() >= 4, "{owners:?}");
                assert!(!guard.is_lost());
                guard.unlock().unwrap();
            });
        }
    });
    servers.gone(NAME);
}

/// redsync TestMutexAlreadyLocked.
fn a_second_try_is_none<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let (mine, yours) = (servers.lock(), servers.lock());
    let _guard = mine.try_lock().unwrap().expect("it is free");
    assert!(yours.try_lock().unwrap().is_none());
}

/// redsync TestMutexExtend.
fn a_renewal_is_one_on_every_server<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let lock = servers.lock().with_lease(LEASE * 4);
    let guard = lock.lock().unwrap();
    servers.all_have(&guard);
    thread::sleep(ms(300));
    let before = servers.leases(NAME);
    guard.renew().unwrap();
    let after = servers.leases(NAME);
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?}, {after:?}");
}

/// redsync TestValid.
fn it_is_valid_while_it_is_held_and_nobody_else_gets_it<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let (mine, yours) = (servers.lock(), servers.lock());
    let guard = mine.lock().unwrap();
    assert!(!guard.is_lost() && guard.remaining() > Duration::ZERO);
    assert!(in_brief(yours.try_lock_for(ms(50))).is_none());
    assert!(!guard.is_lost());
}

/// node-redlock "acquires, extends, and releases a single lock".
fn it_is_taken_renewed_and_given_back<K: Tried>(_: &Fixture<K>) {
    taken_renewed_and_given_back(&[NAME]);
}

/// node-redlock "acquires, extends, and releases a multi-resource lock".
fn two_names_are_taken_renewed_and_given_back<K: Tried>(_: &Fixture<K>) {
    taken_renewed_and_given_back(&["one", "other"]);
}

fn taken_renewed_and_given_back(names: &[&str]) {
    let lease = LEASE * 4;
    let servers = Servers::of(3);
    let red = servers.red();
    let locks: Vec<_> = names.iter().map(|name| red.lock(name).with_lease(lease)).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    guards.iter().for_each(|guard| servers.all_have(guard));
    let owners: Vec<_> = names.iter().map(|name| servers.owners(name)).collect();
    for _ in 0..4 {
        for (name, owners) in names.iter().zip(&owners) {
            assert_eq!(servers.owners(name), *owners);
            let full = i64::try_from(lease.as_millis()).unwrap();
            for left in servers.leases(name) {
                assert!(left <= full && left > full - 4000, "{left} of {full} ms");
            }
        }
        guards.iter().for_each(|guard| guard.renew().unwrap());
    }
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    names.iter().for_each(|name| servers.gone(name));
}

/// node-redlock "locks automatically expire".
fn it_ends_by_itself<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let red = servers.red().with_node_timeout(ms(100));
    let (mine, yours) = (red.lock(NAME).with_lease(ms(200)), servers.lock());
    // On a machine that stands still for so long it has ended by the time that it is got.
    let guard = eventually(LONG, || mine.try_lock_owned().ok().flatten());
    let before = servers.owners(NAME);
    wait_until(LONG, "it has ended", || guard.is_lost());
    let next = yours.try_lock_for(LONG).unwrap().expect("nobody has it");
    // A server that was slow may be free, or have the former owner yet: a majority has the new one.
    let now = servers.owners(NAME);
    let new = now.iter().flatten().filter(|owner| !before.iter().flatten().any(|old| old == *owner));
    assert!(new.count() >= 2, "{before:?}, {now:?}");
    next.unlock().unwrap();
    assert!(guard.unlock().is_err());
}

/// node-redlock "individual locks are exclusive".
fn two_exclude_each_other_until_the_time_is_up<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let (mine, yours) = (servers.lock(), servers.lock());
    let _guard = mine.lock().unwrap();
    let began = Instant::now();
    assert!(in_brief(yours.try_lock_for(ms(300))).is_none());
    assert!(began.elapsed() >= ms(300));
}

/// node-redlock "the using helper acquires, extends, and releases locks".
fn work_longer_than_the_lease_keeps_it<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let lock = servers.lock();
    lock.with(|guard| {
        servers.all_have(guard);
        let owners = servers.owners(NAME);
        thread::sleep(LEASE * 3 / 2);
        assert!(!guard.is_lost());
        assert_eq!(servers.owners(NAME), owners);
    })
    .unwrap();
    servers.gone(NAME);
}

/// node-redlock: refuses to use a non-integer duration.
fn a_lease_is_in_whole_milliseconds<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let lock = servers.lock();
    let leased = lock.with_lease(Duration::from_micros(5_000_999));
    let guard = leased.try_lock().unwrap().expect("it is free");
    servers.all_have(&guard);
    let leases = servers.leases(NAME);
    assert!(leases.iter().all(|left| (1..=5000).contains(left)), "{leases:?}");
    guard.unlock().unwrap();
    let error = lock.with_lease(Duration::from_micros(99_999)).try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    servers.gone(NAME);
}

/// rslock test_lock_manager_from_clients_partial_quorum.
fn of_two_servers_both_are_needed<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(2);
    let connect = || servers.0.iter().map(|s| connected(|| builder(&s.url()))).collect::<Vec<_>>();
    let (mine, yours) = (connect(), connect());
    assert_eq!(RedLockClient::new(&mine).unwrap_err().kind(), ErrorKind::InvalidInput);
    let [a, b] = [0, 1].map(|i| mine[i].simple_lock(NAME));
    let both = MultiLock::new(&[&a, &b]);
    let taken = yours[1].simple_lock(NAME).lock_owned().unwrap();
    assert!(both.try_lock().unwrap().is_none());
    taken.unlock().unwrap();
    let guard = both.try_lock().unwrap().expect("both are free");
    assert_eq!(servers.owners(NAME).iter().flatten().count(), 2);
    guard.unlock().unwrap();
    servers.gone(NAME);
}

/// node-redlock issue 309: there the release of what is lost is tried for two seconds and more.
fn what_is_lost_is_released_at_once<K: Tried>(_: &Fixture<K>) {
    let servers = Servers::of(3);
    let lock = servers.lock();
    let guard = lock.lock().unwrap();
    for server in &servers.0 {
        redis::cmd("FLUSHALL").exec(&mut server.connection().unwrap()).unwrap();
    }
    wait_until(LONG, "it is told", || guard.is_lost());
    let began = Instant::now();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(began.elapsed() < ms(2000));
    // Nor is anything in the way of the next hold.
    lock.try_lock().unwrap().expect("nobody has it").unlock().unwrap();
    servers.gone(NAME);
}
