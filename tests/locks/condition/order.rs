//! Who is signalled when, and what it costs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use redis_concurrent_testkit::wait_until;

use crate::condition::fixture::{Fixture, not_empty, signal};
use crate::support::{LONG, Random, ms, nothing_left, quiet, replied};

#[test]
fn the_longest_waiter_is_signalled_first_and_does_not_have_to_fight() {
    let fixture = Fixture::new();
    let (mine, other, third) = (fixture.lock(), fixture.lock(), fixture.lock());
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..4 {
            let (lock, order) = (if i % 2 == 0 { &mine } else { &other }, &order);
            scope.spawn(move || {
                let mut guard = lock.lock().unwrap();
                not_empty(lock).wait(&mut guard).unwrap();
                order.lock().unwrap().push(i);
                guard.unlock().unwrap();
            });
            fixture.await_waiting(i + 1);
        }
        // A caller that only wants the lock.
        let comes = |who| {
            let (lock, order) = (fixture.lock(), &order);
            scope.spawn(move || lock.with(|_| order.lock().unwrap().push(who)).unwrap());
        };
        let guard = third.lock().unwrap();
        comes(10);
        fixture.await_queued(1);
        not_empty(&third).signal(&guard).unwrap();
        not_empty(&third).signal(&guard).unwrap();
        assert_eq!(not_empty(&third).wait_queue_length(&guard).unwrap(), 2);
        fixture.await_queued(3);
        comes(11);
        fixture.await_queued(4);
        guard.unlock().unwrap();
        wait_until(LONG, "they came in", || order.lock().unwrap().len() == 4);
        assert_eq!(*order.lock().unwrap(), [10, 0, 1, 11]);
        let guard = third.lock().unwrap();
        not_empty(&third).signal_all(&guard).unwrap();
        guard.unlock().unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [10, 0, 1, 11, 2, 3]);
    nothing_left(&fixture.server);
}

#[test]
fn a_hundred_that_are_signalled_come_in_once_each_in_order_and_cheaply() {
    const N: usize = 100;
    let fixture = Fixture::new();
    // Their heartbeats would count too.
    let client = || fixture.client_with(quiet);
    let clients = [client(), client()];
    let signaller = fixture.lock();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..N {
            let (lock, order) = (clients[i % 2].reentrant_lock("it"), &order);
            scope.spawn(move || {
                let mut guard = lock.lock().unwrap();
                not_empty(&lock).wait(&mut guard).unwrap();
                order.lock().unwrap().push(i);
                guard.unlock().unwrap();
            });
            fixture.await_waiting(i + 1);
        }
        let requests = || clients.iter().map(redis_concurrent::Client::request_count).sum::<u64>();
        let before = requests();
        let guard = signaller.lock().unwrap();
        not_empty(&signaller).signal_all(&guard).unwrap();
        guard.unlock().unwrap();
        wait_until(6 * LONG, "all came in", || order.lock().unwrap().len() == N);
        wait_until(LONG, "all have left", || !signaller.is_locked().unwrap());
        // Its own wait was sent before; what is left is to leave.
        let sent = requests() - before;
        assert!(sent <= N as u64, "{sent} requests");
    });
    assert_eq!(order.into_inner().unwrap(), (0..N).collect::<Vec<_>>());
    nothing_left(&fixture.server);
}

#[test]
fn a_signal_and_a_switch_are_two_requests() {
    const TURNS: usize = 200;
    let fixture = Fixture::new();
    let client = || fixture.client_with(quiet);
    let clients = [client(), client()];
    let turn = Mutex::new(0);
    thread::scope(|scope| {
        for (me, client) in clients.iter().enumerate() {
            let (lock, turn) = (client.reentrant_lock("it"), &turn);
            scope.spawn(move || {
                let mut guard = lock.lock().unwrap();
                for _ in 0..TURNS / 2 {
                    not_empty(&lock).wait_while(&mut guard, || *turn.lock().unwrap() % 2 != me).unwrap();
                    *turn.lock().unwrap() += 1;
                    not_empty(&lock).signal(&guard).unwrap();
                }
                guard.unlock().unwrap();
            });
        }
    });
    assert_eq!(turn.into_inner().unwrap(), TURNS);
    let sent: u64 = clients.iter().map(redis_concurrent::Client::request_count).sum();
    // Two a turn, and what it takes to begin and to end.
    assert!(sent <= 2 * TURNS as u64 + 20, "{sent} requests");
}

#[test]
fn a_signal_that_nobody_waits_for_is_for_nobody() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    signal(&lock);
    let mut guard = lock.lock().unwrap();
    assert!(!replied(|| not_empty(&lock).wait_with(&mut guard, ms(100))));
    guard.unlock().unwrap();
}

#[test]
fn a_wait_that_times_out_while_a_signalled_thread_is_inside_leaves_nothing() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.lock(), fixture.lock());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut guard = first.lock().unwrap();
            not_empty(&first).wait(&mut guard).unwrap();
            // The other one's time is over.
            fixture.await_waiting(0);
            guard.unlock().unwrap();
        });
        fixture.await_waiting(1);
        scope.spawn(|| {
            let mut guard = second.lock().unwrap();
            assert!(!replied(|| not_empty(&second).wait_with(&mut guard, ms(1000))));
            guard.unlock().unwrap();
        });
        fixture.await_waiting(2);
        signal(&fixture.lock());
    });
    nothing_left(&fixture.server);
}

#[test]
fn whose_time_is_over_in_the_instant_of_its_signal_is_one_owner_still() {
    let fixture = Fixture::new();
    let clients = [fixture.client(), fixture.client()];
    let (inside, last) = (AtomicBool::new(false), Mutex::new(0));
    let mut chance = Random::new("whose_time_is_over_in_the_instant_of_its_signal_is_one_owner_still");
    let signalled = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..6 {
            let (lock, inside, last, signalled) =
                (clients[i % 2].reentrant_lock("it"), &inside, &last, &signalled);
            let mut chance = chance.fork();
            scope.spawn(move || {
                for _ in 0..40 {
                    let mut guard = lock.lock().unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst));
                    if chance.below(2) == 0 {
                        not_empty(&lock).signal(&guard).unwrap();
                    }
                    inside.store(false, Ordering::SeqCst);
                    let woken = replied(|| not_empty(&lock).wait_with(&mut guard, chance.micros(4000)));
                    assert!(!inside.swap(true, Ordering::SeqCst));
                    signalled.fetch_add(usize::from(woken), Ordering::SeqCst);
                    let before = std::mem::replace(&mut *last.lock().unwrap(), guard.token());
                    assert!(before < guard.token());
                    inside.store(false, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(signalled.into_inner() > 0);
    nothing_left(&fixture.server);
}
