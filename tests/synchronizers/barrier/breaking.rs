//! What breaks a barrier, and which parties learn of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, ErrorKind, Wait};
use redis_concurrent_testkit::{released_all, wait_until};

use super::{breaks, gives_up, is_broken};
use crate::names::{LONG, await_positions, client, ms};

#[test]
fn its_time_is_up() {
    let name = "time";
    let (one, other) = (client().cyclic_barrier(name, 3), client().cyclic_barrier(name, 3));
    wait_until(LONG, "it hears so in time", || {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| one.wait_with(LONG));
            await_positions(name, 1);
            let began = Instant::now();
            let error = other.wait_with(ms(1500)).unwrap_err();
            // Where a busy machine has no answer for it by then: once more.
            let is_heard = !error.is_unavailable();
            if is_heard {
                assert_eq!((error.kind(), error.name()), (ErrorKind::Timeout, name));
                assert!(began.elapsed() >= ms(1500));
                is_broken(waiter.join().unwrap());
                is_broken(other.wait_with(Instant::now() + LONG));
            }
            one.reset().unwrap();
            is_heard
        })
    });
}

#[test]
fn a_token_breaks_it() {
    let name = "token";
    let barrier = client().cyclic_barrier(name, 3);
    let token = CancellationToken::new();
    assert!(!barrier.is_broken().unwrap());
    thread::scope(|scope| {
        let other = scope.spawn(|| barrier.wait_with(LONG));
        await_positions(name, 1);
        let waiter = scope.spawn(|| barrier.wait_with(Wait::timeout(LONG).cancelled_by(&token)));
        await_positions(name, 2);
        token.cancel();
        assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
        is_broken(other.join().unwrap());
    });
    barrier.reset().unwrap();
    // It never arrived.
    assert!(barrier.wait_with(&token).unwrap_err().is_cancelled());
    assert!(!barrier.is_broken().unwrap());
}

#[test]
fn a_panic_in_the_action_breaks_it() {
    breaks("panic", Duration::ZERO, |barrier| {
        let panic = catch_unwind(AssertUnwindSafe(|| barrier.wait_then(|| panic!("in the action"))));
        assert_eq!(*panic.unwrap_err().downcast_ref::<&str>().unwrap(), "in the action");
    });
}

#[test]
fn a_reset_breaks_it_for_waiters_and_for_the_party_in_its_action() {
    breaks("reset", Duration::ZERO, |barrier| {
        is_broken(barrier.wait_then(|| barrier.reset().unwrap()));
        // So that it is broken for the rest of this test.
        assert!(!barrier.is_broken().unwrap());
        gives_up(barrier);
    });
}

#[test]
fn a_waiter_hears_that_it_was_reset() {
    let name = "says";
    let barrier = client().cyclic_barrier(name, 2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| barrier.wait_with(LONG));
        await_positions(name, 1);
        barrier.reset().unwrap();
        assert!(is_broken(waiter.join().unwrap()).contains("it was reset"));
    });
    assert!(!barrier.is_broken().unwrap());
}

#[test]
fn a_client_that_closes_breaks_it() {
    breaks("close", Duration::ZERO, |_| {
        let closing = client();
        let barrier = closing.cyclic_barrier("close", 3);
        // Its word that the barrier is open is never sent.
        let error = barrier.wait_then(|| {
            let _ = released_all(&closing.close());
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
}
