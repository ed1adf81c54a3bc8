//! Which waiter waits for which.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, ErrorKind};
use redis_concurrent_testkit::{Proxy, wait_until};

use crate::read_write::Fixture;
use crate::support::{LONG, SOON, builder, connected, in_brief, ms, nothing_left};

#[test]
fn a_waiting_writer_keeps_new_readers_out_but_not_present_ones() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.lock(), fixture.lock(), fixture.lock());
    let read = a.read_lock().lock().unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| drop(b.write_lock().lock().unwrap()));
        fixture.await_queued(1);
        assert!(c.read_lock().try_lock().unwrap().is_none(), "of another process");
        let again = a.read_lock().try_lock().unwrap().expect("it reads already");
        drop(again);
        assert!(!writer.is_finished());
        drop(read);
        writer.join().unwrap();
    });
    nothing_left(&fixture.server);
}

#[test]
fn an_arriving_writer_shuts_the_shares_of_the_reading_processes() {
    let fixture = Fixture::new();
    // Longer than the test: only the message can shut it.
    let client = fixture.client_with(|b| b.local_handoff(Duration::from_secs(600)));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    let read = lock.read_lock().lock().unwrap();
    thread::scope(|scope| {
        // The listener must be there to be told.
        let waits = scope.spawn(|| drop(in_brief(client.reentrant_lock("else").try_lock_for(ms(1)))));
        waits.join().unwrap();
        let held = other.read_lock().lock().unwrap();
        let stays = scope.spawn(|| in_brief(lock.write_lock().try_lock_for(ms(200))).is_none());
        assert!(stays.join().unwrap());
        drop(held);
        let writer = scope.spawn(|| drop(other.write_lock().lock().unwrap()));
        fixture.await_queued(1);
        let newcomer = || scope.spawn(|| lock.read_lock().try_lock().unwrap().is_none()).join().unwrap();
        wait_until(LONG, "its threads are kept out too", newcomer);
        assert!(!writer.is_finished());
        drop(read);
        writer.join().unwrap();
    });
    nothing_left(&fixture.server);
}

#[test]
fn writers_come_before_readers_who_came_earlier() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.lock(), fixture.lock(), fixture.lock());
    let turn = AtomicUsize::new(0);
    let write = a.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let guard = b.read_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        fixture.await_queued(1);
        let writer = scope.spawn(|| {
            let guard = c.write_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        fixture.await_queued(2);
        drop(write);
        assert_eq!((writer.join().unwrap(), reader.join().unwrap()), (0, 1));
    });
    nothing_left(&fixture.server);
}

#[test]
fn in_arrival_order_nobody_passes_and_neighbouring_readers_come_in_together() {
    let fixture = Fixture::new();
    let locks: Vec<_> = (0..5).map(|_| fixture.lock().arrival_order()).collect();
    let turn = AtomicUsize::new(0);
    let both = AtomicUsize::new(0);
    let write = locks[0].write_lock().lock().unwrap();
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (i, lock) in locks[1..3].iter().enumerate() {
            let (turn, both) = (&turn, &both);
            readers.push(scope.spawn(move || {
                let guard = lock.read_lock().lock().unwrap();
                let at = turn.fetch_add(1, Ordering::SeqCst);
                both.fetch_add(1, Ordering::SeqCst);
                wait_until(LONG, "both read", || both.load(Ordering::SeqCst) == 2);
                drop(guard);
                at
            }));
            fixture.await_queued(i + 1);
        }
        let writer = scope.spawn(|| {
            let guard = locks[3].write_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        fixture.await_queued(3);
        let late = scope.spawn(|| {
            let guard = locks[4].read_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        fixture.await_queued(4);
        drop(write);
        let first: Vec<_> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        assert!(first.iter().all(|at| *at < 2), "{first:?}");
        assert_eq!((writer.join().unwrap(), late.join().unwrap()), (2, 3));
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.lock(), fixture.lock(), fixture.lock());
    for cancelled in [false, true] {
        let read = a.read_lock().lock().unwrap();
        let token = CancellationToken::new();
        let (given_up, token) = (AtomicBool::new(false), &token);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let outcome = if cancelled {
                    b.write_lock().lock_interruptibly(token).map(Some)
                } else {
                    Ok(in_brief(b.write_lock().try_lock_for(ms(500))))
                };
                given_up.store(true, Ordering::SeqCst);
                match outcome {
                    Err(error) => assert!(cancelled && error.kind() == ErrorKind::Cancelled, "{error}"),
                    Ok(guard) => assert!(!cancelled && guard.is_none()),
                }
            });
            // It may have given up before a busy machine looks.
            wait_until(LONG, "it waits", || {
                fixture.queued() == 1 || !cancelled && given_up.load(Ordering::SeqCst)
            });
            let reader = scope.spawn(|| {
                let guard = c.read_lock().lock().unwrap();
                assert!(given_up.load(Ordering::SeqCst) || fixture.queued() == 0);
                drop(guard);
                Instant::now()
            });
            if cancelled {
                fixture.await_queued(2);
                token.cancel();
            }
            writer.join().unwrap();
            let gave_up = Instant::now();
            let in_after = reader.join().unwrap().saturating_duration_since(gave_up);
            assert!(in_after < SOON, "{in_after:?}");
        });
        drop(read);
    }
    nothing_left(&fixture.server);
}

