//! Observers: every change, in order, and none missed in silence.

use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::election::{Change, Changes, Term};
use redis_concurrent::{CancellationToken, ErrorKind, Wait};
use redis_concurrent_testkit::{Proxy, RedisServer, released_all, wait_until};

use crate::names::{LONG, await_positions, client, key, ms, server};
use crate::support::{SOON, builder, connect, connected, in_brief, patient, replied};

/// The value of the leader that the next change is about, and whether one was missed.
#[track_caller]
fn next(changes: &mut Changes) -> (Option<String>, bool) {
    let Change { leader, missed, .. } = changes.next_with(LONG).unwrap().expect("a change");
    (leader.map(|leader| leader.value), missed)
}

fn some(value: &str) -> (Option<String>, bool) {
    (Some(value.to_owned()), false)
}

const NONE: (Option<String>, bool) = (None, false);

#[test]
fn an_observer_gets_each_change_once_and_waits_for_the_next() {
    let election = client().election("each");
    let mut changes = client().election("each").observe();
    assert_eq!(next(&mut changes), NONE);
    assert_eq!(in_brief(changes.next_with(ms(20))), None);
    assert_eq!(replied(|| changes.next_with(Duration::ZERO)), None);
    let term = election.value("a").campaign().unwrap();
    assert_eq!(next(&mut changes), some("a"));
    term.proclaim("b").unwrap();
    assert_eq!(next(&mut changes), some("b"));
    assert_eq!(replied(|| changes.next_with(Duration::ZERO)), None);
    term.resign().unwrap();
    assert_eq!(next(&mut changes), NONE);
    // One that comes later begins with what there is.
    assert_eq!(next(&mut election.observe()), NONE);
    assert_eq!(in_brief(changes.next_with(ms(20))), None);
}

#[test]
fn a_sleeping_observer_is_told_of_each_change_and_is_in_no_candidates_way() {
    let election = client().election("sleeps");
    thread::scope(|scope| {
        let (sender, seen) = std::sync::mpsc::channel();
        // No heartbeat tells it.
        let observer = patient(server());
        let election_of_observer = observer.election("sleeps");
        let observes = scope.spawn(move || {
            for change in election_of_observer.observe() {
                match change {
                    Ok(change) => sender.send((change, Instant::now())).unwrap(),
                    Err(error) => return error,
                }
            }
            unreachable!("it does not end")
        });
        let expect = |value: Option<&str>, since: Instant| {
            let (change, at) = seen.recv_timeout(LONG).unwrap();
            assert_eq!(change.leader.map(|it| it.value).as_deref(), value);
            assert!(!change.missed && at - since < 2 * SOON, "{:?}", at - since);
            await_positions("sleeps", 1);
        };
        expect(None, Instant::now());
        let at = Instant::now();
        let one = election.value("one").try_campaign().unwrap().expect("an observer is in nobody's way");
        expect(Some("one"), at);
        // Handed on to a candidate that waits: one change, not two.
        let two = scope.spawn(|| client().election("sleeps").value("two").campaign().unwrap());
        await_positions("sleeps", 2);
        let at = Instant::now();
        one.resign().unwrap();
        let two = two.join().unwrap();
        expect(Some("two"), at);
        let at = Instant::now();
        two.proclaim("2").unwrap();
        expect(Some("2"), at);
        let at = Instant::now();
        two.resign().unwrap();
        expect(None, at);
        let _ = released_all(&observer.close());
        assert_eq!(observes.join().unwrap().kind(), ErrorKind::Closed);
    });
}

#[test]
fn what_happened_while_an_observer_did_not_look_is_said_to_be_missed() {
    let election = client().election("missed");
    let mut changes = election.observe();
    assert_eq!(next(&mut changes), NONE);
    election.value("short").campaign().unwrap().resign().unwrap();
    assert_eq!(next(&mut changes), (None, true));
    let term = election.value("a").campaign().unwrap();
    term.proclaim("b").unwrap();
    assert_eq!(next(&mut changes), (Some("b".to_owned()), true));
    assert_eq!(in_brief(changes.next_with(ms(20))), None);
    drop(term);
    assert_eq!(next(&mut changes), NONE);
}

