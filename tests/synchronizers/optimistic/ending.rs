//! How an update ends, and that its connection is nobody's trap afterwards.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Commands};
use redis_concurrent::kinds::Reentrant;
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, OwnedGuard, Wait};
use redis_concurrent_testkit::wait_until;

use crate::optimistic::fixture::*;
use crate::support::*;

#[test]
fn what_is_committed_stands_there_and_what_redis_answered_is_told() {
    let mut it = Fixture::new();
    it.set(KEY, "9");
    let update = it.client.optimistic(&[KEY]).run(|read, write| {
        let left: u32 = read.get(KEY)?;
        let total: Option<u32> = read.query(&Cmd::hget("totals", "sold"))?;
        assert_eq!(total, None);
        write.set(KEY, left - 1).hincr("totals", "sold", 1).cmd("INCR").arg("orders");
        Ok(Outcome::Commit(left - 1))
    });
    let update = update.unwrap();
    assert_eq!((update.value, update.committed, update.attempts), (8, true, 1));
    let orders: u32 = redis::from_redis_value(update.replies[2].clone()).unwrap();
    assert_eq!((update.replies.len(), orders), (3, 1));
    assert_eq!(it.get(KEY).as_deref(), Some("8"));
}

#[test]
fn three_requests_are_sent_for_an_update() {
    let it = Fixture::new();
    let run = || it.client.optimistic(&[KEY]).run(add_one).unwrap();
    run();
    let (sent, chunks) = (it.client.request_count(), it.proxy.request_count());
    run();
    // WATCH, GET, and then MULTI, SET and EXEC together.
    assert_eq!((it.client.request_count() - sent, it.proxy.request_count() - chunks), (5, 3));
}

#[test]
fn an_update_that_gives_up_writes_nothing_and_is_not_tried_again() {
    let mut it = Fixture::new();
    it.set(KEY, "0");
    let connections = it.proxy.connections() + 1;
    let update = it.client.optimistic(&[KEY]).run(|read, write| {
        let _: u32 = read.get(KEY)?;
        it.redis.incr::<_, _, ()>(KEY, 1).unwrap();
        write.set(KEY, "never");
        Ok(Outcome::Abort("sold out"))
    });
    let update = update.unwrap();
    assert_eq!((update.value, update.committed, update.attempts), ("sold out", false, 1));
    assert!(update.replies.is_empty());
    assert_eq!(it.get(KEY).as_deref(), Some("1"));
    it.comes_back(connections);
}

#[test]
fn an_error_of_the_closure_is_the_call_s_and_nothing_is_written() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let error = it.client.optimistic(&[KEY]).run(|_, write| {
        write.set(KEY, "never");
        Err::<Outcome<()>, _>(Error::new(ErrorKind::Refused, "mine").because("no"))
    });
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, "mine"));
    assert_eq!(it.get(KEY), None);
    it.comes_back(connections);
}

#[test]
fn a_panic_of_the_closure_leaves_nothing_watched() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let optimistic = it.client.optimistic(&[KEY]);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        optimistic.run(|read, write| {
            let _: Option<u32> = read.get(KEY)?;
            write.set(KEY, "never");
            if it.server.port() > 0 {
                panic!("as a test wants it");
            }
            Ok(Outcome::Commit(()))
        })
    }));
    assert!(ended.is_err());
    assert_eq!(it.get(KEY), None);
    it.comes_back(connections);
}

#[test]
fn a_connection_that_cannot_be_told_to_watch_no_more_is_closed() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let given_up = it.client.optimistic(&[KEY]).run(|read, _| {
        let _: Option<u32> = read.get(KEY)?;
        it.proxy.only_matching(b"UNWATCH");
        it.proxy.reset_before_next_request();
        Ok(Outcome::Abort(()))
    });
    assert!(!given_up.unwrap().committed);
    assert_eq!((it.proxy.struck(), it.proxy.connections()), (1, connections));
    it.next_one_is_unaffected();
    assert_eq!(it.proxy.connections(), connections + 1, "it was used again");
}

#[test]
fn somebody_else_was_faster_and_it_is_tried_again() {
    let mut it = Fixture::new();
    let mut runs = 0;
    let update = it.client.optimistic(&[KEY]).run(|read, write| {
        runs += 1;
        let before: Option<u64> = read.get(KEY)?;
        if runs < 4 {
            it.redis.incr::<_, _, ()>(KEY, 10).unwrap();
        }
        write.set(KEY, before.unwrap_or(0) + 1);
        Ok(Outcome::Commit(()))
    });
    assert_eq!((update.unwrap().attempts, runs), (4, 4));
    assert_eq!(it.get(KEY).as_deref(), Some("31"));
}

