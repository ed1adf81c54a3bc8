//! A primary, two replicas and three sentinels: the primary dies, stands still, or hands over.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{SentinelFleet, SentinelFleetBuilder, wait_until};

use crate::contenders::Contenders;
use crate::support::{LONG, Recorder, SOON, builder, ms};

/// How long a server must be silent until it is replaced: more than a busy machine is.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// Longer than a failover takes on a busy machine.
const LEASE: Duration = Duration::from_secs(60);

fn fleet(options: SentinelFleetBuilder) -> SentinelFleet {
    options.down_after(DOWN_AFTER).start().unwrap()
}

fn client(fleet: &SentinelFleet) -> ClientBuilder {
    builder(&fleet.url()).lease(LEASE).unreachable_timeout(LEASE).connect_timeout(SOON)
}

/// A waiter of a primary that is killed is admitted at the new one, and what a replica had acknowledged is still
/// held; the passwords of servers and sentinels differ.
#[test]
fn a_killed_primary_is_followed_by_holders_and_by_waiters() {
    let fleet = fleet(SentinelFleet::builder().password("s3cret/@").sentinel_password("an:other"));
    let recorder = Recorder::default();
    let holder = client(&fleet).observer(recorder.clone()).connect().unwrap();
    let other = client(&fleet).connect().unwrap();
    let kept = holder.simple_lock("kept").with_replicas(1, LONG).lock_owned().unwrap();
    let (lock, waits) = (holder.reentrant_lock("it").with_replicas(2, LONG), other.reentrant_lock("it"));
    let guard = lock.lock_owned().unwrap();
    let token = guard.token();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = waits.try_lock_for(2 * LEASE).unwrap().expect("its turn");
            let later = guard.token();
            // It renews and leaves there.
            guard.renew_for(LEASE).unwrap();
            guard.unlock().unwrap();
            later
        });
        wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
        fleet.servers()[0].kill().unwrap();
        fleet.primary_after(0);
        assert!(!guard.is_lost() && !kept.is_lost());
        // Not a request that was on its way to the one that died.
        wait_until(LONG, "the new primary answers", || lock.is_locked().is_ok());
        guard.unlock().unwrap();
        let began = Instant::now();
        assert!(waiter.join().unwrap() > token);
        assert!(began.elapsed() < LONG, "the waiter came in after {:?}", began.elapsed());
    });
    assert!(other.simple_lock("kept").try_lock().unwrap().is_none());
    kept.unlock().unwrap();
    assert_eq!((recorder.losses(), recorder.failures()), (0, 0));
}

/// The former primary is not told for some seconds that it is none any more, and goes on granting to all clients that stay
/// with it. Nobody does.
#[test]
fn after_a_planned_failover_nobody_stays_with_the_former_primary() {
    let fleet = fleet(SentinelFleet::builder());
    let clients: Vec<Client> =
        (0..3).map(|_| client(&fleet).local_handoff(ms(0)).connect().unwrap()).collect();
    let more = |all: &Contenders, n: u64| {
        let before = all.holds();
        let enough = || all.holds().iter().zip(&before).all(|(now, before)| now - before >= n);
        wait_until(LONG, "everybody comes in", enough);
    };
    let mut unsettled = (0, 0);
    let came = Contenders::contend(&clients, |all| {
        more(all, 10);
        fleet.failover();
        fleet.primary_after(0);
        // What was granted by both, in the moment of the switch, has ended by then.
        more(all, 10);
        unsettled = all.double_and_fallen();
        more(all, 30);
    });
    assert_eq!(came.double_and_fallen(), unsettled, "{came:?}");
}

/// A primary that stands still is replaced, and goes on as if nothing had been: its connections work, and it grants.
#[test]
fn a_primary_that_stood_still_is_not_believed_when_it_goes_on() {
    let fleet = fleet(SentinelFleet::builder());
    let (idle, active) = (client(&fleet).connect().unwrap(), client(&fleet).connect().unwrap());
    // Both have connections to it.
    for client in [&idle, &active] {
        client.simple_lock("it").lock().unwrap().unlock().unwrap();
    }
    fleet.servers()[0].stop().unwrap();
    let now = fleet.primary_after(0);
    let held = active.simple_lock("it").lock_owned_with(LONG).unwrap().expect("it is free");
    fleet.servers()[0].cont().unwrap();
    // By its connections from before it would come in.
    assert!(idle.simple_lock("it").try_lock().unwrap().is_none());
    assert!(fleet.servers()[now].keys().unwrap().contains(&"rc:{it}".to_owned()));
    held.unlock().unwrap();
    idle.simple_lock("it").lock().unwrap().unlock().unwrap();
}
