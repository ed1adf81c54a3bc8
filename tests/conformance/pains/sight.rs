//! Of locks that cannot be looked into: the holder, the number of waiters, the time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redis_concurrent::internals::lock_count;
use redis_concurrent::observe::MetricsObserver;
use redis_concurrent_testkit::*;

use crate::support::*;

/// A process that holds `x`, or waits for it with so many threads, until it is told to end.
const ROLE: &str = "pains::sight::role_takes_part";

/// What the machine's clocks may be apart, as the server's tells since when.
const BLUR: Duration = ms(2000);

fn take_part(server: &RedisServer, client_name: &str, threads: &str) -> Child {
    let child =
        Child::spawn(ROLE, &[("URL", &server.url()), ("LABEL", client_name), ("THREADS", threads)]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "there");
    child
}

/// A queue position tells how many threads stand behind it; inside the process that holds there is none.
#[test]
fn threads_behind_a_holder_of_their_own_process_are_counted_by_that_process() {
    let server = RedisServer::start().unwrap();
    let (mine, theirs) = (connect(&server), connect(&server));
    let (lock, other) = (mine.reentrant_lock("x"), theirs.reentrant_lock("x"));
    let held = lock.lock().unwrap();
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| drop(lock.lock().unwrap()))));
        wait_until(SOON, "two wait here", || lock.local_queue_length() == 2);
        assert_eq!((lock.queue_length().unwrap(), other.queue_length().unwrap()), (2, 0));
        (0..3).for_each(|_| drop(scope.spawn(|| drop(other.lock().unwrap()))));
        wait_until(LONG, "three wait there, and Redis was told", || lock.queue_length().unwrap() == 5);
        assert_eq!((other.queue_length().unwrap(), other.local_queue_length()), (3, 3));
        held.unlock().unwrap();
    });
    assert_eq!((lock.queue_length().unwrap(), other.queue_length().unwrap()), (0, 0));
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_takes_part() {
    if !is_role(ROLE) {
        return;
    }
    let client = connected(|| builder(&env("URL")).client_name(&env("LABEL")));
    let lock = client.reentrant_lock("x");
    let threads: usize = env("THREADS").parse().unwrap();
    if threads == 0 {
        let guard = lock.lock().unwrap();
        tell_parent("there").unwrap();
        hear_parent().unwrap();
        return guard.unlock().unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        }
        wait_until(LONG, "all wait", || lock.local_queue_length() == threads);
        tell_parent("there").unwrap();
    });
}

/// Any process can tell who holds it, since when, for how long yet, and who waits; so can a shell,
/// by the very commands of the documentation.
#[test]
fn pain_28_the_holder_and_the_waiters_can_be_asked_for() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    assert_eq!((lock.holder().unwrap(), lock.queue_length().unwrap()), (None, 0));
    let before = SystemTime::now();
    let mut holder = take_part(&server, "check out", "0");
    let after = SystemTime::now();
    let billing = take_part(&server, "billing", "1");
    queued(&lock, 1);
    let mut waiters = [billing, take_part(&server, "stock", "3")];

    let found = lock.holder().unwrap().unwrap();
    let process = found.process.unwrap();
    assert_eq!((process.pid, process.client_name.as_str()), (holder.pid(), "check out"));
    assert_eq!(process.host, this_host());
    let since = found.since.unwrap();
    assert!(since + BLUR >= before && since <= after + BLUR, "{since:?} is not in {before:?}..{after:?}");
    let left = found.remaining.unwrap();
    assert!(left > ms(10_000) && left <= ms(30_000), "{left:?}");
    // The number of threads behind a queue position comes with its next heartbeat.
    queued(&lock, 4);
    assert_eq!(lock.local_queue_length(), 0);

    let mut shell = server.connection().unwrap();
    let state: Vec<String> = redis::cmd("HGETALL").arg("rc:{x}").query(&mut shell).unwrap();
    assert!(state.contains(&found.owner), "{state:?} is not {}", found.owner);
    let record = format!("{} {} check out", holder.pid(), this_host());
    assert!(state.iter().any(|it| it.contains(&record)), "{state:?} does not name {record}");
    let seen: Vec<String> = redis::cmd("EVAL")
        .arg(documented_script())
        .arg(2)
        .arg("rc:{x}:queue")
        .arg("rc:{x}:positions")
        .query(&mut shell)
        .unwrap();
    let [billing, stock] = &waiters;
    let expected = [format!(" 1 {} {} billing", billing.pid(), this_host()), format!(" 3 {} ", stock.pid())];
    assert_eq!(seen.len(), 2, "{seen:?}");
    for (line, expected) in seen.iter().zip(&expected) {
        assert!(line.contains(expected.as_str()), "{line} does not say {expected}");
    }

    holder.say("end").unwrap();
    for child in waiters.iter_mut().chain([&mut holder]) {
        assert!(child.wait_within(LONG).unwrap().success());
    }
    assert_eq!((lock.holder().unwrap(), lock.queue_length().unwrap()), (None, 0));
}

fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the page on operations says a shell should send, to see who waits.
fn documented_script() -> &'static str {
    let page = include_str!("../../../docs/operations.md");
    page.split("redis-cli EVAL \"").nth(1).and_then(|it| it.split("\" 2 ").next()).unwrap()
}

/// Figures of a crowd: each call is in them once, and each hold has its length.
#[test]
fn pain_28_figures_sum_to_what_was_done() {
    let mut random = Random::new("pain_28");
    let server = RedisServer::start().unwrap();
    let recorder = DebuggingRecorder::new();
    let figures = recorder.snapshotter();
    recorder.install().unwrap();
    let (calls, holds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let clients = [(); 2].map(|()| {
        let metrics = MetricsObserver::default().with_groups(str::to_owned);
        unhurried(&server.url()).observer(metrics).connect().unwrap()
    });
    thread::scope(|scope| {
        for i in 0..6 {
            let (mut random, client) = (random.fork(), &clients[i % 2]);
            let (calls, holds) = (&calls, &holds);
            scope.spawn(move || {
                for _ in 0..200 {
                    let lock = client.reentrant_lock(["summed a", "summed b"][random.below(2) as usize]);
                    let guard = match random.below(3) {
                        0 => lock.try_lock().unwrap(),
                        // A time that may be too short for an answer.
                        1 => lock.try_lock_for(random.micros(2000)).unwrap_or_else(|e| {
                            assert!(e.is_unavailable(), "{e}");
                            None
                        }),
                        _ => Some(lock.lock().unwrap()),
                    };
                    calls.fetch_add(1, Ordering::Relaxed);
                    if guard.is_some() {
                        holds.fetch_add(1, Ordering::Relaxed);
                        // Not told: it asks nothing of anybody.
                        drop(lock.lock().unwrap());
                        thread::sleep(random.micros(100));
                    }
                }
            });
        }
    });
    // The last releases are answered.
    clients.iter().for_each(|client| client.close().unwrap());
    let (mut waits, mut got, mut held) = (0, 0, 0);
    for (key, _, _, value) in figures.snapshot().into_vec() {
        let client_name = |name: &str| key.key().labels().find(|it| it.key() == name).map(|it| it.value());
        // Another test of this binary may be recorded, too.
        if !client_name("lock").is_some_and(|it| it.starts_with("summed ")) {
            continue;
        }
        let values = match value {
            DebugValue::Histogram(values) => values,
            DebugValue::Gauge(now) => {
                assert_eq!(now.into_inner(), 0.0, "{key:?}: nobody waits or holds any more");
                continue;
            }
            // The reply to a dropped guard's release is read by the next call on its connection, whose time may be too
            // short for that: then the release goes on in the background, and the hold has its length all the same.
            DebugValue::Counter(_) if client_name("error") == Some("outcome unknown") => continue,
            DebugValue::Counter(_) => panic!("{key:?} is none of it"),
        };
        match key.key().name() {
            "redis_concurrent_wait_seconds" => {
                waits += values.len();
                let is_hold = !matches!(client_name("outcome"), Some("busy" | "unavailable"));
                got += if is_hold { values.len() } else { 0 };
            }
            "redis_concurrent_hold_seconds" => held += values.len(),
            other => panic!("{other} is none of it"),
        }
    }
    let holds = holds.into_inner();
    assert_eq!((waits, got, held), (calls.into_inner(), holds, holds));
    assert!(holds > 300, "{holds} is hardly a crowd");
}

/// Takes nothing that it is given.
struct Broken;

impl Broken {
    fn panic(&self) -> ! {
        // Without the hook's message on standard error.
        std::panic::resume_unwind(Box::new("on purpose"))
    }
}

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.panic()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.panic()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.panic()
    }
}

#[test]
fn pain_28_a_recorder_that_fails_breaks_no_lock() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).observer(MetricsObserver::default()));
    let lock = client.reentrant_lock("x");
    // On this thread only, which is where all of this is told.
    metrics::with_local_recorder(&Broken, || {
        for _ in 0..10 {
            lock.lock().unwrap().unlock().unwrap();
        }
        let guard = lock.lock().unwrap();
        assert!(delete(&server, "rc:{x}"));
        assert!(guard.unlock().unwrap_err().is_lease_lost());
        let held = connect(&server).reentrant_lock("x").lock_owned().unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        held.unlock().unwrap();
    });
    drop(lock.lock().unwrap());
    drop(lock);
    assert_eq!(lock_count(&client), 0);
    nothing_left(&server);
}
