//! A grant counts once replicas have it, and is given back where too few do.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::Kind;
use redis_concurrent::once::{Attempt, Begun, Ending};
use redis_concurrent::{Client, ErrorKind, Once, RedisLock};
use redis_concurrent_testkit::{Proxy, eventually, wait_until};

use crate::flock::{Flock, promote};
use crate::support::{
    LONG, SOON, builder, connect, connected, exists, ms, nothing_left, pttl, queued, refused,
};

/// For replicas that answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// For one that does not.
const BRIEF: Duration = Duration::from_millis(100);

fn has_it_at_once<K: Kind>(flock: &Flock, lock: &RedisLock<K>, key: &str) {
    for round in 0..20 {
        let guard = lock.with_replicas(2, PATIENCE).lock_owned().unwrap();
        assert!(flock.is_everywhere(key), "{key}, round {round}");
        guard.unlock().unwrap();
    }
}

#[test]
fn replicas_have_it_when_it_counts() {
    let flock = Flock::start(2);
    flock.link.delay(ms(20));
    let client = connect(&flock.primary);
    has_it_at_once(&flock, &client.simple_lock("simple"), "rc:{simple}");
    has_it_at_once(&flock, &client.reentrant_lock("reentrant").with_lease(2 * PATIENCE), "rc:{reentrant}");
    has_it_at_once(&flock, client.read_write_lock("halves").write_lock(), "rc:{halves}");
    has_it_at_once(&flock, client.read_write_lock("halves").read_lock(), "rc:{halves}");
    let semaphore = client.semaphore("permits");
    semaphore.set_permits(2).unwrap();
    let permit = semaphore.with_replicas(2, PATIENCE).acquire(2).unwrap();
    // A replica cannot serve, but says what it has.
    let replica = builder(&flock.replicas[0].url()).connect_later().unwrap().semaphore("permits");
    assert_eq!(replica.available().unwrap(), 0);
    permit.release().unwrap();
}

#[test]
fn it_costs_one_trip_more() {
    let flock = Flock::start(1);
    let client = connect(&flock.primary);
    let lock = client.reentrant_lock("it").with_replicas(1, PATIENCE);
    lock.lock().unwrap().unlock().unwrap();
    let before = client.request_count();
    let outer = lock.lock().unwrap();
    assert_eq!(client.request_count() - before, 3, "the ask; the renewal and WAIT in one trip");
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(client.request_count() - before, 5, "an inner guard counts as well");
    outer.unlock().unwrap();
    assert_eq!(client.request_count() - before, 6);
}

#[test]
fn an_inner_guard_makes_a_fixed_lease_no_longer() {
    let flock = Flock::start(1);
    let client = connect(&flock.primary);
    let lock = client.reentrant_lock("it").with_lease(2 * PATIENCE).with_replicas(1, PATIENCE);
    let outer = lock.lock().unwrap();
    let most = outer.remaining();
    for _ in 0..20 {
        thread::sleep(ms(10));
        lock.lock().unwrap().unlock().unwrap();
    }
    let left = outer.remaining();
    assert!(left < most - ms(190) && left > PATIENCE, "{left:?} of {most:?}");
    let in_redis = Duration::from_millis(pttl(&flock.primary, "rc:{it}").try_into().unwrap());
    assert!(in_redis >= left && in_redis < 2 * PATIENCE - ms(190), "{in_redis:?}");
}

#[test]
fn a_waiter_that_was_granted_the_lock_is_waited_for_too() {
    let flock = Flock::start(2);
    // They are late enough to be caught at it.
    flock.link.delay(ms(20));
    let (a, b) = (connect(&flock.primary), connect(&flock.primary));
    let (lock, waiter) = (a.simple_lock("it"), b.simple_lock("it").with_replicas(2, PATIENCE));
    for round in 0..3 {
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = waiter.lock().unwrap();
                let had = flock.is_everywhere("rc:{it}");
                guard.unlock().unwrap();
                had
            });
            queued(&lock, 1);
            // Of what the waiter itself has written they have told.
            flock.are_in_step();
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap(), "round {round}");
        });
    }
}

