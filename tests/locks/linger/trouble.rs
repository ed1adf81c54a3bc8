//! A kept lock on a bad day: its process dies or stands still, Redis dies, messages are lost.

use std::time::{Duration, Instant};

use redis_concurrent_testkit::{
    Child, ClientKind, RedisServer, eventually, hear_parent, is_role, tell_parent, wait_until,
};

use super::{LINGER, is_given_back, is_kept};
use crate::support::{LONG, SOON, builder, connect, connected, env, ms};

const ROLE: &str = "linger::trouble::keeps_in_a_process_of_its_own";

/// The lease of what it keeps is 3 s.
const SHORT: Duration = Duration::from_millis(900);

#[test]
fn keeps_in_a_process_of_its_own() {
    if !is_role(ROLE) {
        return;
    }
    let client = connected(|| builder(&env("URL")));
    let lock = client.simple_lock("it").linger(SHORT);
    while let Some(line) = hear_parent().unwrap() {
        let guard = lock.lock().unwrap();
        let token = guard.token();
        guard.unlock().unwrap();
        if line == "keep" && !lock.is_locked().unwrap() {
            tell_parent("not yet").unwrap();
        } else {
            tell_parent(&token.to_string()).unwrap();
        }
    }
    // It ends without closing its client.
    std::process::exit(0);
}

/// A process that keeps the lock, and the token of its hold.
fn keeper(server: &RedisServer) -> (Child, u64) {
    let mut child = Child::spawn(ROLE, &[("URL", &server.url())]).unwrap();
    let token = eventually(LONG, || {
        child.say("keep").unwrap();
        child.read_line_within(LONG).unwrap().parse().ok()
    });
    (child, token)
}

#[test]
fn its_process_dies() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("it");
    let (mut child, token) = keeper(&server);
    child.kill9().unwrap();
    let began = Instant::now();
    assert!(lock.lock().unwrap().token() > token);
    assert!(began.elapsed() < LONG, "not for 30 s: {:?}", began.elapsed());
}

#[test]
fn its_process_stands_still() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("it");
    let (mut child, token) = keeper(&server);
    child.stop().unwrap();
    let guard = lock.lock().unwrap();
    let mine = guard.token();
    assert!(mine > token);
    child.cont().unwrap();
    // It goes on as if nothing had been, asks, and waits.
    child.say("again").unwrap();
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    guard.unlock().unwrap();
    let again: u64 = child.read_line_within(LONG).unwrap().parse().unwrap();
    assert!(again > mine, "{again} after {mine}");
}

#[test]
fn redis_restarts_without_its_data() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    is_kept(&a, &lock);
    server.kill().unwrap();
    server.restart().unwrap();
    let guard = eventually(LONG, || others.try_lock().ok().flatten());
    // Its process hears of that by its connection, and keeps nothing.
    eventually(LONG, || matches!(lock.try_lock(), Ok(None)).then_some(()));
    guard.unlock().unwrap();
    eventually(LONG, || lock.try_lock().ok().flatten()).unlock().unwrap();
}

/// No connection breaks: its process learns of it by its next renewal.
#[test]
fn redis_is_flushed() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.simple_lock("it").linger(SHORT), b.simple_lock("it"));
    wait_until(LONG, "the lock is kept", || {
        lock.lock().unwrap().unlock().unwrap();
        others.is_locked().unwrap()
    });
    server.flush_all().unwrap();
    let guard = others.lock().unwrap();
    eventually(LONG, || lock.try_lock().unwrap().is_none().then_some(()));
    guard.unlock().unwrap();
}

#[test]
fn its_inbox_breaks() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("it").linger(LINGER);
    is_kept(&client, &lock);
    assert!(server.kill_clients(ClientKind::PubSub).unwrap() > 0);
    is_given_back(&lock);
    is_kept(&client, &lock);
}

/// A user whose messages the server does not publish, until it may.
fn mute(server: &RedisServer, rights: &str) -> String {
    let mut admin = server.connection().unwrap();
    let rules = ["on", ">secret", "~*", "&*", "+@all", rights];
    redis::cmd("ACL").arg("SETUSER").arg("mute").arg(&rules).exec(&mut admin).unwrap();
    format!("redis://mute:secret@127.0.0.1:{}", server.port())
}

/// The message that it is wanted is lost: the waiter's next heartbeat is one more.
#[test]
fn a_lost_message_costs_a_heartbeat() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connected(|| builder(&mute(&server, "-publish"))));
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    is_kept(&a, &lock);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| others.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
        assert!(lock.is_locked().unwrap() && !waits.is_finished());
        mute(&server, "+publish");
        let began = Instant::now();
        waits.join().unwrap();
        assert!(began.elapsed() < LONG, "and not all of {LINGER:?}: {:?}", began.elapsed());
    });
}

/// No message ever comes: it is given back when its time is up.
#[test]
fn without_messages_its_time_ends_it() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connected(|| builder(&mute(&server, "-publish"))));
    let (lock, others) = (a.simple_lock("it").linger(SOON), b.simple_lock("it"));
    lock.lock().unwrap().unlock().unwrap();
    wait_until(LONG, "the lock is kept", || {
        lock.lock().unwrap().unlock().unwrap();
        others.is_locked().unwrap()
    });
    let mut tokens = Vec::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| others.lock().unwrap().token());
        // Its process goes on taking it, and does not know of the waiter.
        while !waits.is_finished() {
            tokens.extend(lock.try_lock().unwrap().map(|guard| guard.token()));
            std::thread::sleep(ms(5));
        }
        let theirs = waits.join().unwrap();
        assert!(tokens.iter().any(|token| *token < theirs));
    });
}
