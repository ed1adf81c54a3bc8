//! *renewal-never-creates, lost-is-final*.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::observe::{AcquiredVia, LossReason};
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::*;

use crate::support::*;

/// Of holds that are to end by it.
const LEASE: Duration = ms(1200);
/// Of holds that are taken away: a busy machine keeps them until then.
const KEPT: Duration = LONG;
const KEY: &str = "rc:{x}";

fn watched(server: &RedisServer, lease: Duration) -> (Client, Recorder) {
    let recorder = Recorder::default();
    let builder = builder(&server.url()).lease(lease).renew_every(ms(300)).command_timeout(SOON);
    (builder.observer(recorder.clone()).connect().unwrap(), recorder)
}

/// How the hold is taken away.
#[derive(Clone, Copy, Debug)]
enum How {
    Deleted,
    Stolen,
    Forced,
    Silence,
}

#[test]
fn lost_is_final() {
    for how in [How::Deleted, How::Stolen, How::Forced, How::Silence] {
        // (Again where a machine that stood still has ended a short lease before.)
        assert!((0..5).any(|_| is_lost_by(how)), "{how:?}: renewed while held");
    }
}

/// Whether it was held until then.
fn is_lost_by(how: How) -> bool {
    // Where it is to end by its lease, it has outlived that before.
    let (lease, renewals) = if matches!(how, How::Silence) { (LEASE, 5) } else { (KEPT, 3) };
    let server = RedisServer::start().unwrap();
    let (client, recorder) = watched(&server, lease);
    let lock = client.reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    let first = lock.lock().unwrap();
    let Ok(second) = lock.lock() else { return false };
    let token = first.lost();
    wait_until(LONG, "it is renewed", || token.is_cancelled() || recorder.count(Event::Renewed) >= renewals);
    if token.is_cancelled() {
        assert_eq!(lease, LEASE, "{how:?}: renewed while held");
        return false;
    }
    let at = Instant::now();
    let mut theirs = None;
    match how {
        How::Deleted => assert!(delete(&server, KEY)),
        How::Stolen => {
            assert!(delete(&server, KEY));
            theirs = Some(other.lock().unwrap());
        }
        How::Forced => assert!(other.force_unlock().unwrap().holders > 0),
        How::Silence => server.stop().unwrap(),
    }
    // By the next renewal, or at the local deadline when Redis is silent.
    assert!(token.wait_timeout(LONG), "{how:?}: nobody was told");
    assert!(at.elapsed() < LEASE + SOON, "{how:?}: told after {:?}", at.elapsed());
    assert!(first.is_lost() && second.is_lost() && first.remaining().is_zero());
    assert!(second.lost().is_cancelled());
    assert_eq!(lock.hold_count(), 0);
    assert!(!lock.is_held_by_current_thread());
    let error = lock.lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "a guard of the lost hold lives: {error}");
    assert_eq!(first.renew_for(LEASE).unwrap_err().kind(), ErrorKind::LeaseLost);
    if matches!(how, How::Silence) {
        server.cont().unwrap();
    }
    // The end of each guard says so, a dropped one's to the observer; none of them sends anything.
    drop(second);
    assert_eq!(recorder.failures(), 1, "{how:?}: {:?}", recorder.all());
    assert_eq!(first.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    let why: &[_] = match how {
        How::Deleted | How::Stolen => &[LossReason::Revoked],
        // A renewal may find out before the message comes.
        How::Forced => &[LossReason::Forced, LossReason::Revoked],
        How::Silence => &[LossReason::Expired],
    };
    // It is told last, on the thread that found out.
    wait_until(SOON, &format!("{how:?}: the observer is told"), || recorder.losses() > 0);
    let losses: usize = why.iter().map(|why| recorder.count(Event::Lost(*why))).sum();
    assert_eq!((losses, recorder.losses()), (1, 1), "{how:?}: {:?}", recorder.all());
    if let Some(theirs) = theirs {
        assert!(!theirs.is_lost());
        theirs.unlock().unwrap();
    }
    // The thread may come in again, under a new grant: it is not to end by itself.
    let again = lock.with_lease(KEPT);
    let guard = again.try_lock_for(LONG).unwrap().unwrap();
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    true
}

#[test]
fn lost_is_final_and_a_drop_tells_the_observer_once() {
    let server = RedisServer::start().unwrap();
    let (client, recorder) = watched(&server, KEPT);
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    assert!(delete(&server, KEY));
    wait_until(SOON, "the observer is told", || recorder.losses() == 1);
    drop(guard);
    assert_eq!(recorder.count(Event::UnlockFailed(ErrorKind::LeaseLost)), 1, "{:?}", recorder.all());
    assert_eq!(recorder.failures(), 1, "{:?}", recorder.all());
    assert_eq!(recorder.losses(), 1, "{:?}", recorder.all());
}

