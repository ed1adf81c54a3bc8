//! The same for waiters and holders of a read/write lock, a semaphore, a condition, a latch or
//! a barrier.

use std::thread;
use std::time::Instant;

use redis_concurrent::kinds::{Exclusive, Permits};
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, RedisLock};
use redis_concurrent_testkit::*;

use crate::calls::KINDS;
use crate::close::LOAD;
use crate::support::*;

fn count(server: &RedisServer, key: &str) -> usize {
    redis::cmd("ZCARD").arg(key).query(&mut server.connection().unwrap()).unwrap()
}

fn waits_for_a_signal<K: Exclusive>(lock: &RedisLock<K>) -> Result<(), Error> {
    let mut guard = lock.lock()?;
    let outcome = lock.condition("c").wait(&mut guard);
    assert!(guard.is_lost());
    outcome
}

/// A wait that nobody ends, and how many threads of this client are in it.
struct Wait(fn(&Client) -> Result<(), Error>, fn(&Client, &RedisServer) -> usize);

/// Two of each: behind another client, and where there is such a thing behind a hold of their own client.
const WAITS: [Wait; 11] = [
    Wait(
        |it| it.read_write_lock("theirs").read_lock().lock().map(drop),
        |it, _| it.read_write_lock("theirs").read_lock().local_queue_length(),
    ),
    Wait(
        |it| it.read_write_lock("theirs").write_lock().try_lock_for(LONG).map(drop),
        |it, _| it.read_write_lock("theirs").write_lock().local_queue_length(),
    ),
    Wait(
        |it| it.read_write_lock("read").write_lock().lock_interruptibly(&CancellationToken::new()).map(drop),
        |it, _| it.read_write_lock("read").write_lock().local_queue_length(),
    ),
    Wait(
        |it| it.read_write_lock("written").read_lock().lock().map(drop),
        |it, _| it.read_write_lock("written").read_lock().local_queue_length(),
    ),
    Wait(
        |it| it.semaphore("their permits").acquire(1).map(drop),
        |it, _| it.lock_with_kind("their permits", Permits::default()).local_queue_length(),
    ),
    Wait(
        |it| it.semaphore("permits").acquire_with(2, LONG).map(drop),
        |it, _| it.lock_with_kind("permits", Permits::default()).local_queue_length(),
    ),
    Wait(
        |it| waits_for_a_signal(&it.reentrant_lock("lock")),
        |_, server| count(server, "rc:{lock}:conditions"),
    ),
    Wait(
        |it| waits_for_a_signal(it.read_write_lock("half").write_lock()),
        |_, server| count(server, "rc:{half}:conditions"),
    ),
    Wait(|it| it.count_down_latch("latch").wait(), |_, server| count(server, "rc:{latch}:queue")),
    Wait(
        |it| it.count_down_latch("timed").wait_with(LONG).map(drop),
        |_, server| count(server, "rc:{timed}:queue"),
    ),
    Wait(
        |it| it.cyclic_barrier("barrier", 3).wait_then(|| panic!("it is not complete")).map(drop),
        |_, server| count(server, "rc:{barrier}:queue"),
    ),
];

