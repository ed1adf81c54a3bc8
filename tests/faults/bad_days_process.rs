//! Bad days inside a process and between processes: leaked guards, panics, kills, stops; and whose
//! a hold is on better days.

mod dead_waiters;
mod ownership;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::observe::{AcquiredVia, LockInfo, LossReason, Observer};
use redis_concurrent::{Error, ErrorKind};
use redis_concurrent_testkit::*;

use crate::support::*;

const LEASE: Duration = ms(600);
/// Of what must be held until its holder is killed or stopped.
const HELD: Duration = ms(5000);
/// What a loaded machine may add to any bound.
const LOAD: Duration = ms(8000);

// ---- inside --------------------------------------------------------------------------------

#[test]
fn a_leaked_guard_is_held_and_renewed_until_close() {
    let server = RedisServer::start().unwrap();
    closes_in_time(|| leaks_until_close(&server));
    nothing_left(&server);
}

/// What its close said; where that is well, all is released.
fn leaks_until_close(server: &RedisServer) -> Result<(), Error> {
    let recorder = Recorder::default();
    let client = builder(&server.url()).lease(ms(9000)).renew_every(ms(300)).observer(recorder.clone());
    let client = client.connect().unwrap();
    let lock = client.reentrant_lock("x");
    std::mem::forget(lock.lock().unwrap());
    std::mem::forget(client.simple_lock("y").lock_owned().unwrap());
    let (x, y) = (connect(server).reentrant_lock("x"), connect(server).simple_lock("y"));
    for key in ["rc:{x}", "rc:{y}"] {
        renewed_again(|| ms(pttl(server, key).try_into().unwrap_or_default()));
    }
    assert!(x.is_locked().unwrap() && y.is_locked().unwrap());
    // It is this thread's hold still.
    assert_eq!(lock.hold_count(), 1);
    lock.lock().unwrap().unlock().unwrap();
    let closed = client.close();
    assert_eq!(recorder.count(Event::Lost(LossReason::Closed)), 2, "{:?}", recorder.all());
    closed?;
    assert!(x.try_lock().unwrap().is_some());
    assert!(y.try_lock().unwrap().is_some());
    Ok(())
}

#[test]
fn a_panic_while_holding_releases() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _outer = lock.lock().unwrap();
            lock.with(|_| std::panic::resume_unwind(Box::new("on purpose"))).unwrap()
        }));
        assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
        assert_eq!(lock.hold_count(), 0);
        free_at_once(&other);
    }
    let panicked = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _guard = lock.lock().unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            })
            .join()
    });
    assert!(panicked.is_err());
    free_at_once(&other);
    nothing_left(&server);
}

/// Everything it is told makes it panic.
struct Panics(Arc<AtomicUsize>);

impl Panics {
    fn panic(&self) -> ! {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Without the hook's message on standard error.
        std::panic::resume_unwind(Box::new("on purpose"))
    }
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.panic()
    }
}

impl Observer for Panics {
    fn acquired(&self, _: LockInfo<'_>, _: Duration, _: AcquiredVia) {
        self.panic()
    }
    fn released(&self, _: LockInfo<'_>, _: Duration) {
        self.panic()
    }
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        self.panic()
    }
    fn lost(&self, _: LockInfo<'_>, _: LossReason) {
        self.panic()
    }
    fn reconnected(&self, _: Duration) {
        self.panic()
    }
    fn unlock_failed(&self, _: LockInfo<'_>, _: &Error) {
        self.panic()
    }
}

/// In the threads that lock, in the renewal thread, in the listener: nothing stops for it.
#[test]
fn an_observer_that_panics_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let panics = Arc::new(AtomicUsize::new(0));
    let check = |n: &mut usize| {
        let now = panics.load(Ordering::SeqCst);
        assert!(now > *n, "the observer was not told");
        *n = now;
    };
    let mut n = 0;
    let client = builder(&server.url()).lease(ms(9000)).renew_every(ms(300));
    let client = client.observer(Panics(panics.clone())).connect().unwrap();
    let lock = client.reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    let guard = lock.lock().unwrap();
    check(&mut n);
    renewed_again(|| guard.remaining());
    check(&mut n);
    // A local waiter, a remote one, both in the end.
    thread::scope(|scope| {
        let local = scope.spawn(|| lock.lock().and_then(|g| g.unlock()));
        let remote = scope.spawn(|| other.lock().and_then(|g| g.unlock()));
        wait_until(SOON, "both wait", || lock.queue_length().unwrap() == 2);
        guard.unlock().unwrap();
        local.join().unwrap().unwrap();
        remote.join().unwrap().unwrap();
    });
    check(&mut n);
    let theirs = other.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock().map(drop));
        queued(&other, 1);
        assert_eq!(server.kill_clients(ClientKind::PubSub).unwrap(), 2);
        wait_until(SOON, "it listens again", || server.clients(ClientKind::PubSub).unwrap().len() == 2);
        theirs.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    check(&mut n);
    let guard = lock.lock().unwrap();
    assert!(delete(&server, "rc:{x}"));
    assert!(guard.lost().wait_timeout(SOON));
    drop(guard);
    check(&mut n);
    released_all(&client.close());
    nothing_left(&server);
}

