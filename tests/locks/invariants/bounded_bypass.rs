//! 12. *bounded-bypass*: a process that waits in Redis gets in after at most one local hand-off period and
//!     one critical section of each process ahead of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent_testkit::*;

use crate::support::*;

/// A hold: whose, its token, from when (µs).
type Log = Mutex<Vec<(usize, u64, u64)>>;

fn positions(server: &RedisServer) -> usize {
    redis::cmd("ZCARD").arg("rc:{x}:queue").query(&mut server.connection().unwrap()).unwrap()
}

/// Three clients queue in a known order behind a holder, each with threads that never stop
/// coming. Returns the clients that held after its release, in the order of tokens, up to the last client's
/// first turn.
fn until_the_last_gets_in(fair: bool, local_handoff: Duration, work: Duration) -> Vec<(usize, u64, u64)> {
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let held = holder.lock().unwrap();
    let log = Log::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for process in 0..3 {
            let client = connected(|| unhurried(&server.url()).local_handoff(local_handoff));
            let lock = client.reentrant_lock("x");
            let lock = if fair { lock.fair() } else { lock };
            for _ in 0..2 {
                let (lock, log, stop) = (lock.clone(), &log, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        let since = clock();
                        log.lock().push((process, guard.token(), since));
                        thread::sleep(work);
                        guard.unlock().unwrap();
                    }
                });
            }
            wait_until(SOON, "both wait", || lock.local_queue_length() == 2);
            // The queue position is taken before the next process comes.
            wait_until(SOON, "its queue position is taken", || positions(&server) == process + 1);
        }
        held.unlock().unwrap();
        wait_until(LONG, "the last gets in", || log.lock().iter().any(|(p, ..)| *p == 2));
    });
    let mut log = log.into_inner();
    log.sort_by_key(|(_, token, _)| *token);
    let last = log.iter().position(|(p, ..)| *p == 2).unwrap();
    log.truncate(last + 1);
    log
}

#[test]
fn bounded_bypass_of_a_fair_waiter() {
    for _ in 0..5 {
        let log = until_the_last_gets_in(true, ms(1), ms(1));
        let order: Vec<usize> = log.iter().map(|(p, ..)| *p).collect();
        assert_eq!(order, [0, 1, 2], "one turn of each ahead, in order of arrival");
    }
}

#[test]
fn bounded_bypass_with_a_slice() {
    let (local_handoff, work) = (ms(5), Duration::from_micros(200));
    for _ in 0..5 {
        let log = until_the_last_gets_in(false, local_handoff, work);
        for ahead in [0, 1] {
            let mine: Vec<_> = log.iter().filter(|(p, ..)| *p == ahead).collect();
            let (first, last) = (mine[0], mine[mine.len() - 1]);
            assert_eq!(first.1 >> 12, last.1 >> 12, "{ahead} had more than one grant: {log:?}");
            // The last hand-off fell into the hand-off period; it began at the latest with the first hold.
            let span = Duration::from_micros(last.2 - first.2);
            assert!(span < local_handoff + SOON, "{ahead} went on for {span:?}");
            let most = local_handoff.as_micros() / work.as_micros() + 2;
            assert!(mine.len() as u128 <= most, "{} turns, at most {most} fit in", mine.len());
        }
        let order: Vec<usize> = log.iter().map(|(p, ..)| *p).collect();
        assert!(order.is_sorted(), "in order of arrival: {order:?}");
    }
}
