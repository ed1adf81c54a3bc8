//! A primary that dies with what it has not passed on (Redisson #775, #3994, #5256, #2669, Curator #727).

use std::time::{Duration, Instant};

use redis_concurrent::observe::LossReason;
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Proxy, wait_until};

use crate::flock::{Flock, follow, info, promote};
use crate::support::{
    Event, LONG, Recorder, SOON, builder, channels, connect, connected, exists, in_brief, ms, pttl,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// With all replicas asked for, whichever is promoted knows of every grant that counted.
#[test]
fn pain_15_no_grant_that_all_replicas_had_is_lost() {
    let flock = Flock::start(2);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&proxy.url()));
    let guards: Vec<_> = (0..20)
        .map(|i| client.simple_lock(&format!("it-{i}")).with_replicas(2, PATIENCE).lock_owned().unwrap())
        .collect();
    flock.primary.kill().unwrap();
    let new = &flock.replicas[1];
    promote(new);
    let others = connect(new);
    for (i, guard) in guards.iter().enumerate() {
        assert!(others.simple_lock(&format!("it-{i}")).try_lock().unwrap().is_none(), "{i}");
        assert!(!guard.is_lost());
    }
    // Its holder goes on with the new primary.
    proxy.set_target(new.port());
    proxy.cut_all();
    for guard in guards {
        guard.unlock().unwrap();
    }
    assert!(others.simple_lock("it-0").try_lock().unwrap().is_some());
}

/// Without, a grant may be unknown to the one that is promoted. Its holder is told with its next renewal,
/// and its token is lower than that of the next holder, so that no fenced write of it is accepted.
#[test]
fn pain_15_a_holder_whose_hold_went_with_the_primary_is_told_and_writes_nothing() {
    let flock = Flock::start(1);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&proxy.url()).renew_every(ms(300)).observer(recorder.clone()));
    let new = &flock.replicas[0];
    // From here on the replica hears nothing.
    flock.link.black_hole(true);
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    flock.primary.kill().unwrap();
    promote(new);
    assert!(!exists(new, "rc:{it}"), "it was never told");
    let other = connect(new).reentrant_lock("it").lock_owned().unwrap();
    assert!(other.token() > guard.token());
    let report = connect(new).fenced("report");
    report.set(other.token(), "theirs").unwrap();
    proxy.set_target(new.port());
    proxy.cut_all();
    let late = client.fenced("report").set(guard.token(), "mine").unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    assert_eq!(report.get::<String>().unwrap().as_deref(), Some("theirs"));
    let lost = guard.lost();
    wait_until(LONG, "it is told", || lost.is_cancelled());
    wait_until(LONG, "so is the observer", || recorder.count(Event::Lost(LossReason::Revoked)) == 1);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(!other.is_lost());
}

/// Also where the next renewal is far away: a listener learns within about a round trip that another server has
/// taken over, and asks it at once about all holds.
#[test]
fn a_holder_whose_hold_went_with_the_primary_is_told_long_before_its_next_renewal() {
    let flock = Flock::start(1);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    // Renewed every ten seconds.
    let client = connected(|| builder(&proxy.url()));
    let lock = client.reentrant_lock("it");
    listens(&client, &flock);
    flock.link.black_hole(true);
    let guard = lock.lock_owned().unwrap();
    let lost = guard.lost();
    let new = &flock.replicas[0];
    flock.primary.kill().unwrap();
    promote(new);
    let other = connect(new).reentrant_lock("it").lock_owned().unwrap();
    proxy.set_target(new.port());
    proxy.cut_all();
    let began = Instant::now();
    wait_until(SOON, "it is told", || lost.is_cancelled());
    println!("told after {:?}", began.elapsed());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(!other.is_lost());
}

/// Also where the primary lives on, as an operator makes it a replica, and the client's listener stays connected to
/// it: any request that is refused there has it look where the primary is.
#[test]
fn a_holder_whose_hold_went_by_a_demotion_is_told_with_any_request() {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&door.url()));
    listens(&client, &flock);
    flock.link.black_hole(true);
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    let (old, new) = (&flock.primary, &flock.replicas[0]);
    promote(new);
    follow(old, new.port());
    wait_until(LONG, "it is a replica", || info(old).contains("master_link_status:up\r"));
    door.set_target(new.port());
    let lost = guard.lost();
    client.simple_lock("another").try_lock().unwrap().expect("it is free").unlock().unwrap();
    wait_until(SOON, "it is told", || lost.is_cancelled());
    wait_until(SOON, "it listens there", || channels(new).len() == 1);
}