#[test]
fn contention_without_an_end_is_a_conflict_and_no_spinning() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    for tries in [1, 2, 7] {
        let mut runs = 0;
        let error = it.client.optimistic(&[KEY]).max_attempts(tries).run(|_, write| {
            runs += 1;
            it.redis.set::<_, _, ()>(KEY, "theirs").unwrap();
            write.set(KEY, "mine");
            Ok(Outcome::Commit(()))
        });
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.name(), runs), (ErrorKind::Conflict, KEY, tries));
        assert!(error.to_string().contains(&format!("{tries} attempts")), "{error}");
        assert_eq!(it.get(KEY).as_deref(), Some("theirs"));
    }
    it.comes_back(connections);
}

#[test]
fn the_deadline_ends_it_and_nothing_at_all_is_one_try() {
    let mut it = Fixture::new();
    let mut never = |limit: Duration, deadline: Option<Instant>| {
        let mut runs = 0;
        let mut update = |_: &mut redis_concurrent::optimistic::Snapshot<'_>, write: &mut redis::Pipeline| {
            runs += 1;
            it.redis.set::<_, _, ()>(KEY, "theirs").unwrap();
            write.set(KEY, "mine");
            Ok(Outcome::Commit(()))
        };
        let it = it.client.optimistic(&[KEY]).max_attempts(10_000);
        let outcome = match deadline {
            Some(deadline) => it.run_with(deadline, &mut update),
            None => it.run_with(limit, &mut update),
        };
        (runs, outcome.unwrap_err().kind())
    };
    assert_eq!(never(Duration::ZERO, None), (1, ErrorKind::Conflict));
    assert_eq!(never(Duration::ZERO, Some(Instant::now())), (1, ErrorKind::Conflict));
    // A deadline may pass between two attempts, or within one, before it has written anything.
    let ended = |(runs, kind)| runs > 1 && matches!(kind, ErrorKind::Conflict | ErrorKind::Timeout);
    // Once more where it was too near for more than one.
    wait_until(LONG, "it ends by its limit", || {
        let began = Instant::now();
        let outcome = never(ms(300), None);
        assert!(began.elapsed() >= ms(200) && began.elapsed() < SOON, "{:?}", began.elapsed());
        ended(outcome)
    });
    wait_until(LONG, "it ends by its deadline", || ended(never(LONG, Some(Instant::now() + ms(300)))));
}

#[test]
fn an_update_done_after_the_deadline_writes_nothing() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let deadline = Instant::now() + ms(3000);
    let late = it.client.optimistic(&[KEY]).run_with(deadline, |_, write| {
        thread::sleep(deadline.saturating_duration_since(Instant::now()) + ms(10));
        write.set(KEY, "late");
        Ok(Outcome::Commit(()))
    });
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(it.get(KEY), None);
    it.comes_back(connections);
}

#[test]
fn a_cancellation_is_seen_before_between_and_within_the_tries() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let cancelled = |token: &CancellationToken, update: &mut dyn FnMut()| {
        let outcome = it.client.optimistic(&[KEY]).max_attempts(10_000).run_with(token, |_, write| {
            update();
            write.set(KEY, "mine");
            Ok(Outcome::Commit(()))
        });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    };
    let token = CancellationToken::new();
    token.cancel();
    cancelled(&token, &mut || panic!("it began"));
    let token = CancellationToken::new();
    cancelled(&token, &mut || token.cancel());
    // In one of many pauses, or in a try.
    let token = CancellationToken::new();
    let mut redis = it.server.connection().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(ms(100));
            token.cancel();
        });
        cancelled(&token, &mut || redis.set::<_, _, ()>(KEY, "theirs").unwrap());
    });
    assert_eq!(it.get(KEY).as_deref(), Some("theirs"));
    let both = it.client.optimistic(&[KEY]).run_with(Wait::timeout(LONG).cancelled_by(&token), add_one);
    assert_eq!(both.unwrap_err().kind(), ErrorKind::Cancelled);
    it.comes_back(connections);
}

#[test]
fn a_pause_keeps_no_connection() {
    let it = Fixture::new();
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        let (client, server, stop) = (&it.client, &it.server, &stop);
        let loser = scope.spawn(move || {
            let mut redis = server.connection().unwrap();
            client.optimistic(&[KEY]).max_attempts(10_000).run_with(stop, |_, write| {
                redis.set::<_, _, ()>(KEY, "theirs").unwrap();
                write.set(KEY, "mine");
                Ok(Outcome::Commit(()))
            })
        });
        wait_until(LONG, "it has begun", || server.keys().unwrap().contains(&KEY.to_owned()));
        // With the only connection.
        for _ in 0..20 {
            client.reentrant_lock("another").lock().unwrap().unlock().unwrap();
        }
        stop.cancel();
        assert_eq!(loser.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    });
}

