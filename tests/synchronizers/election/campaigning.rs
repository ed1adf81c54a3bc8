//! Candidates: one leads at a time, the next one as soon as that ends, however it ends.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, ErrorKind};
use redis_concurrent_testkit::{
    Child, RedisServer, hear_parent, is_role, released_all, tell_parent, wait_until,
};

use super::depose;
use crate::names::{LONG, await_positions, client, ms, server};
use crate::support::{SOON, builder, connect, connected, env, in_brief, patient};

#[test]
fn one_candidate_leads_and_others_see_who() {
    let (one, two) = (client().election("who"), client().election("who"));
    assert_eq!(two.leader().unwrap(), None);
    let first = one.value("10.0.0.7:80").campaign().unwrap();
    let leader = two.leader().unwrap().unwrap();
    assert_eq!((leader.value.as_str(), leader.term), ("10.0.0.7:80", first.token()));
    assert_eq!(leader.process.unwrap().pid, std::process::id());
    assert!(leader.remaining <= Duration::from_secs(30) && leader.since.elapsed().unwrap() < LONG);
    assert!(two.try_campaign().unwrap().is_none());
    assert!(in_brief(two.campaign_with(ms(20))).is_none());
    assert!(two.campaign_with(Instant::now()).unwrap().is_none());
    first.resign().unwrap();
    assert_eq!(two.leader().unwrap(), None);
    let second = two.try_campaign().unwrap().unwrap();
    assert_eq!(one.leader().unwrap().unwrap().value, "");
    drop(second);
    assert_eq!(two.leader().unwrap(), None);
}

#[test]
fn the_leader_may_proclaim_another_value_until_its_term_is_over() {
    let election = client().election("proclaims");
    let term = election.value("starting").campaign().unwrap();
    term.proclaim("ready").unwrap();
    let leader = election.leader().unwrap().unwrap();
    assert_eq!((leader.value.as_str(), leader.term), ("ready", term.token()));
    depose(&client(), "proclaims");
    assert!(term.proclaim("still here").unwrap_err().is_lease_lost());
    assert!(term.remaining().is_zero());
    assert!(term.resign().unwrap_err().is_lease_lost());
    assert_eq!(election.leader().unwrap(), None);
}

#[test]
fn candidates_lead_in_order_of_arrival_under_growing_numbers() {
    let election = client().election("order");
    let first = election.campaign().unwrap();
    let last = AtomicU64::new(first.token());
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..4 {
            // Two of each client: threads compete as processes do.
            let candidate = if i % 2 == 0 { election.clone() } else { client().election("order") };
            let (last, turn) = (&last, &turn);
            scope.spawn(move || {
                let term = candidate.value(&format!("c{i}")).campaign().unwrap();
                assert_eq!(turn.fetch_add(1, Ordering::SeqCst), i);
                assert!(last.swap(term.token(), Ordering::SeqCst) < term.token());
                term.resign().unwrap();
            });
            await_positions("order", i + 1);
        }
        let values: Vec<_> = election.candidates().unwrap().into_iter().map(|it| it.value).collect();
        assert_eq!(values, ["c0", "c1", "c2", "c3"]);
        assert!(client().election("order").try_campaign().unwrap().is_none());
        first.resign().unwrap();
    });
    assert_eq!(turn.into_inner(), 4);
}

#[test]
fn a_campaign_that_is_cancelled_or_too_late_leaves_the_queue() {
    let election = client().election("gives up");
    let term = election.campaign().unwrap();
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| election.campaign_with(&cancel).unwrap_err());
        await_positions("gives up", 1);
        cancel.cancel();
        assert!(waits.join().unwrap().is_cancelled());
    });
    await_positions("gives up", 0);
    assert!(election.campaign_with(&cancel).unwrap_err().is_cancelled());
    term.resign().unwrap();
}

#[test]
fn the_next_leader_is_in_within_a_hand_over_of_an_orderly_end() {
    // No heartbeat lets the other in.
    let (one, two) = (client().election("orderly"), patient(server()).election("orderly"));
    let term = one.campaign().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| (two.campaign().unwrap(), Instant::now()));
        await_positions("orderly", 1);
        let resigned = Instant::now();
        drop(term);
        let (_term, led) = next.join().unwrap();
        // Far less than a heartbeat of the waiter: by the message.
        assert!(led - resigned < 2 * SOON, "{:?}", led - resigned);
    });
}

