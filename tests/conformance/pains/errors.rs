//! Of errors that say nothing: one word for contention, silence, a loss and a typing mistake.

use std::error::Error as _;
use std::time::Instant;

use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, ReentrantLock, Wait};
use redis_concurrent_testkit::*;

use crate::pains::LOAD;
use crate::server_days::{assert_tells_nothing_twice, connected};
use crate::support::*;

/// What a call that asks for the lock came to: a hold or not, or an error.
type Outcome = Result<bool, Error>;

/// Every way to ask for a lock, one after another, each for at most `wait`.
fn timed(lock: &ReentrantLock, cancel: &CancellationToken) -> Vec<(&'static str, Outcome)> {
    // Enough for an answer, also of a machine with much to do.
    let wait = ms(400);
    let until = || Instant::now() + wait;
    vec![
        ("try_lock", lock.try_lock().map(|it| it.is_some())),
        ("try_lock_for", lock.try_lock_for(wait).map(|it| it.is_some())),
        ("try_lock_until", lock.lock_with(until()).map(|it| it.is_some())),
        ("try_lock_owned", lock.try_lock_owned().map(|it| it.is_some())),
        ("try_lock_owned_for", lock.lock_owned_with(wait).map(|it| it.is_some())),
        ("try_lock_owned_until", lock.lock_owned_with(until()).map(|it| it.is_some())),
        (
            "try_lock_for_interruptibly",
            lock.lock_with(Wait::timeout(wait).cancelled_by(cancel)).map(|it| it.is_some()),
        ),
        (
            "try_lock_owned_for_interruptibly",
            lock.lock_owned_with(Wait::timeout(wait).cancelled_by(cancel)).map(|it| it.is_some()),
        ),
    ]
}

fn interruptible(lock: &ReentrantLock, cancel: &CancellationToken) -> Vec<(&'static str, Outcome)> {
    vec![
        ("lock_interruptibly", lock.lock_interruptibly(cancel).map(|_| true)),
        ("lock_owned_interruptibly", lock.lock_owned_with(cancel).map(|_| true)),
    ]
}

fn untimed(lock: &ReentrantLock) -> Vec<(&'static str, Outcome)> {
    vec![
        ("lock", lock.lock().map(|_| true)),
        ("lock_owned", lock.lock_owned().map(|_| true)),
        ("with", lock.with(|_| true)),
    ]
}

fn questions(lock: &ReentrantLock) -> Vec<(&'static str, Outcome)> {
    vec![
        ("is_locked", lock.is_locked()),
        ("holder", lock.holder().map(|it| it.is_some())),
        ("queue_length", lock.queue_length().map(|it| it > 0)),
        ("force_unlock", lock.force_unlock().map(|it| it.holders > 0)),
    ]
}

/// All that may be called on a lock while nobody can have it.
fn everything(lock: &ReentrantLock) -> Vec<(&'static str, Outcome)> {
    let never = CancellationToken::new();
    let mut all = untimed(lock);
    all.extend(timed(lock, &never));
    all.extend(interruptible(lock, &never));
    all.extend(questions(lock));
    all
}

/// Each of them says exactly this, and of which lock.
#[track_caller]
fn each_says(kind: ErrorKind, name: &str, calls: Vec<(&'static str, Outcome)>) {
    for (call, outcome) in calls {
        says(kind, name, call, outcome);
    }
}

#[track_caller]
fn says<T>(kind: ErrorKind, name: &str, call: &str, outcome: Result<T, Error>) -> Error {
    let Err(error) = outcome else { panic!("{call}: no error, and not {kind:?}") };
    assert_eq!((error.kind(), error.name()), (kind, name), "{call}: {error}");
    assert!(error.to_string().starts_with(&format!("{name:?}: ")), "{call}: {error}");
    assert_tells_nothing_twice(&error);
    error
}

#[test]
fn pain_27_busy_is_no_error() {
    let server = RedisServer::start().unwrap();
    let held = connect(&server).reentrant_lock("x").lock_owned().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    for (call, outcome) in timed(&lock, &CancellationToken::new()) {
        assert!(!outcome.unwrap_or_else(|e| panic!("{call}: {e}")), "{call} got a held lock");
    }
    // Its holder can be asked for.
    assert_eq!(lock.holder().unwrap().unwrap().process.unwrap().pid, std::process::id());
    held.unlock().unwrap();
}

#[test]
fn pain_27_each_trouble_has_its_own_word_in_every_call() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");

    // Cancelled: the calls that can be.
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    each_says(ErrorKind::Cancelled, "x", interruptible(&lock, &cancelled));
    let can_be = timed(&lock, &cancelled).split_off(6);
    assert_eq!(can_be.len(), 2);
    each_says(ErrorKind::Cancelled, "x", can_be);

    // A setting that cannot work, and a name.
    each_says(ErrorKind::InvalidInput, "x", everything(&lock.with_lease(ms(1))));

    // Somebody else's key.
    redis::cmd("SET").arg("rc:{y}").arg("foreign").exec(&mut server.connection().unwrap()).unwrap();
    each_says(ErrorKind::WrongType, "y", everything(&client.reentrant_lock("y")));

    // Held by this thread, for a guard; and by a kind that is not reentrant.
    let guard = lock.lock().unwrap();
    says(ErrorKind::WouldDeadlock, "x", "lock_owned", lock.lock_owned());
    says(ErrorKind::WouldDeadlock, "x", "try_lock_owned_for", lock.lock_owned_with(ms(10)));
    let simple = client.simple_lock("z");
    let held = simple.lock().unwrap();
    says(ErrorKind::WouldDeadlock, "z", "lock", simple.lock());
    says(ErrorKind::WouldDeadlock, "z", "try_lock_for", simple.try_lock_for(ms(10)));
    assert!(simple.try_lock().unwrap().is_none());
    held.unlock().unwrap();

    // Lost: for the holder, and for a re-entry on the same thread.
    assert!(delete(&server, "rc:{x}"));
    says(ErrorKind::LeaseLost, "x", "renew_for", guard.renew_for(ms(5000)));
    each_says(ErrorKind::LeaseLost, "x", untimed(&lock));
    each_says(ErrorKind::LeaseLost, "x", timed(&lock, &CancellationToken::new()));
    says(ErrorKind::LeaseLost, "x", "unlock", guard.unlock());

    // Closed.
    let guard = lock.lock_owned().unwrap();
    // (Whether it was given back in the time that closing has is not the point.)
    released_all(&client.close());
    each_says(ErrorKind::Closed, "x", everything(&lock));
    says(ErrorKind::Closed, "x", "renew_for", guard.renew_for(ms(5000)));
    says(ErrorKind::Closed, "x", "unlock", guard.unlock());
}

