//! The leader's work: within its term, and told in time to stop.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Wait};
use redis_concurrent_testkit::{Proxy, RedisServer};

use crate::names::{LONG, await_positions, client, ms};
use crate::support::{builder, connect, connected, in_brief};

#[test]
fn work_runs_in_a_term_that_it_resigns() {
    let election = client().election("runs");
    let number = election.run(|term| {
        assert_eq!(election.leader().unwrap().unwrap().term, term.number());
        assert!(!term.ending().is_cancelled());
        term.number()
    });
    assert!(number.unwrap() > 0);
    assert_eq!(election.leader().unwrap(), None);
    let term = election.campaign().unwrap();
    let outcome = election.run_with(Wait::timeout(ms(20)), |_| unreachable!("another leads"));
    assert!(in_brief::<()>(outcome).is_none());
    term.resign().unwrap();
}

#[test]
fn a_token_ends_the_wait_and_the_work() {
    let election = client().election("token");
    let cancel = CancellationToken::new();
    let cancelled = election.run_with(&cancel, |term| {
        cancel.cancel();
        (term.ending().wait_timeout(LONG), term.is_over())
    });
    assert_eq!(cancelled.unwrap(), Some((true, false)));
    assert_eq!(election.leader().unwrap(), None);
    let error = election.run_with(&cancel, |_| unreachable!("it was cancelled before")).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
}

/// A hold that is waited for begins with a lease of one waiter timeout, which may be less than the margin.
#[test]
fn a_term_that_was_waited_for_is_not_ending_at_once() {
    let election = client().election("waited").stop_before(Duration::from_secs(10));
    let first = election.campaign().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| election.run(|term| (term.ending().is_cancelled(), term.remaining())));
        await_positions("waited", 1);
        first.resign().unwrap();
        let (ending, remaining) = waits.join().unwrap().unwrap();
        assert!(!ending && remaining > Duration::from_secs(10), "{remaining:?}");
    });
}

/// Redis is silent: the work is told while its term is certain, and the next leader is in only when it is over.
#[test]
fn work_is_told_to_stop_before_its_term_can_end() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (lease, often) = (ms(8000), ms(1000));
    let client = connected(|| builder(&proxy.url()).lease(lease).renew_every(often).command_timeout(ms(500)));
    let next = connect(&server).election("told");
    let (sender, begun) = channel();
    thread::scope(|scope| {
        let election = client.election("told").stop_before(lease / 2);
        let works = scope.spawn(move || {
            let (mut told, mut left) = (None, Duration::ZERO);
            let outcome = election.run(|term| {
                sender.send(()).unwrap();
                assert!(term.ending().wait_timeout(LONG));
                (told, left) = (Some(Instant::now()), term.remaining());
            });
            (told.unwrap(), left, outcome)
        });
        begun.recv_timeout(LONG).unwrap();
        proxy.black_hole(true);
        let _term = next.campaign().unwrap();
        let led = Instant::now();
        let (told, left, outcome) = works.join().unwrap();
        assert!(Duration::ZERO < left && left <= lease / 2, "{left:?}");
        assert!(told < led, "{:?} after the next leader", told - led);
        // It could not resign.
        outcome.unwrap_err();
    });
}

#[test]
fn work_that_outlasts_its_term_is_told_so() {
    let election = client().election("outlasts");
    let error = election.run(|term| {
        assert!(client().election("outlasts").depose().unwrap().was_held());
        assert!(term.ending().wait_timeout(LONG));
    });
    assert!(error.unwrap_err().is_lease_lost());
}
