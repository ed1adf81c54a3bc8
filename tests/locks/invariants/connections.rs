//! *no-connection-while-parked, renewal-never-waits-for-the-pool*.

use std::thread;

use redis_concurrent_testkit::*;

use crate::support::*;

#[test]
fn no_connection_while_parked() {
    let server = RedisServer::start().unwrap();
    let elsewhere = connect(&server).reentrant_lock("busy");
    let held = elsewhere.lock().unwrap();
    let client = connected(|| builder(&server.url()).max_connections(1));
    let busy = client.reentrant_lock("busy");
    thread::scope(|scope| {
        let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| busy.lock().map(drop))).collect();
        queued(&elsewhere, 3);
        for _ in 0..20 {
            assert!(free_at_once(&client.reentrant_lock("other")) > 0);
        }
        assert!(waits.iter().all(|w| !w.is_finished()));
        held.unlock().unwrap();
        for waits in waits {
            waits.join().unwrap().unwrap();
        }
    });
}

#[test]
fn renewal_never_waits_for_the_pool() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client = connected(|| {
        builder(&proxy.url())
            .max_connections(1)
            .lease(LONG)
            .renew_every(ms(300))
            .command_timeout(3 * LONG)
            .observer(recorder.clone())
    });
    let lock = client.reentrant_lock("held");
    let guard = lock.lock().unwrap();
    proxy.only_matching(b"rc:{stuck}");
    proxy.hold_next_requests(1);
    thread::scope(|scope| {
        // The pool's one connection is stuck in this request, for several renewals.
        let stuck =
            scope.spawn(|| client.reentrant_lock("stuck").try_lock_owned().map(|guard| guard.is_some()));
        wait_until(SOON, "the request is held", || proxy.held() == 1);
        let renewals = recorder.count(Event::Renewed);
        wait_until(LONG, "it is renewed all the same", || {
            assert!(!guard.is_lost(), "{:?}", recorder.all());
            recorder.count(Event::Renewed) > renewals + 4
        });
        assert!(!stuck.is_finished(), "the pool was not exhausted for so long");
        proxy.release_held();
        // Also an answer that is older than its lease leaves nothing.
        let _ = stuck.join().unwrap();
    });
    guard.unlock().unwrap();
    nothing_left(&server);
}
