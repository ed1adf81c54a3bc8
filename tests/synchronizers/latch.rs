//! The latch: its count, its waiters, and what becomes of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::internals::lock_count;
use redis_concurrent::{CancellationToken, CountDownLatch, ErrorKind, Wait};
use redis_concurrent_testkit::{Proxy, released_all, wait_until};

use crate::names::{LONG, await_positions, client, key, ms, server};
use crate::support::{SOON, builder, connected, patient, refused, replied};

/// A wait for so long, as often as that is too short for an answer.
#[track_caller]
fn waits_in_vain(latch: &CountDownLatch, limit: Duration) {
    assert!(!replied(|| latch.wait_with(limit)));
}

#[test]
fn a_count_is_set_once_and_counted_down_to_nothing() {
    let latch = client().count_down_latch("once");
    assert_eq!(latch.count().unwrap(), None);
    assert!(latch.try_set_count(2).unwrap());
    assert!(!latch.try_set_count(3).unwrap());
    waits_in_vain(&latch, ms(20));
    assert_eq!(latch.count_down().unwrap(), 1);
    assert_eq!(latch.count().unwrap(), Some(1));
    assert!(!replied(|| latch.wait_with(Duration::ZERO)));
    assert_eq!(latch.count_down().unwrap(), 0);
    assert_eq!(latch.count_down().unwrap(), 0);
    latch.wait().unwrap();
    assert!(replied(|| latch.wait_with(Duration::ZERO)));
    assert!(replied(|| latch.wait_with(Instant::now())));
    assert!(latch.delete().unwrap());
    assert!(!latch.delete().unwrap());
    assert_eq!(latch.count().unwrap(), None);
    assert!(latch.try_set_count(1).unwrap());
    assert!(latch.delete().unwrap());
}

#[test]
fn what_is_wrong_is_said() {
    let client = client();
    let latch = client.count_down_latch("wrong");
    for count in [0, u64::from(u32::MAX)] {
        assert_eq!(latch.try_set_count(count).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(latch.reset(count).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(latch.expire_after(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.count_down_latch("").wait().unwrap_err().kind(), ErrorKind::InvalidInput);

    let lock = client.reentrant_lock("wrong");
    let guard = lock.lock().unwrap();
    for error in [
        latch.try_set_count(1).map(drop).unwrap_err(),
        latch.count().map(drop).unwrap_err(),
        latch.count_down().map(drop).unwrap_err(),
        latch.wait().unwrap_err(),
        refused(|| latch.wait_with(Duration::ZERO)),
        latch.delete().map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    guard.unlock().unwrap();
    latch.try_set_count(1).unwrap();
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::WrongType);
    latch.delete().unwrap();
}

#[test]
fn without_a_count_every_form_is_refused_and_says_the_cure() {
    let name = "never set";
    let (client, never) = (client(), CancellationToken::new());
    let latch = client.count_down_latch(name);
    for deleted in [false, true] {
        if deleted {
            latch.try_set_count(1).unwrap();
            assert!(latch.delete().unwrap());
        }
        for error in [
            latch.wait().unwrap_err(),
            latch.wait_with(LONG).unwrap_err(),
            refused(|| latch.wait_with(Duration::ZERO)),
            latch.wait_with(Instant::now() + LONG).unwrap_err(),
            latch.wait_with(&never).unwrap_err(),
            latch.wait_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap_err(),
            latch.count_down().unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, name), "{error}");
            assert!(
                error.to_string().contains("this latch has no count: try_set_count comes first"),
                "{error}"
            );
        }
        await_positions(name, 0);
        // The name is free for any other kind.
        client.reentrant_lock(name).lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn a_waiter_whose_count_ends_learns_it_at_its_next_heartbeat() {
    let name = "ended";
    let client = connected(|| builder(&server().url()).waiter_timeout(ms(1500)));
    let latch = client.count_down_latch(name);
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait_with(LONG));
        await_positions(name, 1);
        assert!(latch.expire_after(ms(100)).unwrap());
        let began = Instant::now();
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Broken, "{error}");
        assert!(error.to_string().contains("expired"), "{error}");
        // Before the wait itself would end.
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    });
    await_positions(name, 0);
}