/// Nobody counts the end of a lease.
#[test]
fn a_term_whose_lease_ended_while_an_observer_did_not_look_is_missed_like_any_other() {
    let election = client().election("lapses");
    let (mut changes, mut redis) = (election.observe(), server().connection().unwrap());
    let mut lapses = |term: Term| {
        let key = key("lapses", "");
        assert!(redis.pexpire::<_, bool>(&key, 1).unwrap());
        wait_until(LONG, "its lease ends", || !redis.exists::<_, bool>(&key).unwrap());
        drop(term);
    };
    assert_eq!(next(&mut changes), NONE);
    lapses(election.campaign().unwrap());
    assert_eq!(next(&mut changes), (None, true));
    for at_first in ["a", "b"] {
        let term = election.value(at_first).campaign().unwrap();
        assert_eq!(next(&mut changes), some(at_first));
        lapses(term);
        if at_first == "b" {
            lapses(election.campaign().unwrap());
        }
        assert_eq!(next(&mut changes), (None, at_first == "b"));
    }
    let term = election.value("c").campaign().unwrap();
    assert_eq!(next(&mut changes), some("c"));
    term.proclaim("C").unwrap();
    lapses(term);
    assert_eq!(next(&mut changes), (None, true));
    assert_eq!(in_brief(changes.next_with(ms(20))), None);
    // A term that was resigned is another thing.
    let term = election.value("d").campaign().unwrap();
    assert_eq!(next(&mut changes), some("d"));
    term.resign().unwrap();
    assert_eq!(next(&mut changes), NONE);
}

#[test]
fn many_observers_are_all_told() {
    const OBSERVERS: usize = 70; // more than one script tells
    let election = client().election("many");
    let observer = client();
    let term = thread::scope(|scope| {
        for _ in 0..OBSERVERS {
            let mut changes = observer.election("many").observe();
            scope.spawn(move || {
                assert_eq!(next(&mut changes), NONE);
                assert_eq!(next(&mut changes), some("it"));
            });
        }
        await_positions("many", OBSERVERS);
        let term = election.value("it").campaign().unwrap();
        await_positions("many", 0);
        term
    });
    term.resign().unwrap();
}

#[test]
fn the_end_of_a_lease_is_a_change() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    // Renewed in time on a busy machine too.
    let lease = ms(4000);
    let leads = connected(|| builder(&proxy.url()).lease(lease).renew_every(ms(300)));
    let mut changes = connect(&server).election("expires").observe();
    let term = leads.election("expires").value("it").campaign().unwrap();
    assert_eq!(next(&mut changes), some("it"));
    proxy.black_hole(true);
    let began = Instant::now();
    assert_eq!(next(&mut changes), NONE);
    // Before the wait of this test would end.
    assert!(began.elapsed() < lease + ms(1000) + 2 * SOON, "a lease and a heartbeat: {:?}", began.elapsed());
    assert!(term.remaining().is_zero());
}

/// What it was told while it was not connected, it finds when it is again.
#[test]
fn a_lost_message_delays_an_observer_by_a_heartbeat() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let observer = connected(|| builder(&proxy.url()));
    let mut changes = observer.election("lost").observe();
    assert_eq!(next(&mut changes), NONE);
    let election = connect(&server).election("lost");
    let mut redis = server.connection().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| next(&mut changes));
        wait_until(LONG, "it waits", || redis.zcard::<_, usize>(key("lost", ":queue")).unwrap() == 1);
        proxy.cut_all();
        let term = election.value("it").campaign().unwrap();
        assert_eq!(waits.join().unwrap(), some("it"));
        drop(term);
    });
}

#[test]
fn a_wait_for_a_change_can_be_cancelled() {
    let mut changes = client().election("cancelled").observe();
    let cancel = CancellationToken::new();
    assert_eq!(next(&mut changes), NONE);
    thread::scope(|scope| {
        let waits = scope.spawn(|| changes.next_with(Wait::forever().cancelled_by(&cancel)).unwrap_err());
        await_positions("cancelled", 1);
        cancel.cancel();
        assert!(waits.join().unwrap().is_cancelled());
    });
    await_positions("cancelled", 0);
}

#[test]
fn what_an_election_leaves_in_redis_ends_by_itself() {
    let election = client().election("leaves");
    let mut changes = election.observe();
    election.campaign().unwrap().resign().unwrap();
    assert_eq!(next(&mut changes), NONE);
    let mut redis = server().connection().unwrap();
    let keys: Vec<String> = redis.keys("rc:{leaves}*").unwrap();
    assert!(!keys.contains(&key("leaves", "")), "{keys:?}");
    for key in keys {
        let ttl: i64 = redis.pttl(&key).unwrap();
        assert!((1..=7_200_000).contains(&ttl), "{key}: {ttl}");
    }
}
