//! Of what stays behind of a name.

use redis_concurrent::internals::lock_count;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::*;

use crate::pains::LOAD;
use crate::pains::memory::resident;
use crate::support::*;

const NAMES: usize = 25_000;
const HOLDS: &str = "pains::names::role_holds_five";
/// Of the permits: renewed so often that a machine that stands still for a while does not end it.
const LEASE: Duration = ms(4000);

/// A registry that grows with every name, and keys that stay for ever.
#[test]
fn pain_30_names_leave_nothing() {
    const TEST: &str = "pains::names::pain_30_names_leave_nothing";
    // The memory that is looked at must be nobody else's.
    if !is_role(TEST) {
        // One heap for all threads: what each of them would have of its own says nothing about names.
        let mut child = Child::spawn(TEST, &[("MALLOC_ARENA_MAX", "1")]).unwrap();
        println!("{}", child.read_line_within(ms(300_000)).unwrap());
        let status = child.wait_within(LONG).unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (mut run_up, began) = (0, Instant::now());
    for i in 0..NAMES {
        let name = format!("name {i}");
        match i % 4 {
            0 => drop(client.simple_lock(&name).lock().unwrap()),
            // Given up by a thread that waits, in a queue of its own.
            1 if i % 1000 == 1 => {
                let held = client.reentrant_lock(&name).lock_owned().unwrap();
                // Or by one that had no answer in that time.
                let waited = other.reentrant_lock(&name).try_lock_for(ms(100)).map(|it| it.is_some());
                assert!(waited.as_ref().is_ok_and(|got| !got) || waited.is_err_and(|e| e.is_unavailable()));
                assert_eq!(lock_count(&client), 1);
                held.unlock().unwrap();
            }
            // Only looked at.
            2 => assert!(!client.reentrant_lock(&name).is_held_by_current_thread()),
            _ => drop(client.reentrant_lock(&name).lock().unwrap()),
        }
        // What gives something back in the background has its entry for a moment.
        if i % 100 != 0 {
            continue;
        }
        wait_until(SOON, "no entry is left", || lock_count(&client) + lock_count(&other) == 0);
        if i == NAMES / 10 {
            run_up = resident().unwrap();
        }
    }
    let grown = resident().unwrap().saturating_sub(run_up);
    let took = began.elapsed();
    tell_parent(&format!("{NAMES} names in {took:?}, {grown} bytes more from the first tenth on")).unwrap();
    // A pointer a name would be 175 KiB.
    assert!(grown < 128 * 1024, "{grown} bytes more");
    let keys = server.keys().unwrap();
    assert!(keys.len() > NAMES / 2, "{} keys", keys.len());
    let (mut connection, mut ends) = (server.connection().unwrap(), redis::pipe());
    for key in &keys {
        assert!(key.ends_with(":fence") || key.ends_with(":tombstones"), "{key} is left");
        ends.pttl(key);
    }
    let left: Vec<i64> = ends.query(&mut connection).unwrap();
    assert!(left.iter().all(|ms| (1..=2 * 3600 * 1000).contains(ms)), "a key without an end, or a late one");
}

/// Permits of a killed process never come back, or somebody else's renewals keep them.
#[test]
fn pain_30_permits_of_a_dead_process_come_back() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).lease(LEASE).renew_every(ms(300)));
    let semaphore = client.semaphore("x");
    semaphore.set_permits(10).unwrap();
    let three = semaphore.acquire(3).unwrap();
    let mut child = Child::spawn(HOLDS, &[("URL", &server.url())]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "has five");
    assert_eq!(semaphore.available().unwrap(), 2);
    child.kill9().unwrap();
    let died = Instant::now();
    wait_until(LONG, "its five are back", || semaphore.available().unwrap() == 7);
    assert!(died.elapsed() < LEASE + 2 * LOAD, "{:?}", died.elapsed());
    assert!(!three.is_lost(), "the others are renewed");
    three.release().unwrap();
    assert_eq!((semaphore.available().unwrap(), semaphore.holders().unwrap()), (10, vec![]));
    // What is left is the number of permits, and what ends by itself.
    let mut fields: Vec<String> =
        redis::cmd("HKEYS").arg("rc:{x}").query(&mut server.connection().unwrap()).unwrap();
    fields.sort();
    assert_eq!(fields, ["kind", "permits", "used"]);
    assert!(semaphore.delete().unwrap());
    nothing_left(&server);
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_holds_five() {
    if !is_role(HOLDS) {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(LEASE).renew_every(ms(300)));
    let permits = [2, 3].map(|n| client.semaphore("x").acquire(n).unwrap());
    tell_parent("has five").unwrap();
    hear_parent().unwrap();
    drop(permits);
}