#[test]
fn the_last_count_down_wakes_all_in_all_clients() {
    const CLIENTS: usize = 4;
    const EACH: usize = 8;
    // No heartbeat lets them pass.
    let clients: Vec<_> = (0..CLIENTS).map(|_| patient(server())).collect();
    let latch = client().count_down_latch("all");
    latch.try_set_count(2).unwrap();
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..EACH {
                scope.spawn(|| {
                    client.count_down_latch("all").wait().unwrap();
                    passed.fetch_add(1, Ordering::SeqCst);
                });
            }
        }
        await_positions("all", CLIENTS * EACH);
        latch.count_down().unwrap();
        assert_eq!(passed.load(Ordering::SeqCst), 0);
        let began = Instant::now();
        latch.count_down().unwrap();
        wait_until(LONG, "all passed", || passed.load(Ordering::SeqCst) == CLIENTS * EACH);
        // Some milliseconds on an idle machine.
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    });
    // A thread that passed has nothing to give back.
    wait_until(LONG, "no wait is in use", || clients.iter().all(|client| lock_count(client) == 0));
    latch.delete().unwrap();
}

/// More than one script lets in: those that are left are told to ask, long before their next heartbeat.
#[test]
fn a_hundred_pass_without_waiting_for_their_beats() {
    const EACH: usize = 50;
    // Heartbeats are every 40 s.
    let clients = [patient(server()), patient(server())];
    let latch = client().count_down_latch("hundred");
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        for client in clients.iter().flat_map(|client| [client; EACH]) {
            scope.spawn(|| client.count_down_latch("hundred").wait().unwrap());
        }
        await_positions("hundred", 2 * EACH);
        let began = Instant::now();
        latch.count_down().unwrap();
        await_positions("hundred", 0);
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    });
    latch.delete().unwrap();
}

#[test]
fn a_wait_takes_two_requests_and_passing_none() {
    // So rarely does it say that it lives.
    let client = connected(|| builder(&server().url()).waiter_timeout(LONG));
    let latch = client.count_down_latch("cost");
    latch.try_set_count(1).unwrap();
    // The first wait starts the inbox, which takes its own.
    waits_in_vain(&latch, ms(50));
    let before = client.request_count();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait());
        await_positions("cost", 1);
        latch.count_down().unwrap();
        waiter.join().unwrap().unwrap();
    });
    // One to wait, one to count down; another if the inbox was not there yet.
    assert!(client.request_count() - before <= 3, "{}", client.request_count() - before);
    let before = client.request_count();
    latch.wait().unwrap();
    assert_eq!(client.request_count() - before, 1);
    latch.delete().unwrap();
}

#[test]
fn a_waiter_is_told_of_a_reset_or_a_deletion_and_nobody_else() {
    let (one, other) = (client(), client());
    let latch = one.count_down_latch("anew");
    latch.try_set_count(5).unwrap();
    for (what, says) in [("reset", "it was reset"), ("delete", "deleted")] {
        thread::scope(|scope| {
            // Two of one client, so that the second one is not just behind the first.
            let waiters =
                [&one, &one, &other].map(|it| scope.spawn(|| it.count_down_latch("anew").wait_with(LONG)));
            await_positions("anew", 3);
            if what == "reset" {
                latch.reset(1).unwrap();
            } else {
                assert!(latch.delete().unwrap());
            }
            for waiter in waiters {
                let error = waiter.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Broken, "{error}");
                assert!(error.to_string().contains(says), "{error}");
            }
            // A caller that comes now is not concerned.
            match what {
                "reset" => waits_in_vain(&latch, ms(50)),
                _ => assert_eq!(latch.wait().unwrap_err().kind(), ErrorKind::Refused),
            }
        });
    }
    assert_eq!(latch.count().unwrap(), None);
}

#[test]
fn a_waiter_that_did_not_hear_of_a_deletion_finds_out_at_its_next_heartbeat() {
    let name = "unheard";
    let proxy = Proxy::start(server().port()).unwrap();
    let deaf = connected(|| builder(&proxy.url()).waiter_timeout(ms(1500)));
    let latch = client().count_down_latch(name);
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| deaf.count_down_latch(name).wait_with(LONG));
        await_positions(name, 1);
        // It has heard that it waits: it says that it lives.
        let mut redis = server().connection().unwrap();
        let mut position = || redis.hvals::<_, Vec<Vec<u8>>>(key(name, ":positions")).unwrap();
        let first = position();
        wait_until(LONG, "a heartbeat", || position() != first);
        proxy.black_hole(true);
        latch.delete().unwrap();
        proxy.black_hole(false);
        proxy.cut_all();
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Broken, "{error}");
        assert!(error.to_string().contains("deleted"), "{error}");
    });
}

