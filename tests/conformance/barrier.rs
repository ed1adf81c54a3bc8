//! Barriers: threads that wait for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, LATE, NAME, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { one_lock:
    one_party_passes_each_time
    the_action_runs_once_a_round
    nobody_is_a_round_ahead
    three_wait_for_the_fourth_and_all_go_on
    a_timed_wait_alone_times_out
    a_reset_breaks_it_for_the_waiters
    a_reset_between_rounds_breaks_nothing
}

/// JSR-166 CyclicBarrierTest.testSingleParty.
fn one_party_passes_each_time<K: Tried>(fixture: &Fixture<K>) {
    let barrier = fixture.client().cyclic_barrier(NAME, 1);
    for _ in 0..2 {
        assert_eq!(barrier.wait().unwrap(), 0);
    }
    assert_eq!(barrier.number_waiting().unwrap(), 0);
    fixture.bygone();
}

/// JSR-166 CyclicBarrierTest.testBarrierAction: everybody brings the action, the last one's runs.
fn the_action_runs_once_a_round<K: Tried>(fixture: &Fixture<K>) {
    let barriers = [(); 2].map(|()| fixture.client().cyclic_barrier(NAME, 2));
    let ran = AtomicUsize::new(0);
    let action = || assert!(ran.fetch_add(1, Ordering::SeqCst) < 2);
    thread::scope(|scope| {
        for barrier in &barriers {
            scope.spawn(|| {
                for round in 1..=2 {
                    barrier.wait_then(action).unwrap();
                    assert!(ran.load(Ordering::SeqCst) >= round);
                }
            });
        }
    });
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    fixture.bygone();
}

/// JSR-166 PhaserTest.testArriveAndAwaitAdvance3.
fn three_wait_for_the_fourth_and_all_go_on<K: Tried>(fixture: &Fixture<K>) {
    let barriers = [(); 4].map(|()| fixture.client().cyclic_barrier(NAME, 4));
    let [early @ .., last] = &barriers;
    let back = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiters = early.each_ref().map(|barrier| {
            scope.spawn(|| {
                let index = barrier.wait().unwrap();
                back.fetch_add(1, Ordering::SeqCst);
                index
            })
        });
        wait_until(LONG, "three wait", || last.number_waiting().unwrap() == 3);
        assert_eq!(back.load(Ordering::SeqCst), 0, "none is early");
        assert_eq!(last.wait().unwrap(), 0);
        let mut indices = waiters.map(|waiter| waiter.join().unwrap());
        indices.sort();
        assert_eq!(indices, [1, 2, 3]);
    });
    fixture.bygone();
}

/// JSR-166 CyclicBarrierTest.testTwoParties.
fn nobody_is_a_round_ahead<K: Tried>(fixture: &Fixture<K>) {
    let barriers = [(); 2].map(|()| fixture.client().cyclic_barrier(NAME, 2));
    let arrived = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for (me, barrier) in barriers.iter().enumerate() {
            let arrived = &arrived;
            scope.spawn(move || {
                for round in 1..=4 {
                    arrived[me].store(round, Ordering::SeqCst);
                    barrier.wait().unwrap();
                    // The other one may have come to the next round by now, and no further.
                    let other = arrived[1 - me].load(Ordering::SeqCst);
                    assert!((round..=round + 1).contains(&other), "{other} in round {round}");
                }
            });
        }
    });
    fixture.bygone();
}

/// JSR-166 CyclicBarrierTest.testAwait3_TimeoutException.
fn a_timed_wait_alone_times_out<K: Tried>(fixture: &Fixture<K>) {
    let barrier = fixture.client().cyclic_barrier(NAME, 2);
    let limit = ms(300);
    // Once more where a busy machine let it arrive too late to break anything.
    wait_until(LONG, "it is broken", || {
        let began = Instant::now();
        assert_eq!(barrier.wait_with(limit).unwrap_err().kind(), ErrorKind::Timeout);
        assert!((limit..limit + LATE).contains(&began.elapsed()), "{:?}", began.elapsed());
        fixture.await_positions(0);
        barrier.is_broken().unwrap()
    });
    barrier.reset().unwrap();
    fixture.bygone();
}

/// JSR-166 CyclicBarrierTest.testReset_BrokenBarrier.
fn a_reset_breaks_it_for_the_waiters<K: Tried>(fixture: &Fixture<K>) {
    let barriers = [(); 2].map(|()| fixture.client().cyclic_barrier(NAME, 3));
    thread::scope(|scope| {
        let waiters = barriers.each_ref().map(|barrier| scope.spawn(|| barrier.wait()));
        fixture.await_positions(2);
        fixture.client().cyclic_barrier(NAME, 3).reset().unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Broken);
        }
    });
    assert!(!barriers[0].is_broken().unwrap());
    fixture.bygone();
}

/// JSR-166 CyclicBarrierTest.testResetWithoutBreakage.
fn a_reset_between_rounds_breaks_nothing<K: Tried>(fixture: &Fixture<K>) {
    let barriers = [(); 3].map(|()| fixture.client().cyclic_barrier(NAME, 3));
    for _ in 0..3 {
        thread::scope(|scope| {
            let all = barriers.each_ref().map(|barrier| scope.spawn(|| barrier.wait()));
            let mut indexes = all.map(|it| it.join().unwrap().unwrap());
            indexes.sort_unstable();
            assert_eq!(indexes, [0, 1, 2]);
        });
        assert!(!barriers[0].is_broken().unwrap());
        assert_eq!(barriers[0].number_waiting().unwrap(), 0);
        barriers[0].reset().unwrap();
        assert!(!barriers[0].is_broken().unwrap());
    }
    fixture.bygone();
}
