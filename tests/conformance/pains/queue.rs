//! Of queues in which the dead stand, and from which the living are thrown out.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Connection;
use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::*;

use crate::pains::LOAD;
use crate::server_days::connected;
use crate::support::*;

const ROLE: &str = "pains::queue::role_waits";

fn positions(connection: &mut Connection) -> usize {
    redis::cmd("ZCARD").arg("rc:{x}:queue").query(connection).unwrap()
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_waits() {
    if !is_role(ROLE) {
        return;
    }
    let client = connected(|| builder(&env("URL")).waiter_timeout(ms(900)));
    let _ = client.reentrant_lock("x").fair().lock();
}

/// A dead waiter keeps out all waiters behind it.
#[test]
fn pain_17_the_next_of_ten_gets_in_when_the_first_is_dead() {
    let server = RedisServer::start().unwrap();
    let (mut connection, holder) = (server.connection().unwrap(), connect(&server).reentrant_lock("x"));
    let (waiter_timeout, heartbeat) = (ms(900), ms(300));
    let order = Mutex::new(Vec::new());
    for stopped in [false, true] {
        let held = holder.lock_owned().unwrap();
        let mut child = Child::spawn(ROLE, &[("URL", &server.url())]).unwrap();
        wait_until(LONG, "the first waits", || positions(&mut connection) == 1);
        order.lock().clear();
        thread::scope(|scope| {
            for i in 1..10 {
                let (lock, order) = (connect(&server).reentrant_lock("x").fair(), &order);
                scope.spawn(move || {
                    let guard = lock.lock().unwrap();
                    order.lock().push((i, Instant::now()));
                    guard.unlock().unwrap();
                });
                wait_until(LONG, "so many wait", || positions(&mut connection) == 1 + i);
            }
            // One that stands still has its connections yet: only its waiter timeout tells.
            if stopped {
                child.stop().unwrap();
                queued(&holder, 9);
            } else {
                child.kill9().unwrap();
            }
            let died = Instant::now();
            held.unlock().unwrap();
            wait_until(LONG, "all the others get in", || order.lock().len() == 9);
            let first = order.lock()[0].1 - died;
            assert!(first < waiter_timeout + heartbeat + 2 * LOAD, "{first:?}");
        });
        assert!(order.lock().iter().map(|(i, _)| *i).eq(1..10), "{:?}", order.lock());
        child.kill9().unwrap();
        nothing_left(&server);
    }
}

/// Turns that are added to and subtracted from by everybody's own clock and limit drift away.
#[test]
fn pain_17_short_waits_leave_no_position_and_no_time_that_is_far_off() {
    const WAITS: usize = 10_000;
    const CLIENTS: usize = 4;
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| connect(&server)).collect();
    let held = connect(&server).reentrant_lock("x").fair().lock_owned().unwrap();
    let (left, unheard) = (AtomicUsize::new(WAITS), AtomicUsize::new(0));
    // The farthest queue position, in milliseconds from the server's time; each is a time in microseconds.
    let off = redis::Script::new(
        "local t, off = redis.call('TIME'), 0
         local now = t[1] * 1000000 + t[2] - 1577836800000000
         local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
         for i = 2, #all, 2 do off = math.max(off, math.abs(all[i] % 2 ^ 50 - now)) end
         return {#all / 2, math.ceil(off / 1000)}",
    );
    let (mut most, mut farthest) = (0, 0);
    thread::scope(|scope| {
        for i in 0..2 * CLIENTS {
            let (lock, left, unheard) = (clients[i % CLIENTS].reentrant_lock("x").fair(), &left, &unheard);
            scope.spawn(move || {
                let more = |n: usize| n.checked_sub(1);
                while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok() {
                    match lock.try_lock_for(ms(2)) {
                        Ok(None) => {}
                        Ok(Some(_)) => panic!("it is held"),
                        // A busy machine has not answered in that time.
                        Err(e) if e.is_unavailable() => drop(unheard.fetch_add(1, Ordering::SeqCst)),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        let mut connection = server.connection().unwrap();
        while left.load(Ordering::SeqCst) > 0 {
            let (positions, ms): (usize, u64) = off.key("rc:{x}:queue").invoke(&mut connection).unwrap();
            (most, farthest) = (most.max(positions), farthest.max(ms));
        }
    });
    println!("{most} queue positions at most, {farthest} ms off at most, {unheard:?} without an answer");
    assert!(most > 0, "nobody ever waited");
    assert!(Duration::from_millis(farthest) < 3 * LOAD, "{farthest} ms off");
    let mut connection = server.connection().unwrap();
    wait_until(LONG, "no queue position is left", || positions(&mut connection) == 0);
    assert_eq!(clients[0].reentrant_lock("x").queue_length().unwrap(), 0);
    held.unlock().unwrap();
    nothing_left(&server);
    wait_until(LONG, "no lock is in use", || clients.iter().all(|client| lock_count(client) == 0));
}

/// Waiters are thrown out by their age, whether or not they live.
#[test]
fn pain_18_a_live_waiter_may_wait_for_many_windows() {
    const WAITERS: usize = 6;
    let server = RedisServer::start().unwrap();
    // A waiter that stands still for longer loses its position, as it should.
    let waiter_timeout = ms(2000);
    let fresh = redis::Script::new(
        "local t, n = redis.call('TIME'), 0
         local now = t[1] * 1000000 + t[2] - 1577836800000000
         for _, position in ipairs(redis.call('HVALS', KEYS[1])) do
           if now - cmsgpack.unpack(position)[2] < 1000000 then n = n + 1 end
         end
         return n",
    );
    let held = connect(&server).reentrant_lock("x").lock_owned().unwrap();
    let mut connection = server.connection().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..WAITERS {
            let client = connected(|| builder(&server.url()).waiter_timeout(waiter_timeout));
            let lock = client.reentrant_lock("x").fair();
            let order = &order;
            scope.spawn(move || {
                let guard = lock.try_lock_for(3 * LONG).unwrap().expect("it was thrown out");
                order.lock().push(i);
                // A busy machine may take longer for the answer than the waiter timeout, which this time is
                // not about.
                drop(guard);
            });
            wait_until(LONG, "so many wait", || positions(&mut connection) == i + 1);
        }
        let (began, mut looks, mut missed) = (Instant::now(), 0, 0);
        while began.elapsed() < 10 * waiter_timeout {
            missed += u32::from(positions(&mut connection) != WAITERS);
            looks += 1;
            thread::sleep(ms(10));
        }
        // Should the whole machine stand still for so long, they are back a heartbeat later.
        assert!(missed * 4 < looks, "not all were there in {missed} of {looks} looks");
        // Just heard of, so that only a stall from here on could make one seem dead.
        let all_fresh = || fresh.key("rc:{x}:positions").invoke::<usize>(&mut connection).unwrap() == WAITERS;
        wait_until(LONG, "all were just heard of", all_fresh);
        held.unlock().unwrap();
    });
    assert_eq!(order.into_inner(), (0..WAITERS).collect::<Vec<_>>());
    nothing_left(&server);
}

/// What came of a wait that is cut short: nothing, or an error that says so.
fn in_vain<T>(outcome: Result<Option<T>, Error>) {
    match outcome {
        Ok(None) => {}
        Ok(Some(_)) => panic!("it was to be had"),
        Err(e) => assert!(e.is_unavailable(), "{e}"),
    }
}

/// A wait that ends with an error leaves its queue position behind.
#[test]
fn pain_18_waits_whose_connections_are_cut_leave_no_position() {
    type Wait = fn(&Client);
    let limit = || ms(120);
    let waits: [(&str, Wait); 5] = [
        ("lock", |it| in_vain(it.reentrant_lock("x").fair().try_lock_for(ms(120)))),
        ("read", |it| in_vain(it.read_write_lock("y").read_lock().try_lock_for(ms(120)))),
        ("write", |it| in_vain(it.read_write_lock("y").write_lock().try_lock_for(ms(120)))),
        ("semaphore", |it| in_vain(it.semaphore("z").acquire_with(1, ms(120)))),
        ("latch", |it| in_vain(it.count_down_latch("l").wait_with(ms(120)).map(|open| open.then_some(())))),
    ];
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let holder = connect(&server);
    let semaphore = holder.semaphore("z");
    semaphore.set_permits(1).unwrap();
    holder.count_down_latch("l").try_set_count(1).unwrap();
    let held = holder.reentrant_lock("x").lock_owned().unwrap();
    let writes = holder.read_write_lock("y").write_lock().lock_owned().unwrap();
    let permit = semaphore.acquire(1).unwrap();
    // No queue position ends by itself while this test runs.
    let client = connected(|| builder(&proxy.url()).waiter_timeout(ms(60_000)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let cuts = scope.spawn(|| {
            let mut cuts = 0;
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(ms(50));
                proxy.cut_all();
                cuts += 1;
            }
            cuts
        });
        let waiters = waits.map(|(what, wait)| {
            let client = &client;
            thread::Builder::new()
                .name(what.to_owned())
                .spawn_scoped(scope, move || (0..15).for_each(|_| wait(client)))
                .unwrap()
        });
        let ends = waiters.map(thread::ScopedJoinHandle::join);
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        assert!(cuts.join().unwrap() > 10, "hardly a cut in {:?}", 15 * limit());
    });
    wait_until(LONG, "no queue position is left", || {
        server.keys().unwrap().iter().all(|key| !key.ends_with(":queue") && !key.ends_with(":positions"))
    });
    for unlocked in [held.unlock(), writes.unlock(), permit.release()] {
        unlocked.unwrap();
    }
}
