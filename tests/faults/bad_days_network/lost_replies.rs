//! Requests and replies are lost.

use std::thread;
use std::time::Duration;

use redis_concurrent::{ErrorKind, Guard};
use redis_concurrent_testkit::{ClientKind, Proxy, eventually, wait_until};

use super::behind_proxy;
use crate::both::both;
use crate::server_days::*;
use crate::support::in_brief;

/// Has the next reply lost, with its connection (`closed`) or without. Returns how long the call that meets it waits in
/// vain: it asks again at once, or after the command timeout.
fn loses_a_reply(proxy: &Proxy, closed: bool) -> Duration {
    if closed {
        proxy.swallow_next_reply_and_reset();
        return Duration::ZERO;
    }
    proxy.swallow_replies(1);
    COMMAND
}

/// Unlocks while the reply to that is lost. After a connection that was closed the release is sent again at once: not
/// inside any more means that the first copy has done its work.
#[track_caller]
fn unlocks_without_its_reply<K: Subject>(proxy: &Proxy, closed: bool, guard: Guard<K>) {
    let name = guard.name().to_owned();
    let limit = loses_a_reply(proxy, closed);
    let unlocked = on_time("unlock", limit, || guard.unlock());
    if closed {
        unlocked.unwrap();
    } else {
        error_of(unlocked, ErrorKind::OutcomeUnknown, &name);
    }
}

mod bodies {
    use super::*;

    /// The reply to an acquire is lost: the one that asks again finds itself inside.
    pub fn an_acquire_whose_reply_is_lost_holds_once<K: Subject>(kind: K) {
        for closed in [true, false] {
            let (server, proxy) = behind_proxy();
            let set = if closed { unhurried } else { brisk };
            let client = connected(|| set(&proxy.url()).lease(ms(30_000)));
            let lock = client.lock_with_kind("lost", kind);
            gives_back(lock.lock().unwrap());
            // Not what a new connection sends first.
            proxy.only_matching(b"rc:{lost}");
            let struck = proxy.struck();
            let limit = loses_a_reply(&proxy, closed);
            let guard = on_time("lock", limit, || lock.lock()).unwrap();
            assert_eq!(proxy.struck(), struck + 1);
            assert_eq!(lock.hold_count(), 1);
            let other = connect(&server.url()).lock_with_kind("lost", kind);
            assert!(other.try_lock().unwrap().is_none());
            gives_back(guard);
            assert_eq!(lock.hold_count(), 0);
            on_time("the next owner", ms(0), || another_gets_in(&server, kind, "lost", SURELY));
            drop(lock);
            nothing_stays(&server, &[&client]);
        }
    }

    /// One attempt and a timed wait have no time to ask again: what they may have got is given back.
    pub fn an_acquire_that_ends_without_a_reply_holds_nothing<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| brisk(&proxy.url()).lease(ms(30_000)).client_name("asks"));
        let lock = client.lock_with_kind("given-back", kind);
        gives_back(lock.lock().unwrap());
        // What comes in says who it is, client and thread; what goes out does not.
        proxy.only_matching(b" asks\t");
        for wait in [Duration::ZERO, ms(100)] {
            let struck = proxy.struck();
            let limit = if wait.is_zero() { COMMAND } else { wait };
            let is_struck = || proxy.struck() > struck;
            let outcome = until_it_happens(is_struck, || {
                proxy.swallow_replies(1);
                on_time("try_lock_for", limit, || lock.try_lock_for(wait).map(drop))
            });
            error_of(outcome, ErrorKind::Unavailable, "given-back");
            assert_eq!(proxy.struck(), struck + 1);
            assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
            // Not after the lease of 30 seconds.
            another_gets_in(&server, kind, "given-back", SURELY);
        }
        gives_back(eventually(SURELY, || in_brief(lock.try_lock())));
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn an_unlock_whose_reply_is_lost_has_unlocked<K: Subject>(kind: K) {
        for closed in [true, false] {
            let (server, proxy) = behind_proxy();
            let counters = Counters::default();
            let set = if closed { unhurried } else { brisk };
            let client = connected(|| set(&proxy.url()).lease(ms(30_000)).observer(counters.clone()));
            let lock = client.lock_with_kind("unlocked", kind);
            let guard = lock.lock().unwrap();
            proxy.only_matching(b"rc:{unlocked}");
            unlocks_without_its_reply(&proxy, closed, guard);
            assert_eq!(lock.hold_count(), 0);
            on_time("the next owner", ms(0), || another_gets_in(&server, kind, "unlocked", SURELY));
            assert!(counters.losses().is_empty());
            drop(lock);
            nothing_stays(&server, &[&client]);
        }
    }

    /// The request is lost, not the reply: what was not done is done by the copy.
    pub fn a_request_that_is_lost_is_sent_again<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| unhurried(&proxy.url()).lease(ms(30_000)));
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
        let counters = Counters::default();
        let often = || brisk(&proxy.url()).lease(ms(9000)).renew_every(ms(300)).observer(counters.clone());
        let client = connected(often);
        let lock = client.lock_with_kind("renewed", kind);
        let guard = lock.lock().unwrap();
        counters.wait_for_renewals(1);
        // The listener's pings go by the same proxy, and are none of this.
        proxy.only_matching(b"rc:{renewed}");
        for closed in [true, false] {
            let struck = proxy.struck();
            loses_a_reply(&proxy, closed);
            wait_until(SURELY, "a lost reply", || proxy.struck() > struck);
            counters.wait_for_renewals(1);
        }
        assert!(!guard.is_lost());
        proxy.swallow_replies(1);
        let answer = on_time("renew_for", COMMAND, || guard.renew_for(ms(12_000)));
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        proxy.heal().unwrap();
        gives_back(guard);
        assert!(counters.losses().is_empty());
        on_time("the next owner", ms(0), || another_gets_in(&server, kind, "renewed", SURELY));
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// The reply is lost to a release that also asks for the next local thread.
    pub fn a_hand_over_whose_reply_is_lost_lets_the_next_one_in<K: Subject>(kind: K) {
        for closed in [true, false] {
            let (server, proxy) = behind_proxy();
            let set = if closed { lively } else { brisk };
            let client = connected(|| set(&proxy.url()).lease(ms(30_000)).local_handoff(Duration::ZERO));
            let lock = client.lock_with_kind("next", kind);
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| takes_a_turn(&lock));
                // It stands behind a holder of its own process; its listener is there.
                wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
                wait_until(SURELY, "the listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
                proxy.only_matching(b"rc:{next}");
                unlocks_without_its_reply(&proxy, closed, guard);
                on_time("the next thread", ms(1000), || waiting.join().unwrap());
            });
            proxy.heal().unwrap();
            another_gets_in(&server, kind, "next", SURELY);
            drop(lock);
            nothing_stays(&server, &[&client]);
        }
    }
}

both! {
    an_acquire_whose_reply_is_lost_holds_once;
    an_acquire_that_ends_without_a_reply_holds_nothing;
    an_unlock_whose_reply_is_lost_has_unlocked;
    a_request_that_is_lost_is_sent_again;
    renewals_whose_replies_are_lost_go_on;
    a_hand_over_whose_reply_is_lost_lets_the_next_one_in;
}
