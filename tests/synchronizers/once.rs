//! Work that is done once: which caller does it, which ones get the answer, and what a death in between leaves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::once::{Attempt, Begun, Ending};
use redis_concurrent::{CancellationToken, Client, ErrorKind, Once};
use redis_concurrent_testkit::{Child, Proxy, RedisServer, hear_parent, is_role, tell_parent, wait_until};

use crate::names::{LONG, await_positions, client, key, ms, server};
use crate::support::{Random, SOON, builder, connect, connected, env, in_brief, patient};

#[track_caller]
fn yours(begun: Begun) -> Attempt {
    match begun {
        Begun::Yours(attempt) => attempt,
        other => panic!("not ours: {other:?}"),
    }
}

fn done(answer: &str) -> Ending {
    Ending::Done(answer.to_owned())
}

#[test]
fn the_first_caller_does_it_and_all_others_get_its_answer() {
    let calls = AtomicUsize::new(0);
    let clients = [client(), client()];
    thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|i| {
                let (once, calls) = (clients[i % 2].once("crowd"), &calls);
                scope.spawn(move || {
                    once.run(|attempt| {
                        calls.fetch_add(1, Ordering::SeqCst);
                        Ok(format!("by {i} under {}", attempt.token()))
                    })
                    .unwrap()
                })
            })
            .collect();
        let mut endings: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        endings.dedup();
        assert_eq!(endings.len(), 1, "{endings:?}");
        assert_eq!(clients[0].once("crowd").ending().unwrap().as_ref(), Some(&endings[0]));
    });
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn done_failed_in_progress_and_new_are_told_apart() {
    let (mine, other) = (client().once("apart"), client().once("apart"));
    assert_eq!(other.ending().unwrap(), None);
    let attempt = yours(mine.begin().unwrap());
    assert_eq!(other.ending().unwrap(), None);
    assert!(matches!(other.try_begin().unwrap(), Begun::InProgress));
    assert!(matches!(in_brief(other.begin_with(ms(20)).map(Some)), None | Some(Begun::InProgress)));
    assert!(matches!(other.begin_with(Instant::now()).unwrap(), Begun::InProgress));
    assert!(!other.forget().unwrap(), "an attempt is not forgotten");
    attempt.done("42 \u{e9}|\"\n").unwrap();
    assert!(matches!(other.try_begin().unwrap(), Begun::Done(answer) if answer == "42 \u{e9}|\"\n"));
    assert!(other.forget().unwrap());
    assert!(!other.forget().unwrap());
    let attempt = yours(other.try_begin().unwrap());
    attempt.fail("card declined").unwrap();
    assert!(matches!(mine.begin().unwrap(), Begun::Failed(why) if why == "card declined"));
    assert_eq!(mine.run(|_| unreachable!("it failed")).unwrap(), Ending::Failed("card declined".to_owned()));
    assert!(mine.forget().unwrap());
    assert_eq!(mine.run(|_| Err("again".to_owned())).unwrap(), Ending::Failed("again".to_owned()));
}

#[test]
fn what_is_given_back_is_done_by_the_next_under_a_higher_token() {
    let (mine, other) = (client().once("back"), client().once("back"));
    let first = yours(mine.begin().unwrap());
    let token = first.token();
    thread::scope(|scope| {
        let next = scope.spawn(|| yours(other.begin().unwrap()));
        await_positions("back", 1);
        first.give_back().unwrap();
        let second = next.join().unwrap();
        assert!(second.token() > token);
        drop(second); // gives it back, too
    });
    let panicked = thread::scope(|scope| scope.spawn(|| mine.run(|_| panic!("on purpose"))).join());
    assert!(panicked.is_err());
    assert_eq!(mine.run(|_| Ok("at last".to_owned())).unwrap(), done("at last"));
}

