//! A primary that dies, and a replica in its place whose clock is two minutes ahead of it, or behind.

use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use super::clock::SteppedServer;
use crate::flock::{follow, info, promote};
use crate::support::{Event, LONG, Recorder, SOON, builder, connected, in_brief, ms};

/// By how much the clocks differ, in seconds: more than any lease here.
const APART: i64 = 120;
const LEASE: Duration = Duration::from_secs(60);

struct Pair {
    primary: RedisServer,
    replica: SteppedServer,
    /// Where clients find the one or the other.
    door: Proxy,
}

impl Pair {
    /// The replica's clock is so many seconds after the primary's.
    fn start(seconds: i64) -> Pair {
        let replica = SteppedServer::start();
        replica.set_clock(seconds);
        let primary = RedisServer::builder().arg("repl-diskless-sync-delay", "0").start().unwrap();
        follow(&replica, primary.port());
        wait_until(LONG, "the replica is in step", || info(&replica).contains("master_link_status:up\r"));
        let door = Proxy::start(primary.port()).unwrap();
        Pair { primary, replica, door }
    }

    fn connect(&self, recorder: &Recorder) -> Client {
        connected(|| builder(&self.door.url()).lease(LEASE).observer(recorder.clone()))
    }

    /// The primary dies, and clients find the replica.
    fn fail_over(&self) {
        promote(&self.replica);
        self.primary.kill().unwrap();
        self.door.set_target(self.replica.port());
        self.door.cut_all();
    }
}

/// A lease ends at a time, which the replica has reached already.
#[test]
fn a_replica_whose_clock_is_ahead_ends_holds_and_their_holders_are_told() {
    let pair = Pair::start(APART);
    let recorder = Recorder::default();
    let (holder, other) = (pair.connect(&recorder), pair.connect(&Recorder::default()));
    let guard = holder.reentrant_lock("it").with_replicas(1, LONG).lock_owned().unwrap();
    assert!(other.reentrant_lock("it").try_lock().unwrap().is_none());
    pair.fail_over();
    let switched = Instant::now();
    let next = other.reentrant_lock("it").lock_owned_with(LONG).unwrap().expect("there it is over");
    assert!(next.token() > guard.token());
    wait_until(LONG, "the holder is told", || guard.is_lost());
    // Not at its next renewal, after a third of the lease.
    assert!(switched.elapsed() < LEASE / 4, "{:?}", switched.elapsed());
    wait_until(LONG, "its observer is told", || recorder.count(Event::Lost(LossReason::Revoked)) == 1);
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    next.unlock().unwrap();
}

/// What its holder renews has its lease by the new clock; what nobody renews lasts longer by what that is behind.
#[test]
fn a_replica_whose_clock_is_behind_keeps_holds_and_its_tokens_rise() {
    let pair = Pair::start(-APART);
    let recorder = Recorder::default();
    let (holder, other) = (pair.connect(&recorder), pair.connect(&Recorder::default()));
    let all = |name: &str| holder.reentrant_lock(name).with_replicas(1, LONG);
    let kept = all("kept").lock_owned().unwrap();
    let left = all("left").with_lease(LEASE).lock_owned().unwrap();
    let (token, former) = (kept.token(), left.token());
    pair.fail_over();
    let remaining =
        |name: &str| other.reentrant_lock(name).holder().ok().flatten().and_then(|it| it.remaining);
    wait_until(LONG, "it is renewed there", || remaining("kept").is_some_and(|it| it <= LEASE));
    assert!(!kept.is_lost());
    // Its holder gives it up by the time that it was given; others would have to wait.
    let longer = remaining("left").unwrap();
    assert!(longer > Duration::from_secs(APART as u64), "{longer:?}");
    assert!(left.remaining() <= LEASE);
    assert!(in_brief(other.reentrant_lock("left").try_lock_for(ms(100))).is_none());
    left.unlock().unwrap();
    kept.unlock().unwrap();
    for (name, former) in [("kept", token), ("left", former)] {
        let next = other.reentrant_lock(name).lock_owned_with(LONG).unwrap().expect("it is free");
        assert!(next.token() > former, "{name}");
        next.unlock().unwrap();
    }
    assert_eq!(recorder.losses(), 0);
}

/// The number of a grant that the replica does not know is by a clock that it will reach only later.
#[test]
fn tokens_fall_where_the_replica_is_behind_and_did_not_know_the_last_grant() {
    let pair = Pair::start(-APART);
    let (holder, other) = (pair.connect(&Recorder::default()), pair.connect(&Recorder::default()));
    // From here on it hears nothing.
    promote(&pair.replica);
    let unknown = holder.reentrant_lock("it").lock_owned().unwrap();
    pair.fail_over();
    let next = other.reentrant_lock("it").lock_owned_with(SOON).unwrap().expect("nobody has it there");
    assert!(next.token() < unknown.token(), "docs/fencing.md says so");
    wait_until(SOON, "the former holder is told", || unknown.is_lost());
}
