//! Fewer connections than threads.

use std::thread;

use redis_concurrent_testkit::{RedisServer, released_all, wait_until};

use super::Work;
use crate::both::both;
use crate::server_days::*;
use crate::support::in_brief;

mod bodies {
    use super::*;

    pub fn fifty_waiters_on_one_lock_share_one_connection<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| lively(&server.url()).max_connections(1));
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
            // A question does not wait behind the waiters.
            assert!(on_time("is_locked", ms(0), || lock.is_locked()).unwrap());
            guard.unlock().unwrap();
        });
        assert_eq!(work.counter.into_inner(), 50);
        drop((lock, other));
        nothing_stays(&server, &[&client, &rival]);
    }

    pub fn fifty_waiters_on_fifty_locks_share_one_connection<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| lively(&server.url()).max_connections(1));
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
                            in_brief(lock.try_lock_for(ms(900)).map(|it| it.map(drop)))
                        });
                        assert!(timed.is_none());
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
        // What it has no time to give back ends with its lease.
        released_all(&rival.close());
        drop(others);
        nothing_stays(&server, &[&client]);
    }
}

both! {
    fifty_waiters_on_one_lock_share_one_connection;
    fifty_waiters_on_fifty_locks_share_one_connection;
}