#[test]
fn a_lost_message_costs_a_heartbeat() {
    let name = "lost";
    let proxy = Proxy::start(server().port()).unwrap();
    let deaf = connected(|| builder(&proxy.url()).waiter_timeout(ms(1500)));
    let latch = client().count_down_latch(name);
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| deaf.count_down_latch(name).wait());
        await_positions(name, 1);
        proxy.swallow_replies_with(b"message");
        latch.count_down().unwrap();
        wait_until(LONG, "the message was lost", || proxy.struck() == 1);
        let began = Instant::now();
        waiter.join().unwrap().unwrap();
        assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    });
    latch.delete().unwrap();
}

#[test]
fn a_party_that_hears_neither_its_answer_nor_its_message_passes_all_the_same() {
    let name = "neither";
    let proxy = Proxy::start(server().port()).unwrap();
    let deaf = connected(|| builder(&proxy.url()).lease(ms(300)).command_timeout(ms(600)));
    let (latch, waits) = (client().count_down_latch(name), deaf.count_down_latch(name));
    latch.try_set_count(1).unwrap();
    // So that Redis knows the script, and the listener is there.
    waits_in_vain(&waits, ms(500));
    proxy.only_matching(b"\r\nwait\r\n");
    proxy.swallow_replies(1);
    proxy.swallow_replies_with(b"message");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.wait_with(LONG));
        await_positions(name, 1);
        latch.count_down().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    assert_eq!(proxy.struck(), 2);
    latch.delete().unwrap();
}

#[test]
fn a_count_down_that_is_sent_twice_counts_once() {
    let proxy = Proxy::start(server().port()).unwrap();
    let client = connected(|| builder(&proxy.url()));
    let latch = client.count_down_latch("twice");
    proxy.swallow_next_reply_and_reset();
    assert!(latch.try_set_count(3).unwrap());
    proxy.swallow_next_reply_and_reset();
    assert_eq!(latch.count_down().unwrap(), 2);
    assert_eq!(latch.count().unwrap(), Some(2));
    proxy.swallow_next_reply_and_reset();
    assert!(!latch.try_set_count(3).unwrap());
    proxy.swallow_next_reply_and_reset();
    assert!(latch.delete().unwrap());
    assert_eq!(proxy.struck(), 4);
}

#[test]
fn a_wait_ends_by_its_token() {
    let client = client();
    let latch = client.count_down_latch("token");
    latch.try_set_count(1).unwrap();
    let token = CancellationToken::new();
    thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| latch.wait_with(&token).map(drop)),
            scope.spawn(|| latch.wait_with(Wait::timeout(LONG).cancelled_by(&token)).map(drop)),
        ];
        await_positions("token", 2);
        token.cancel();
        for waiter in waiters {
            assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
        }
    });
    await_positions("token", 0);
    assert!(latch.wait_with(&token).unwrap_err().is_cancelled());
    assert_eq!(latch.count().unwrap(), Some(1));
    latch.delete().unwrap();
}

#[test]
fn a_count_has_an_end_only_where_it_is_given_one() {
    let latch = client().count_down_latch("end");
    let mut redis = server().connection().unwrap();
    let mut ends = || redis.pttl::<_, i64>(key("end", "")).unwrap();
    assert!(!latch.expire_after(LONG).unwrap());
    latch.try_set_count(1).unwrap();
    assert_eq!(ends(), -1);
    assert!(latch.expire_after(LONG).unwrap());
    assert!((1..=20_000).contains(&ends()));
    latch.count_down().unwrap();
    assert!((1..=20_000).contains(&ends()));
    latch.reset(2).unwrap();
    assert_eq!(ends(), -1);
    latch.delete().unwrap();
    assert_eq!(ends(), -2, "nothing is left of it");
}

#[test]
fn a_client_that_closes_lets_its_waiters_go() {
    let client = client();
    let latch = client.count_down_latch("closed");
    latch.try_set_count(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait());
        await_positions("closed", 1);
        let _ = released_all(&client.close());
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    await_positions("closed", 0);
}