#[test]
fn nothing_written_makes_sure_that_what_was_read_was_true_at_once() {
    let mut it = Fixture::new();
    for changed in [false, true] {
        let outcome = it.client.optimistic(&[KEY, "other"]).max_attempts(1).run(|read, _| {
            let both: (Option<String>, Option<String>) = (read.get(KEY)?, read.get("other")?);
            if changed {
                it.redis.set::<_, _, ()>(KEY, "new").unwrap();
            }
            Ok(Outcome::Commit(both))
        });
        assert_eq!(
            outcome.map(|update| update.value).map_err(|e| e.kind()),
            if changed { Err(ErrorKind::Conflict) } else { Ok((None, None)) }
        );
    }
}

#[test]
fn a_lost_answer_to_exec_is_unknown_and_it_is_not_sent_again() {
    let mut it = Fixture::new();
    it.client.optimistic(&["warm"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
    it.proxy.only_matching(b"EXEC");
    it.proxy.swallow_next_reply_and_reset();
    let mut runs = 0;
    let lost = it.client.optimistic(&[KEY]).run(|_, write| {
        runs += 1;
        write.incr(KEY, 1);
        Ok(Outcome::Commit(()))
    });
    let error = lost.unwrap_err();
    assert_eq!((error.kind(), runs, it.proxy.struck()), (ErrorKind::OutcomeUnknown, 1, 1), "{error}");
    assert_eq!(it.get(KEY).as_deref(), Some("1"));
    let execs = it.server.command_calls().unwrap()["exec"];
    assert_eq!(execs, 2);
    it.next_one_is_unaffected();
}

#[test]
fn an_exec_that_never_came_to_redis_is_unknown_too() {
    let mut it = Fixture::new();
    it.client.optimistic(&["warm"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
    it.proxy.only_matching(b"EXEC");
    it.proxy.reset_before_next_request();
    let lost = it.client.optimistic(&[KEY]).run(add_one);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(it.get(KEY), None);
    it.next_one_is_unaffected();
}

#[test]
fn a_silent_server_is_borne_for_the_command_limit_and_less_with_a_deadline() {
    let it = Fixture::new();
    it.client.optimistic(&["warm"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
    it.server.stop().unwrap();
    let began = Instant::now();
    let outcome = it.client.optimistic(&[KEY]).run_with(ms(100), add_one);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    it.server.cont().unwrap();
}

#[test]
fn a_connection_that_broke_unnoticed_costs_nothing() {
    let mut it = Fixture::new();
    it.client.optimistic(&["warm"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
    it.proxy.cut_all();
    assert_eq!(it.client.optimistic(&[KEY]).max_attempts(1).run(add_one).unwrap().value, 1);
    assert_eq!(it.get(KEY).as_deref(), Some("1"));
}

#[test]
fn one_that_breaks_while_it_is_watched_ends_the_try_with_nothing_written() {
    let mut it = Fixture::new();
    // Whether the closure minds or not: another connection would not know what was watched.
    for minds in [true, false] {
        let outcome = it.client.optimistic(&[KEY]).run(|read, write| {
            it.proxy.cut_all();
            let read = read.get::<Option<u32>>(KEY);
            if minds {
                read?;
            }
            write.set(KEY, "blind");
            Ok(Outcome::Commit(()))
        });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(it.get(KEY), None);
        it.touch();
        it.redis.del::<_, ()>(KEY).unwrap();
    }
    it.next_one_is_unaffected();
}

/// The destructor of a thread-local may run after those of ours, and what panics there ends the process.
#[test]
fn a_guard_that_goes_with_its_thread_finds_the_pools_only_connection_kept() {
    alone(
        "optimistic::ending::a_guard_that_goes_with_its_thread_finds_the_pools_only_connection_kept",
        || {
            thread_local!(static GUARD: RefCell<Option<OwnedGuard<Reentrant>>> = const { RefCell::new(None) });
            let it = Fixture::new();
            let client = Client::builder().url(&it.server.url()).max_connections(1).command_timeout(ms(500));
            let client = client.connect().unwrap();
            let (update, lock) = (client.optimistic(&[KEY]), client.reentrant_lock("x"));
            let (ready, is_ready) = channel();
            let (end, may_end) = channel::<()>();
            thread::scope(|scope| {
                let ending = scope.spawn(|| {
                    let (may_end, ready) = (may_end, ready);
                    GUARD.set(Some(lock.lock_owned().unwrap()));
                    update.run(|_, _| Ok(Outcome::Abort(()))).unwrap();
                    ready.send(()).unwrap();
                    may_end.recv().unwrap();
                });
                is_ready.recv().unwrap();
                let mut ending = Some(ending);
                let kept = update.run(|read, _| {
                    let _: Option<u32> = read.get(KEY)?;
                    end.send(()).unwrap();
                    if let Some(thread) = ending.take() {
                        thread.join().unwrap();
                    }
                    Ok(Outcome::Abort(()))
                });
                kept.unwrap();
            });
            wait_until(LONG, "the lock is free", || !lock.is_locked().unwrap());
        },
    );
}
