//! Every way in and out, with all servers well.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, Error, ErrorKind, Lock, RedLock, RedLockClient, Wait};
use redis_concurrent_testkit::{closes_in_time, released_all, wait_until};

use crate::red_lock::fixture::{Fixture, LEASE, LONG, NAME, PATIENT, ms};
use crate::support::in_brief;

#[test]
fn it_is_held_on_all_servers_and_given_back_on_all() {
    let fixture = Fixture::five();
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    let guard = fixture.by_all(|| mine.lock().unwrap());
    assert_eq!(guard.name(), NAME);
    assert_eq!(fixture.held_on(), 5);
    assert!(guard.remaining() > LEASE / 2 && guard.remaining() < LEASE, "{:?}", guard.remaining());
    assert!(!guard.is_lost() && !guard.lost().is_cancelled());
    assert!(yours.try_lock().unwrap().is_none());
    assert!(in_brief(yours.try_lock_for(ms(50))).is_none());
    guard.unlock().unwrap();
    fixture.nothing_stays();
    let guard = yours.try_lock().unwrap().expect("it is free");
    // Its keys are those of simple locks.
    let client = redis_concurrent::Client::connect(&fixture.servers[2].url()).unwrap();
    assert!(client.simple_lock(NAME).is_locked().unwrap());
    drop(guard);
    fixture.nothing_stays();
}

#[test]
fn an_acquisition_is_two_requests_to_each_server() {
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME);
    // The first time the scripts are not known, and two are sent twice.
    lock.lock().unwrap().unlock().unwrap();
    // A machine that stands still makes an answer late, and its server is told in the background.
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let before = fixture.request_count();
            lock.lock().unwrap().unlock().unwrap();
            fixture.nothing_stays();
            fixture.request_count() - before
        })
        .collect();
    assert!(requests.contains(&10), "{requests:?}");
}

type Form = fn(&RedLock, &CancellationToken) -> bool;

const FORMS: [(&str, Form); 12] = [
    ("lock", |it, _| it.lock().map(drop).is_ok()),
    ("try_lock", |it, _| it.try_lock().unwrap().map(drop).is_some()),
    ("try_lock_for", |it, _| it.try_lock_for(LONG).unwrap().map(drop).is_some()),
    ("try_lock_until", |it, _| it.lock_with(Instant::now() + LONG).unwrap().map(drop).is_some()),
    ("lock_interruptibly", |it, c| it.lock_interruptibly(c).map(drop).is_ok()),
    ("try_lock_for_interruptibly", |it, c| {
        it.lock_with(Wait::timeout(LONG).cancelled_by(c)).unwrap().map(drop).is_some()
    }),
    ("lock_owned", |it, _| it.lock_owned().map(drop).is_ok()),
    ("try_lock_owned", |it, _| it.try_lock_owned().unwrap().map(drop).is_some()),
    ("try_lock_owned_for", |it, _| it.lock_owned_with(LONG).unwrap().map(drop).is_some()),
    ("try_lock_owned_until", |it, _| it.lock_owned_with(Instant::now() + LONG).unwrap().map(drop).is_some()),
    ("lock_owned_interruptibly", |it, c| it.lock_owned_with(c).map(drop).is_ok()),
    ("try_lock_owned_for_interruptibly", |it, c| {
        it.lock_owned_with(Wait::timeout(LONG).cancelled_by(c)).unwrap().map(drop).is_some()
    }),
];

#[test]
fn every_form_takes_a_free_lock_and_waits_for_a_held_one() {
    let fixture = Fixture::of(3);
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    let never = CancellationToken::new();
    for (name, form) in FORMS {
        // A server that is slow is given back late, and may be the second that is not free.
        fixture.await_held_on(0);
        assert!(form(&mine, &never), "{name}");
        fixture.await_held_on(0);
        let guard = yours.lock_owned().unwrap();
        if name.starts_with("try_lock") && !name.contains("for") && !name.contains("until") {
            assert!(!form(&mine, &never), "{name}");
            continue;
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| form(&mine, &never));
            thread::sleep(ms(30));
            assert!(!waiting.is_finished(), "{name}");
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap(), "{name}");
        });
    }
    drop(fixture.by_all(|| mine.lock().unwrap()));
    fixture.nothing_stays();
}

#[test]
fn a_wait_ends_when_it_is_cancelled_and_when_its_time_is_over() {
    let fixture = Fixture::of(3);
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = mine.lock_interruptibly(&cancelled).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Cancelled, NAME));
    let _guard = yours.lock().unwrap();
    let began = Instant::now();
    assert!(in_brief(mine.try_lock_for(ms(300))).is_none());
    assert!(began.elapsed() >= ms(300) && began.elapsed() < LONG, "{:?}", began.elapsed());
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mine.lock_interruptibly(&cancel).map(drop));
        thread::sleep(ms(200));
        cancel.cancel();
        assert!(waiting.join().unwrap().unwrap_err().is_cancelled());
    });
    // It queued nowhere.
    for server in &fixture.servers {
        assert!(!server.keys().unwrap().iter().any(|key| key.ends_with(":queue")));
    }
}