#[test]
fn too_few_give_it_back() {
    let flock = Flock::start(2);
    let (a, b) = (connect(&flock.primary), connect(&flock.primary));
    let lock = a.reentrant_lock("it");
    let (both, one) = (lock.with_replicas(2, BRIEF), lock.with_replicas(1, PATIENCE));
    flock.replicas[1].stop().unwrap();

    let error = both.lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::NotReplicated, "it"));
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
    assert!(!b.reentrant_lock("it").is_locked().unwrap(), "it was given back");
    assert_eq!(both.try_lock().unwrap_err().kind(), ErrorKind::NotReplicated);
    assert_eq!(both.try_lock_for(SOON).unwrap_err().kind(), ErrorKind::NotReplicated);
    assert_eq!(both.lock_owned().unwrap_err().kind(), ErrorKind::NotReplicated);

    // Enough for one that asks for less; and a hold that is there already stays.
    let outer = one.lock().unwrap();
    assert_eq!(both.lock().unwrap_err().kind(), ErrorKind::NotReplicated);
    assert_eq!(lock.hold_count(), 1);
    assert!(!outer.is_lost());
    outer.unlock().unwrap();

    // The waiters get in.
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let fails = scope.spawn(|| b.reentrant_lock("it").with_replicas(2, BRIEF).lock().map(drop));
        queued(&lock, 1);
        let next = connect(&flock.primary);
        let gets = scope.spawn(move || next.reentrant_lock("it").lock().unwrap().unlock().unwrap());
        queued(&lock, 2);
        guard.unlock().unwrap();
        assert_eq!(fails.join().unwrap().unwrap_err().kind(), ErrorKind::NotReplicated);
        gets.join().unwrap();
    });

    flock.replicas[1].cont().unwrap();
    wait_until(LONG, "it answers again", || both.lock().is_ok());
    nothing_left_but_the_step(&flock);
}

/// The key by which the flock was tried stays.
fn nothing_left_but_the_step(flock: &Flock) {
    crate::support::delete(&flock.primary, "step");
    nothing_left(&flock.primary);
}

#[test]
fn a_server_without_replicas_has_too_few() {
    let flock = Flock::start(0);
    let client = connect(&flock.primary);
    let error = client.simple_lock("it").with_replicas(1, BRIEF).lock().unwrap_err();
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}

#[test]
fn the_call_s_deadline_is_that_of_the_replicas_too() {
    let flock = Flock::start(1);
    let client = connect(&flock.primary);
    let lock = client.simple_lock("it").with_replicas(1, Duration::from_secs(25));
    flock.replicas[0].stop().unwrap();
    let began = Instant::now();
    assert_eq!(refused(|| lock.try_lock_for(ms(2000))).kind(), ErrorKind::NotReplicated);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Redisson #4706, #4822, #4305: after "none of the replicas were synced" the lock was never free again.
#[test]
fn pain_14_a_hold_whose_release_is_lost_too_ends_with_its_lease_at_most() {
    let flock = Flock::start(1);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(3000)).command_timeout(ms(300)));
    let lock = client.reentrant_lock("it").with_replicas(1, BRIEF);
    flock.replicas[0].stop().unwrap();
    // The answer that too few had it gets lost, and so does whatever is sent after it.
    proxy.only_matching(b"WAIT");
    proxy.swallow_replies(1);
    let error = lock.lock().unwrap_err();
    assert!([ErrorKind::Unavailable, ErrorKind::NotReplicated].contains(&error.kind()), "{error}");
    proxy.black_hole(true);
    wait_until(LONG, "it ends, renewed by nobody", || !exists(&flock.primary, "rc:{it}"));
    proxy.heal().unwrap();
    for _ in 0..3 {
        // A machine that stands still may have no answer in 300 ms.
        let kind = eventually(LONG, || {
            let kind = lock.lock().unwrap_err().kind();
            (kind != ErrorKind::Unavailable).then_some(kind)
        });
        assert_eq!(kind, ErrorKind::NotReplicated);
        assert_eq!(lock.hold_count(), 0);
    }
    let other = connect(&flock.primary).reentrant_lock("it");
    wait_until(LONG, "it is given back", || other.try_lock().unwrap().is_some());
}

#[test]
fn a_wait_for_a_condition_ends_with_what_replicas_have() {
    let flock = Flock::start(1);
    let (a, b) = (connect(&flock.primary), connect(&flock.primary));
    let lock = a.reentrant_lock("it").with_replicas(1, PATIENCE);
    let other = b.reentrant_lock("it");
    let signal = |before: &dyn Fn()| {
        wait_until(LONG, "it waits", || {
            let guard = other.lock().unwrap();
            let condition = other.condition("there");
            let waits = condition.wait_queue_length(&guard).unwrap() > 0;
            if waits {
                before();
                condition.signal(&guard).unwrap();
            }
            waits
        });
    };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            lock.condition("there").wait(&mut guard).unwrap();
            flock.is_everywhere("rc:{it}")
        });
        signal(&|| ());
        assert!(waiting.join().unwrap());
    });
    let brief = a.reentrant_lock("it").with_replicas(1, BRIEF);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut guard = brief.lock().unwrap();
            let error = brief.condition("there").wait(&mut guard).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotReplicated);
            assert!(!guard.is_lost(), "the lock is held");
            guard.unlock().unwrap();
        });
        signal(&|| flock.replicas[0].stop().unwrap());
        waiting.join().unwrap();
    });
}

