//! A copy of a request arrives after its sender has given it up.

use std::thread;
use std::time::Duration;

use redis_concurrent::{CancellationToken, ErrorKind};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

use super::behind_proxy;
use crate::both::both;
use crate::server_days::*;
use crate::support::{NOBODYS_PORT, in_brief};

mod bodies {
    use super::*;

    /// Locks nothing, and takes no queue position.
    #[track_caller]
    fn nothing_came_of_it<K: Subject>(server: &RedisServer, kind: K, name: &str) {
        assert_eq!(ask::<u64>(server, &["EXISTS", &key(name)]), 0, "a late copy holds the lock");
        assert!(!is_queued(server, name), "a late copy stands in the queue");
        on_time("the next owner", ms(0), || another_gets_in(server, kind, name, SURELY));
    }

    pub fn a_late_copy_of_a_timed_out_attempt_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| brisk(&proxy.url()).lease(ms(30_000)).client_name("asks"));
        let lock = client.lock_with_kind("late", kind);
        gives_back(lock.lock().unwrap());
        proxy.only_matching(b" asks\t");
        for wait in [Duration::ZERO, ms(100)] {
            server.flush_all().unwrap();
            let limit = if wait.is_zero() { COMMAND } else { wait };
            let outcome = until_it_happens(
                || proxy.held() > 0,
                || {
                    proxy.hold_next_requests(1);
                    on_time("try_lock_for", limit, || lock.try_lock_for(wait).map(drop))
                },
            );
            error_of(outcome, ErrorKind::Unavailable, "late");
            await_tombstone(&server, "late");
            release_late_copies(&server, &proxy);
            nothing_came_of_it(&server, kind, "late");
        }
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The connection broke, a copy on a new one was answered, the grant is over: now the first
    /// copy arrives.
    pub fn a_late_copy_of_an_acquire_that_was_sent_twice_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| lively(&proxy.url()).lease(ms(30_000)));
        let lock = client.lock_with_kind("twice", kind);
        lock.lock().unwrap().unlock().unwrap();
        proxy.only_matching(b"rc:{twice}");
        thread::scope(|scope| {
            proxy.hold_next_requests(1);
            let holding = scope.spawn(|| lock.lock().unwrap().unlock());
            wait_until(SURELY, "a held request", || proxy.held() == 1);
            proxy.cut_all();
            holding.join().unwrap().unwrap();
        });
        assert_eq!(ask::<u64>(&server, &["EXISTS", &key("twice")]), 0);
        release_late_copies(&server, &proxy);
        nothing_came_of_it(&server, kind, "twice");
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The second copy was refused, so that nothing came of it; the first one is on its way yet.
    pub fn a_late_copy_behind_a_refusal_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| unhurried(&proxy.url()).lease(ms(30_000)).client_name("asks"));
        let primary = NOBODYS_PORT.to_string();
        let lock = client.lock_with_kind("refused", kind);
        lock.lock().unwrap().unlock().unwrap();
        // The thread that tries has no name.
        proxy.only_matching(b" asks\r\n");
        thread::scope(|scope| {
            proxy.hold_next_requests(1);
            let trying = scope.spawn(|| lock.try_lock().map(drop));
            wait_until(SURELY, "a held request", || proxy.held() == 1);
            ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &primary]);
            proxy.cut_all();
            error_of(trying.join().unwrap(), ErrorKind::Unavailable, "refused");
        });
        ask::<()>(&server, &["REPLICAOF", "NO", "ONE"]);
        await_tombstone(&server, "refused");
        release_late_copies(&server, &proxy);
        nothing_came_of_it(&server, kind, "refused");
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The same of one that waited in the queue, and gave up.
    pub fn a_late_copy_of_a_position_that_was_asked_for_twice_takes_none<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| lively(&proxy.url()).lease(ms(30_000)));
        let lock = client.lock_with_kind("position", kind);
        let owner = connect(&server.url());
        let held = owner.lock_with_kind("position", kind);
        let guard = held.lock().unwrap();
        // Its listener is there, and Redis knows the scripts.
        assert!(in_brief(lock.try_lock_for(ms(100))).is_none());
        wait_until(SURELY, "the listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        wait_until(SURELY, "nobody waits", || !is_queued(&server, "position"));
        let given_up = CancellationToken::new();
        thread::scope(|scope| {
            proxy.only_matching(b"$4\r\nwait\r\n");
            proxy.hold_next_requests(1);
            let waiting = scope.spawn(|| lock.lock_interruptibly(&given_up).map(drop));
            wait_until(SURELY, "a held request", || proxy.held() == 1);
            proxy.cut_all();
            wait_for_queue(&server, "position");
            given_up.cancel();
            error_of(waiting.join().unwrap(), ErrorKind::Cancelled, "position");
        });
        wait_until(SURELY, "nobody waits", || !is_queued(&server, "position"));
        release_late_copies(&server, &proxy);
        assert!(!is_queued(&server, "position"), "a late copy stands in the queue");
        guard.unlock().unwrap();
        nothing_came_of_it(&server, kind, "position");
        drop((lock, held));
        nothing_stays(&server, &[&client, &owner]);
    }

    /// A late leave that brings an ask for the next thread along.
    pub fn a_late_copy_of_a_hand_over_locks_nothing<K: Subject>(kind: K) {
        // With and without an answer to the second copy.
        for cut in [true, false] {
            let (server, proxy) = behind_proxy();
            let set = if cut { lively } else { brisk };
            let client = connected(|| set(&proxy.url()).lease(ms(30_000)).local_handoff(Duration::ZERO));
            let lock = client.lock_with_kind("handed", kind);
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| takes_a_turn(&lock));
                wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
                wait_until(SURELY, "the listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
                // What the renewal thread and the listener send is not what is meant here.
                proxy.only_matching(b"rc:{handed}");
                proxy.hold_next_requests(1);
                let cutting = scope.spawn(|| {
                    wait_until(SURELY, "a held request", || proxy.held() == 1);
                    if cut {
                        proxy.cut_all();
                    }
                });
                let unlocked = on_time("unlock", COMMAND, || guard.unlock());
                if !cut {
                    error_of(unlocked, ErrorKind::OutcomeUnknown, "handed");
                } else {
                    unlocked.unwrap();
                }
                cutting.join().unwrap();
                waiting.join().unwrap();
            });
            wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("handed")]) == 0);
            release_late_copies(&server, &proxy);
            nothing_came_of_it(&server, kind, "handed");
            proxy.heal().unwrap();
            drop(lock);
            nothing_stays(&server, &[&client]);
        }
    }
}

