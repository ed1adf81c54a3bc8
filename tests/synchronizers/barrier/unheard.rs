//! Replies and messages that are lost, and requests that arrive twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::{CyclicBarrier, Error, ErrorKind};
use redis_concurrent_testkit::{Proxy, wait_until};

use super::is_broken;
use crate::names::{LONG, await_positions, client, ms, server};
use crate::support::{SOON, builder, connected};

/// What a server tells its subscribers begins so.
const MESSAGE: &[u8] = b"message";

/// One waits of two, and does not hear what becomes of it by `change`; how its wait ends a heartbeat later.
#[track_caller]
fn unheard(name: &str, change: impl FnOnce(&CyclicBarrier)) -> Result<usize, Error> {
    let proxy = Proxy::start(server().port()).unwrap();
    let deaf = connected(|| builder(&proxy.url()));
    let barrier = client().cyclic_barrier(name, 2);
    let outcome = thread::scope(|scope| {
        let waiter = scope.spawn(|| deaf.cyclic_barrier(name, 2).wait_with(LONG));
        await_positions(name, 1);
        proxy.swallow_replies_with(MESSAGE);
        change(&barrier);
        wait_until(LONG, "the message was lost", || proxy.struck() == 1);
        let began = Instant::now();
        let outcome = waiter.join().unwrap();
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
        outcome
    });
    assert!(!barrier.is_broken().unwrap());
    outcome
}

#[test]
fn a_party_that_did_not_hear_of_a_reset_finds_out_at_its_next_heartbeat() {
    is_broken(unheard("deaf", |barrier| barrier.reset().unwrap()));
}

#[test]
fn a_lost_message_costs_a_heartbeat() {
    assert_eq!(unheard("lost", |barrier| assert_eq!(barrier.wait().unwrap(), 0)).unwrap(), 1);
}

/// Neither the answer to its arrival reaches it nor the message that lets it in, and its lease is shorter than
/// the wait for that answer: it has nothing to show but its id.
#[test]
fn a_party_that_hears_neither_its_answer_nor_its_message_passes_all_the_same() {
    let name = "neither";
    let proxy = Proxy::start(server().port()).unwrap();
    let lease = ms(300);
    let deaf = connected(|| builder(&proxy.url()).lease(lease).command_timeout(2 * lease));
    let barrier = client().cyclic_barrier(name, 2);
    // So that Redis knows the script, and the listener is there.
    let alone = deaf.cyclic_barrier("neither before", 1);
    wait_until(LONG, "it has passed", || alone.wait().is_ok());
    let before = deaf.cyclic_barrier("neither before", 2);
    wait_until(LONG, "it has waited", || {
        before.reset().is_ok() && before.wait_with(ms(500)).unwrap_err().kind() == ErrorKind::Timeout
    });
    proxy.swallow_replies_with(MESSAGE);
    proxy.only_matching(b"\r\nwait\r\n");
    proxy.swallow_replies(1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| deaf.cyclic_barrier(name, 2).wait_with(LONG));
        await_positions(name, 1);
        assert_eq!(barrier.wait().unwrap(), 0);
        assert_eq!(waiter.join().unwrap().unwrap(), 1);
    });
    assert_eq!(proxy.struck(), 2);
    assert_eq!(barrier.number_waiting().unwrap(), 0);
    assert!(!barrier.is_broken().unwrap());
}

#[test]
fn an_arrival_that_is_sent_twice_is_one() {
    let name = "twice";
    let proxy = Proxy::start(server().port()).unwrap();
    let through = connected(|| builder(&proxy.url()));
    let (one, other) = (through.cyclic_barrier(name, 2), client().cyclic_barrier(name, 2));
    let ran = AtomicUsize::new(0);
    for _ in 0..2 {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| other.wait());
            await_positions(name, 1);
            proxy.swallow_next_reply_and_reset();
            // The answer to its arrival, then that to its word that the barrier is open.
            let action = || {
                ran.fetch_add(1, Ordering::SeqCst);
                proxy.swallow_next_reply_and_reset();
            };
            assert_eq!(one.wait_then(action).unwrap(), 0);
            assert_eq!(waiter.join().unwrap().unwrap(), 1);
        });
    }
    assert_eq!((ran.into_inner(), proxy.struck()), (2, 4));
    assert!(!other.is_broken().unwrap());
}