/// Redis is silent: nothing was got, or it is not known what became of what was had.
#[test]
fn pain_27_silence_is_told_from_a_no() {
    // Once more where a machine that stood still left no time to send anything, or made another connection
    // necessary.
    eventually(3 * LONG, || silence_is_told(&RedisServer::start().unwrap()));
}

fn silence_is_told(server: &RedisServer) -> Option<()> {
    // Each of the many calls waits for as long as that; a busy machine may need more until the silence
    // begins.
    let impatient =
        || connected(|| builder(&server.url()).unreachable_timeout(ms(300)).command_timeout(ms(150)));
    let (client, renews) = (impatient(), impatient());
    let lock = client.reentrant_lock("x");
    let hold = |client: &Client, name: &str| {
        eventually(LONG, || client.reentrant_lock(name).lock_owned().inspect_err(|e| eprintln!("{e}")).ok())
    };
    let (sent, kept_back) = (hold(&client, "sent"), hold(&client, "kept back"));
    let renewed = hold(&renews, "renewed");
    server.stop().unwrap();
    let kinds: Vec<_> = [
        ("sent", "unlock", sent.unlock()),
        ("renewed", "renew_for", renewed.renew_for(ms(60_000))),
        ("kept back", "unlock", kept_back.unlock()),
        ("renewed", "renew_for", renewed.renew_for(ms(60_000))),
    ]
    .into_iter()
    .map(|(name, call, outcome)| {
        let kind = outcome.as_ref().expect_err("Redis is silent").kind();
        says(kind, name, call, outcome).kind()
    })
    .collect();
    // Each has a connection still, so what was sent may have run; and none any more, so that nothing is sent.
    use ErrorKind::{OutcomeUnknown, Unavailable};
    if kinds != [OutcomeUnknown, OutcomeUnknown, Unavailable, Unavailable] {
        assert!(kinds.iter().all(|kind| [OutcomeUnknown, Unavailable].contains(kind)), "{kinds:?}");
        eprintln!("once more: {kinds:?}");
        server.cont().unwrap();
        return None;
    }
    for (call, outcome) in everything(&lock) {
        let error = says(ErrorKind::Unavailable, "x", call, outcome);
        assert!(error.source().is_some(), "{call}: nothing underneath: {error:?}");
    }
    server.cont().unwrap();
    // Either is released without anybody's doing.
    let others = connected(|| builder(&server.url()));
    let is_free = |name: &str| !others.reentrant_lock(name).is_locked().unwrap();
    for name in ["sent", "kept back"] {
        wait_until(LONG, "it is released", || is_free(name));
    }
    assert!(!renewed.is_lost());
    // In the background, where its answer would come too late.
    drop(renewed);
    wait_until(LONG, "it is released", || is_free("renewed"));
    Some(())
}

/// Where nobody listens any more, and where a login is wrong: the reasons are not the library's own words.
#[test]
fn pain_27_a_reason_is_told_once() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).unreachable_timeout(ms(100)));
    let mut errors =
        vec![Client::connect(&server.url().replace("://", "://nobody:wrong@")).map(drop).unwrap_err()];
    let lock = client.reentrant_lock("x");
    let guard = replied(|| lock.lock_owned());
    server.kill().unwrap();
    errors.push(Client::connect(&server.url()).map(drop).unwrap_err());
    errors.push(guard.unlock().unwrap_err());
    errors.extend(everything(&lock).into_iter().filter_map(|(_, outcome)| outcome.err()));
    assert!(errors.len() > 5, "{errors:?}");
    for error in errors {
        assert_tells_nothing_twice(&error);
        assert!(error.source().is_some(), "{error:?}");
    }
}

/// The release of what was lost is over at once, and asks nothing.
#[test]
fn pain_27_a_lost_hold_is_released_at_once() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(600)).command_timeout(ms(30_000)));
    let lock = client.reentrant_lock("x");
    let guards: Vec<_> =
        (0..5).map(|i| client.reentrant_lock(&format!("x{i}")).lock_owned().unwrap()).collect();
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    for guard in &guards {
        assert!(guard.lost().wait_timeout(LONG));
    }
    assert!(guard.lost().wait_timeout(LONG));
    let began = Instant::now();
    says(ErrorKind::LeaseLost, "x", "unlock", guard.unlock());
    for guard in guards {
        assert!(guard.unlock().unwrap_err().is_lease_lost());
    }
    assert!(began.elapsed() < LOAD, "{:?} for releases that have nothing to do", began.elapsed());
    proxy.heal().unwrap();
}