/// What is called upon a loss is called by the threads that keep the process's other holds alive.
#[test]
fn a_panic_upon_a_loss_stops_no_renewal() {
    let (server, other) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let door = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&door.url()).lease(ms(4000)).renew_every(ms(100)));
    let elsewhere = connected(|| builder(&other.url()).lease(ms(9000)).renew_every(ms(300)));
    let (lost, held) =
        (client.simple_lock("x").lock_owned().unwrap(), elsewhere.simple_lock("y").lock_owned().unwrap());
    let (token, warning) = (lost.lost(), lost.ends_within(ms(200)));
    let panics = Arc::new(AtomicUsize::new(0));
    let waker = Waker::from(Arc::new(Panics(panics.clone())));
    let mut woken = [Box::pin(token.cancelled()), Box::pin(warning.cancelled())];
    for it in &mut woken {
        assert!(it.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // It is lost as its lease expires, and not by a message.
    door.black_hole(true);
    wait_until(LONG, "both are called", || panics.load(Ordering::SeqCst) == 2);
    assert!(lost.is_lost());
    renewed_again(|| held.remaining());
    held.unlock().unwrap();
    door.heal().unwrap();
    released_all(&elsewhere.close());
    nothing_left(&other);
}

/// The thread that waits first dies of a panic as soon as it gets in; the waiter behind it gets
/// in all the same.
#[test]
fn a_waiting_thread_that_dies_holds_nobody_up() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let held = lock.lock_owned().unwrap();
    thread::scope(|scope| {
        let dies = scope.spawn(|| {
            let _guard = lock.lock().unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        wait_until(SOON, "it waits", || lock.local_queue_length() == 1);
        let lives = scope.spawn(|| lock.lock().and_then(|g| g.unlock()));
        wait_until(SOON, "both wait", || lock.local_queue_length() == 2);
        held.unlock().unwrap();
        assert!(dies.join().is_err());
        lives.join().unwrap().unwrap();
    });
    assert_eq!(lock.local_queue_length(), 0);
    nothing_left(&server);
}

// ---- between -------------------------------------------------------------------------------

const HOLDER: &str = "bad_days_process::role_holder";
const WAITER: &str = "bad_days_process::role_waiter";

#[test]
#[ignore = "a role, played by a child process"]
fn role_holder() {
    if !is_role(HOLDER) {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(HELD).renew_every(ms(100)));
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    tell_parent(&guard.token().to_string()).unwrap();
    hear_parent().unwrap();
    // Stopped and continued: nothing that is called now may succeed.
    let renewed = guard.renew_for(HELD);
    let is_lost = (guard.is_lost(), guard.remaining().is_zero(), lock.hold_count());
    let again = lock.try_lock().map(|g| g.is_some());
    let fired = lost.wait_timeout(SOON);
    let unlocked = guard.unlock();
    let lost = |r: Result<(), Error>| r.is_err_and(|e| e.is_lease_lost());
    let again = again.is_err_and(|e| e.is_lease_lost());
    assert!(lost(renewed), "renewed");
    assert_eq!(is_lost, (true, true, 0));
    assert!(again && fired && lost(unlocked), "again {again}, fired {fired}");
    tell_parent("knows").unwrap();
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_waiter() {
    if !is_role(WAITER) {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(LEASE).waiter_timeout(LEASE));
    tell_parent("ready").unwrap();
    loop {
        let lock = client.reentrant_lock("x").fair();
        drop(lock.lock().unwrap());
    }
}

fn child(role: &str, server: &RedisServer) -> Child {
    Child::spawn(role, &[("URL", &server.url())]).unwrap()
}

#[test]
fn a_process_killed_while_holding_blocks_others_for_its_lease() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let mut holder = child(HOLDER, &server);
    let its: u64 = holder.read_line_within(LONG).unwrap().parse().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(lock.holder().unwrap().unwrap().process.unwrap().pid, holder.pid());
    holder.kill9().unwrap();
    let began = Instant::now();
    let guard = lock.try_lock_for(LONG).unwrap().unwrap();
    assert!(began.elapsed() < HELD + ms(250) + LOAD, "{:?}", began.elapsed());
    assert!(guard.token() > its);
    guard.unlock().unwrap();
    nothing_left(&server);
}

/// The child is a waiter, a holder, or just being granted the lock when it is killed.
#[test]
fn a_process_killed_at_any_moment_blocks_others_for_its_lease() {
    let mut random = Random::new("a_process_killed_at_any_moment");
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let mut before = free_at_once(&lock);
    for round in 0..8 {
        let held = lock.lock().unwrap();
        let mut waiter = child(WAITER, &server);
        waiter.read_line_within(LONG).unwrap();
        queued(&lock, 1);
        let (start, pause, spin) = (Barrier::new(2), random.micros(1500), round % 2 == 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                if spin {
                    thread::sleep(pause);
                }
                waiter.kill9().unwrap();
            });
            start.wait();
            if !spin {
                thread::sleep(pause);
            }
            held.unlock().unwrap();
        });
        let began = Instant::now();
        let guard = lock.try_lock_for(LONG).unwrap().unwrap();
        assert!(began.elapsed() < LEASE + ms(250) + LOAD, "round {round}: {:?}", began.elapsed());
        assert!(guard.token() > before);
        before = guard.token();
        guard.unlock().unwrap();
    }
    nothing_left(&server);
}

