//! The leader's work: within its term, and told in time to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent::{CancellationToken, Error, ErrorKind, Wait};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use super::depose;
use crate::names::{LONG, await_positions, client, ms};
use crate::support::{builder, connect, connected, in_brief};

#[test]
fn work_runs_in_a_term_that_it_resigns() {
    let election = client().election("runs");
    let number = election.run(|term| {
        assert_eq!(election.leader().unwrap().unwrap().term, term.token());
        assert!(!term.ending().is_cancelled());
        term.token()
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
        (term.ending().wait_timeout(LONG), term.remaining().is_zero())
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
            let (mut stopped, mut left) = (None, Duration::ZERO);
            let outcome = election.run(|term| {
                sender.send(()).unwrap();
                assert!(term.ending().wait_timeout(LONG));
                (stopped, left) = (Some(Instant::now()), term.remaining());
            });
            (stopped.unwrap(), left, outcome)
        });
        begun.recv_timeout(LONG).unwrap();
        proxy.black_hole(true);
        let _term = next.campaign().unwrap();
        let led = Instant::now();
        let (stopped, left, outcome) = works.join().unwrap();
        assert!(Duration::ZERO < left && left <= lease / 2, "{left:?}");
        assert!(stopped < led, "{:?} after the next leader", stopped - led);
        // It could not resign.
        outcome.unwrap_err();
    });
}

#[test]
fn work_that_outlasts_its_term_is_told_so() {
    let election = client().election("outlasts");
    let error = election.run(|term| {
        depose(&client(), "outlasts");
        assert!(term.ending().wait_timeout(LONG));
    });
    assert!(error.unwrap_err().is_lease_lost());
}

/// Ends a thread that leads when a test fails.
struct Stops(CancellationToken);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Counts the campaigns that failed.
struct Failures(Arc<AtomicUsize>);

impl Observer for Failures {
    fn not_acquired(&self, _: LockInfo<'_>, _: Duration, error: Option<&Error>) {
        self.0.fetch_add(usize::from(error.is_some()), Ordering::SeqCst);
    }
}

#[test]
fn a_leader_that_keeps_running_leads_again_after_a_loss_and_an_outage() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let brief =
        |url: &str| builder(url).lease(ms(1500)).command_timeout(ms(300)).unreachable_timeout(ms(300));
    let failed = Arc::new(AtomicUsize::new(0));
    let client = connected(|| brief(&proxy.url()).observer(Failures(failed.clone())));
    let (sender, terms) = channel();
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        let _stops = Stops(stop.clone());
        let election = client.election("keeps").value("it");
        let leads = scope.spawn(|| {
            let election = election;
            election.keep_running(&stop, |term| {
                sender.send(term.token()).unwrap();
                term.ending().wait_timeout(LONG);
            })
        });
        let next = || terms.recv_timeout(LONG).unwrap();
        let first = next();
        depose(&connect(&server), "keeps");
        let second = next();
        proxy.black_hole(true);
        // Longer than a campaign tolerates, so one of them fails, too.
        let other = connect(&server).election("keeps").campaign().unwrap();
        wait_until(LONG, "a campaign failed", || failed.load(Ordering::SeqCst) > 0);
        other.resign().unwrap();
        proxy.heal().unwrap();
        let third = next();
        assert!(first < second && second < third, "{first} {second} {third}");
        assert!(!leads.is_finished());
        stop.cancel();
        leads.join().unwrap().unwrap();
    });
    assert_eq!(connect(&server).election("keeps").leader().unwrap(), None);
}

#[test]
fn a_leader_that_keeps_running_ends_with_what_would_not_pass() {
    let (server, stop) = (RedisServer::start().unwrap(), CancellationToken::new());
    let client = connect(&server);
    let election = client.election("fails");
    let mut terms = 0;
    let closed = election.keep_running(&stop, |_| {
        terms += 1;
        // Work that returns early is done in the next term.
        if terms == 3 {
            client.close().unwrap();
        }
    });
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(terms, 3);
    let long = connect(&server).election("fails").value(&"x".repeat(5000));
    let error = long.keep_running(&stop, |_| unreachable!("it is invalid")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    stop.cancel();
    election.keep_running(&stop, |_| unreachable!("it was stopped before")).unwrap();
}

/// Longer ones than that of a moment follow failures in a row: the fifth of them is 3.2 s.
#[test]
fn a_pause_between_campaigns_ends_with_the_client() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let failed = Arc::new(AtomicUsize::new(0));
    let brief = || builder(&proxy.url()).unreachable_timeout(Duration::ZERO);
    let client = connected(|| brief().observer(Failures(failed.clone())));
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        let _stops = Stops(stop.clone());
        let leads = scope.spawn(|| client.election("pauses").keep_running(&stop, |_| ()));
        wait_until(LONG, "five failed campaigns", || failed.load(Ordering::SeqCst) == 5);
        client.close().unwrap();
        let closed = Instant::now();
        assert_eq!(leads.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert!(closed.elapsed() < ms(1_500), "after {:?}", closed.elapsed());
    });
}
