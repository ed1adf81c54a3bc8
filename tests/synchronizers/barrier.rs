//! The barrier: its rounds, its indexes, what breaks it and which parties hear of it.

mod breaking;
mod processes;
mod unheard;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Commands;
use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, CyclicBarrier, Error, ErrorKind};
use redis_concurrent_testkit::wait_until;

use crate::names::{LONG, await_positions, client, key, ms, server};
use crate::support::{SOON, builder, connected, patient, refused, replied};

/// For how long a process that dies may be silent; and a busy machine may stand still.
const SILENT: Duration = ms(4000);

/// A client whose death is noticed soon.
fn short(url: &str) -> Client {
    connected(|| builder(url).waiter_timeout(SILENT))
}

/// Two threads wait, the one that comes first in the first place.
#[track_caller]
fn two_wait<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    wait: impl Fn() -> T + Send + Copy + 'scope,
) -> [ScopedJoinHandle<'scope, T>; 2] {
    [1, 2].map(|n| {
        let waiter = scope.spawn(wait);
        await_positions(name, n);
        waiter
    })
}

#[track_caller]
fn is_broken<T>(outcome: Result<T, Error>) -> String {
    let Err(error) = outcome else { panic!("it is not broken") };
    assert_eq!(error.kind(), ErrorKind::Broken, "{error}");
    error.to_string()
}

#[test]
fn one_party_passes_at_once_round_after_round() {
    let barrier = client().cyclic_barrier("alone", 1);
    let ran = AtomicUsize::new(0);
    for _ in 0..3 {
        assert_eq!(barrier.wait().unwrap(), 0);
        assert_eq!(replied(|| barrier.wait_with(Duration::ZERO)), 0);
        let index = barrier.wait_then(|| {
            ran.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(index.unwrap(), 0);
    }
    assert_eq!(ran.into_inner(), 3);
    assert_eq!(barrier.number_waiting().unwrap(), 0);
    assert!(!barrier.is_broken().unwrap());
}

#[test]
fn all_go_on_when_the_last_one_comes_each_with_its_index() {
    let name = "indexes";
    let clients = [client(), client()];
    let barriers: Vec<_> = (0..4).map(|i| clients[i % 2].cyclic_barrier(name, 4)).collect();
    for round in 0..3 {
        thread::scope(|scope| {
            let waiters: Vec<_> = barriers[1..]
                .iter()
                .enumerate()
                .map(|(i, barrier)| {
                    let waiter = scope.spawn(|| barrier.wait());
                    await_positions(name, i + 1);
                    waiter
                })
                .collect();
            assert_eq!(barriers[0].number_waiting().unwrap(), 3);
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            assert_eq!(barriers[0].wait().unwrap(), 0, "round {round}");
            let indexes: Vec<_> = waiters.into_iter().map(|it| it.join().unwrap().unwrap()).collect();
            assert_eq!(indexes, [3, 2, 1]);
        });
    }
    assert_eq!(barriers[0].number_waiting().unwrap(), 0);
    wait_until(LONG, "nothing is in use", || clients.iter().all(|client| lock_count(client) == 1));
    // Nothing is left of the parties that passed, and the rest expires.
    let mut redis = server().connection().unwrap();
    let mut fields: Vec<String> = redis.hkeys(key(name, "")).unwrap();
    fields.sort();
    assert_eq!(fields, ["bound", "kind"]);
    assert!((1..=60_000).contains(&redis.pttl::<_, i64>(key(name, "")).unwrap()));
}

#[test]
fn rounds_of_many_threads_do_not_mix() {
    const CLIENTS: usize = 4;
    const EACH: usize = 8;
    const ROUNDS: usize = 5;
    let clients: Vec<_> = (0..CLIENTS).map(|_| client()).collect();
    let arrived: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    let sums: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..EACH {
                scope.spawn(|| {
                    let barrier = client.cyclic_barrier("many", CLIENTS * EACH);
                    for round in 0..ROUNDS {
                        arrived[round].fetch_add(1, Ordering::SeqCst);
                        sums[round].fetch_add(barrier.wait().unwrap(), Ordering::SeqCst);
                        assert_eq!(arrived[round].load(Ordering::SeqCst), CLIENTS * EACH);
                    }
                });
            }
        }
    });
    let n = CLIENTS * EACH;
    assert!(sums.into_iter().all(|sum| sum.into_inner() == n * (n - 1) / 2));
}

