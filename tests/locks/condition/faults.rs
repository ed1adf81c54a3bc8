//! Bad days: processes that die, messages and answers that are lost, a server that forgets.

use std::thread;
use std::time::Instant;

use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{ErrorKind, Guard, ReentrantLock};
use redis_concurrent_testkit::{Child, ClientKind, Proxy, hear_parent, is_role, tell_parent, wait_until};

use crate::condition::fixture::{Fixture, is_held, not_empty, signal};
use crate::support::{LONG, SOON, builder, connected, env, ms, nothing_left, replied};

const WAITER: &str = "condition::faults::role_waiter";
const URL: &str = "CONDITION_URL";

/// Waits for a signal, and dies only when it is killed.
#[test]
#[ignore = "a role, played by a child process"]
fn role_waiter() {
    if !is_role(WAITER) {
        return;
    }
    let lock = connected(|| builder(&env(URL))).reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    assert!(not_empty(&lock).wait_with(&mut guard, LONG).unwrap());
    tell_parent("in").unwrap();
    hear_parent().unwrap();
}

fn waiter(fixture: &Fixture) -> Child {
    let before = fixture.waiting();
    let child = Child::spawn(WAITER, &[(URL, &fixture.server.url())]).unwrap();
    fixture.await_waiting(before + 1);
    child
}

/// A child waits, and somebody here behind it; it is signalled, and struck before the lock is free.
#[track_caller]
fn struck_after_its_signal(strike: impl FnOnce(&mut Child)) -> (Fixture, Child) {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let mut child = waiter(&fixture);
    fixture.while_one_waits(&lock, || {
        let guard = other.lock().unwrap();
        not_empty(&other).signal(&guard).unwrap();
        assert_eq!(not_empty(&other).wait_queue_length(&guard).unwrap(), 1);
        strike(&mut child);
        guard.unlock().unwrap();
    });
    (fixture, child)
}

#[test]
fn a_waiter_that_dies_after_its_signal_passes_it_on() {
    let (fixture, _) = struck_after_its_signal(|child| {
        child.kill9().unwrap();
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_waiter_that_stands_still_after_its_signal_passes_it_on() {
    let (_stage, mut child) = struck_after_its_signal(|child| {
        child.stop().unwrap();
        // Its waiter timeout is three seconds.
        let began = Instant::now();
        wait_until(LONG, "it is silent", || began.elapsed() > ms(3500));
    });
    // It comes back by itself, without having been signalled.
    child.cont().unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "in");
    child.kill9().unwrap();
}

/// It is told that it has the lock, and does not hear of it.
#[test]
fn a_waiter_that_stands_still_at_its_signal_passes_it_on_when_its_lease_is_over() {
    let (_stage, mut child) = struck_after_its_signal(|child| child.stop().unwrap());
    child.cont().unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "in");
    child.kill9().unwrap();
}

#[test]
fn a_waiter_that_died_is_skipped() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let mut child = waiter(&fixture);
    let began = fixture.while_one_waits(&lock, || {
        child.kill9().unwrap();
        wait_until(SOON, "Redis knows that it is gone", || {
            fixture.server.clients(ClientKind::PubSub).unwrap().len() == 1
        });
        let began = Instant::now();
        signal(&other);
        began
    });
    assert!(began.elapsed() < SOON);
    nothing_left(&fixture.server);
}

#[test]
fn a_lost_message_costs_a_heartbeat() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let lock = connected(|| builder(&proxy.url())).reentrant_lock("it");
    let other = fixture.lock();
    fixture.while_one_waits(&lock, || {
        proxy.swallow_replies_with(b"message");
        signal(&other);
    });
    // The proxy may come to it after the waiter has asked for itself.
    wait_until(LONG, "a message is lost", || proxy.struck() >= 1);
    nothing_left(&fixture.server);
}

/// Neither the answer to its wait reaches it nor what it is told of the lock.
#[test]
fn a_waiter_that_hears_neither_its_answer_nor_its_message_comes_back_signalled() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(ms(2500)));
    let (lock, other) = (client.reentrant_lock("it"), fixture.lock());
    // Of its requests only the wait names the condition.
    proxy.only_matching(b"not_empty");
    proxy.swallow_replies(1);
    proxy.swallow_replies_with(b"message");
    fixture.while_one_waits(&lock, || signal(&other));
    assert!(proxy.struck() >= 2, "{}", proxy.struck());
    nothing_left(&fixture.server);
}

#[test]
fn an_inbox_that_breaks_loses_no_signal() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    for before in [true, false] {
        fixture.while_one_waits(&lock, || {
            let guard = other.lock().unwrap();
            if before {
                fixture.server.kill_clients(ClientKind::PubSub).unwrap();
            }
            not_empty(&other).signal(&guard).unwrap();
            if !before {
                fixture.server.kill_clients(ClientKind::PubSub).unwrap();
            }
            guard.unlock().unwrap();
        });
    }
    nothing_left(&fixture.server);
}