#[test]
fn waiters_are_counted_for_both_halves() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.lock(), fixture.lock());
    let write = a.write_lock().lock().unwrap();
    let token = CancellationToken::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| b.write_lock().lock_interruptibly(&token).map(drop).unwrap_err().kind());
        fixture.await_queued(1);
        let second = scope.spawn(|| drop(b.read_lock().lock().unwrap()));
        fixture.await_queued(2);
        assert_eq!((a.read_lock().queue_length().unwrap(), b.read_lock().queue_length().unwrap()), (2, 2));
        assert_eq!((b.write_lock().local_queue_length(), b.read_lock().local_queue_length()), (1, 1));
        token.cancel();
        assert_eq!(first.join().unwrap(), ErrorKind::Cancelled);
        fixture.await_queued(1);
        assert_eq!((a.read_lock().queue_length().unwrap(), b.read_lock().queue_length().unwrap()), (1, 1));
        drop(write);
        second.join().unwrap();
        assert_eq!(b.read_lock().queue_length().unwrap(), 0);
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_writer_that_waits_does_not_cut_the_slice_of_another_writer() {
    let fixture = Fixture::new();
    // Longer than the test: only a message could end it.
    let client = fixture.client_with(|b| b.local_handoff(Duration::from_secs(600)));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    let (marked, mark) = (client.reentrant_lock("mark"), fixture.client().reentrant_lock("mark"));
    let turn = AtomicUsize::new(0);
    let write = lock.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let held = mark.lock().unwrap();
        let listener = scope.spawn(|| drop(marked.lock().unwrap()));
        wait_until(LONG, "it listens", || mark.queue_length().unwrap() == 1);
        let theirs = scope.spawn(|| {
            let guard = other.write_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        fixture.await_queued(1);
        // What the writer had to tell was told on the same channel before this.
        drop(held);
        listener.join().unwrap();
        let ours = scope.spawn(|| {
            let guard = lock.write_lock().lock().unwrap();
            let at = turn.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            at
        });
        wait_until(LONG, "a thread waits here too", || lock.write_lock().local_queue_length() == 1);
        drop(write);
        assert_eq!((ours.join().unwrap(), theirs.join().unwrap()), (0, 1));
    });
    nothing_left(&fixture.server);
}

/// Its client's subscription takes its time: until that is there the writer has no position in Redis, and only its
/// process knows that it waits.
#[test]
fn no_reader_passes_a_writer_of_its_process_that_has_no_position_in_redis_yet() {
    for (local_handoff, in_order) in [(LONG, false), (LONG, true), (ms(0), false), (ms(0), true)] {
        let fixture = Fixture::new();
        let proxy = Proxy::start(fixture.server.port()).unwrap();
        let client = connected(|| builder(&proxy.url()).local_handoff(local_handoff).command_timeout(LONG));
        let lock = client.read_write_lock("it");
        let lock = if in_order { lock.arrival_order() } else { lock };
        proxy.only_matching(b"SUBSCRIBE");
        proxy.hold_requests(true);
        let turn = AtomicUsize::new(0);
        let read = lock.read_lock().lock().unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let _guard = lock.write_lock().lock().unwrap();
                turn.fetch_add(1, Ordering::SeqCst)
            });
            wait_until(LONG, "the writer waits", || lock.write_lock().local_queue_length() == 1);
            wait_until(LONG, "it subscribes", || proxy.held() > 0);
            let newcomers = || {
                assert!(lock.read_lock().try_lock().unwrap().is_none(), "past the writer");
                assert!(in_brief(lock.read_lock().try_lock_for(ms(50))).is_none(), "past the writer");
            };
            scope.spawn(newcomers).join().unwrap();
            drop(lock.read_lock().try_lock().unwrap().expect("this thread reads already"));
            let reader = scope.spawn(|| {
                let _guard = lock.read_lock().lock().unwrap();
                turn.fetch_add(1, Ordering::SeqCst)
            });
            wait_until(LONG, "a reader waits", || lock.read_lock().local_queue_length() == 1);
            drop(read);
            assert_eq!(fixture.queued(), 0);
            assert!(!writer.is_finished() && !reader.is_finished());
            proxy.heal().unwrap();
            assert_eq!((writer.join().unwrap(), reader.join().unwrap()), (0, 1));
        });
        client.close().unwrap();
        nothing_left(&fixture.server);
    }
}

/// One that gives up, for whatever reason, before it has a position admits those that it kept out.
#[test]
fn a_writer_that_gives_up_without_a_position_lets_the_readers_of_its_process_in() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(LONG));
    let lock = client.read_write_lock("it");
    proxy.only_matching(b"SUBSCRIBE");
    proxy.hold_requests(true);
    let (_read, token) = (lock.read_lock().lock().unwrap(), CancellationToken::new());
    thread::scope(|scope| {
        let writer = scope.spawn(|| lock.write_lock().lock_interruptibly(&token).map(drop));
        wait_until(LONG, "it subscribes", || proxy.held() > 0);
        let reader = scope.spawn(|| lock.read_lock().lock().map(drop));
        wait_until(LONG, "a reader waits", || lock.read_lock().local_queue_length() == 1);
        token.cancel();
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        reader.join().unwrap().unwrap();
    });
    proxy.heal().unwrap();
}
