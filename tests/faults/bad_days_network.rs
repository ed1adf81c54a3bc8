//! Bad days of the network: connections are killed, replies are lost, requests come late, peers
//! are half-open, and there are fewer connections than threads. What a caller thinks that it
//! holds is what Redis has, and nothing stays behind.

mod few;
mod half_open;
mod killed;
mod late_copies;
mod lost_replies;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use redis_concurrent::observe::LossReason;
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::server_days::*;

/// A server, and a proxy in front of it.
fn behind_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    (server, proxy)
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

/// A silence of the network that outlasts the lease is told while it lasts.
#[test]
fn a_hold_that_the_network_lets_lapse_is_lost_while_it_is_silent() {
    let (server, proxy) = behind_proxy();
    let counters = Counters::default();
    // It is renewed while the machine stands still for a while.
    let lease = ms(4000);
    let client =
        connected(|| brisk(&proxy.url()).lease(lease).renew_every(ms(300)).observer(counters.clone()));
    let lock = client.reentrant_lock("silent");
    let guard = lock.lock().unwrap();
    counters.wait_for_renewals(1);
    let lost = guard.lost();
    proxy.black_hole(true);
    on_time("lost()", lease, || assert!(lost.wait_timeout(SURELY)));
    // The observer hears it after the token.
    wait_until(SURELY, "the loss is told", || counters.losses() == [LossReason::Expired]);
    proxy.heal().unwrap();
    // It goes on as if nothing had been, once the guard is gone.
    error_of(lock.lock(), ErrorKind::LeaseLost, "silent");
    error_of(guard.unlock(), ErrorKind::LeaseLost, "silent");
    gives_back(lock.lock().unwrap());
    drop(lock);
    nothing_stays(&server, &[&client]);
}

/// Clients are made and closed while the network is gone: no thread is left waiting for it.
#[test]
fn a_client_closes_in_time_while_the_network_is_silent() {
    let (server, proxy) = behind_proxy();
    let client: Client = connected(|| brisk(&proxy.url()).lease(ms(4000)).renew_every(ms(300)));
    let (held, awaited) = (client.reentrant_lock("held"), client.reentrant_lock("wanted"));
    let guard = held.lock().unwrap();
    let owner = connect(&server.url());
    let other = owner.reentrant_lock("wanted");
    let others = other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| awaited.lock().map(drop));
        wait_for_queue(&server, "wanted");
        proxy.black_hole(true);
        let closed = on_time("close", ms(1000), || client.close());
        error_of(closed, ErrorKind::OutcomeUnknown, "");
        error_of(on_time("the waiter", ms(0), || waiting.join().unwrap()), ErrorKind::Closed, "wanted");
    });
    error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::Closed, "held");
    proxy.heal().unwrap();
    // What could not be given back ends with its lease, and the queue position with its waiter timeout.
    another_gets_in(&server, redis_concurrent::kinds::Reentrant, "held", SURELY);
    others.unlock().unwrap();
    another_gets_in(&server, redis_concurrent::kinds::Reentrant, "wanted", SURELY);
    drop((held, awaited, other));
    nothing_stays(&server, &[&client, &owner]);
}