#[test]
fn lost_answers_lose_neither_the_lock_nor_a_signal() {
    for lost in [&b"$4\r\nwait\r\n"[..], b"$4\r\nback\r\n", b"$3\r\none\r\n"] {
        let fixture = Fixture::new();
        let proxy = Proxy::start(fixture.server.port()).unwrap();
        let lock = connected(|| builder(&proxy.url())).reentrant_lock("it");
        let other = connected(|| builder(&proxy.url())).reentrant_lock("it");
        proxy.only_matching(lost);
        proxy.swallow_next_reply_and_reset();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                let limit = if lost.ends_with(b"back\r\n") { ms(1000) } else { LONG };
                let signalled = not_empty(&lock).wait_with(&mut guard, limit).unwrap();
                is_held(&lock, guard);
                signalled
            });
            if lost.ends_with(b"back\r\n") {
                // Whether it was signalled, it cannot know.
                waits.join().unwrap();
            } else {
                fixture.await_waiting(1);
                signal(&other);
                assert!(waits.join().unwrap());
            }
        });
        assert_eq!(proxy.struck(), 1, "{}", String::from_utf8_lossy(lost));
        nothing_left(&fixture.server);
    }
}

#[test]
fn a_server_that_forgets_all_wakes_the_waiters() {
    for restart in [false, true] {
        let fixture = Fixture::new();
        let lock =
            fixture.client_with(|b| b.waiter_timeout(ms(900)).command_timeout(ms(900))).reentrant_lock("it");
        fixture.while_one_waits(&lock, || {
            if restart {
                fixture.server.kill().unwrap();
                fixture.server.restart().unwrap();
            } else {
                fixture.server.flush_all().unwrap();
            }
        });
        nothing_left(&fixture.server);
    }
}

/// As a replica that takes over without the last writes.
#[test]
fn a_server_that_forgets_that_a_wait_is_over_is_told_again() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let mut redis = fixture.server.connection().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            let signalled = not_empty(&lock).wait_with(&mut guard, ms(1500)).unwrap();
            is_held(&lock, guard);
            signalled
        });
        fixture.await_waiting(1);
        let guard = other.lock().unwrap();
        let keys = [":queue", ":positions", ":conditions"].map(|suffix| format!("rc:{{it}}{suffix}"));
        let before =
            keys.clone().map(|key| redis::cmd("DUMP").arg(key).query::<Option<Vec<u8>>>(&mut redis).unwrap());
        wait_until(LONG, "it waits for the lock", || fixture.queued() == 1);
        for (key, before) in keys.iter().zip(before) {
            redis::cmd("DEL").arg(key).exec(&mut redis).unwrap();
            if let Some(before) = before {
                redis::cmd("RESTORE").arg(key).arg(60_000).arg(before).exec(&mut redis).unwrap();
            }
        }
        guard.unlock().unwrap();
        let began = Instant::now();
        wait_until(2 * LONG, "it has the lock again", || {
            if began.elapsed() > LONG {
                signal(&other);
            }
            waits.is_finished()
        });
        assert!(!waits.join().unwrap() && began.elapsed() < LONG, "only a signal has ended its wait");
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_client_that_closes_ends_its_waits() {
    let fixture = Fixture::new();
    let (client, other) = (fixture.client(), fixture.lock());
    let lock = client.reentrant_lock("it");
    for signalled in [false, true] {
        // Longer than the next one waits: only the close passes a signal on.
        let client =
            if signalled { fixture.client_with(|b| b.waiter_timeout(2 * LONG)) } else { client.clone() };
        let lock = if signalled { client.reentrant_lock("it") } else { lock.clone() };
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                let error = not_empty(&lock).wait(&mut guard).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                assert!(guard.is_lost() && guard.lost().is_cancelled());
                assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
            });
            fixture.await_waiting(1);
            let behind = fixture.lock();
            let next = scope.spawn(move || {
                let mut guard = behind.lock().unwrap();
                let limit = if signalled { LONG } else { ms(1500) };
                let signalled = not_empty(&behind).wait_with(&mut guard, limit).unwrap();
                is_held(&behind, guard);
                signalled
            });
            // Without a signal it may have waited long enough before a busy machine looks.
            wait_until(LONG, "two wait", || fixture.waiting() == 2 || !signalled && next.is_finished());
            let guard = other.lock().unwrap();
            if signalled {
                not_empty(&other).signal(&guard).unwrap();
            }
            client.close().unwrap();
            waits.join().unwrap();
            guard.unlock().unwrap();
            assert_eq!(next.join().unwrap(), signalled, "a signal is passed on, and only a signal");
        });
    }
    nothing_left(&fixture.server);
}

