//! 5. *a-grant-is-never-dropped*: a caller that is granted the lock in the instant it gives up passes it on.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::{CancellationToken, Wait};
use redis_concurrent_testkit::*;

use crate::support::*;

const ROUNDS: usize = 2500;

/// In each round the lock is released while four threads of two processes give up waiting for it,
/// some by the clock, some cancelled. The thread that gets it gives it back; then it must be free.
#[test]
fn a_grant_is_never_dropped() {
    let mut random = Random::new("a_grant_is_never_dropped");
    let server = RedisServer::start().unwrap();
    let clients = [connect(&server), connect(&server)];
    let holder = connect(&server).reentrant_lock("x");
    let (start, end) = (Barrier::new(6), Barrier::new(6));
    // Another token each round; the fifth thread cancels it.
    let tokens: Vec<CancellationToken> = (0..ROUNDS).map(|_| CancellationToken::new()).collect();
    let began = Instant::now();
    let mut worst = Duration::ZERO;
    let got: usize = thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|i| {
                let (mut random, lock) = (random.fork(), clients[i % 2].reentrant_lock("x"));
                let (start, end, tokens) = (&start, &end, &tokens);
                scope.spawn(move || {
                    let mut got = 0;
                    for token in tokens {
                        start.wait();
                        let outcome = match random.below(3) {
                            0 => lock.try_lock_for(random.micros(1500)),
                            1 => lock.lock_interruptibly(token).map(Some),
                            _ => lock.lock_with(Wait::timeout(random.micros(3000)).cancelled_by(token)),
                        };
                        match outcome {
                            Ok(Some(guard)) => {
                                got += 1;
                                guard.unlock().unwrap();
                            }
                            Ok(None) => {}
                            // On a busy machine Redis may not reply in the time of a call that has so little.
                            Err(e) if e.is_cancelled() || e.is_unavailable() => {}
                            Err(e) => panic!("{e:?}"),
                        }
                        end.wait();
                    }
                    got
                })
            })
            .collect();
        let mut pause = random.fork();
        let (start, end, tokens) = (&start, &end, &tokens);
        scope.spawn(move || {
            for token in tokens {
                start.wait();
                thread::sleep(pause.micros(1500));
                token.cancel();
                end.wait();
            }
        });
        let mut held = Some(holder.lock().unwrap());
        for _ in 0..ROUNDS {
            start.wait();
            thread::sleep(random.micros(1500));
            held.take().unwrap().unlock().unwrap();
            end.wait();
            let began = Instant::now();
            held = holder.try_lock_for(SOON).unwrap();
            assert!(held.is_some(), "a grant was dropped: {:?}", holder.holder());
            worst = worst.max(began.elapsed());
        }
        waiters.into_iter().map(|w| w.join().unwrap()).sum()
    });
    println!("{ROUNDS} rounds in {:?}, {got} holds, worst wait afterwards {worst:?}", began.elapsed());
    assert!(got > ROUNDS / 10, "the race was hardly ever won: {got}");
    for client in &clients {
        assert_eq!(client.reentrant_lock("x").local_queue_length(), 0);
        wait_until(SOON, "no lock is in use", || lock_count(client) == 0);
    }
    nothing_left(&server);
}

/// The same within one process: the head that gives up passes on the lead and what it was granted.
#[test]
fn a_grant_is_never_dropped_by_a_head_with_others_behind_it() {
    let mut random = Random::new("a_head_with_others_behind_it");
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let lock = connect(&server).reentrant_lock("x");
    for _ in 0..400 {
        let held = holder.lock().unwrap();
        let (head, behind) = (CancellationToken::new(), CancellationToken::new());
        let (pause, limit) = (random.micros(1500), random.micros(1500));
        thread::scope(|scope| {
            let first = scope.spawn(|| lock.lock_interruptibly(&head).map(drop));
            let second = scope.spawn(|| lock.lock_interruptibly(&behind).map(drop));
            scope.spawn(|| {
                thread::sleep(limit);
                head.cancel();
            });
            thread::sleep(pause);
            held.unlock().unwrap();
            let first = first.join().unwrap();
            assert!(first.is_ok() || first.is_err_and(|e| e.is_cancelled()));
            wait_until(SOON, "the one behind it gets in", || second.is_finished());
            second.join().unwrap().unwrap();
        });
    }
    nothing_left(&server);
}

/// One attempt whose answer comes when the hold it tells of is over by the local clock, while Redis,
/// which ran it late, has just begun to keep it.
#[test]
fn a_grant_is_never_dropped_by_one_attempt_that_is_answered_late() {
    let lease = ms(1500);
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(lease).command_timeout(SOON));
    let lock = client.reentrant_lock("x");
    drop(lock.lock().unwrap());
    let tombstone = || exists(&server, "rc:{x}:tombstones");
    assert!(!tombstone());
    proxy.hold_next_requests(1);
    thread::scope(|scope| {
        let tries = scope.spawn(|| lock.try_lock_owned());
        wait_until(SOON, "the request is held", || proxy.held() == 1);
        thread::sleep(lease + ms(100));
        proxy.release_held();
        let got = tries.join().unwrap().unwrap();
        assert!(got.as_ref().is_none_or(|guard| !guard.is_lost()), "an expired hold was returned");
    });
    // Given back, not left to its lease: that leaves no tombstone.
    wait_until(LONG, "Redis keeps nothing", || !exists(&server, "rc:{x}") && tombstone());
}