#[test]
fn close_wakes_all_waiters_for_anything_and_gives_everything_back() {
    alone("close::synchronizers::close_wakes_all_waiters_for_anything_and_gives_everything_back", || {
        let server = RedisServer::start().unwrap();
        let other = connect(&server);
        let theirs = other.read_write_lock("theirs").write_lock().lock_owned().unwrap();
        for (name, n) in [("their permits", 1), ("permits", 3)] {
            other.semaphore(name).set_permits(n).unwrap();
        }
        let permit = other.semaphore("their permits").acquire(1).unwrap();
        for name in ["latch", "timed"] {
            other.count_down_latch(name).try_set_count(1).unwrap();
        }

        let client = connect(&server);
        let read = client.read_write_lock("read").read_lock().lock_owned().unwrap();
        let written = client.read_write_lock("written").write_lock().lock_owned().unwrap();
        let permits = client.semaphore("permits").acquire(2).unwrap();
        let closed = thread::scope(|scope| {
            let waiters: Vec<_> = (0..2 * WAITS.len())
                .map(|i| {
                    let client = &client;
                    scope.spawn(move || {
                        let outcome = WAITS[i / 2].0(client);
                        (i / 2, outcome.map_err(|e| e.kind()), Instant::now())
                    })
                })
                .collect();
            for (i, Wait(_, waiting)) in WAITS.iter().enumerate() {
                wait_until(LONG, &format!("two wait, {i}"), || waiting(&client, &server) == 2);
            }
            let began = Instant::now();
            let closed = client.close();
            assert!(began.elapsed() < ms(1000) + LOAD, "{:?}", began.elapsed());
            for waiter in waiters {
                let (i, outcome, at) = waiter.join().unwrap();
                // The first of the barrier to hear of it breaks it for the other.
                let broken = i == WAITS.len() - 1 && outcome == Err(ErrorKind::Broken);
                assert!(broken || outcome == Err(ErrorKind::Closed), "{i}: {outcome:?}");
                assert!(at - began < ms(1000) + LOAD, "{i}: {:?}", at - began);
            }
            closed
        });
        // A machine that has too much to do may keep it from giving back anything in its second: then it says so.
        if let Err(error) = closed {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            println!("not given back in time: {error}");
            return;
        }
        assert!(read.is_lost() && written.is_lost() && permits.is_lost());
        for lost in [read.unlock(), written.unlock(), permits.release()] {
            assert_eq!(lost.unwrap_err().kind(), ErrorKind::Closed);
        }
        // Nobody of it waits, and nobody of it has anything, though none of that has ended by itself yet. (A
        // semaphore has its holders where locks have the waiters for a condition, and the other client is one.)
        for key in
            server.keys().unwrap().into_iter().filter(|key| !key.ends_with("{their permits}:conditions"))
        {
            let waits = [":queue", ":positions", ":conditions"].iter().any(|suffix| key.ends_with(suffix));
            assert!(!waits, "{key} is left");
        }
        drop(other.read_write_lock("read").write_lock().try_lock().unwrap().expect("nobody reads"));
        drop(other.read_write_lock("written").read_lock().try_lock().unwrap().expect("nobody writes"));
        for name in ["lock", "half"] {
            assert!(!is_there(&server, name), "{name} is held");
        }
        assert_eq!(other.semaphore("permits").available().unwrap(), 3);
        assert_eq!(other.count_down_latch("latch").count().unwrap(), Some(1));
        assert!(other.cyclic_barrier("barrier", 3).is_broken().unwrap());
        theirs.unlock().unwrap();
        permit.release().unwrap();
        other.close().unwrap();
        // (Those of the other client begin whenever it first has a use for them: all of both have ended now.)
        wait_until(LONG, "their threads have ended", || threads("rc-").is_empty());
    });
}

fn is_there(server: &RedisServer, name: &str) -> bool {
    exists(server, &format!("rc:{{{name}}}"))
}

/// What there is to ask of each after the close: nothing is sent.
#[test]
fn a_closed_client_says_so_at_every_synchronizer() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let (halves, permits) = (client.read_write_lock("read-write lock"), client.semaphore("semaphore"));
    let condition = halves.write_lock().condition("c");
    permits.set_permits(1).unwrap();
    let mut write = halves.write_lock().lock().unwrap();
    client.close().unwrap();
    let requests = client.request_count();
    // Each under a name of its own.
    let mut outcomes: Vec<_> = KINDS.into_iter().flat_map(|(kind, calls)| calls(&client, kind)).collect();
    outcomes.extend([
        condition.wait(&mut write),
        condition.wait_with(&mut write, LONG).map(drop),
        condition.signal(&write),
        condition.signal_all(&write),
        condition.wait_queue_length(&write).map(drop),
        halves.downgrade(write).map(drop),
    ]);
    let (optimistic, fenced) = (client.optimistic(&["stock"]), client.fenced("report"));
    outcomes.extend([
        optimistic.run(|_, _| -> Result<Outcome<()>, Error> { panic!("it ran") }).map(drop),
        fenced.set(1, "x"),
        fenced.get::<String>().map(drop),
        fenced.script("return 1").run(1, &[], None::<&str>),
        fenced.expire_after(LONG).map(drop),
        fenced.delete().map(drop),
    ]);
    for (i, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.map_err(|e| e.kind()), Err(ErrorKind::Closed), "call {i}");
    }
    assert_eq!(client.request_count(), requests, "something was sent");
    assert!(connect(&server).semaphore("semaphore").delete().unwrap());
    nothing_left(&server);
}

/// It examines a hundred at a time; the slow one, at its rate, would go on for minutes.
#[test]
fn a_listing_under_way_at_the_close_ends() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let locks: Vec<_> = (0..150).map(|i| other.simple_lock(&i.to_string())).collect();
    let held: Vec<_> = locks.iter().map(|it| it.lock_owned().unwrap()).collect();
    let (mut listing, slow) = (client.list(), client.list().rate(1));
    assert!(listing.next().unwrap().is_ok());
    let requests = client.request_count();
    let began = Instant::now();
    let slow = thread::spawn(move || slow.map(|it| it.map_err(|e| e.kind())).collect::<Vec<_>>());
    wait_until(LONG, "it lists", || client.request_count() > requests);
    client.close().unwrap();
    let listing = listing.map(|it| it.map_err(|e| e.kind())).collect::<Vec<_>>();
    for all in [listing, slow.join().unwrap()] {
        assert_eq!(all.last().unwrap().as_ref().err(), Some(&ErrorKind::Closed));
        assert!(all.len() <= 101, "{}", all.len());
    }
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    drop(held);
}