#[test]
fn a_waiter_gets_the_answer_as_soon_as_it_is_there() {
    let once = client().once("waits");
    let cancel = CancellationToken::new();
    let attempt = yours(once.begin().unwrap());
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    // No heartbeat brings it.
                    let begun = patient(server()).once("waits").begin().unwrap();
                    (matches!(begun, Begun::Done(answer) if answer == "it"), Instant::now())
                })
            })
            .collect();
        let cancelled = scope.spawn(|| once.begin_with(&cancel).unwrap_err());
        await_positions("waits", 21);
        cancel.cancel();
        assert!(cancelled.join().unwrap().is_cancelled());
        let stored = Instant::now();
        attempt.done("it").unwrap();
        for waiter in waiters {
            let (right, at) = waiter.join().unwrap();
            assert!(right && at - stored < 3 * SOON, "{:?}", at - stored);
        }
    });
}

#[test]
fn an_answer_is_kept_for_as_long_as_was_said() {
    let once = client().once("kept").expire_after(ms(300));
    let attempt = yours(once.begin().unwrap());
    let token = attempt.token();
    attempt.done("short-lived").unwrap();
    let ttl: i64 = server().connection().unwrap().pttl(key("kept", "")).unwrap();
    assert!((0..=300).contains(&ttl) || ttl == -2, "{ttl}");
    wait_until(LONG, "it is forgotten", || once.ending().unwrap().is_none());
    assert!(yours(once.begin().unwrap()).token() > token);
    let once = client().once("kept by default");
    yours(once.begin().unwrap()).done("").unwrap();
    let ttl: i64 = server().connection().unwrap().pttl(key("kept by default", "")).unwrap();
    assert!((86_000_000..=86_400_000).contains(&ttl), "{ttl}");
    assert_eq!(once.ending().unwrap(), Some(done("")));
}

#[test]
fn a_lost_attempt_stores_nothing() {
    let once = client().once("lost");
    let attempt = yours(once.begin().unwrap());
    let lost = attempt.lost();
    let mut redis = server().connection().unwrap();
    let _: () = redis.del(key("lost", "")).unwrap();
    let next = yours(client().once("lost").begin().unwrap());
    assert!(attempt.done("too late").unwrap_err().is_lease_lost());
    assert!(lost.is_cancelled());
    next.done("in time").unwrap();
    assert_eq!(once.ending().unwrap(), Some(done("in time")));
}

#[test]
fn an_answer_whose_reply_is_lost_is_stored_once() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let mine = connected(|| builder(&proxy.url()).command_timeout(SOON));
    for (i, fault) in
        [Proxy::swallow_next_reply_and_reset, Proxy::reset_before_next_request].iter().enumerate()
    {
        let name = format!("reply {i}");
        let attempt = yours(mine.once(&name).begin().unwrap());
        fault(&proxy);
        attempt.done("it").unwrap();
        assert_eq!(connect(&server).once(&name).ending().unwrap(), Some(done("it")));
    }
}

/// A later version may add a state: nobody does the work again, and nobody asks for ever.
#[test]
fn an_outcome_that_it_does_not_know_is_told() {
    let (client, mut redis) = (client(), server().connection().unwrap());
    for (name, state) in [("paused", "paused"), ("empty", "")] {
        let it = client.once(name);
        let fields = [("kind", "idempotency key"), ("state", state), ("answer", "42")];
        let () = redis.hset_multiple(key(name, ""), &fields).unwrap();
        let errors =
            [it.ending().unwrap_err(), it.try_begin().unwrap_err(), it.begin_with(LONG).unwrap_err()];
        for error in errors {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Protocol, name), "{error}");
        }
        assert!(it.forget().unwrap());
        yours(it.begin().unwrap()).give_back().unwrap();
    }
}