#[test]
fn while_redis_is_silent_a_wait_gives_up_and_says_that_nothing_is_held() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(3000)).unreachable_timeout(ms(1000)));
    let (lock, other) = (client.reentrant_lock("it"), fixture.lock());
    let mut guard = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            fixture.await_waiting(1);
            proxy.refuse_connections(true).unwrap();
            proxy.cut_all();
        });
        let error = not_empty(&lock).wait(&mut guard).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    });
    assert!(guard.is_lost());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    other.lock().unwrap().unlock().unwrap();
    proxy.heal().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn a_wait_that_cannot_even_begin_keeps_the_hold() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let lock = connected(|| builder(&proxy.url())).reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    let token = guard.token();
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    // Out of reach: nothing was given up.
    assert!(not_empty(&lock).wait_with(&mut guard, ms(300)).map_or(true, |signalled| !signalled));
    assert_eq!((guard.token(), guard.is_lost()), (token, false));
    proxy.heal().unwrap();
    begins(&lock, &mut guard);
    is_held(&lock, guard);
    nothing_left(&fixture.server);
}

/// Redis is back, and soon the client knows it.
#[track_caller]
fn begins(lock: &ReentrantLock, guard: &mut Guard<Reentrant>) {
    wait_until(LONG, "a wait can begin", || matches!(not_empty(lock).wait_with(guard, ms(50)), Ok(false)));
}

#[test]
fn where_nothing_can_be_heard_a_wait_gives_up_before_it_begins() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    // All but the listener is served.
    proxy.swallow_replies_with(b"subscribe");
    let set = || builder(&proxy.url()).command_timeout(ms(2500)).unreachable_timeout(ms(1000));
    let client = connected(set);
    let lock = client.reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    let token = guard.token();
    let began = Instant::now();
    let error = not_empty(&lock).wait(&mut guard).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() < ms(1000) + SOON, "{:?}", began.elapsed());
    assert_eq!((guard.token(), guard.is_lost(), fixture.waiting()), (token, false, 0));
    proxy.heal().unwrap();
    begins(&lock, &mut guard);
    is_held(&lock, guard);
    nothing_left(&fixture.server);
}

#[test]
fn a_signal_is_for_the_holder_of_the_lock() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let lock = client.reentrant_lock("it");
    let guard = lock.lock().unwrap();
    client.close().unwrap();
    assert_eq!(not_empty(&lock).signal(&guard).unwrap_err().kind(), ErrorKind::Closed);
    assert!(guard.unlock().is_err());
}

/// Is signalled, waits again, and is not.
#[track_caller]
fn waits_twice(lock: &ReentrantLock) {
    let mut guard = lock.lock().unwrap();
    assert!(not_empty(lock).wait_with(&mut guard, LONG).unwrap());
    assert!(!replied(|| not_empty(lock).wait_with(&mut guard, ms(50))));
    guard.unlock().unwrap();
}

#[test]
fn the_rights_that_are_written_down_are_enough() {
    let page = include_str!("../../../docs/operations.md");
    let rights = page.split("redis-cli ACL SETUSER ").nth(1).unwrap().split("```").next().unwrap();
    let rights = rights.split_whitespace().filter(|word| *word != "\\").map(|word| word.trim_matches('\''));
    let fixture = Fixture::new();
    let mut redis = fixture.server.connection().unwrap();
    let _: () = redis::cmd("ACL").arg("SETUSER").arg(rights.collect::<Vec<_>>()).query(&mut redis).unwrap();
    let url = fixture.server.url().replace("redis://", "redis://locks:secret@");
    let [lock, other] = [(); 2].map(|()| connected(|| builder(&url)).reentrant_lock("it"));
    thread::scope(|scope| {
        let waits = scope.spawn(|| waits_twice(&lock));
        fixture.await_waiting(1);
        let guard = other.lock().unwrap();
        assert_eq!(not_empty(&other).wait_queue_length(&guard).unwrap(), 1);
        not_empty(&other).signal_all(&guard).unwrap();
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn without_the_right_to_subscribe_a_wait_is_refused_and_the_hold_stays() {
    let fixture = Fixture::new();
    let mut redis = fixture.server.connection().unwrap();
    let rights = ["locks", "on", ">secret", "~*", "resetchannels", "+@all"];
    let _: () = redis::cmd("ACL").arg("SETUSER").arg(&rights).query(&mut redis).unwrap();
    let url = fixture.server.url().replace("redis://", "redis://locks:secret@");
    let lock = connected(|| builder(&url)).reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    let token = guard.token();
    let error = not_empty(&lock).wait(&mut guard).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(guard.token(), token);
    is_held(&lock, guard);
}

#[test]
fn with_the_memory_full_a_waiter_is_signalled_and_one_that_gave_up_comes_back() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let memory = |limit: &str| {
        let mut redis = fixture.server.connection().unwrap();
        let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(limit).query(&mut redis).unwrap();
    };
    let guard = other.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| waits_twice(&lock));
        fixture.await_queued(1);
        // From here on the memory is full: the thread comes in, waits, is signalled, waits again.
        memory("1");
        let mut guard = guard;
        // A thread that is in the queue may not listen yet, and then comes in a moment after the lock is free.
        wait_until(LONG, "it came in and waits", || {
            assert!(!replied(|| not_empty(&other).wait_with(&mut guard, ms(300))));
            fixture.waiting() == 1
        });
        not_empty(&other).signal(&guard).unwrap();
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    memory("0");
    nothing_left(&fixture.server);
}
