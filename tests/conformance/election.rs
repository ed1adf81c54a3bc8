//! Elections: candidates that lead one after the other, and observers that see who does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::election::Changes;
use redis_concurrent::{CancellationToken, Client, Election, Wait};
use redis_concurrent_testkit::{Barrier, RedisServer, closes_in_time, wait_until};

use crate::conformance::fixture::{Fixture, LEASE, NAME, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms};

rows! { one_lock:
    an_election_that_nobody_entered_has_no_leader
    each_of_ten_candidates_leads_until_it_leaves
    all_candidates_are_told_with_their_values
    a_leader_whose_work_is_told_to_end_resigns
    a_leader_may_campaign_again_and_again
    two_candidates_lead_in_turns
    work_is_told_to_end_when_the_server_dies
    a_campaign_that_is_cancelled_does_not_lead
    three_observers_see_three_leaders
    an_observer_sees_the_next_leader_after_a_failover
    a_leader_that_campaigns_again_waits_for_the_end_of_its_term
    a_name_that_begins_another_name_is_an_election_of_its_own
}

fn election<K: Tried>(fixture: &Fixture<K>) -> Election {
    fixture.client().election(NAME)
}

/// Ends a row: the number of changes stays for two hours, and nothing else.
fn forget<K: Tried>(fixture: &Fixture<K>) {
    let (key, mut redis) = (fixture.key(":conditions"), fixture.redis());
    let ms: i64 = redis::cmd("PTTL").arg(&key).query(&mut redis).unwrap();
    assert!((1..=7_200_000).contains(&ms), "{ms}");
    let _: () = redis::cmd("DEL").arg(&key).query(&mut redis).unwrap();
}

/// The value of the leader that the next change with a leader tells.
fn next_leader(changes: &mut Changes) -> String {
    loop {
        let change = changes.next_with(LONG).unwrap().expect("a change");
        if let Some(leader) = change.leader {
            return leader.value;
        }
    }
}

/// Curator TestLeaderLatch.testUncreatedPathGetLeader.
fn an_election_that_nobody_entered_has_no_leader<K: Tried>(fixture: &Fixture<K>) {
    assert_eq!(election(fixture).leader().unwrap(), None);
    assert!(election(fixture).candidates().unwrap().is_empty());
}

/// Curator TestLeaderLatch.testBasic and testWaiting.
fn each_of_ten_candidates_leads_until_it_leaves<K: Tried>(fixture: &Fixture<K>) {
    const CANDIDATES: usize = 10;
    let (asks, leads, led) = (election(fixture), AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for i in 0..CANDIDATES {
            let candidate = election(fixture).value(&i.to_string());
            let (asks, leads, led) = (&asks, &leads, &led);
            scope.spawn(move || {
                let term = candidate.campaign_with(LONG).unwrap().expect("its turn");
                assert_eq!(leads.fetch_add(1, Ordering::SeqCst), 0, "another leads");
                assert_eq!(asks.leader().unwrap().unwrap().term, term.token());
                assert!(led.lock().insert(i));
                leads.fetch_sub(1, Ordering::SeqCst);
                term.resign().unwrap();
            });
        }
    });
    assert_eq!(led.into_inner().len(), CANDIDATES);
    forget(fixture);
}

/// Curator TestLeaderSelectorParticipants.testBasic and testId.
fn all_candidates_are_told_with_their_values<K: Tried>(fixture: &Fixture<K>) {
    let asks = election(fixture);
    let term = election(fixture).value("A is the leader").campaign().unwrap();
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        for i in 0..9 {
            let candidate = election(fixture).value(&i.to_string());
            let cancel = &cancel;
            scope.spawn(move || assert!(candidate.campaign_with(cancel).unwrap_err().is_cancelled()));
        }
        fixture.await_positions(9);
        assert_eq!(asks.leader().unwrap().unwrap().value, "A is the leader");
        let values: BTreeSet<String> = asks.candidates().unwrap().into_iter().map(|it| it.value).collect();
        assert_eq!(values, (0..9).map(|i| i.to_string()).collect());
        cancel.cancel();
    });
    assert!(asks.candidates().unwrap().is_empty());
    term.resign().unwrap();
    forget(fixture);
}

/// Curator TestLeaderSelector.testInterruption and testInterruptLeadership.
fn a_leader_whose_work_is_told_to_end_resigns<K: Tried>(fixture: &Fixture<K>) {
    let (election, cancel) = (election(fixture), CancellationToken::new());
    let ended = election.run_with(&cancel, |term| {
        cancel.cancel();
        term.ending().wait_timeout(LONG)
    });
    assert_eq!(ended.unwrap(), Some(true));
    assert_eq!(election.leader().unwrap(), None);
    forget(fixture);
}

/// Curator TestLeaderSelector.testInterruptLeadershipWithRequeue and testAutoRequeue.
fn a_leader_may_campaign_again_and_again<K: Tried>(fixture: &Fixture<K>) {
    let election = election(fixture);
    let mut last = 0;
    for _ in 0..3 {
        let number = election.run(|term| term.token()).unwrap();
        assert!(number > last);
        last = number;
    }
    forget(fixture);
}

