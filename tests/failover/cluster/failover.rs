//! A primary that goes, and a replica that takes its place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{RedisCluster, wait_until};

use super::{home, patient, spread};
use crate::support::{Event, LONG, Recorder, SetOnDrop, ms, pttl, queued};

/// Replicas take the place of a primary that was silent for that long: longer than a busy machine stands still.
const SILENT: Duration = Duration::from_secs(3);

fn with_replicas() -> RedisCluster {
    RedisCluster::builder().replicas(1).node_timeout(SILENT).start().unwrap()
}

/// Threads of several clients contend for one lock for a while. Returns how often it was held, and the most that
/// held it at once.
struct Contention {
    holds: AtomicU64,
    inside: AtomicU64,
    double: AtomicU64,
    end: AtomicBool,
}

impl Contention {
    fn new() -> Self {
        let n = || AtomicU64::new(0);
        Contention { holds: n(), inside: n(), double: n(), end: AtomicBool::new(false) }
    }

    fn contend(&self, cluster: &RedisCluster, name: &str) {
        let client = patient(cluster).lease(Duration::from_secs(6)).connect().unwrap();
        let lock = client.reentrant_lock(name);
        while !self.end.load(Ordering::SeqCst) {
            let guard = lock.lock().unwrap();
            let others = self.inside.fetch_add(1, Ordering::SeqCst);
            thread::sleep(ms(2));
            self.inside.fetch_sub(1, Ordering::SeqCst);
            if others > 0 && !guard.is_lost() {
                self.double.fetch_add(1, Ordering::SeqCst);
            }
            self.holds.fetch_add(1, Ordering::SeqCst);
            match guard.unlock() {
                Ok(()) => {}
                // What was under way when the server went.
                Err(e) if [ErrorKind::OutcomeUnknown, ErrorKind::Unavailable].contains(&e.kind()) => {}
                Err(e) => panic!("{e:#}"),
            }
        }
    }

    /// It goes on until that is dropped, by a test that fails, too.
    fn until_dropped(&self) -> SetOnDrop<'_> {
        SetOnDrop(&self.end)
    }

    fn goes_on(&self, for_holds: u64) {
        let before = self.holds.load(Ordering::SeqCst);
        wait_until(2 * LONG, "they get in again", || self.holds.load(Ordering::SeqCst) > before + for_holds);
    }
}

/// A planned failover: both servers agree, nothing is lost, and no connection breaks.
#[test]
fn a_planned_failover_loses_no_hold_and_admits_nobody_twice() {
    // Also for how long a failover takes whose votes were asked for too early: four times that.
    let cluster = with_replicas();
    let names = spread(&cluster, "planned");
    let name = &names[0];
    let recorder = Recorder::default();
    let keeper = patient(&cluster).observer(recorder.clone()).connect().unwrap();
    let locks: Vec<_> = names.iter().map(|name| keeper.reentrant_lock(&format!("{{{name}}} kept"))).collect();
    let kept: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let contention = Contention::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| contention.contend(&cluster, name));
        }
        let _until = contention.until_dropped();
        contention.goes_on(20);
        let old = home(&cluster, name);
        let replicas = cluster.replicas_of(&old).unwrap();
        cluster.fail_over_to(&replicas[0]).unwrap();
        contention.goes_on(50);
        // And back.
        cluster.fail_over_to(&old).unwrap();
        contention.goes_on(50);
    });
    assert_eq!(contention.double.load(Ordering::SeqCst), 0);
    assert_eq!(recorder.losses(), 0);
    kept.into_iter().for_each(|guard| guard.unlock().unwrap());
}

/// The first renewal that is refused tells that there was a failover: all that the primary had is renewed at its
/// successor then, not each with its own next renewal.
#[test]
fn holds_whose_renewal_is_far_off_follow_with_the_first_that_is_refused() {
    const EVERY: Duration = Duration::from_secs(100);
    let cluster = with_replicas();
    let recorder = Recorder::default();
    let client =
        patient(&cluster).lease(3 * EVERY).renew_every(EVERY).observer(recorder.clone()).connect().unwrap();
    let old = home(&cluster, "soon");
    let mut names = (0..).map(|i| format!("late {i}"));
    let late = names.find(|name| home(&cluster, name).port() == old.port()).unwrap();
    let locks = ["soon", &late].map(|name| client.reentrant_lock(name));
    let [soon, later] = locks.each_ref().map(|lock| lock.lock().unwrap());
    let replica = &cluster.replicas_of(&old).unwrap()[0];
    // Its renewal is due long before that, but not before the failover, and will be refused by the former primary.
    soon.renew_for(Duration::from_secs(90)).unwrap();
    let renewed = recorder.count(Event::Renewed);
    cluster.fail_over_to(replica).unwrap();
    let is_old = || pttl(replica, &super::key(&late)) < (3 * EVERY).as_millis() as i64 - 3_000;
    wait_until(LONG, "it has been there for a while", is_old);
    assert_eq!(recorder.count(Event::Renewed), renewed, "the failover took long");
    wait_until(3 * LONG, "both are renewed", || !is_old());
    assert_eq!(recorder.losses(), 0);
    [soon, later].into_iter().for_each(|guard| guard.unlock().unwrap());
}