/// The same of a server that was started anew without its data.
#[test]
fn a_restart_without_data_is_told_long_before_the_next_renewal() {
    let flock = Flock::start(0);
    let client = connect(&flock.primary);
    listens(&client, &flock);
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    flock.primary.kill().unwrap();
    flock.primary.restart().unwrap();
    let lost = guard.lost();
    wait_until(SOON, "it is told", || lost.is_cancelled());
}

/// However long ago they were written: nothing is known there.
#[test]
fn a_restart_without_data_is_told_of_old_holds_too() {
    const LEASE: Duration = Duration::from_secs(90);
    let flock = Flock::start(0);
    let client = connected(|| builder(&flock.primary.url()).lease(LEASE));
    listens(&client, &flock);
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    let old = |left: Duration| left < LEASE - Duration::from_secs(6);
    wait_until(LONG, "it was last renewed long ago", || {
        let left = pttl(&flock.primary, "rc:{it}");
        old(Duration::from_millis(left.try_into().unwrap())) && !guard.is_lost()
    });
    flock.primary.kill().unwrap();
    flock.primary.restart().unwrap();
    let lost = guard.lost();
    wait_until(SOON, "it is told", || lost.is_cancelled());
}

/// What was connected to the former primary would never be answered: once a connection leads to another one, all
/// requests go to that.
#[test]
fn no_call_is_sent_to_a_primary_that_went_silent_once_its_successor_is_known() {
    for listening in [true, false] {
        let flock = Flock::start(1);
        let door = Proxy::start(flock.primary.port()).unwrap();
        let recorder = Recorder::default();
        let client = connected(|| builder(&door.url()).renew_every(ms(500)).observer(recorder.clone()));
        let (lock, new) = (client.reentrant_lock("it"), &flock.replicas[0]);
        if listening {
            listens(&client, &flock);
        }
        let guard = client.reentrant_lock("held").lock_owned().unwrap();
        // There is an idle connection, from before anything was last heard of the former primary.
        lock.lock().unwrap().unlock().unwrap();
        let renewed = recorder.count(Event::Renewed);
        wait_until(LONG, "its hold is renewed", || recorder.count(Event::Renewed) > renewed + 1);
        wait_until(LONG, "the replica has it", || exists(new, "rc:{held}"));
        flock.primary.stop().unwrap();
        promote(new);
        new.reset_stats().unwrap();
        door.set_target(new.port());
        let scripts =
            || new.command_calls().unwrap().into_iter().filter(|(name, _)| name.starts_with("eval"));
        wait_until(LONG, "its hold is renewed there", || scripts().count() > 0);
        let answer = lock.try_lock();
        flock.primary.cont().unwrap();
        answer.unwrap().expect("it is free").unlock().unwrap();
        guard.unlock().unwrap();
    }
}

/// What the new primary knows stays: it is renewed there.
#[test]
fn a_young_hold_that_is_known_to_the_new_primary_stays() {
    let flock = Flock::start(1);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&proxy.url()).observer(recorder.clone()));
    listens(&client, &flock);
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    let new = &flock.replicas[0];
    wait_until(LONG, "the replica has it", || exists(new, "rc:{it}"));
    flock.primary.kill().unwrap();
    promote(new);
    proxy.set_target(new.port());
    proxy.cut_all();
    wait_until(SOON, "it is renewed there", || recorder.count(Event::Renewed) == 1);
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    assert_eq!(recorder.losses(), 0);
}

/// The client has waited once, and is told of grants since.
fn listens(client: &Client, flock: &Flock) {
    let other = connect(&flock.primary).reentrant_lock("once").lock_owned().unwrap();
    wait_until(LONG, "it listens", || {
        // On a busy machine its time may be over before its channel is asked for.
        assert!(in_brief(client.reentrant_lock("once").try_lock_for(ms(200))).is_none());
        channels(&flock.primary).len() == 1
    });
    other.unlock().unwrap();
}
