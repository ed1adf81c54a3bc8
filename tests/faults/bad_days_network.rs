//! Bad days of the network: connections are killed, replies are lost, requests come late, peers
//! are half-open, and there are fewer connections than threads. What a caller thinks that it
//! holds is what Redis has, and nothing stays behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind, LossReason};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

use crate::both::both;
use crate::server_days::*;

/// A server, and a proxy in front of it.
fn behind_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    (server, proxy)
}

/// How many scripts the server has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let calls = server.command_calls().unwrap();
    ["evalsha", "eval"].iter().filter_map(|it| calls.get(*it)).sum()
}

/// An owner of this lock is barred.
fn await_tombstone(server: &RedisServer, name: &str) {
    let tombstones = format!("{}:gone", key(name));
    wait_until(SURELY, "a tombstone", || ask::<u64>(server, &["EXISTS", &tombstones]) == 1);
}

/// Lets the requests go that the proxy holds, and waits until the server has run as many.
fn release_late_copies(server: &RedisServer, proxy: &Proxy) {
    let late = proxy.held() as u64;
    assert!(late > 0, "nothing was held");
    let before = scripts_run(server);
    proxy.release_held();
    wait_until(SURELY, "the late copies have run", || scripts_run(server) >= before + late);
}

/// Work under a lock that shows when somebody else is in there too.
#[derive(Default)]
struct Work {
    inside: AtomicBool,
    counter: AtomicU64,
    token: AtomicU64,
}

impl Work {
    fn run(&self, token: u64) {
        assert!(!self.inside.swap(true, SeqCst), "two are inside");
        // Not one step: an increment is lost if another thread does this now.
        let seen = self.counter.load(SeqCst);
        let last = self.token.swap(token, SeqCst);
        assert!(last < token, "the token fell from {last} to {token}");
        thread::yield_now();
        self.counter.store(seen + 1, SeqCst);
        assert!(self.inside.swap(false, SeqCst), "two were inside");
    }
}

mod bodies {
    use super::*;

    // ---- lost replies ----------------------------------------------------------------------