/// A primary that is killed: locks elsewhere do not notice, those that it had are there again with its replica.
#[test]
fn a_killed_primary_stops_its_own_locks_until_its_replica_is_promoted() {
    let cluster = with_replicas();
    let names = spread(&cluster, "killed");
    let client = patient(&cluster).connect().unwrap();
    let lock = client.reentrant_lock(&names[0]);
    let guard = lock.lock().unwrap();
    let old = home(&cluster, &names[0]);
    wait_until(LONG, "its replica has the hold", || {
        let replica = &cluster.replicas_of(&old).unwrap()[0];
        replica.keys().unwrap() == old.keys().unwrap()
    });
    let waiter = patient(&cluster).connect().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let lock = waiter.reentrant_lock(&names[0]);
            let guard = lock.lock().unwrap();
            let token = guard.token();
            guard.unlock().unwrap();
            token
        });
        queued(&lock, 1);
        old.kill().unwrap();
        let elsewhere = client.reentrant_lock(&names[1]);
        for _ in 0..5 {
            elsewhere.lock().unwrap().unlock().unwrap();
        }
        wait_until(2 * LONG, "a replica is promoted", || {
            cluster.primary_of(&super::key(&names[0])).unwrap().is_some()
        });
        // The hold survived, as the replica had it.
        assert!(!guard.is_lost());
        let token = guard.token();
        let began = Instant::now();
        loop {
            match client.reentrant_lock(&names[0]).holder() {
                Ok(holder) => {
                    assert!(holder.is_some());
                    break;
                }
                Err(e) => assert!(e.is_unavailable() && began.elapsed() < 2 * LONG, "{e:#}"),
            }
        }
        guard.unlock().unwrap();
        assert!(waiting.join().unwrap() > token);
    });
}

/// A primary that stands still is replaced as well; when it goes on, it is a replica, and nobody is let in twice.
#[test]
fn a_primary_that_stands_still_is_left_for_its_replica() {
    let cluster = with_replicas();
    let name = &spread(&cluster, "frozen")[0];
    let client = patient(&cluster).connect().unwrap();
    let lock = client.reentrant_lock(name);
    lock.lock().unwrap().unlock().unwrap();
    let old = home(&cluster, name);
    old.stop().unwrap();
    let guard = lock.lock().unwrap();
    old.cont().unwrap();
    cluster.wait_until_ready().unwrap();
    let other = patient(&cluster).connect().unwrap();
    assert!(other.reentrant_lock(name).try_lock().unwrap().is_none());
    assert_ne!(home(&cluster, name).port(), old.port());
    guard.unlock().unwrap();
}

/// A hold of which the promoted replica never heard is reported as lost as soon as that is known: not at the next
/// renewal, in twenty seconds.
#[test]
fn a_hold_that_the_replica_did_not_know_is_reported_at_once() {
    let cluster = with_replicas();
    let name = &spread(&cluster, "unknown")[0];
    let client = patient(&cluster).lease(Duration::from_secs(60)).connect().unwrap();
    let lock = client.reentrant_lock(name);
    let old = home(&cluster, name);
    let replicas = cluster.replicas_of(&old).unwrap();
    replicas[0].stop().unwrap();
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").exec(&mut old.connection().unwrap()).unwrap();
    let guard = lock.lock().unwrap();
    // From here on the client listens.
    let lost = guard.lost();
    old.kill().unwrap();
    replicas[0].cont().unwrap();
    wait_until(2 * LONG, "a replica is promoted", || {
        cluster.primary_of(&super::key(name)).unwrap().is_some()
    });
    let promoted = Instant::now();
    wait_until(2 * LONG, "the holder is told", || lost.is_cancelled());
    assert!(promoted.elapsed() < Duration::from_secs(10), "{:?}", promoted.elapsed());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
}