#[test]
fn all_are_awake_soon_after_the_last_one() {
    const CLIENTS: usize = 4;
    const EACH: usize = 8;
    let name = "awake";
    // No heartbeat lets them in.
    let clients: Vec<_> = (0..CLIENTS).map(|_| patient(server())).collect();
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 1..CLIENTS * EACH {
            let (client, passed) = (&clients[i % CLIENTS], &passed);
            scope.spawn(move || {
                client.cyclic_barrier(name, CLIENTS * EACH).wait().unwrap();
                passed.fetch_add(1, Ordering::SeqCst);
            });
        }
        await_positions(name, CLIENTS * EACH - 1);
        let began = Instant::now();
        clients[0].cyclic_barrier(name, CLIENTS * EACH).wait().unwrap();
        wait_until(LONG, "all passed", || passed.load(Ordering::SeqCst) == CLIENTS * EACH - 1);
        // Some milliseconds on an idle machine.
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    });
}

#[test]
fn a_round_takes_two_requests_of_each() {
    // So rarely does it say that it lives.
    let client = connected(|| builder(&server().url()).waiter_timeout(LONG));
    let (first, last) = (client.cyclic_barrier("cost", 3), client.cyclic_barrier("cost", 3));
    for round in 0..3 {
        let before = client.request_count();
        thread::scope(|scope| {
            let waiters = two_wait(scope, "cost", || first.wait());
            last.wait_then(|| ()).unwrap();
            let _ = waiters.map(|waiter| waiter.join().unwrap().unwrap());
        });
        let sent = client.request_count() - before;
        // One more for the action; in the first round more to find the inbox.
        assert!(sent == 7 || round == 0, "{sent}");
    }
}

#[test]
fn the_action_of_the_last_one_runs_once_before_the_others_go_on() {
    let name = "action";
    let (one, other) = (client().cyclic_barrier(name, 3), client().cyclic_barrier(name, 3));
    let ran = Mutex::new(Vec::new());
    for _ in 0..2 {
        thread::scope(|scope| {
            let waiters = ["first", "second"].map(|who| {
                let (one, ran) = (&one, &ran);
                let waiter = scope.spawn(move || {
                    let index = one.wait_then(|| ran.lock().push(who)).unwrap();
                    (index, ran.lock().len())
                });
                await_positions(name, if who == "first" { 1 } else { 2 });
                waiter
            });
            let before = ran.lock().len();
            let index = other.wait_then_with(LONG, || {
                thread::sleep(ms(50));
                assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
                ran.lock().push("last");
            });
            assert_eq!(index.unwrap(), 0);
            let [first, second] = waiters.map(|waiter| waiter.join().unwrap());
            assert_eq!((first, second), ((2, before + 1), (1, before + 1)));
        });
    }
    assert_eq!(*ran.lock(), ["last", "last"]);
}

#[test]
fn a_party_that_comes_while_an_action_runs_belongs_to_the_next_round() {
    let name = "next";
    let barrier = client().cyclic_barrier(name, 2);
    let ran = AtomicUsize::new(0);
    thread::scope(|scope| {
        let first = scope.spawn(|| barrier.wait());
        await_positions(name, 1);
        let (mut third, mut fourth) = (None, None);
        let index = barrier.wait_then(|| {
            third = Some(scope.spawn(|| {
                barrier.wait_then(|| {
                    ran.fetch_add(1, Ordering::SeqCst);
                })
            }));
            await_positions(name, 2);
            fourth = Some(scope.spawn(|| barrier.wait()));
            await_positions(name, 3);
            assert!(!first.is_finished());
        });
        assert_eq!(index.unwrap(), 0);
        assert_eq!(first.join().unwrap().unwrap(), 1);
        // Complete without a last one to come: its first one is it.
        assert_eq!(third.unwrap().join().unwrap().unwrap(), 1);
        assert_eq!(fourth.unwrap().join().unwrap().unwrap(), 0);
    });
    assert_eq!(ran.into_inner(), 1);
    assert!(!barrier.is_broken().unwrap());
}