    /// The reply to an acquire is lost: the one that asks again finds itself inside.
    pub fn an_acquire_whose_reply_is_lost_holds_once<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).connect().unwrap();
        let lock = client.lock_with_kind("lost", kind);
        lock.lock().unwrap().unlock().unwrap();
        // Not what a new connection sends first.
        proxy.only_matching(b"rc:{lost}");
        // Closed: it is asked again at once. Open: after the command limit.
        for closed in [true, false] {
            let struck = proxy.struck();
            if closed {
                proxy.swallow_next_reply_and_reset();
            } else {
                proxy.swallow_replies(1);
            }
            let guard = on_time("lock", if closed { ms(0) } else { COMMAND }, || lock.lock()).unwrap();
            assert_eq!(proxy.struck(), struck + 1);
            assert_eq!(lock.hold_count(), 1);
            let other = connect(&server.url()).lock_with_kind("lost", kind);
            assert!(other.try_lock().unwrap().is_none());
            guard.unlock().unwrap();
            assert_eq!(lock.hold_count(), 0);
            on_time("the next owner", ms(0), || another_gets_in(&server, kind, "lost", SURELY));
        }
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// One attempt and a timed wait have no time to ask again: what they may have got is given back.
    pub fn an_acquire_that_ends_without_a_reply_holds_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).client_name("asks").connect().unwrap();
        let lock = client.lock_with_kind("given-back", kind);
        lock.lock().unwrap().unlock().unwrap();
        // What comes in says who it is, client and thread; what goes out does not.
        proxy.only_matching(b" asks\t");
        for wait in [Duration::ZERO, ms(100)] {
            let struck = proxy.struck();
            proxy.swallow_replies(1);
            let limit = if wait.is_zero() { COMMAND } else { wait };
            let outcome = on_time("try_lock_for", limit, || lock.try_lock_for(wait).map(drop));
            error_of(outcome, ErrorKind::Unavailable, "given-back");
            assert_eq!(proxy.struck(), struck + 1);
            assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
            // Not after the lease of 30 seconds.
            another_gets_in(&server, kind, "given-back", SURELY);
        }
        lock.try_lock().unwrap().expect("free").unlock().unwrap();
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn an_unlock_whose_reply_is_lost_has_unlocked<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let ear = Ear::default();
        let client = brisk(&proxy.url()).lease(ms(30_000)).observer(ear.clone()).connect().unwrap();
        let lock = client.lock_with_kind("unlocked", kind);
        let guard = lock.lock().unwrap();
        proxy.only_matching(b"rc:{unlocked}");
        proxy.swallow_next_reply_and_reset();
        // Asked again at once: not inside any more means that the first copy has done its work.
        on_time("unlock", ms(0), || guard.unlock()).unwrap();
        let guard = lock.lock().unwrap();
        proxy.swallow_replies(1);
        let unlocked = on_time("unlock", COMMAND, || guard.unlock());
        error_of(unlocked, ErrorKind::OutcomeUnknown, "unlocked");
        assert_eq!(lock.hold_count(), 0);
        on_time("the next owner", ms(0), || another_gets_in(&server, kind, "unlocked", SURELY));
        assert!(ear.losses().is_empty());
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The request is lost, not the reply: what was not done is done by the copy.
    pub fn a_request_that_is_lost_is_sent_again<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).connect().unwrap();
        let lock = client.lock_with_kind("again", kind);
        proxy.only_matching(b"rc:{again}");
        proxy.reset_before_next_request();
        let guard = on_time("lock", ms(0), || lock.lock()).unwrap();
        proxy.reset_before_next_request();
        guard.renew_for(ms(20_000)).unwrap();
        proxy.reset_before_next_request();
        assert!(lock.is_locked().unwrap());
        proxy.reset_before_next_request();
        on_time("unlock", ms(0), || guard.unlock()).unwrap();
        assert_eq!(proxy.struck(), 4);
        on_time("the next owner", ms(0), || another_gets_in(&server, kind, "again", SURELY));
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn renewals_whose_replies_are_lost_go_on<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let ear = Ear::default();
        let client = brisk(&proxy.url()).lease(ms(1500)).observer(ear.clone()).connect().unwrap();
        let lock = client.lock_with_kind("renewed", kind);
        let guard = lock.lock().unwrap();
        ear.wait_for_renewals(1);
        // The listener's pings go by the same proxy, and are none of this.
        proxy.only_matching(b"rc:{renewed}");
        for closed in [true, false] {
            let struck = proxy.struck();
            if closed {
                proxy.swallow_next_reply_and_reset();
            } else {
                proxy.swallow_replies(1);
            }
            wait_until(SURELY, "a lost reply", || proxy.struck() > struck);
            ear.wait_for_renewals(1);
        }
        assert!(!guard.is_lost());
        proxy.swallow_replies(1);
        let answer = on_time("renew_for", COMMAND, || guard.renew_for(ms(4000)));
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        proxy.heal().unwrap();
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        on_time("the next owner", ms(0), || another_gets_in(&server, kind, "renewed", SURELY));
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The reply is lost to whoever releases and asks for the next local thread in one trip.
    pub fn a_hand_over_whose_reply_is_lost_lets_the_next_one_in<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).local_handoff(Duration::ZERO).connect().unwrap();
        let lock = client.lock_with_kind("next", kind);
        for closed in [true, false] {
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| lock.lock().unwrap().unlock());
                // It stands behind a holder of its own process; its listener is there.
                wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
                wait_until(SURELY, "the listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
                proxy.only_matching(b"rc:{next}");
                if closed {
                    proxy.swallow_next_reply_and_reset();
                } else {
                    proxy.swallow_replies(1);
                }
                let unlocked = on_time("unlock", if closed { ms(0) } else { COMMAND }, || guard.unlock());
                if closed {
                    unlocked.unwrap();
                } else {
                    error_of(unlocked, ErrorKind::OutcomeUnknown, "next");
                }
                on_time("the next thread", ms(1000), || waiting.join().unwrap().unwrap());
            });
            proxy.heal().unwrap();
            another_gets_in(&server, kind, "next", SURELY);
        }
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    // ---- late copies -----------------------------------------------------------------------

    /// Locks nothing, and takes no place.
    #[track_caller]
    fn nothing_came_of_it<K: Subject>(server: &RedisServer, kind: K, name: &str) {
        assert_eq!(ask::<u64>(server, &["EXISTS", &key(name)]), 0, "a late copy holds the lock");
        assert!(!is_queued(server, name), "a late copy stands in the queue");
        on_time("the next owner", ms(0), || another_gets_in(server, kind, name, SURELY));
    }

    pub fn a_late_copy_of_a_timed_out_attempt_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).client_name("asks").connect().unwrap();
        let lock = client.lock_with_kind("late", kind);
        lock.lock().unwrap().unlock().unwrap();
        proxy.only_matching(b" asks\t");
        for wait in [Duration::ZERO, ms(100)] {
            server.flush_all().unwrap();
            proxy.hold_next_requests(1);
            let outcome = on_time("try_lock_for", COMMAND.max(wait), || lock.try_lock_for(wait).map(drop));
            error_of(outcome, ErrorKind::Unavailable, "late");
            await_tombstone(&server, "late");
            release_late_copies(&server, &proxy);
            nothing_came_of_it(&server, kind, "late");
        }
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The connection broke, a copy on a new one was answered, the tenure is over: now the first
    /// copy arrives.
    pub fn a_late_copy_of_an_acquire_that_was_sent_twice_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).connect().unwrap();
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
        let client = brisk(&proxy.url()).lease(ms(30_000)).client_name("asks").connect().unwrap();
        let lock = client.lock_with_kind("refused", kind);
        lock.lock().unwrap().unlock().unwrap();
        // The thread that tries has no name.
        proxy.only_matching(b" asks\r\n");
        thread::scope(|scope| {
            proxy.hold_next_requests(1);
            let trying = scope.spawn(|| lock.try_lock().map(drop));
            wait_until(SURELY, "a held request", || proxy.held() == 1);
            ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &nobodys_port().to_string()]);
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
    pub fn a_late_copy_of_a_place_that_was_asked_for_twice_takes_none<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).waiter_timeout(ms(3000)).connect().unwrap();
        let lock = client.lock_with_kind("place", kind);
        let owner = connect(&server.url());
        let held = owner.lock_with_kind("place", kind);
        let guard = held.lock().unwrap();
        // Its listener is there, and Redis knows the scripts.
        assert!(lock.try_lock_for(ms(100)).unwrap().is_none());
        wait_until(SURELY, "the listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        thread::scope(|scope| {
            proxy.only_matching(b"$4\r\nwait\r\n");
            proxy.hold_next_requests(1);
            let waiting = scope.spawn(|| lock.try_lock_for(ms(1500)).map(|it| it.is_some()));
            wait_until(SURELY, "a held request", || proxy.held() == 1);
            proxy.cut_all();
            assert!(!waiting.join().unwrap().unwrap());
        });
        wait_until(SURELY, "nobody waits", || !is_queued(&server, "place"));
        release_late_copies(&server, &proxy);
        assert!(!is_queued(&server, "place"), "a late copy stands in the queue");
        guard.unlock().unwrap();
        nothing_came_of_it(&server, kind, "place");
        drop((lock, held));
        nothing_stays(&server, &[&client, &owner]);
    }

    /// A late leave that brings an ask for the next thread along.
    pub fn a_late_copy_of_a_hand_over_locks_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).local_handoff(Duration::ZERO).connect().unwrap();
        let lock = client.lock_with_kind("handed", kind);
        // With and without an answer to the second copy.
        for cut in [true, false] {
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| lock.lock().unwrap().unlock());
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
                waiting.join().unwrap().unwrap();
            });
            wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("handed")]) == 0);
            release_late_copies(&server, &proxy);
            nothing_came_of_it(&server, kind, "handed");
            proxy.heal().unwrap();
        }
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    // ---- half-open -------------------------------------------------------------------------

    pub fn a_half_open_connection_is_noticed_and_replaced<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(15_000)).connect().unwrap();
        let (lock, other) = (client.lock_with_kind("half-open", kind), client.lock_with_kind("other", kind));
        let guard = lock.lock().unwrap();
        proxy.black_hole(true);
        let timed = on_time("try_lock_for", ms(300), || other.try_lock_for(ms(300)).map(drop));
        error_of(timed, ErrorKind::Unavailable, "other");
        // The connection was given up, and there is no other: Redis is sure not to have run the release.
        error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::Unavailable, "half-open");
        error_of(on_time("try_lock", COMMAND, || other.try_lock()), ErrorKind::Unavailable, "other");
        error_of(on_time("is_locked", COMMAND, || other.is_locked()), ErrorKind::Unavailable, "other");
        proxy.heal().unwrap();
        // The renewal thread has gone on: not the lease of 15 seconds sets it free.
        another_gets_in(&server, kind, "half-open", SURELY);
        on_time("lock", ms(1000), || other.lock()).unwrap().unlock().unwrap();
        drop((lock, other));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_waiter_with_a_half_open_listener_gets_in_by_its_timer<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let hole = Proxy::start(server.port()).unwrap();
        let ear = Ear::default();
        let client = brisk(&proxy.url()).lease(ms(30_000)).max_connections(1).observer(ear.clone()).connect();
        let client = client.unwrap();
        let owner = connect(&server.url());
        let (held, wanted) = (owner.lock_with_kind("deaf", kind), client.lock_with_kind("deaf", kind));
        let guard = held.lock().unwrap();
        // The pool has its one connection; what is made from now on goes by the other proxy.
        assert!(wanted.try_lock().unwrap().is_none());
        proxy.set_target(hole.port());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wanted.lock().unwrap().unlock());
            wait_for_queue(&server, "deaf");
            assert_eq!(hole.connections(), 1, "the listener's");
            hole.black_hole(true);
            guard.unlock().unwrap();
            // A beat of 300 ms, and whatever the machine takes.
            on_time("the waiter", ms(900), || waiting.join().unwrap().unwrap());
        });
        assert!(hole.struck() > 0, "the grant was heard");
        // Unanswered pings: within two seconds it is replaced.
        hole.heal().unwrap();
        proxy.set_target(server.port());
        wait_until(SURELY, "a new listener", || ear.reconnected.load(SeqCst) > 0 || hole.struck() > 0);
        drop((held, wanted));
        nothing_stays(&server, &[&client, &owner]);
    }

    /// The listener cannot connect, but whoever asks can: a lock that is free is there for it.
    pub fn a_free_lock_is_there_for_a_waiter_without_a_listener<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = brisk(&proxy.url()).lease(ms(30_000)).max_connections(1).connect().unwrap();
        let owner = connect(&server.url());
        let (held, wanted) = (owner.lock_with_kind("no-ear", kind), client.lock_with_kind("no-ear", kind));
        let guard = held.lock().unwrap();
        assert!(wanted.try_lock().unwrap().is_none());
        proxy.set_target(nobodys_port());
        let timed = on_time("try_lock_for", ms(600), || wanted.try_lock_for(ms(600)).map(|it| it.is_some()));
        match timed {
            Ok(got) => assert!(!got),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                on_time("try_lock_for", ms(2000), || wanted.try_lock_for(ms(2000)).map(|it| it.is_some()))
            });
            wait_until(SURELY, "a waiting thread", || wanted.local_queue_length() == 1);
            guard.unlock().unwrap();
            // The lock is free, and the connection that asks for it is fine.
            assert!(waiting.join().unwrap().unwrap(), "the lock is free, and it was not taken");
        });
        drop((held, wanted));
        nothing_stays(&server, &[&client, &owner]);
    }

    // ---- killed connections ----------------------------------------------------------------

    pub fn killed_connections_cost_a_waiter_nothing<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let mine = connect(&server.url());
        let yours = brisk(&server.url()).observer(ear.clone()).connect().unwrap();
        let (held, wanted) = (mine.lock_with_kind("killed", kind), yours.lock_with_kind("killed", kind));
        for what in [ClientKind::Normal, ClientKind::PubSub] {
            let guard = held.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wanted.lock().unwrap().unlock());
                wait_for_queue(&server, "killed");
                assert!(server.kill_clients(what).unwrap() > 0);
                guard.unlock().unwrap();
                // Should the listener have been away at that moment: a beat later.
                on_time("the waiter", ms(900), || waiting.join().unwrap().unwrap());
            });
        }
        wait_until(SURELY, "the observer is told", || ear.reconnected.load(SeqCst) == 1);
        drop((held, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn connections_killed_all_the_time_cost_only_time<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let clients = [connect(&server.url()), connect(&server.url())];
        let work = Work::default();
        let (done, longest) = (AtomicU64::new(0), AtomicU64::new(0));
        let end = Instant::now() + ms(2500);
        let kills = thread::scope(|scope| {
            for client in &clients {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let lock = client.lock_with_kind("hunted", kind);
                        while Instant::now() < end {
                            let start = Instant::now();
                            let guard = lock.lock().unwrap();
                            longest.fetch_max(start.elapsed().as_millis() as u64, SeqCst);
                            work.run(guard.token());
                            done.fetch_add(1, SeqCst);
                            guard.unlock().unwrap();
                        }
                    });
                }
            }
            let killer = scope.spawn(|| {
                let mut kills = 0;
                while Instant::now() < end {
                    kills += server.kill_clients(ClientKind::Normal).unwrap();
                    kills += server.kill_clients(ClientKind::PubSub).unwrap();
                    thread::sleep(ms(100));
                }
                kills
            });
            killer.join().unwrap()
        });
        let (done, longest) = (done.into_inner(), longest.into_inner());
        eprintln!("{done} holds under {kills} killed connections, the longest wait {longest} ms");
        assert_eq!(work.counter.into_inner(), done);
        assert!(kills > 10 && done > 20, "{kills} connections killed, {done} holds");
        assert!(longest < 2000, "a wait of {longest} ms");
        nothing_stays(&server, &clients.iter().collect::<Vec<_>>());
    }

    // ---- failover --------------------------------------------------------------------------

    /// The old primary stays up as a replica, with our connections to it: a renewal must notice
    /// that it talks to the wrong one.
    pub fn a_hold_moves_with_the_primary<K: Subject>(kind: K) {
        let (old, new) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
        configure(&old, "repl-diskless-sync-delay", "0");
        let proxy = Proxy::start(old.port()).unwrap();
        let ear = Ear::default();
        let client = brisk(&proxy.url()).lease(ms(1500)).observer(ear.clone()).connect().unwrap();
        let lock = client.lock_with_kind("moves", kind);
        ask::<()>(&new, &["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        let guard = lock.lock().unwrap();
        let token = guard.token();
        ear.wait_for_renewals(1);
        wait_until(SURELY, "the replica has it", || ask::<u64>(&new, &["EXISTS", &key("moves")]) == 1);
        ask::<()>(&new, &["REPLICAOF", "NO", "ONE"]);
        proxy.set_target(new.port());
        ask::<()>(&old, &["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        let moved = Instant::now();
        wait_until(SURELY, "two leases", || moved.elapsed() > ms(3000) || guard.is_lost());
        assert!(!guard.is_lost(), "lost after {:?}", moved.elapsed());
        if let Err(error) = guard.unlock() {
            // The old one has answered that it cannot: the renewal thread asks the new one.
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        assert!(ear.losses().is_empty());
        assert!(another_gets_in(&new, kind, "moves", SURELY) > token);
        drop(lock);
        nothing_stays(&new, &[&client]);
    }

    // ---- few connections -------------------------------------------------------------------

    pub fn fifty_waiters_on_one_lock_share_one_connection<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = brisk(&server.url()).max_connections(1).connect().unwrap();
        let rival = connect(&server.url());
        let (lock, other) = (client.lock_with_kind("fifty", kind), rival.lock_with_kind("fifty", kind));
        let work = Work::default();
        let guard = other.lock().unwrap();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let guard = lock.try_lock_for(SURELY).unwrap().expect("in time");
                    work.run(guard.token());
                    guard.unlock().unwrap();
                });
            }
            wait_until(SURELY, "fifty waiting threads", || lock.local_queue_length() == 50);
            wait_for_queue(&server, "fifty");
            // Asking does not wait for those who wait.
            assert!(on_time("is_locked", ms(0), || lock.is_locked()).unwrap());
            guard.unlock().unwrap();
        });
        assert_eq!(work.counter.into_inner(), 50);
        drop((lock, other));
        nothing_stays(&server, &[&client, &rival]);
    }

    pub fn fifty_waiters_on_fifty_locks_share_one_connection<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = brisk(&server.url()).max_connections(1).connect().unwrap();
        let rival = connect(&server.url());
        let name = |n: usize| format!("fifty-{n}");
        let others: Vec<_> = (0..50).map(|n| rival.lock_with_kind(&name(n), kind)).collect();
        let guards: Vec<_> = others.iter().map(|it| it.lock().unwrap()).collect();
        thread::scope(|scope| {
            for n in 0..50 {
                let lock = client.lock_with_kind(&name(n), kind);
                scope.spawn(move || {
                    // Half of them give up, by their deadline.
                    if n % 2 == 0 {
                        lock.lock().unwrap().unlock().unwrap();
                    } else {
                        let timed = on_time("try_lock_for", ms(900), || {
                            lock.try_lock_for(ms(900)).map(|it| it.is_some())
                        });
                        assert!(!timed.unwrap());
                    }
                });
            }
            for n in (0..50).step_by(2) {
                wait_for_queue(&server, &name(n));
            }
            for (n, guard) in guards.into_iter().enumerate() {
                if n % 2 == 0 {
                    guard.unlock().unwrap();
                } else {
                    // Held on, so that the others' time is up first.
                    std::mem::forget(guard);
                }
            }
        });
        rival.close().unwrap();
        drop(others);
        nothing_stays(&server, &[&client]);
    }
}

