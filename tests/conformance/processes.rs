//! Processes that hold a lock and end without a word.

use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent::kinds::{Kind, Reentrant, Simple};
use redis_concurrent_testkit::{Child, hear_parent, is_role, released_all, tell_parent};

use crate::conformance::fixture::{EVERY, Fixture, LATE, LEASE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, env};

rows! { every_lock:
    a_process_that_is_gone_holds_it_for_its_lease
}
rows! { one_lock:
    of_125_processes_one_gets_it
}

/// Redisson RedissonFairLockTest.testAutoExpire (a watchdog of 1 s there).
fn a_process_that_is_gone_holds_it_for_its_lease<K: Tried>(fixture: &Fixture<K>) {
    let mut child = child(fixture, "conformance::processes::role_holds", K::NAME);
    assert_eq!(child.read_line_within(LONG).unwrap(), "held");
    let lock = fixture.lock();
    assert!(lock.try_lock().unwrap().is_none());
    child.kill9().unwrap();
    let began = Instant::now();
    let guard = lock.try_lock_for(LONG).unwrap().unwrap();
    assert!(began.elapsed() < LEASE + LATE, "{:?}", began.elapsed());
    guard.unlock().unwrap();
}

/// python-redis-lock test_no_overlap2: each process tries all locks.
fn of_125_processes_one_gets_it<K: Tried>(fixture: &Fixture<K>) {
    let mut children: Vec<_> =
        (0..125).map(|_| child(fixture, "conformance::processes::role_tries", "")).collect();
    for child in &children {
        assert_eq!(child.read_line_within(2 * LONG).unwrap(), "ready");
    }
    for child in &mut children {
        child.say("go").unwrap();
    }
    let mut winners = [0; LOCKS.len()];
    for child in &mut children {
        let got = child.read_line_within(2 * LONG).unwrap();
        for (n, got) in winners.iter_mut().zip(got.split(' ')) {
            *n += usize::from(got == "true");
        }
        assert!(child.wait_within(LONG).unwrap().success());
    }
    assert_eq!(winners, [1; LOCKS.len()]);
    // The winners are gone, and what they have is not.
    let client = fixture.client();
    let force = |client: &Client, kind: &str, fair: bool| match kind {
        Simple::NAME => client.simple_lock(&name(kind, fair)).force_unlock().unwrap().holders > 0,
        _ => client.reentrant_lock(&name(kind, fair)).force_unlock().unwrap().holders > 0,
    };
    for (kind, fair) in LOCKS {
        assert!(!tries(&client, kind, fair));
        force(&client, kind, fair);
        assert!(tries(&client, kind, fair));
    }
    // What a busy machine has not given back in the time that closing has would stay for a lease.
    if !released_all(&client.close()) {
        let client = fixture.client();
        for (kind, fair) in LOCKS {
            force(&client, kind, fair);
        }
    }
}

const LOCKS: [(&str, bool); 4] =
    [(Reentrant::NAME, false), (Reentrant::NAME, true), (Simple::NAME, false), (Simple::NAME, true)];

fn name(kind: &str, fair: bool) -> String {
    format!("{kind} {fair}")
}

/// Whether this process gets the lock, which it then keeps.
fn tries(client: &Client, kind: &str, fair: bool) -> bool {
    fn keep<K: Kind>(client: &Client, kind: K, name: &str, fair: bool) -> bool {
        let lock = client.lock_with_kind(name, kind);
        let lock = if fair { lock.fair() } else { lock };
        let got = lock.try_lock_owned().unwrap().map(std::mem::forget);
        got.is_some()
    }
    let name = name(kind, fair);
    match kind {
        Simple::NAME => keep(client, Simple, &name, fair),
        _ => keep(client, Reentrant, &name, fair),
    }
}

fn child<K: Tried>(fixture: &Fixture<K>, role: &str, kind: &str) -> Child {
    let (url, namespace) = (fixture.place.url(), fixture.place.namespace());
    let env = [("URL", url.as_str()), ("NAMESPACE", &namespace), ("KIND", kind)];
    Child::spawn(role, &env).unwrap()
}

fn client(lease: Duration) -> Client {
    let builder = Client::builder().url(&env("URL")).namespace(&env("NAMESPACE")).lease(lease);
    let builder = builder.connect_timeout(LONG).command_timeout(LONG);
    builder.renew_every(EVERY).connect().unwrap()
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_holds() {
    fn hold<K: Tried>(client: &Client) {
        let lock = client.lock_with_kind(crate::conformance::fixture::NAME, K::default());
        let _guard = lock.lock().unwrap();
        tell_parent("held").unwrap();
        // Until it is killed.
        hear_parent().unwrap();
    }
    if !is_role("conformance::processes::role_holds") {
        return;
    }
    match env("KIND").as_str() {
        Simple::NAME => hold::<Simple>(&client(LEASE)),
        _ => hold::<Reentrant>(&client(LEASE)),
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_tries() {
    if !is_role("conformance::processes::role_tries") {
        return;
    }
    let client = client(6 * LONG);
    tell_parent("ready").unwrap();
    hear_parent().unwrap();
    let got = LOCKS.map(|(kind, fair)| tries(&client, kind, fair).to_string());
    tell_parent(&got.join(" ")).unwrap();
}