#[test]
fn it_is_not_reentrant_and_says_so() {
    let fixture = Fixture::of(3);
    // Nothing is renewed meanwhile.
    let red = fixture.red_with(|b| b.lease(LEASE * 60));
    let lock = red.lock(NAME);
    let guard = fixture.by_all(|| lock.lock().unwrap());
    let before = fixture.request_count();
    for error in [lock.lock().map(drop), lock.try_lock_for(LONG).map(drop), lock.lock_owned().map(drop)] {
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::WouldDeadlock, NAME), "{error}");
    }
    assert!(lock.try_lock().unwrap().is_none());
    // Other handles are the same lock; and other threads of this process are refused without a request.
    assert!(red.lock(NAME).try_lock().unwrap().is_none());
    thread::scope(|scope| {
        scope.spawn(|| assert!(red.lock(NAME).try_lock().unwrap().is_none()));
    });
    assert_eq!(fixture.request_count(), before);
    guard.unlock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn an_owned_guard_may_end_in_another_thread() {
    let fixture = Fixture::of(3);
    let lock = fixture.red().lock(NAME);
    let guard = lock.lock_owned().unwrap();
    assert!(lock.try_lock().unwrap().is_none());
    thread::spawn(move || guard.unlock().unwrap()).join().unwrap();
    fixture.await_held_on(0);
}

#[test]
fn it_is_any_lock_and_has_no_token() {
    let fixture = Fixture::of(3);
    let lock = fixture.red().lock(NAME);
    let any: &dyn Lock = &lock;
    assert_eq!(any.name(), NAME);
    let cancel = CancellationToken::new();
    for form in 0..5 {
        let guard = match form {
            0 => any.lock().unwrap(),
            1 => any.try_lock().unwrap().unwrap(),
            2 => any.try_lock_for(LONG).unwrap().unwrap(),
            3 => any.lock_interruptibly(&cancel).unwrap(),
            _ => any.lock_with(Wait::timeout(LONG).cancelled_by(&cancel)).unwrap().unwrap(),
        };
        assert_eq!(guard.token(), None);
        assert!(!guard.is_lost() && !guard.lost().is_cancelled() && guard.remaining() > LEASE / 2);
        assert!(any.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
    }
}

#[test]
fn threads_of_several_processes_count_right() {
    const EACH: u32 = 15;
    let fixture = Fixture::five();
    let reds: Vec<RedLockClient> = (0..3).map(|_| fixture.red()).collect();
    let (inside, count) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for red in &reds {
            for _ in 0..2 {
                scope.spawn(|| {
                    let lock = red.lock(NAME);
                    for _ in 0..EACH {
                        let guard = lock.try_lock_for(LONG * 3).unwrap().expect("a turn comes");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        count.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(count.into_inner(), 6 * EACH);
    fixture.nothing_stays();
}

#[test]
fn a_closed_client_is_a_server_less() {
    closes_in_time(closed_one_by_one);
}

/// What its closes said.
fn closed_one_by_one() -> Result<(), Error> {
    let fixture = Fixture::five();
    let clients = fixture.clients(|b| b);
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT);
    let lock = red.lock(NAME);
    let guard = fixture.by_all(|| lock.lock_owned().unwrap());
    let closed = clients[0].close().and(clients[1].close());
    assert!(!guard.is_lost(), "three are a majority");
    guard.unlock().unwrap();
    let guard = lock.lock_owned().unwrap();
    let lost = guard.lost();
    assert_eq!(guard.servers(), 3);
    let closed = closed.and(clients[2].close());
    assert!(guard.is_lost() && lost.is_cancelled());
    guard.unlock().unwrap_err();
    let error = lock.lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, NAME), "{error}");
    if closed.is_err() {
        fixture.servers.iter().for_each(|server| server.flush_all().unwrap());
    }
    fixture.nothing_stays();
    closed
}

/// `Closed` where more of its clients were closed than lost it.
#[test]
fn what_it_is_lost_for_is_what_its_unlock_returns() {
    let fixture = Fixture::of(3);
    let clients = fixture.clients(|b| b);
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT);
    let [guard, other] = [NAME, "other"].map(|name| fixture.by_all(|| red.lock(name).lock_owned().unwrap()));
    assert!(guard.loss().is_none());
    for server in &fixture.servers[..2] {
        redis::cmd("DEL").arg("rc:{other}").exec(&mut server.connection().unwrap()).unwrap();
    }
    assert!(other.lost().wait_timeout(LONG));
    // What they cannot release in time is lost all the same.
    released_all(&clients[0].close());
    released_all(&clients[1].close());
    for (guard, kind) in [(guard, ErrorKind::Closed), (other, ErrorKind::LeaseLost)] {
        let loss = guard.loss().unwrap();
        assert_eq!(loss.kind(), kind, "{loss}");
        assert_eq!(guard.unlock().unwrap_err().to_string(), loss.to_string());
    }
}

/// What its process kept for a simple lock of the same name is granted without a request: the attempt has it before it
/// knows that no majority can be asked.
#[test]
fn what_a_client_kept_is_given_back_where_too_few_can_be_asked() {
    let fixture = Fixture::of(3);
    let clients = fixture.clients(|b| b);
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT);
    let kept = clients[0].simple_lock(NAME).linger(LONG);
    wait_until(LONG, "it is kept", || {
        kept.lock().unwrap().unlock().unwrap();
        kept.is_locked().unwrap()
    });
    clients[1].close().unwrap();
    clients[2].close().unwrap();
    red.lock(NAME).try_lock().unwrap_err();
    wait_until(LONG, "it is given back", || !kept.is_locked().unwrap());
    assert!(kept.try_lock().unwrap().is_some());
}