both! {
    an_acquire_whose_reply_is_lost_holds_once;
    an_acquire_that_ends_without_a_reply_holds_nothing;
    an_unlock_whose_reply_is_lost_has_unlocked;
    a_request_that_is_lost_is_sent_again;
    renewals_whose_replies_are_lost_go_on;
    a_hand_over_whose_reply_is_lost_lets_the_next_one_in;
    a_late_copy_of_a_timed_out_attempt_locks_nothing;
    a_late_copy_of_an_acquire_that_was_sent_twice_locks_nothing;
    a_late_copy_behind_a_refusal_locks_nothing;
    a_late_copy_of_a_place_that_was_asked_for_twice_takes_none;
    a_late_copy_of_a_hand_over_locks_nothing;
    a_half_open_connection_is_noticed_and_replaced;
    a_waiter_with_a_half_open_listener_gets_in_by_its_timer;
    a_free_lock_is_there_for_a_waiter_without_a_listener;
    killed_connections_cost_a_waiter_nothing;
    connections_killed_all_the_time_cost_only_time;
    a_hold_moves_with_the_primary;
    fifty_waiters_on_one_lock_share_one_connection;
    fifty_waiters_on_fifty_locks_share_one_connection;
}

/// A silence of the network that outlasts the lease is told while it lasts.
#[test]
fn a_hold_that_the_network_lets_lapse_is_lost_while_it_is_silent() {
    let (server, proxy) = behind_proxy();
    let ear = Ear::default();
    let client = brisk(&proxy.url()).lease(SHORT_LEASE).observer(ear.clone()).connect().unwrap();
    let lock = client.reentrant_lock("silent");
    let guard = lock.lock().unwrap();
    ear.wait_for_renewals(1);
    let lost = guard.lost();
    proxy.black_hole(true);
    on_time("lost()", SHORT_LEASE, || assert!(lost.wait_timeout(SURELY)));
    // The observer hears it after the token.
    wait_until(SURELY, "the loss is told", || ear.losses() == [LossReason::Expired]);
    proxy.heal().unwrap();
    // It goes on as if nothing had been, once the guard is gone.
    error_of(lock.lock(), ErrorKind::LeaseLost, "silent");
    error_of(guard.unlock(), ErrorKind::LeaseLost, "silent");
    lock.lock().unwrap().unlock().unwrap();
    drop(lock);
    nothing_stays(&server, &[&client]);
}