#[test]
fn a_holder_stopped_beyond_its_lease_knows_it_before_anything_succeeds() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let mut holder = child(HOLDER, &server);
    let its: u64 = holder.read_line_within(LONG).unwrap().parse().unwrap();
    holder.stop().unwrap();
    let began = Instant::now();
    let guard = lock.try_lock_for(LONG).unwrap().unwrap();
    assert!(began.elapsed() < HELD + ms(250) + LOAD, "{:?}", began.elapsed());
    assert!(guard.token() > its);
    holder.say("go on").unwrap();
    holder.cont().unwrap();
    assert_eq!(holder.read_line_within(LONG).unwrap(), "knows");
    assert!(holder.wait_within(LONG).unwrap().success());
    // What it did when it woke has not touched us.
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    free_at_once(&lock);
    nothing_left(&server);
}

/// Nobody took the lock meanwhile, and still the stopped holder has lost it.
#[test]
fn a_holder_stopped_beyond_its_lease_knows_it_though_nobody_came() {
    let server = RedisServer::start().unwrap();
    let mut holder = child(HOLDER, &server);
    holder.read_line_within(LONG).unwrap();
    holder.stop().unwrap();
    wait_until(LONG, "its lease is over", || !exists(&server, "rc:{x}"));
    holder.say("go on").unwrap();
    holder.cont().unwrap();
    assert_eq!(holder.read_line_within(LONG).unwrap(), "knows");
    assert!(holder.wait_within(LONG).unwrap().success());
    nothing_left(&server);
}

/// Kind of an error, or what came instead.
fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A child that does nothing bad while its parent's handles see it come and go.
#[test]
fn a_stopped_waiter_that_goes_on_in_time_still_gets_in() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let held = lock.lock().unwrap();
    let mut waiter = child(WAITER, &server);
    waiter.read_line_within(LONG).unwrap();
    queued(&lock, 1);
    waiter.stop().unwrap();
    // It has lost its queue position by now.
    queued(&lock, 0);
    waiter.cont().unwrap();
    queued(&lock, 1);
    held.unlock().unwrap();
    wait_until(LONG, "it gets in", || {
        let guard = lock.try_lock_for(ms(0));
        guard.is_ok_and(|guard| guard.is_none())
            || lock.holder().unwrap().is_some_and(|h| h.process.is_some())
    });
    waiter.kill9().unwrap();
    assert_eq!(kind(lock.with_lease(ms(1)).lock().map(drop)), ErrorKind::InvalidInput);
}
