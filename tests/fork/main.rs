//! *only-the-process-that-acquired-releases*, also after a fork: the child has copies of all that
//! the parent holds, and none of it is its own.

mod child;
mod held;
mod inventory;
mod multi_lock;
mod red_lock;
#[path = "../support/mod.rs"]
mod support;
mod synchronizers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, Guard, OwnedGuard};
use redis_concurrent_testkit::*;

use child::in_child;
use support::*;

fn forked<T>(result: Result<T, Error>) {
    match result {
        Err(e) => assert_eq!(e.kind(), ErrorKind::Forked, "{e}"),
        Ok(_) => panic!("the parent's client served the child"),
    }
}

#[test]
fn only_the_process_that_acquired_releases() {
    alone("only_the_process_that_acquired_releases", || {
        let server = RedisServer::start().unwrap();
        let recorder = Recorder::default();
        let lease = ms(4500);
        let client =
            connected(|| builder(&server.url()).lease(lease).renew_every(ms(300)).observer(recorder.clone()));
        let (x, y, z) = (client.reentrant_lock("x"), client.reentrant_lock("y"), client.reentrant_lock("z"));
        let other = connect(&server);
        let (xs, ys) = (other.reentrant_lock("x"), other.reentrant_lock("y"));
        // Connections, the listener and the renewal thread are at work.
        let mut guard: Option<Guard<Reentrant>> = Some(x.lock().unwrap());
        let mut owned: Option<OwnedGuard<Reentrant>> = Some(y.lock_owned().unwrap());
        wait_until(SOON, "renewed", || recorder.count(Event::Renewed) > 1);
        let failures = recorder.failures();
        in_child(|| {
            // Here, where nothing is renewed.
            let requests = client.request_count();
            let token = CancellationToken::new();
            forked(z.lock());
            forked(z.try_lock());
            forked(z.try_lock_for(ms(50)));
            forked(z.try_lock_owned());
            forked(z.lock_interruptibly(&token));
            forked(z.is_locked());
            forked(z.holder());
            forked(z.queue_length());
            forked(z.force_unlock());
            forked(client.reentrant_lock("made in the child").lock());
            forked(guard.as_ref().unwrap().renew_for(LONG));
            forked(x.condition("it").wait(guard.as_mut().unwrap()));
            forked(x.condition("it").signal(guard.as_ref().unwrap()));
            forked(owned.take().unwrap().unlock());
            drop(guard.take());
            forked(client.close());
            assert_eq!(recorder.failures(), failures);
            assert_eq!(client.request_count(), requests, "the child sent something");
        });
        let receipt = client.reentrant_lock("on paper").lock_owned().unwrap().into_receipt().unwrap();
        in_child(|| {
            forked(owned.take().unwrap().into_receipt());
            forked(client.adopt::<Reentrant>(&receipt));
            forked(guard.take().unwrap().unlock());
            drop(owned.take());
        });
        // The parent is unharmed: it holds, renews, waits and releases.
        let began = Instant::now();
        while began.elapsed() < lease + ms(500) {
            assert!(!guard.as_ref().unwrap().is_lost() && !owned.as_ref().unwrap().is_lost());
            assert!(xs.try_lock().unwrap().is_none() && ys.try_lock().unwrap().is_none());
            thread::sleep(ms(20));
        }
        guard.take().unwrap().unlock().unwrap();
        owned.take().unwrap().unlock().unwrap();
        assert_eq!(recorder.losses() + recorder.failures(), 0, "{:?}", recorder.all());
        let theirs = xs.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| x.lock().and_then(|g| g.unlock()));
            queued(&xs, 1);
            theirs.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        client.close().unwrap();
        nothing_left(&server);
    });
}

/// Forked before there is a client, a process has clients of its own. (Afterwards it cannot: the
/// threads that it does not have are still in the queues of the locks underneath.)
#[test]
fn a_child_forked_before_there_is_a_client_makes_its_own() {
    alone("a_child_forked_before_there_is_a_client_makes_its_own", || {
        let server = RedisServer::start().unwrap();
        let url = server.url();
        let lives = || {
            let client = connected(|| builder(&url).lease(ms(9000)).renew_every(ms(300)));
            let lock = client.reentrant_lock("y");
            let guard = lock.lock().unwrap();
            renewed_again(|| guard.remaining());
            guard.unlock().unwrap();
            client.close().unwrap();
            // Seen for a moment after its last word.
            wait_until(LONG, "its threads end", || threads("rc-").is_empty());
        };
        in_child(lives);
        lives();
        nothing_left(&server);
    });
}

/// The child lets everything go that it has copies of; the parent's sockets, subscription and
/// holds stay.
#[test]
fn a_forked_child_drops_all_it_was_left() {
    alone("a_forked_child_drops_all_it_was_left", || {
        let server = RedisServer::start().unwrap();
        let held = connect(&server).reentrant_lock("y").lock_owned().unwrap();
        let client = connected(|| builder(&server.url()).lease(ms(9000)).renew_every(ms(300)));
        assert!(in_brief(client.reentrant_lock("y").try_lock_for(ms(50))).is_none());
        let mut owned = Some(client.reentrant_lock("x").lock_owned().unwrap());
        let mut client: Option<Client> = Some(client);
        in_child(|| {
            drop(client.take());
            drop(owned.take());
        });
        in_child(|| {
            drop(owned.take());
            drop(client.take());
        });
        let (client, owned) = (client.unwrap(), owned.unwrap());
        renewed_again(|| owned.remaining());
        let y = client.reentrant_lock("y");
        thread::scope(|scope| {
            let waits = scope.spawn(|| y.lock().and_then(|g| g.unlock()));
            wait_until(LONG, "it waits", || y.queue_length().unwrap() == 1);
            held.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        owned.unlock().unwrap();
        client.close().unwrap();
        nothing_left(&server);
    });
}

/// At the fork other threads are anywhere: inside our mutexes too, which stay taken in the child.
#[test]
fn a_child_forked_in_the_middle_of_things_does_not_hang() {
    alone("a_child_forked_in_the_middle_of_things_does_not_hang", || {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let stop = AtomicBool::new(false);
        let (x, busy) = (client.reentrant_lock("x"), client.reentrant_lock("busy"));
        let mut guard = Some(x.lock_owned().unwrap());
        thread::scope(|scope| {
            for i in 0..3 {
                let (client, busy, stop) = (&client, &busy, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match i {
                            0 => drop(client.reentrant_lock("made anew")),
                            _ => drop(busy.lock().unwrap()),
                        }
                    }
                });
            }
            // Also when an assertion fails below: the threads are waited for.
            let _stop = SetOnDrop(&stop);
            let began = Instant::now();
            let mut forks = 0;
            while began.elapsed() < Duration::from_secs(3) {
                in_child(|| {
                    forked(busy.lock());
                    forked(busy.try_lock_for(ms(20)));
                    let counts =
                        [busy.hold_count(), busy.local_queue_length(), x.hold_count(), lock_count(&client)];
                    assert_eq!(counts, [0; 4]);
                    forked(client.reentrant_lock("made anew").try_lock());
                    let held = guard.as_ref().unwrap();
                    assert!(held.is_lost() && held.loss().is_some_and(|e| e.kind() == ErrorKind::Forked));
                    assert!(held.lost().is_cancelled() && held.ends_within(ms(1)).is_cancelled());
                    forked(guard.take().unwrap().unlock());
                });
                forks += 1;
            }
            println!("{forks} forks");
        });
        assert!(!guard.as_ref().unwrap().is_lost());
        guard.unwrap().unlock().unwrap();
        nothing_left(&server);
    });
}