/// Curator TestLeaderSelector.testRotatingLeadership.
fn two_candidates_lead_in_turns<K: Tried>(fixture: &Fixture<K>) {
    const ROUNDS: usize = 5;
    let (led, begun) = (Mutex::new(Vec::new()), Barrier::new(2));
    thread::scope(|scope| {
        for i in 0..2 {
            let (election, led, begun) = (election(fixture), &led, &begun);
            scope.spawn(move || {
                begun.wait();
                for round in 0..ROUNDS {
                    election
                        .run(|_| {
                            led.lock().push(i);
                            // The other one has come by the time that this one leaves, unless it is through.
                            if round + 1 < ROUNDS {
                                let waits = || !election.candidates().unwrap().is_empty();
                                wait_until(LONG, "the other one waits", waits);
                            }
                        })
                        .unwrap();
                }
            });
        }
    });
    let led = led.into_inner();
    assert_eq!(led.len(), 2 * ROUNDS);
    assert!(led.windows(2).all(|two| two[0] != two[1]), "{led:?}");
    forget(fixture);
}

/// Curator TestLeaderSelector.testErrorPolicies and testKillServer: the work is told before the lease is over.
fn work_is_told_to_end_when_the_server_dies<K: Tried>(_: &Fixture<K>) {
    let server = RedisServer::start().unwrap();
    let client = Client::builder().url(&server.url()).lease(LEASE).connect().unwrap();
    let outcome = client.election(NAME).run(|term| {
        server.kill().unwrap();
        assert!(term.ending().wait_timeout(LONG));
        term.remaining()
    });
    // What could not be resigned in Redis ends there by itself.
    match outcome {
        Ok(left) => unreachable!("the server is dead, with {left:?} left"),
        Err(error) => {
            assert!(error.is_unavailable() || error.is_outcome_unknown() || error.is_lease_lost(), "{error}")
        }
    }
    let _ = client.close();
}

/// Curator TestLeaderSelector.testRaceAtStateChanged and testClosing: what gave up does not lead.
fn a_campaign_that_is_cancelled_does_not_lead<K: Tried>(fixture: &Fixture<K>) {
    let (leads, gives_up) = (election(fixture), election(fixture));
    let term = leads.campaign().unwrap();
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| gives_up.run_with(&cancel, |_| unreachable!("it leads")).map(drop));
        fixture.await_positions(1);
        cancel.cancel();
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    });
    term.resign().unwrap();
    assert_eq!(leads.leader().unwrap(), None);
    forget(fixture);
}

/// etcd TestElectionWait.
fn three_observers_see_three_leaders<K: Tried>(fixture: &Fixture<K>) {
    const LEADERS: usize = 3;
    const OBSERVERS: usize = 3;
    let (seen, next) = (Barrier::new(OBSERVERS + 1), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..OBSERVERS {
            let (mut changes, seen, next) = (election(fixture).observe(), &seen, &next);
            scope.spawn(move || {
                let mut before = String::new();
                for _ in 0..LEADERS {
                    let value = next_leader(&mut changes);
                    assert_ne!(value, before, "each leader once");
                    next.lock().push(value.clone());
                    before = value;
                    seen.wait();
                }
            });
        }
        for i in 0..LEADERS {
            let (candidate, seen, next) = (election(fixture).value(&format!("leader {i}")), &seen, &next);
            scope.spawn(move || {
                let term = candidate.campaign().unwrap();
                seen.wait(); // for the observers
                let values = std::mem::take(&mut *next.lock());
                assert_eq!(values, vec![format!("leader {i}"); OBSERVERS]);
                term.resign().unwrap();
            });
        }
    });
    forget(fixture);
}

/// etcd TestElectionFailover.
fn an_observer_sees_the_next_leader_after_a_failover<K: Tried>(fixture: &Fixture<K>) {
    // Where a busy machine had no time to resign, its term ends with its lease.
    let lease = ms(15_000);
    closes_in_time(|| {
        let (first, mut changes) = (fixture.client_with(|b| b.lease(lease)), election(fixture).observe());
        let term = first.election(NAME).value("foo").campaign().unwrap();
        assert_eq!(next_leader(&mut changes), "foo");
        let closed = thread::scope(|scope| {
            let bar = scope.spawn(|| election(fixture).value("bar").campaign().unwrap());
            fixture.await_positions(1);
            let (closed, began) = (first.close(), Instant::now());
            assert_eq!(next_leader(&mut changes), "bar");
            assert!(closed.is_err() || began.elapsed() < lease * 2 / 3, "{:?}", began.elapsed());
            bar.join().unwrap().resign().unwrap();
            closed
        });
        drop(term);
        forget(fixture);
        closed
    });
}

/// etcd TestElectionSessionRecampaign: each campaign is a candidate of its own.
fn a_leader_that_campaigns_again_waits_for_the_end_of_its_term<K: Tried>(fixture: &Fixture<K>) {
    let election = election(fixture);
    let term = election.value("abc").campaign().unwrap();
    assert!(in_brief(election.value("def").campaign_with(ms(50))).is_none());
    term.proclaim("def").unwrap();
    assert_eq!(next_leader(&mut election.observe()), "def");
    term.resign().unwrap();
    forget(fixture);
}

/// etcd TestElectionOnPrefixOfExistingKey.
fn a_name_that_begins_another_name_is_an_election_of_its_own<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let other = client.election(&format!("{NAME}a")).campaign().unwrap();
    let wait = Wait::timeout(Duration::from_secs(5));
    let term = client.election(NAME).campaign_with(wait).unwrap().expect("nobody else leads");
    term.resign().unwrap();
    other.resign().unwrap();
    let _: () = redis::cmd("DEL")
        .arg(format!("{}:{{{NAME}a}}:conditions", fixture.place.namespace()))
        .query(&mut fixture.redis())
        .unwrap();
    forget(fixture);
}