#[test]
fn what_cannot_be_is_told() {
    let flock = Flock::start(0);
    let client = Client::builder().url(&flock.primary.url()).lease(PATIENCE).connect().unwrap();
    let lock = client.simple_lock("it");
    for (lock, says) in [
        (lock.with_replicas(0, BRIEF), "got 0"),
        (lock.with_replicas(101, BRIEF), "got 101"),
        (lock.with_replicas(1, ms(0)), "got 0ns"),
        (lock.with_replicas(1, PATIENCE), "less than the lease of 10s"),
        (lock.with_replicas(1, BRIEF).with_lease(BRIEF), "less than the lease of 100ms"),
    ] {
        let error = lock.lock().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "it"));
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(client.request_count(), 0);
}

/// The same, by the server's own rule.
#[test]
fn pain_14_a_primary_that_wants_replicas_refuses_and_keeps_nothing() {
    let flock = Flock::start(0);
    let client = connected(|| builder(&flock.primary.url()).unreachable_timeout(ms(200)));
    let lock = client.reentrant_lock("it");
    let wants = |n: usize| {
        let mut connection = flock.primary.connection().unwrap();
        redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(n).exec(&mut connection).unwrap();
    };
    wants(1);
    for _ in 0..3 {
        let error = lock.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(format!("{error:#}").contains("NOREPLICAS"), "{error:#}");
        assert_eq!(lock.hold_count(), 0);
        assert!(!exists(&flock.primary, "rc:{it}"));
    }
    wants(0);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_hold_that_ends_before_they_have_it_is_not_returned() {
    let flock = Flock::start(1);
    let client = connect(&flock.primary);
    let lock = client.reentrant_lock("it").with_lease(ms(2000));
    let outer = lock.lock().unwrap();
    let lost = outer.lost();
    flock.replicas[0].stop().unwrap();
    wait_until(LONG, "half of it is over", || outer.remaining() < ms(1000));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lost.wait_timeout(LONG));
            flock.replicas[0].cont().unwrap();
        });
        let got = lock.with_replicas(1, ms(1900)).lock().map(|guard| guard.is_lost());
        assert_ne!(got.as_ref().ok(), Some(&true), "a lost hold");
        assert_eq!(got.unwrap_err().kind(), ErrorKind::LeaseLost);
    });
    drop(outer);
}

#[test]
fn too_few_keep_it_for_no_time_at_all() {
    let flock = Flock::start(0);
    let client = connect(&flock.primary);
    let lock = client.simple_lock("job").min_hold(LONG);
    for error in [
        lock.with_replicas(1, BRIEF).lock().unwrap_err(),
        lock.with_replicas(1, BRIEF).try_lock().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotReplicated);
        assert!(!lock.is_locked().unwrap(), "it never counted");
    }
}

#[test]
fn silence_is_not_borne_beyond_the_call_s_deadline() {
    let flock = Flock::start(1);
    let proxy = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(LONG));
    let lock = client.simple_lock("it").with_replicas(1, PATIENCE);
    lock.lock().unwrap().unlock().unwrap();
    proxy.only_matching(b"WAIT");
    proxy.swallow_replies(usize::MAX);
    let began = Instant::now();
    assert!(lock.try_lock_for(ms(300)).unwrap_err().is_unavailable());
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

fn begun(once: &Once) -> Attempt {
    match once.begin().unwrap() {
        Begun::Yours(attempt) => attempt,
        other => panic!("not ours: {other:?}"),
    }
}

#[test]
fn replicas_have_an_outcome_that_was_stored() {
    let flock = Flock::start(1);
    flock.link.delay(ms(100));
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&door.url()));
    for round in 0..6 {
        let once = client.once(&round.to_string()).with_replicas(1, PATIENCE);
        let attempt = begun(&once);
        assert!(flock.is_everywhere(&format!("rc:{{{round}}}")));
        if round % 2 == 1 {
            // The second copy of the request finds that all is done.
            door.swallow_next_reply_and_reset();
        }
        attempt.done("42").unwrap();
        assert!(flock.is_everywhere(&format!("rc:{{{round}}}")), "round {round}");
    }
}

/// The former primary of a planned failover goes on for a while, and all that it stores then is forgotten.
#[test]
fn an_outcome_and_a_term_that_a_failover_forgets_are_told() {
    let flock = Flock::start(1);
    let client = connect(&flock.primary);
    let (plain, safe) = (client.once("plain"), client.once("safe").with_replicas(1, BRIEF));
    let (trusts, asks) = (begun(&plain), begun(&safe));
    promote(&flock.replicas[0]);
    trusts.done("42").unwrap();
    let error = asks.done("42").unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::NotReplicated, "safe"), "{error}");
    // The attempt is over, and here the outcome is stored.
    assert_eq!(safe.ending().unwrap(), Some(Ending::Done("42".to_owned())));
    let error = client.once("next").with_replicas(1, BRIEF).begin().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    let successor = connect(&flock.replicas[0]);
    assert_eq!(successor.once("plain").ending().unwrap(), None);
    let election = client.election("scheduler");
    let error = election.with_replicas(1, BRIEF).value("it").campaign().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::NotReplicated, "scheduler"), "{error}");
    assert_eq!(election.leader().unwrap(), None);
    election.campaign().unwrap().resign().unwrap();
}