/// A port that nobody listens on: one that a server just had.
fn nobodys_port() -> u16 {
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    server.port()
}

/// Clients are made and closed while the network is gone: no thread is left waiting for it.
#[test]
fn a_client_closes_in_time_while_the_network_is_silent() {
    let (server, proxy) = behind_proxy();
    let client: Client = brisk(&proxy.url()).lease(ms(1500)).connect().unwrap();
    let (held, wanted) = (client.reentrant_lock("held"), client.reentrant_lock("wanted"));
    let guard = held.lock().unwrap();
    let owner = connect(&server.url());
    let other = owner.reentrant_lock("wanted");
    let others = other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wanted.lock().map(drop));
        wait_for_queue(&server, "wanted");
        proxy.black_hole(true);
        let closed = on_time("close", ms(1000), || client.close());
        error_of(closed, ErrorKind::OutcomeUnknown, "");
        error_of(on_time("the waiter", ms(0), || waiting.join().unwrap()), ErrorKind::Closed, "wanted");
    });
    error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::Closed, "held");
    proxy.heal().unwrap();
    // What could not be given back ends with its lease, and the place with its window.
    another_gets_in(&server, redis_concurrent::Reentrant, "held", SURELY);
    others.unlock().unwrap();
    another_gets_in(&server, redis_concurrent::Reentrant, "wanted", SURELY);
    drop((held, wanted, other));
    nothing_stays(&server, &[&client, &owner]);
}