/// Nothing renews and nothing asks: the release itself finds out.
#[test]
fn lost_is_final_when_the_release_finds_out() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    assert!(delete(&server, KEY));
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    wait_until(SOON, "the observer is told", || recorder.count(Event::Lost(LossReason::Revoked)) == 1);
    drop(lock.lock().unwrap());
}

#[test]
fn lost_is_final_for_a_fixed_lease() {
    let server = RedisServer::start().unwrap();
    let (client, recorder) = watched(&server, KEPT);
    let lock = client.reentrant_lock("x").with_lease(ms(400));
    let began = Instant::now();
    let guard = lock.lock().unwrap();
    assert!(guard.lost().wait_timeout(LONG));
    assert!(began.elapsed() < ms(400) + SOON, "{:?}", began.elapsed());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    wait_until(SOON, "the observer is told", || recorder.count(Event::Lost(LossReason::Expired)) == 1);
    assert_eq!(recorder.all(), [Event::Acquired(AcquiredVia::Free), Event::Lost(LossReason::Expired)]);
}

/// Threads of the same process that wait behind the lost hold see it too, while its guard lives.
#[test]
fn lost_is_final_and_local_successors_see_it() {
    for silent in [false, true] {
        let server = RedisServer::start().unwrap();
        let (client, _) = watched(&server, if silent { LEASE } else { KEPT });
        let lock = client.reentrant_lock("x");
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let next = lock.lock().unwrap();
                let token = next.token();
                // (On a machine that stood still a short lease may be over.)
                if let Err(error) = next.unlock() {
                    assert!(silent && error.is_lease_lost(), "{error}");
                }
                token
            });
            // A short lease may be over on a busy machine.
            wait_until(SOON, "it waits", || lock.local_queue_length() == 1 || silent && guard.is_lost());
            if silent {
                server.stop().unwrap();
                assert!(guard.lost().wait_timeout(SOON));
                server.cont().unwrap();
            } else {
                assert!(delete(&server, KEY));
            }
            wait_until(SOON, "the successor gets in", || waits.is_finished());
            assert!(waits.join().unwrap() > guard.token());
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
        });
    }
}

#[test]
fn lost_is_final_where_a_renewal_is_answered_too_late() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client = builder(&proxy.url()).observer(recorder.clone()).connect().unwrap();
    let guard = client.reentrant_lock("x").with_lease(LEASE).lock().unwrap();
    proxy.delay(LEASE + ms(300));
    let error = guard.renew_for(KEPT).unwrap_err();
    assert!(error.is_lease_lost() && error.to_string().contains("expired"), "{error}");
    assert_eq!(recorder.count(Event::Lost(LossReason::Expired)), 1, "{:?}", recorder.all());
}

#[test]
fn renewal_never_creates() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let often = builder(&server.url()).lease(KEPT).renew_every(ms(500));
    let client = often.observer(recorder.clone()).connect().unwrap();
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    wait_until(SOON, "it is renewed", || recorder.count(Event::Renewed) > 0);
    let other = connect(&server).reentrant_lock("x");
    assert!(delete(&server, KEY));
    // Somebody comes and goes between two renewals.
    let between = free_at_once(&other);
    assert!(between > guard.token());
    wait_until(SOON, "it is lost", || guard.is_lost());
    let before = recorder.count(Event::Renewed);
    let began = Instant::now();
    // For three renewals and more.
    while began.elapsed() < ms(1800) {
        assert!(!exists(&server, KEY), "a renewal has made the lock anew");
        assert!(guard.is_lost());
        thread::sleep(ms(10));
    }
    assert_eq!(recorder.count(Event::Renewed), before);
    assert_eq!(guard.renew_for(KEPT).unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(!exists(&server, KEY));
}

/// The answer to a renewal comes when the hold is over: it does not bring it back.
#[test]
fn renewal_never_creates_when_its_answer_is_late() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(LEASE));
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    proxy.hold_requests(true);
    wait_until(SOON, "a renewal is held", || proxy.held() > 0);
    assert!(guard.lost().wait_timeout(SOON));
    proxy.hold_requests(false);
    wait_until(SOON, "all was sent", || proxy.held() == 0);
    let other = connect(&server).reentrant_lock("x");
    let theirs = free_at_once(&other);
    assert!(theirs > guard.token());
    assert!(guard.is_lost());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    nothing_left(&server);
}