both! {
    a_late_copy_of_a_timed_out_attempt_locks_nothing;
    a_late_copy_of_an_acquire_that_was_sent_twice_locks_nothing;
    a_late_copy_behind_a_refusal_locks_nothing;
    a_late_copy_of_a_position_that_was_asked_for_twice_takes_none;
    a_late_copy_of_a_hand_over_locks_nothing;
}

/// How many scripts the server has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let calls = server.command_calls().unwrap();
    ["evalsha", "eval"].iter().filter_map(|it| calls.get(*it)).sum()
}

/// An owner of this lock has a tombstone.
fn await_tombstone(server: &RedisServer, name: &str) {
    let tombstones = format!("{}:tombstones", key(name));
    wait_until(SURELY, "a tombstone", || ask::<u64>(server, &["EXISTS", &tombstones]) == 1);
}

/// Lets the requests go that the proxy holds, and waits until the server has run as many.
fn release_late_copies(server: &RedisServer, proxy: &Proxy) {
    let late = proxy.held() as u64;
    assert!(late > 0, "nothing was held");
    let before = scripts_run(server);
    proxy.release_held();
    wait_until(SURELY, "the late copies have run", || scripts_run(server) >= before + late);
    wait_until(SURELY, "none is held", || proxy.held() == 0);
}
