//! Queues with manners: who comes first, and how many may wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use redis_concurrent::kinds::{Kind, Permits, Reentrant};
use redis_concurrent::{Client, Error, ErrorKind, RedisLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{LONG, builder, connect, connected, ms, nothing_left, queued};

fn is_full<T>(outcome: &Result<T, Error>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::QueueFull)
}

/// A client whose waiters are heard often.
fn heard_often(server: &RedisServer) -> Client {
    connected(|| builder(&server.url()).connect_timeout(LONG).waiter_timeout(ms(900)))
}

fn lock(client: &Client) -> RedisLock<Reentrant> {
    client.reentrant_lock("it")
}

#[test]
fn what_is_out_of_range_is_invalid_input_that_names_the_lock() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let limited = lock(&client).max_waiters(1_001);
    for error in [limited.lock().map(drop).unwrap_err(), limited.try_lock().map(drop).unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "it"));
        assert!(error.to_string().contains("between 0 and 1000, got 1001"), "{error}");
    }
    drop(lock(&client).max_waiters(1_000).lock().unwrap());
    for priority in [-4, 4, i8::MIN, i8::MAX] {
        let error = lock(&client).priority(priority).lock().map(drop).unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "it"));
        assert!(error.to_string().contains(&format!("between -3 and 3, got {priority}")), "{error}");
    }
    for priority in [-3, 3] {
        drop(lock(&client).priority(priority).lock().unwrap());
    }
}

/// Two callers do not both get the last place.
#[test]
fn as_many_processes_wait_as_may() {
    const PROCESSES: usize = 8;
    let server = RedisServer::start().unwrap();
    let keeper = connect(&server);
    let clients: Vec<_> = (0..PROCESSES).map(|_| connect(&server)).collect();
    for most in [0, 1, 3] {
        let guard = lock(&keeper).lock().unwrap();
        let (start, refused, held) = (Barrier::new(PROCESSES), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| {
                    start.wait();
                    let outcome = lock(client).max_waiters(most).lock_owned_with(LONG);
                    let counted = if is_full(&outcome) { &refused } else { &held };
                    assert!(is_full(&outcome) || outcome.unwrap().is_some());
                    counted.fetch_add(1, Ordering::SeqCst);
                });
            }
            wait_until(LONG, "the others are turned away", || {
                refused.load(Ordering::SeqCst) == PROCESSES - most
            });
            assert_eq!((held.load(Ordering::SeqCst), lock(&keeper).queue_length().unwrap()), (0, most));
            guard.unlock().unwrap();
        });
        assert_eq!(held.load(Ordering::SeqCst), most);
    }
    drop(clients);
    nothing_left(&server);
}

#[test]
fn each_process_counts_as_its_waiting_threads() {
    let server = RedisServer::start().unwrap();
    let (keeper, one, other) = (connect(&server), heard_often(&server), heard_often(&server));
    let guard = lock(&keeper).lock().unwrap();
    thread::scope(|scope| {
        let waits = |client: &Client, most| {
            let limited = lock(client).max_waiters(most);
            scope.spawn(move || assert!(limited.lock_owned_with(LONG).unwrap().is_some()));
        };
        waits(&one, 1);
        queued(&lock(&keeper), 1);
        assert!(is_full(&lock(&one).max_waiters(1).lock()), "behind a thread of its own process");
        waits(&one, 2);
        // With the next heartbeat.
        queued(&lock(&keeper), 2);
        assert!(is_full(&lock(&other).max_waiters(2).lock()));
        waits(&other, 3);
        queued(&lock(&keeper), 3);
        wait_until(LONG, "the first hears of the third", || {
            is_full(&lock(&one).max_waiters(3).lock_with(ms(1)))
        });
        assert!(lock(&other).max_waiters(0).try_lock().unwrap().is_none(), "a try takes no place");
        guard.unlock().unwrap();
    });
    assert!(lock(&other).max_waiters(0).lock().is_ok());
}

/// Callers of these priorities, each in a thread of the client of this number, wait one after the other for a lock
/// that is held; returns the order in which they came in.
fn order<K: Kind, const N: usize>(
    server: &RedisServer,
    make: impl Fn(&Client) -> RedisLock<K> + Sync,
    callers: [(usize, i8); N],
) -> Vec<usize> {
    let keeper = connect(server);
    let clients: Vec<_> = (0..N).map(|_| heard_often(server)).collect();
    let guard = make(&keeper).lock_owned().unwrap();
    let (came, make) = (Mutex::new(Vec::new()), &make);
    thread::scope(|scope| {
        for (i, (client, priority)) in callers.into_iter().enumerate() {
            let lock = make(&clients[client]).fair().priority(priority);
            let came = &came;
            scope.spawn(move || {
                let guard = lock.lock_owned_with(LONG).unwrap().unwrap();
                came.lock().unwrap().push(i);
                guard.unlock().unwrap();
            });
            queued(&make(&keeper), i + 1);
        }
        guard.unlock().unwrap();
    });
    came.into_inner().unwrap()
}

#[test]
fn the_more_urgent_process_comes_first() {
    let server = RedisServer::start().unwrap();
    let processes = [(0, 0), (1, -1), (2, 1), (3, 0), (4, 1)];
    let expected = [2, 4, 0, 3, 1];
    assert_eq!(order(&server, |client| client.simple_lock("simple"), processes), expected);
    assert_eq!(order(&server, |client| client.reentrant_lock("reentrant"), processes), expected);
    let write = |client: &Client| client.read_write_lock("write").write_lock().clone();
    assert_eq!(order(&server, write, processes), expected);
    connect(&server).semaphore("permits").set_permits(1).unwrap();
    let permit = |client: &Client| client.lock_with_kind("permits", Permits::of(1).unwrap());
    assert_eq!(order(&server, permit, processes), expected);
}

/// A process has one place: a thread that is more urgent moves it, and the others take theirs again.
#[test]
fn the_more_urgent_thread_comes_first_and_the_others_keep_their_arrival() {
    let server = RedisServer::start().unwrap();
    let callers = [(0, 0), (1, 0), (0, 2), (0, -1)];
    assert_eq!(order(&server, |client| client.reentrant_lock("it"), callers), [2, 0, 1, 3]);
}

/// A wait for a condition comes back as urgent as its hold was.
#[test]
fn a_wait_for_a_condition_comes_back_with_its_priority() {
    let server = RedisServer::start().unwrap();
    let (keeper, one, other) = (connect(&server), connect(&server), connect(&server));
    let came = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (client, priority) in [(&one, -1), (&other, 1)] {
            let lock = lock(client).priority(priority);
            let came = &came;
            scope.spawn(move || {
                let mut guard = lock.lock().unwrap();
                assert!(lock.condition("go").wait_with(&mut guard, LONG).unwrap());
                came.lock().unwrap().push(priority);
            });
            let lock = self::lock(&keeper);
            wait_until(LONG, "it waits for the signal", || {
                let guard = lock.lock().unwrap();
                let waiting = lock.condition("go").wait_queue_length(&guard).unwrap();
                waiting == if priority == -1 { 1 } else { 2 }
            });
        }
        let lock = lock(&keeper);
        let guard = lock.lock().unwrap();
        lock.condition("go").signal_all(&guard).unwrap();
    });
    assert_eq!(came.into_inner().unwrap(), [1, -1]);
}