/// Of the leader that is killed. A busy machine does not end it before.
const LEASE: Duration = ms(5000);

#[test]
fn role_leader() {
    if !is_role("election::campaigning::role_leader") {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(LEASE).renew_every(ms(200)));
    let term = client.election("killed").campaign().unwrap();
    tell_parent(&term.token().to_string()).unwrap();
    hear_parent().unwrap();
}

#[test]
fn the_next_leader_is_in_within_a_lease_of_a_kill() {
    let server = RedisServer::start().unwrap();
    let mut leader = Child::spawn("election::campaigning::role_leader", &[("URL", &server.url())]).unwrap();
    let number: u64 = leader.read_line_within(LONG).unwrap().parse().unwrap();
    let election = connect(&server).election("killed");
    assert_eq!(election.leader().unwrap().unwrap().term, number);
    assert!(election.try_campaign().unwrap().is_none());
    leader.kill9().unwrap();
    let killed = Instant::now();
    let term = election.campaign().unwrap();
    assert!(killed.elapsed() < LEASE + SOON, "{:?}", killed.elapsed());
    assert!(term.token() > number);
}

#[test]
fn what_is_wrong_is_said() {
    let client = client();
    for (error, says) in [
        (client.election("").leader().unwrap_err(), "empty"),
        (client.election("").campaign().unwrap_err(), "empty"),
        (client.election("x").value(&"x".repeat(4097)).campaign().unwrap_err(), "at most 4096 bytes"),
        (client.election("x").stop_before(Duration::ZERO).campaign().unwrap_err(), "between 1ms and half"),
        (client.election("x").stop_before(ms(15_001)).campaign().unwrap_err(), "got 15.001s"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
    let lock = client.reentrant_lock("wrong");
    let guard = lock.lock().unwrap();
    let election = client.election("wrong");
    for error in [
        election.campaign().unwrap_err(),
        election.leader().unwrap_err(),
        election.candidates().unwrap_err(),
        election.observe().next().unwrap().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("is a reentrant lock, not an election"), "{error}");
    }
    guard.unlock().unwrap();
    let term = election.campaign().unwrap();
    assert!(lock.lock().unwrap_err().to_string().contains("is an election, not a reentrant lock"));
    assert_eq!(term.proclaim(&"x".repeat(4097)).unwrap_err().kind(), ErrorKind::InvalidInput);
    // At the limit, and with whatever characters.
    let odd = format!("{}|\n %{{}} \"é", "x".repeat(4000));
    term.proclaim(&odd).unwrap();
    assert_eq!(election.leader().unwrap().unwrap().value, odd);
    term.resign().unwrap();
    let term = election.value(&odd).campaign().unwrap();
    assert_eq!(election.leader().unwrap().unwrap().value, odd);
    term.resign().unwrap();
}

/// Else less than that would be left at each renewal, and the work told to stop again and again.
#[test]
fn the_work_may_stop_only_so_early_that_renewals_come_before() {
    let client = connected(|| builder(&server().url()).renew_every(ms(15_000)));
    let early = |margin| client.election("early").stop_before(ms(margin));
    let error = early(10_001).campaign().map(drop).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "early"));
    assert!(error.to_string().contains("five sixths of the lease (25s), got 10.001s and 15s"), "{error}");
    assert_eq!(early(10_001).run(|_| ()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(early(10_000).try_campaign().unwrap().is_some());
}

#[test]
fn a_closed_client_ends_its_terms_and_campaigns() {
    let (mine, other) = (client(), client().election("closes"));
    let term = mine.election("closes").campaign().unwrap();
    let ending = term.ending();
    thread::scope(|scope| {
        let waits = scope.spawn(|| mine.election("closes").campaign().unwrap_err());
        await_positions("closes", 1);
        let _ = released_all(&mine.close());
        assert_eq!(waits.join().unwrap().kind(), ErrorKind::Closed);
    });
    assert!(ending.is_cancelled() && term.remaining().is_zero());
    assert_eq!(term.resign().unwrap_err().kind(), ErrorKind::Closed);
    wait_until(LONG, "nobody leads", || other.leader().unwrap().is_none());
    assert!(server().url().starts_with("redis"));
}
