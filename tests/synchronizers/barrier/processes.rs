//! Parties that are killed.

use std::thread;
use std::time::Instant;

use redis_concurrent_testkit::{Child, hear_parent, is_role, tell_parent};

use super::{SILENT, breaks, is_broken, short};
use crate::names::{LONG, await_positions, client, server};

const URL: &str = "BARRIER_URL";
const NAME: &str = "BARRIER_NAME";

/// Arrives as one of three, and if it is the last stays in its action.
#[test]
#[ignore = "a role, played by a child process"]
fn role_member() {
    if !is_role("barrier::processes::role_member") {
        return;
    }
    let client = short(&std::env::var(URL).unwrap());
    let barrier = client.cyclic_barrier(&std::env::var(NAME).unwrap(), 3);
    let _ = barrier.wait_then(|| {
        tell_parent("acts").unwrap();
        let _ = hear_parent();
    });
}

fn member(name: &str) -> Child {
    Child::spawn("barrier::processes::role_member", &[(URL, &server().url()), (NAME, name)]).unwrap()
}

#[test]
fn a_party_killed_in_its_action_breaks_it() {
    // Its lease is as long as its waiter timeout.
    breaks("killed-acting", SILENT, |_| {
        let mut child = member("killed-acting");
        assert_eq!(child.read_line_within(LONG).unwrap(), "acts");
        child.kill9().unwrap();
    });
}

#[test]
fn a_party_killed_while_it_waits_breaks_it_wherever_it_waits() {
    thread::scope(|scope| {
        for dead in 0..2 {
            scope.spawn(move || a_party_killed_in_this_place_breaks_it(dead));
        }
    });
}

#[track_caller]
fn a_party_killed_in_this_place_breaks_it(dead: usize) {
    let name = format!("killed-{dead}");
    let barrier = client().cyclic_barrier(&name, 3);
    thread::scope(|scope| {
        let mut child = None;
        let mut waiter = None;
        for place in 0..2 {
            if place == dead {
                child = Some(member(&name));
            } else {
                waiter = Some(scope.spawn(|| barrier.wait_with(6 * LONG)));
            }
            await_positions(&name, place + 1);
        }
        child.unwrap().kill9().unwrap();
        let began = Instant::now();
        is_broken(waiter.unwrap().join().unwrap());
        // Its waiter timeout, and a heartbeat of the other, which has three in as much time as its requests have.
        assert!(began.elapsed() < SILENT + LONG, "{:?}", began.elapsed());
    });
    assert!(barrier.is_broken().unwrap());
    barrier.reset().unwrap();
}