#[test]
fn a_party_that_gives_up_waiting_for_the_next_round_breaks_that_one() {
    let name = "extras";
    let barrier = client().cyclic_barrier(name, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| barrier.wait());
        await_positions(name, 1);
        let index = barrier.wait_then(|| {
            gives_up(&barrier);
            is_broken(barrier.wait());
        });
        assert_eq!(index.unwrap(), 0);
        assert_eq!(first.join().unwrap().unwrap(), 1);
        is_broken(barrier.wait());
        barrier.reset().unwrap();
    });
}

/// A party gives up waiting, which breaks the barrier: once more if it had no time to arrive.
fn gives_up(barrier: &CyclicBarrier) {
    wait_until(LONG, "it is broken", || {
        barrier.wait_with(ms(30)).unwrap_err();
        barrier.is_broken().unwrap()
    });
}

/// Two that wait in another client while `breaks` does what breaks the barrier of three, and hear of it within `limit` and
/// what a busy machine takes; then nobody gets in until it is reset.
#[track_caller]
fn breaks(name: &str, limit: Duration, breaks: impl FnOnce(&CyclicBarrier)) {
    let barrier = client().cyclic_barrier(name, 3);
    let others = if limit.is_zero() { patient(server()) } else { client() };
    thread::scope(|scope| {
        let waiters = two_wait(scope, name, || others.cyclic_barrier(name, 3).wait_with(6 * LONG));
        breaks(&barrier);
        let began = Instant::now();
        for waiter in waiters {
            is_broken(waiter.join().unwrap());
        }
        assert!(began.elapsed() < limit + LONG, "{:?}", began.elapsed());
    });
    assert!(barrier.is_broken().unwrap());
    assert_eq!(barrier.number_waiting().unwrap(), 0);
    is_broken(barrier.wait());
    assert_eq!(refused(|| barrier.wait_with(Duration::ZERO)).kind(), ErrorKind::Broken);
    let mut redis = server().connection().unwrap();
    assert_eq!(redis.pttl::<_, i64>(key(name, "")).unwrap(), -1);
    barrier.reset().unwrap();
    assert!(!barrier.is_broken().unwrap());
    assert!((1..=60_000).contains(&redis.pttl::<_, i64>(key(name, "")).unwrap()));
    thread::scope(|scope| {
        let waiters = two_wait(scope, name, || others.cyclic_barrier(name, 3).wait_with(LONG));
        assert_eq!(barrier.wait().unwrap(), 0);
        let _ = waiters.map(|waiter| waiter.join().unwrap().unwrap());
    });
}

#[test]
fn what_is_wrong_is_said() {
    let client = client();
    for parties in [0, 10_001] {
        let barrier = client.cyclic_barrier("wrong", parties);
        for error in [
            barrier.wait().unwrap_err(),
            barrier.is_broken().unwrap_err(),
            barrier.number_waiting().unwrap_err(),
            barrier.reset().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
    assert_eq!(client.cyclic_barrier("", 1).wait().unwrap_err().kind(), ErrorKind::InvalidInput);

    let lock = client.reentrant_lock("wrong");
    let guard = lock.lock().unwrap();
    let barrier = client.cyclic_barrier("wrong", 2);
    for error in [
        barrier.wait().unwrap_err(),
        refused(|| barrier.wait_with(Duration::ZERO)),
        barrier.is_broken().unwrap_err(),
        barrier.reset().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    guard.unlock().unwrap();
}

#[test]
fn another_number_of_parties_is_refused_and_changes_nothing() {
    let name = "parties";
    let client = client();
    let barrier = client.cyclic_barrier(name, 2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| barrier.wait());
        await_positions(name, 1);
        for parties in [1, 3] {
            let error = client.cyclic_barrier(name, parties).wait().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains("expect 2 parties"), "{error}");
        }
        // The name is a barrier's while somebody waits.
        assert_eq!(client.simple_lock(name).try_lock().unwrap_err().kind(), ErrorKind::WrongType);
        assert!(!barrier.is_broken().unwrap());
        assert_eq!(barrier.wait().unwrap(), 0);
        waiter.join().unwrap().unwrap();
    });
    // Nobody waits: it may have another number.
    assert_eq!(client.cyclic_barrier(name, 1).wait().unwrap(), 0);
}