#[test]
fn what_is_wrong_is_said() {
    let client = client();
    let attempt = yours(client.once("wrong").begin().unwrap());
    let error = attempt.done(&"x".repeat(256 * 1024 + 1)).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("at most 262144 bytes"),
        "{error}"
    );
    assert_eq!(client.once("wrong").ending().unwrap(), Some(done("")), "what was done is done again");
    assert!(client.once("wrong").forget().unwrap());
    let too_long = client.once("wrong").run(|_| Err("x".repeat(256 * 1024 + 1)));
    assert_eq!(too_long.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.once("wrong").ending().unwrap(), Some(Ending::Failed(String::new())));
    assert!(client.once("wrong").forget().unwrap());
    let attempt = yours(client.once("wrong").begin().unwrap());
    attempt.done(&"x".repeat(256 * 1024)).unwrap();
    assert_eq!(client.once("wrong").ending().unwrap(), Some(done(&"x".repeat(256 * 1024))));
    for (once, says) in [
        (client.once(""), "empty"),
        (client.once(&"n".repeat(1025)), "at most 1024 bytes"),
        (client.once("x").expire_after(Duration::ZERO), "time to keep"),
        (client.once("x").expire_after(Duration::MAX), "time to keep"),
    ] {
        let error = once.begin().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(says), "{error}");
        assert_eq!(once.ending().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let lock = client.reentrant_lock("other");
    let guard = lock.lock().unwrap();
    let once = client.once("other");
    for error in [once.begin().unwrap_err(), once.ending().unwrap_err(), once.forget().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    guard.unlock().unwrap();
    assert!(lock.is_locked().is_ok());
    yours(once.begin().unwrap()).done("it").unwrap();
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::WrongType);
}

/// What a process has that dies is waited for so long; one that stands still meanwhile does not lose it.
const LEASE: Duration = ms(5000);
/// What a crowd of processes takes on the busiest machine, unless it hangs.
const AGES: Duration = Duration::from_secs(300);
const KEYS: usize = 400;

fn numbered(client: &Client, i: usize) -> Once {
    client.once(&format!("message {i}"))
}

/// A consumer: it does the work of one key after the other, until it is killed.
#[test]
fn role_consumer() {
    if !is_role("once::role_consumer") {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(LEASE).renew_every(ms(500)).command_timeout(LONG));
    let mut redis = redis::Client::open(env("URL")).unwrap().get_connection().unwrap();
    tell_parent("begins").unwrap();
    for i in 0..KEYS {
        let mut work = || {
            numbered(&client, i).run(|attempt| {
                let _: usize = redis.rpush(format!("effects {i}"), attempt.token()).unwrap();
                Ok(attempt.token().to_string())
            })
        };
        let mut ending = work();
        // The machine stood still for a lease.
        while ending.as_ref().is_err_and(|error| error.is_lease_lost()) {
            tell_parent("lost").unwrap();
            ending = work();
        }
        assert!(matches!(ending, Ok(Ending::Done(_))), "{ending:?}");
    }
    tell_parent("is through").unwrap();
    hear_parent().unwrap();
}

/// Whenever a consumer is killed: the work of each key is done once, or again under a higher token, and the answer
/// is that of the last one.
#[test]
fn a_consumer_that_is_killed_anywhere_has_its_work_done_once_or_again_under_a_higher_token() {
    let server = RedisServer::start().unwrap();
    let mut random = Random::new("once");
    let (mut killed, mut lost) = (0, 0);
    while killed < 4 {
        let mut child = Child::spawn("once::role_consumer", &[("URL", &server.url())]).unwrap();
        assert_eq!(child.read_line_within(3 * LONG).unwrap(), "begins");
        thread::sleep(random.micros(60_000));
        child.kill9().unwrap();
        while child.read_line_within(AGES).is_ok() {
            lost += 1;
        }
        killed += 1;
    }
    let child = Child::spawn("once::role_consumer", &[("URL", &server.url())]).unwrap();
    assert_eq!(child.read_line_within(3 * LONG).unwrap(), "begins");
    while child.read_line_within(AGES).unwrap() != "is through" {
        lost += 1;
    }
    let (client, mut redis, mut again) = (connect(&server), server.connection().unwrap(), 0);
    for i in 0..KEYS {
        let tokens: Vec<u64> = redis.lrange(format!("effects {i}"), 0, -1).unwrap();
        assert!(!tokens.is_empty() && tokens.is_sorted_by(|a, b| a < b), "{i}: {tokens:?}");
        again += tokens.len() - 1;
        let last = tokens.last().map(u64::to_string);
        assert_eq!(numbered(&client, i).ending().unwrap(), last.map(Ending::Done), "{i}: {tokens:?}");
    }
    assert!(again <= killed + lost, "{again} done again, {killed} killed, {lost} lost");
}
