//! Foreign holders hold the key, and do not tell when they go.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redis_concurrent::Error;
use redis_concurrent::kinds::{Kind, Simple};
use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::{eventually, scripts, wait_until};

use crate::foreign::fixture::{Fixture, KEY, LEASE, QUEUE};
use crate::support::{Event, LONG, Recorder, builder, comes_in, in_brief, ms};

/// How long it may take until a waiter finds that a foreign holder has gone, and what a loaded machine adds.
/// By its heartbeats alone it would find out in 40 s.
const FOUND: Duration = ms(250 + 9000);

#[test]
fn a_foreign_holder_keeps_us_out_and_is_told_as_the_holder() {
    let fixture = Fixture::new();
    let (lock, mut foreign) = (fixture.lock(), fixture.foreign_holder("cron@db7"));
    assert!(!lock.is_locked().unwrap() && lock.holder().unwrap().is_none());
    assert!(foreign.takes(LEASE));
    assert!(lock.try_lock().unwrap().is_none());
    let began = Instant::now();
    assert!(in_brief(lock.try_lock_for(ms(300))).is_none());
    assert!(began.elapsed() >= ms(300) && began.elapsed() < ms(300) + FOUND);
    assert!(lock.is_locked().unwrap());
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!((holder.owner.as_str(), holder.since, holder.process), ("cron@db7", None, None));
    assert!(holder.remaining.is_some_and(|left| left <= LEASE && left > LEASE / 2), "{:?}", holder.remaining);
    assert!(lock.holder().unwrap().and_then(|it| it.remaining).is_some());
    assert_eq!(fixture.ask::<String>(&["GET", KEY]), "cron@db7");
    assert!(foreign.frees());
    assert!(lock.try_lock().unwrap().is_some());
}

/// Nobody says that it goes, and it would hold for ever.
#[test]
fn a_waiter_for_a_foreign_holder_finds_out_in_a_quarter_of_a_second() {
    let fixture = Fixture::new();
    let lock = fixture.patient();
    for _ in 0..6 {
        let () = fixture.ask(&["SET", KEY, "theirs"]);
        assert_eq!(lock.holder().unwrap().unwrap().remaining, None, "it has no end");
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&lock));
            fixture.await_queued(1);
            let () = fixture.ask(&["DEL", KEY]);
            let gone = Instant::now();
            let took = waits.join().unwrap() - gone;
            eprintln!("in {took:?} after the foreign holder had gone");
            assert!(took < FOUND, "{took:?}");
        });
    }
}

#[test]
fn a_waiter_for_a_foreign_holder_asks_no_more_often_than_it_must() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let lock = client.simple_lock_at(KEY);
    let () = fixture.ask(&["SET", KEY, "theirs"]);
    assert!(in_brief(lock.try_lock_for(ms(100))).is_none());
    // Once more where the machine stood still: there was no answer in its time, or no time to ask often
    // enough.
    eventually(LONG, || {
        let (before, began) = (client.request_count(), Instant::now());
        let outcome = lock.try_lock_for(ms(1500));
        let was_late = outcome.as_ref().is_err_and(Error::is_unavailable);
        assert!(was_late || outcome.unwrap().is_none());
        // The first ask, one more when the client listens, one each quarter of a second, and a leave.
        let (requests, most) =
            (client.request_count() - before, 4 + began.elapsed().as_millis() as u64 / 250);
        assert!(was_late || requests <= most, "{requests}, of {most}");
        (!was_late && requests >= 3).then_some(())
    });
    let () = fixture.ask(&["DEL", KEY]);
}

#[test]
fn a_foreign_holders_lease_is_waited_for_and_no_longer() {
    let fixture = Fixture::new();
    let lock = fixture.patient();
    let began = Instant::now();
    assert!(fixture.foreign_holder("theirs").takes(ms(700)));
    let guard = lock.lock().unwrap();
    let took = began.elapsed();
    assert!(took >= ms(699) && took < ms(700) + FOUND, "{took:?}");
    guard.unlock().unwrap();
}

#[test]
fn the_waiters_come_in_by_arrival_once_the_foreign_holder_has_gone() {
    let fixture = Fixture::new();
    let locks = [(); 4].map(|()| fixture.patient());
    let mut foreign = fixture.foreign_holder("theirs");
    assert!(foreign.takes(LEASE));
    let (came, order) = channel();
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let came = came.clone();
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                came.send((i, guard.token())).unwrap();
                guard.unlock().unwrap();
            });
            fixture.await_queued(i + 1);
        }
        assert!(foreign.frees());
    });
    let order: Vec<_> = order.try_iter().collect();
    assert_eq!(order.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
}

