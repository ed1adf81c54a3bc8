//! Connections are killed, or lead to another server.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use redis_concurrent::optimistic::Outcome;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Error, ErrorKind};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

use super::{Work, behind_proxy};
use crate::both::both;
use crate::server_days::*;

/// Longer than a connection may rest before something that is sent only once.
fn closed_while_it_rests(proxy: &Proxy) {
    thread::sleep(ms(700));
    proxy.cut_all();
}

#[test]
fn what_is_sent_only_once_is_not_sent_on_a_connection_that_was_closed_while_it_rested() {
    let (_server, proxy) = behind_proxy();
    let client = connected(|| lively(&proxy.url()));
    let limiter = client.rate_limiter("rests", Rate::fixed_window(100, ms(3_600_000)));
    let fenced = client.fenced("rests");
    let script = fenced.script("return redis.call('INCR', KEYS[1])");
    let update = client.optimistic(&["rests"]);
    type Call<'a> = &'a dyn Fn() -> Result<(), Error>;
    let calls: [(&str, Call<'_>); 6] = [
        ("a rate limiter", &|| limiter.acquire(1).map(drop)),
        ("a rate limiter's end", &|| limiter.delete().map(drop)),
        ("a fenced script", &|| script.run::<u64>(1, &["rests:n"], None::<&str>).map(drop)),
        ("an expiry", &|| fenced.expire_after(SURELY).map(drop)),
        ("a fenced end", &|| fenced.delete().map(drop)),
        ("an update", &|| update.run(|_, _| Ok(Outcome::Commit(()))).map(drop)),
    ];
    for (what, call) in calls {
        // Two connections rest.
        update.run(|_, _| call().map(Outcome::Abort)).unwrap();
        closed_while_it_rests(&proxy);
        call().unwrap_or_else(|error| panic!("{what}: {error:#}"));
    }
    // What was watched on the connection is not known to have changed: nothing is written, and that is said.
    let error = update.run(|_, write| {
        write.set("rests", 1);
        closed_while_it_rests(&proxy);
        Ok(Outcome::Commit(()))
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

mod bodies {
    use super::*;

    pub fn killed_connections_cost_a_waiter_nothing<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let mine = connect(&server.url());
        let yours = connected(|| lively(&server.url()).observer(counters.clone()));
        let (held, awaited) = (mine.lock_with_kind("killed", kind), yours.lock_with_kind("killed", kind));
        for what in [ClientKind::Normal, ClientKind::PubSub] {
            let guard = held.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| awaited.lock().unwrap().unlock());
                wait_for_queue(&server, "killed");
                assert!(server.kill_clients(what).unwrap() > 0);
                guard.unlock().unwrap();
                // Should the listener have been away at that moment: a heartbeat later.
                on_time("the waiter", HEARD / 3, || waiting.join().unwrap().unwrap());
            });
        }
        wait_until(SURELY, "the observer is told", || counters.reconnected.load(SeqCst) > 0);
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn connections_killed_all_the_time_cost_only_time<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let clients = [connect(&server.url()), connect(&server.url())];
        let work = Work::default();
        let (done, longest) = (AtomicU64::new(0), AtomicU64::new(0));
        // How often all connections began to be killed, and how often they have been.
        let (begun, over) = (AtomicU64::new(0), AtomicU64::new(0));
        let (kills, start) = (AtomicU64::new(0), Instant::now());
        // A machine that stands still in between needs longer for enough of them.
        let goes_on = || {
            let is_enough = kills.load(SeqCst) > 10 && done.load(SeqCst) > 20;
            start.elapsed() < if is_enough { ms(2500) } else { SURELY }
        };
        thread::scope(|scope| {
            for client in &clients {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let lock = client.lock_with_kind("hunted", kind);
                        while goes_on() {
                            let start = Instant::now();
                            let guard = lock.lock().unwrap();
                            longest.fetch_max(start.elapsed().as_millis() as u64, SeqCst);
                            work.run(guard.token());
                            done.fetch_add(1, SeqCst);
                            let (before, asked) = (over.load(SeqCst), Instant::now());
                            if let Err(error) = guard.unlock() {
                                // It is sent once more, not twice, and the first copy may have gone out on a connection that
                                // was killed before, while it rested. A busy machine may have no answer in time.
                                assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error:#}");
                                let (kills, took) = (begun.load(SeqCst) - before, asked.elapsed());
                                assert!(kills >= 1 || took >= HEARD, "{kills} kills in {took:?}: {error:#}");
                            }
                        }
                    });
                }
            }
            while goes_on() {
                begun.fetch_add(1, SeqCst);
                kills.fetch_add(server.kill_clients(ClientKind::Normal).unwrap(), SeqCst);
                over.fetch_add(1, SeqCst);
                kills.fetch_add(server.kill_clients(ClientKind::PubSub).unwrap(), SeqCst);
                thread::sleep(ms(100));
            }
        });
        let (done, longest, kills) = (done.into_inner(), longest.into_inner(), kills.into_inner());
        eprintln!("{done} holds under {kills} killed connections, the longest wait {longest} ms");
        assert_eq!(work.counter.into_inner(), done);
        assert!(kills > 10 && done > 20, "{kills} connections killed, {done} holds");
        assert!(longest < 15_000, "a wait of {longest} ms");
        nothing_stays(&server, &clients.iter().collect::<Vec<_>>());
    }

    /// A client that never asked which server it has cannot know that it is still the same.
    pub fn an_unlock_is_not_done_by_a_server_that_never_had_the_hold<K: Subject>(kind: K) {
        let other = RedisServer::start().unwrap();
        let (_server, proxy) = behind_proxy();
        let uptime = |server| {
            let info: String = ask(server, &["INFO", "server"]);
            info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")?.trim().parse().ok())
        };
        // Its clock counts whole seconds, and reads them late: it was certainly up before the hold.
        wait_until(SURELY, "the other server has been up for long", || uptime(&other) >= Some(4_u64));
        let client = unhurried(&proxy.url()).lease(ms(600_000)).connect_later().unwrap();
        let lock = client.lock_with_kind("elsewhere", kind);
        let guard = lock.lock().unwrap();
        proxy.set_target(other.port());
        proxy.cut_all();
        let error = guard.unlock().unwrap_err();
        assert!([ErrorKind::OutcomeUnknown, ErrorKind::LeaseLost].contains(&error.kind()), "{error}");
    }

    /// The old primary stays up as a replica, with our connections to it: a renewal must notice
    /// that it talks to the wrong one.
    pub fn a_hold_moves_with_the_primary<K: Subject>(kind: K) {
        let (old, new) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
        configure(&old, "repl-diskless-sync-delay", "0");
        let proxy = Proxy::start(old.port()).unwrap();
        let counters = Counters::default();
        let often = || lively(&proxy.url()).lease(ms(9000)).renew_every(ms(300)).observer(counters.clone());
        let client = connected(often);
        let lock = client.lock_with_kind("moves", kind);
        ask::<()>(&new, &["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        let guard = lock.lock().unwrap();
        let token = guard.token();
        counters.wait_for_renewals(1);
        wait_until(SURELY, "the replica has it", || ask::<u64>(&new, &["EXISTS", &key("moves")]) == 1);
        ask::<()>(&new, &["REPLICAOF", "NO", "ONE"]);
        proxy.set_target(new.port());
        ask::<()>(&old, &["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        // The first of them may have been answered by the old one before.
        counters.wait_for_renewals(3);
        let left: i64 = ask(&new, &["PTTL", &key("moves")]);
        assert!(left > 0 && !guard.is_lost(), "{left} ms left at the new one");
        if let Err(error) = guard.unlock() {
            // The old one has answered that it cannot: the renewal thread asks the new one.
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        assert!(counters.losses().is_empty());
        assert!(another_gets_in(&new, kind, "moves", SURELY) > token);
        drop(lock);
        nothing_stays(&new, &[&client]);
    }
}

both! {
    killed_connections_cost_a_waiter_nothing;
    connections_killed_all_the_time_cost_only_time;
    a_hold_moves_with_the_primary;
    an_unlock_is_not_done_by_a_server_that_never_had_the_hold;
}
