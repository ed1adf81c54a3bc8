//! Each side wakes up the other's waiters, and lets them have their turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis::Commands;
use redis_concurrent::interop::RedissonLock;
use redis_concurrent_testkit::wait_until;

use crate::redisson::fixture::{CHANNEL, Fixture, Java, KEY, LEASE, TOMBSTONES};
use crate::server_days::connected;
use crate::support::{LONG, SetOnDrop, builder, comes_in, connect, in_brief, ms};

fn its_release_wakes_up(fixture: &Fixture, java: &mut Java, lock: &RedissonLock) {
    assert_eq!(java.takes(LEASE), Ok(()));
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(lock));
        fixture.await_queued(1);
        assert_eq!(java.frees(), Some(true));
        waits.join().unwrap();
    });
}

/// By itself the waiter would ask in 40 s.
#[test]
fn a_release_by_redisson_wakes_up_a_waiter() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.patient(), fixture.java(1));
    for _ in 0..10 {
        its_release_wakes_up(&fixture, &mut java, &lock);
    }
}

/// To Redis the number of its owner has a mark. (With a short `linger` the lease is short, and so are heartbeats.)
#[test]
fn so_it_does_one_whose_hold_will_linger() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.patient().linger(ms(60_000)), fixture.java(1));
    its_release_wakes_up(&fixture, &mut java, &lock);
}

#[test]
fn those_that_wait_for_redisson_come_in_by_arrival() {
    let fixture = Fixture::new();
    let locks = [(); 4].map(|()| fixture.patient());
    let mut java = fixture.java(1);
    assert_eq!(java.takes(LEASE), Ok(()));
    let came = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let came = &came;
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                came.lock().push((i, guard.token()));
                guard.unlock().unwrap();
            });
            fixture.await_queued(i + 1);
        }
        // A client with only the first of its two subscriptions would be taken for one of Redisson's.
        let second = format!("rc:inbox:{CHANNEL}");
        let known = || fixture.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", &second]).1;
        wait_until(LONG, "all are known as ours", || known() == locks.len());
        assert_eq!(java.frees(), Some(true));
    });
    let came = came.into_inner();
    assert_eq!(came.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(came.is_sorted_by_key(|(_, token)| *token), "{came:?}");
    let turn: Option<f64> = fixture.ask(&["ZSCORE", TOMBSTONES, "turn"]);
    assert_eq!(turn, None, "only clients of ours listened");
}

#[test]
fn only_a_client_with_a_waiter_behind_redisson_listens() {
    let fixture = Fixture::new();
    let client = connected(|| builder(&fixture.server.url()).waiter_timeout(ms(1500)));
    let (lock, other, mut java) = (client.redisson_lock(KEY), fixture.lock(), fixture.java(1));
    // Nobody in the way, and behind one of ours.
    let guard = other.lock().unwrap();
    assert!(in_brief(lock.try_lock_for(ms(300))).is_none());
    guard.unlock().unwrap();
    assert_eq!(fixture.listeners(), 0);
    // A single attempt does not wait.
    assert_eq!(java.takes(LEASE), Ok(()));
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(fixture.listeners(), 0);
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        fixture.await_listeners(1);
        assert_eq!(java.frees(), Some(true));
        waits.join().unwrap();
    });
    // For a waiter timeout longer.
    fixture.await_listeners(0);
}

#[test]
fn a_client_listens_again_after_its_connection_broke() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.patient(), fixture.java(1));
    assert_eq!(java.takes(LEASE), Ok(()));
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        fixture.await_listeners(1);
        let () = fixture.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        fixture.await_listeners(1);
        assert_eq!(java.frees(), Some(true));
        waits.join().unwrap();
    });
}

/// As by a release of which the message is lost.
#[test]
fn a_lost_notice_is_found_out_at_a_heartbeat() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    assert_eq!(fixture.java(1).takes(LEASE), Ok(()));
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        fixture.await_listeners(1);
        let () = fixture.ask(&["DEL", KEY]);
        waits.join().unwrap();
    });
}

#[test]
fn a_release_of_ours_is_announced_as_redisson_announces_it() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let mut connection = fixture.server.connection().unwrap();
    let mut pubsub = connection.as_pubsub();
    pubsub.subscribe(CHANNEL).unwrap();
    pubsub.set_read_timeout(Some(LONG)).unwrap();
    for _ in 0..3 {
        lock.lock().unwrap().unlock().unwrap();
        assert_eq!(pubsub.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    }
}

/// Among ours the release itself admits the next waiter, so that Redisson would never find the lock free.
#[test]
fn redisson_has_its_turn_between_holders_that_never_rest() {
    let fixture = Fixture::new();
    let done = AtomicBool::new(false);
    let over = || done.load(Ordering::SeqCst);
    thread::scope(|scope| {
        for lock in [(); 4].map(|()| fixture.lock()) {
            scope.spawn(move || {
                while !over() {
                    let guard = lock.lock().unwrap();
                    // The others come to wait meanwhile.
                    thread::sleep(ms(2));
                    guard.unlock().unwrap();
                }
            });
        }
        // Also where this fails.
        let _ends = SetOnDrop(&done);
        let mut java = fixture.java(1);
        let mut connection = fixture.server.connection().unwrap();
        let mut pubsub = connection.as_pubsub();
        pubsub.subscribe(CHANNEL).unwrap();
        pubsub.set_read_timeout(Some(LONG)).unwrap();
        let mut turns = 0;
        wait_until(LONG, "Redisson had it five times", || {
            pubsub.get_message().unwrap();
            if java.takes(LEASE).is_ok() {
                turns += 1;
                assert_eq!(java.frees(), Some(true));
            }
            turns == 5
        });
    });
}

/// Without the right to Redisson's channels nobody is woken up, and everybody comes in.
#[test]
fn rights_to_the_channel_are_needed_to_be_quick_and_not_to_be_right() {
    let fixture = Fixture::new();
    let mut admin = fixture.server.connection().unwrap();
    for (user, channels) in
        [("quick", &["&rc:inbox:*", "&redisson_lock__channel:*"][..]), ("slow", &["&rc:inbox:*"])]
    {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg(user).arg("on").arg(">secret").arg("~*").arg("resetchannels").arg(channels);
        set.arg("+@all").exec(&mut admin).unwrap();
        let url = format!("redis://{user}:secret@127.0.0.1:{}/", fixture.server.port());
        let lock = connected(|| builder(&url)).redisson_lock(KEY);
        let mut java = fixture.java(1);
        assert_eq!(java.takes(LEASE), Ok(()));
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&lock));
            fixture.await_queued(1);
            if user == "quick" {
                fixture.await_listeners(1);
            }
            assert_eq!(java.frees(), Some(true));
            waits.join().unwrap();
        });
        lock.lock().unwrap().unlock().unwrap();
    }
    let still: bool = connect(&fixture.server).redisson_lock(KEY).is_locked().unwrap();
    assert!(!still && !admin.exists::<_, bool>(KEY).unwrap());
}