/// Any request admits the head, and takes that back where nobody listens for it.
#[test]
fn a_dead_head_elsewhere_keeps_nobody_waiting() {
    let fixture = Fixture::new();
    let mut foreign = fixture.foreign_holder("theirs");
    assert!(foreign.takes(LEASE));
    // As a process does that is killed right after, and is missed when its heartbeat is overdue.
    let others = QUEUE.strip_suffix(":queue").unwrap();
    let keys = [":queue", ":positions", ":fence", ":tombstones", ":conditions"]
        .map(|suffix| format!("{others}{suffix}"));
    let mut ask = cmd("EVAL");
    ask.arg(scripts(Simple::RULE).unwrap().acquire).arg(6).arg(KEY).arg(&keys);
    ask.arg("67e55044-10b1-426f-9247-bb680e5fe0c8:1").arg(60_000).arg("rc:inbox:").arg(3_000);
    ask.arg("wait").arg("").arg("1 1 host dead");
    ask.exec(&mut fixture.server.connection().unwrap()).unwrap();
    fixture.await_queued(1);
    let lock = fixture.patient();
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        fixture.await_queued(2);
        assert!(foreign.frees());
        let gone = Instant::now();
        assert!(waits.join().unwrap() - gone < FOUND);
    });
}

/// An owner of one of their clients; text that is none; nothing.
#[test]
fn whatever_text_a_foreign_holder_has_it_holds_and_can_be_taken_away() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.patient());
    let texts: [&[u8]; 6] = [
        b"1c7f3a9e5b0d4f6c",
        b"67e55044-10b1-426f-9247-bb680e5fe0c8",
        b"67e55044-10b1-426f-9247-bb680e5fe0c8:x",
        b"\xff\x00\xfe binary",
        b"two\r\nlines",
        b"",
    ];
    for text in texts {
        let () = cmd("SET").arg(KEY).arg(text).query(&mut fixture.server.connection().unwrap()).unwrap();
        assert!(lock.try_lock().unwrap().is_none(), "{text:?}");
        let holder = lock.holder().unwrap().unwrap();
        assert_eq!((&*holder.owner, holder.since), (&*String::from_utf8_lossy(text), None));
        thread::scope(|scope| {
            // It is let in by the caller that takes the lock away.
            let waits = scope.spawn(|| comes_in(&other));
            fixture.await_queued(1);
            assert!(lock.force_unlock().unwrap().holders > 0, "{text:?}");
            waits.join().unwrap();
        });
        assert!(lock.force_unlock().unwrap().holders == 0 && !lock.is_locked().unwrap(), "{text:?}");
    }
}

#[test]
fn a_foreign_holders_delete_is_a_loss_that_is_told() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let client =
        builder(&fixture.server.url()).lease(ms(9000)).renew_every(ms(300)).observer(recorder.clone());
    let client = client.connect().unwrap();
    let lock = client.simple_lock_at(KEY);
    let guard = lock.lock().unwrap();
    let mut foreign = fixture.foreign_holder("theirs");
    assert!(!foreign.frees(), "it is not the owner");
    // Without looking whose it is, as no program should.
    let () = fixture.ask(&["DEL", KEY]);
    assert!(foreign.takes(LEASE));
    wait_until(LONG, "the loss", || guard.is_lost());
    wait_until(LONG, "the loss is told", || recorder.losses() > 0);
    assert!(recorder.all().contains(&Event::Lost(LossReason::Revoked)));
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(fixture.ask::<String>(&["GET", KEY]), "theirs", "ours does not delete theirs");
}

/// That nobody tells of it is found at a heartbeat, from then on every quarter of a second.
#[test]
fn a_foreign_holder_that_comes_in_between_is_found() {
    let fixture = Fixture::new();
    let (held, lock) = (fixture.lock(), fixture.lock());
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        fixture.await_queued(1);
        let () = fixture.ask(&["SET", KEY, "theirs"]);
        assert!(guard.unlock().unwrap_err().is_lease_lost());
        assert_eq!(lock.holder().unwrap().unwrap().owner, "theirs");
        let () = fixture.ask(&["DEL", KEY]);
        waits.join().unwrap();
    });
}
