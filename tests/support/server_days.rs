//! What the tests of bad input and of failing servers have in common.

// Each test binary includes this file, and none needs all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Connection, FromRedisValue, cmd};
use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::Exclusive;
use redis_concurrent::observe::{LockInfo, LossReason, Observer};
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind, Guard, RedisLock};
use redis_concurrent_testkit::{RedisServer, eventually, released_all, wait_until};

pub use crate::support::connected;

/// How long a test waits for something certain: long, since machines stall.
pub const SURELY: Duration = Duration::from_secs(20);

/// The command timeout in tests that wait for it to expire.
pub const COMMAND: Duration = Duration::from_millis(1500);

/// How long a position without heartbeats is kept, longer than a machine stalls; heartbeats are sent every third
/// of it.
pub const HEARD: Duration = Duration::from_millis(4500);

/// A kind that the tests of this folder use.
pub trait Subject: Exclusive + Copy {}
impl<K: Exclusive + Copy> Subject for K {}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Settings with short timeouts. Leases are renewed every three seconds and last nine, so that a stall loses
/// nothing that the test does not mean to lose.
pub fn brisk(url: &str) -> ClientBuilder {
    Client::builder()
        .url(url)
        .lease(ms(9000))
        .waiter_timeout(HEARD)
        .connect_timeout(COMMAND)
        .command_timeout(COMMAND)
        .unreachable_timeout(SURELY)
}

/// Like `brisk`, for tests that wait for no timeout: a command gets all the time that it may have.
pub fn lively(url: &str) -> ClientBuilder {
    brisk(url).connect_timeout(HEARD).command_timeout(HEARD)
}

/// Settings for tests in which a reply must come at once, or by another request: what waits for such a command to
/// time out is later than any stall.
pub fn unhurried(url: &str) -> ClientBuilder {
    brisk(url).waiter_timeout(SURELY).connect_timeout(SURELY).command_timeout(SURELY)
}

pub fn connect(url: &str) -> Client {
    connected(|| lively(url))
}

/// A lease short enough to wait for its loss.
pub const SHORT_LEASE: Duration = Duration::from_millis(900);

/// How much later than its deadline a call may end: a busy machine stands still for seconds.
const GRACE: Duration = ms(5000);

/// Runs `call`, which must end by `limit`, and returns its result. Prints by how much it was late.
#[track_caller]
pub fn on_time<T>(what: &str, limit: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = call();
    let took = start.elapsed();
    eprintln!("overshoot: {:>4} ms of {limit:?}: {what}", took.saturating_sub(limit).as_millis());
    assert!(took <= limit + GRACE, "{what} took {took:?}, not {limit:?}");
    outcome
}

/// Checks that no message of the chain contains a later one, since a reporter prints them all.
#[track_caller]
pub fn assert_tells_nothing_twice(error: &Error) {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |it| (*it).source());
    let texts: Vec<_> = chain.map(ToString::to_string).collect();
    for (i, message) in texts.iter().enumerate() {
        assert!(texts[i + 1..].iter().all(|below| !message.contains(below)), "{texts:?}");
    }
}

/// Returns the error of `outcome`, which must be of this kind and about the lock `name`.
#[track_caller]
pub fn error_of<T>(outcome: Result<T, Error>, kind: ErrorKind, name: &str) -> Error {
    match outcome {
        Ok(_) => panic!("no error where {kind:?} was due"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.name(), name, "{error}");
            assert!(name.is_empty() || error.to_string().contains(name), "{error}");
            assert_tells_nothing_twice(&error);
            error
        }
    }
}

/// `call` fails as Redis is unavailable, for one of these reasons (in small letters). Called again where the
/// machine stood still: the error then tells of the time that was up.
#[track_caller]
pub fn refused_for(reasons: &[&str], name: &str, mut call: impl FnMut() -> Result<(), Error>) {
    eventually(SURELY, || {
        let texts = format!("{:#}", error_of(call(), ErrorKind::Unavailable, name));
        let is_given = reasons.iter().any(|it| texts.to_lowercase().contains(it));
        let was_late = texts.contains("no answer") || texts.contains(" in time");
        assert!(is_given || was_late, "not for {reasons:?}: {texts}");
        is_given.then_some(())
    });
}

/// Runs the attempt, and again where its fault has not happened: a thread that stands still for all of a short try
/// asks nothing.
#[track_caller]
pub fn until_it_happens<T>(happened: impl Fn() -> bool, mut attempt: impl FnMut() -> T) -> T {
    eventually(SURELY, || {
        let (outcome, end) = (attempt(), Instant::now() + HEARD);
        // What was asked may be on its way.
        while !happened() {
            if Instant::now() > end {
                return None;
            }
            thread::sleep(ms(1));
        }
        Some(outcome)
    })
}

/// Gives back what is held. Where the machine stands still the answer may be late: it is unlocked all the same,
/// in the background at the latest. Returns the token.
#[track_caller]
pub fn gives_back<K: Subject>(guard: Guard<K>) -> u64 {
    let token = guard.token();
    released_all(&guard.unlock());
    token
}

/// One command from outside, on a connection of its own.
#[track_caller]
pub fn ask<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    on(&mut server.connection().unwrap(), words)
}

/// Sends a command on this connection.
#[track_caller]
pub fn on<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query(connection).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

#[track_caller]
pub fn configure(server: &RedisServer, setting: &str, value: &str) {
    ask::<()>(server, &["CONFIG", "SET", setting, value]);
}

/// The key of a lock's state.
pub fn key(name: &str) -> String {
    format!("rc:{{{name}}}")
}

/// Whether a process has a queue position for the lock `name`.
pub fn is_queued(server: &RedisServer, name: &str) -> bool {
    ask::<u64>(server, &["ZCARD", &format!("{}:queue", key(name))]) > 0
}

/// Waits until a process has a queue position for the lock `name`.
pub fn wait_for_queue(server: &RedisServer, name: &str) {
    wait_until(SURELY, "a queue position", || is_queued(server, name));
}

/// Waits until nothing is left but fences and tombstones that expire, and no lock in these clients, whose
/// handles must have been dropped. `spared` are keys of the test itself.
#[track_caller]
pub fn nothing_stays_but(spared: &[&str], server: &RedisServer, clients: &[&Client]) {
    let mut left = Vec::new();
    let start = Instant::now();
    // Less than a lease of half a minute: what ends by that was not given back.
    while start.elapsed() < SURELY + GRACE {
        let keys = server.keys().unwrap();
        let mut connection = server.connection().unwrap();
        left = keys
            .into_iter()
            .filter(|it| !spared.contains(&it.as_str()))
            .filter(|it| {
                let ends = on::<i64>(&mut connection, &["PTTL", it]) != -1;
                !(ends && (it.ends_with(":fence") || it.ends_with(":tombstones")))
            })
            .collect();
        if left.is_empty() && clients.iter().all(|it| lock_count(it) == 0) {
            return;
        }
        thread::sleep(ms(5));
    }
    let locks: Vec<_> = clients.iter().map(|it| lock_count(it)).collect();
    panic!("left behind: {left:?}, and {locks:?} locks in the clients");
}

#[track_caller]
pub fn nothing_stays(server: &RedisServer, clients: &[&Client]) {
    nothing_stays_but(&[], server, clients);
}

/// Counts what an observer is told.
#[derive(Clone, Default)]
pub struct Counters(Arc<Counted>);

#[derive(Default)]
pub struct Counted {
    pub renewed: AtomicUsize,
    pub reconnected: AtomicUsize,
    pub lost: Mutex<Vec<LossReason>>,
    pub unlock_failed: Mutex<Vec<Error>>,
}

impl std::ops::Deref for Counters {
    type Target = Counted;

    fn deref(&self) -> &Counted {
        &self.0
    }
}

impl Counters {
    pub fn losses(&self) -> Vec<LossReason> {
        self.lost.lock().clone()
    }

    /// Waits for `n` more renewals.
    #[track_caller]
    pub fn wait_for_renewals(&self, n: usize) {
        let before = self.renewed.load(SeqCst);
        wait_until(SURELY, "renewals", || self.renewed.load(SeqCst) >= before + n);
    }
}

impl Observer for Counters {
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        self.renewed.fetch_add(1, SeqCst);
    }

    fn reconnected(&self, _: Duration) {
        self.reconnected.fetch_add(1, SeqCst);
    }

    fn lost(&self, _: LockInfo<'_>, why: LossReason) {
        self.lost.lock().push(why);
    }

    fn unlock_failed(&self, _: LockInfo<'_>, error: &Error) {
        self.unlock_failed.lock().push(error.clone());
    }
}

/// Plays another process, as far as Redis can tell: gets the lock within `limit`, and releases it.
#[track_caller]
pub fn another_gets_in<K: Subject>(server: &RedisServer, kind: K, name: &str, limit: Duration) -> u64 {
    let client = connect(&server.url());
    let lock = client.lock_with_kind(name, kind);
    let start = Instant::now();
    let guard = lock.try_lock_for(limit).unwrap().unwrap_or_else(|| panic!("still taken after {limit:?}"));
    eprintln!("the next owner got in after {:?}", start.elapsed());
    gives_back(guard)
}

/// Waits for the lock and releases it. Returns the token.
pub fn takes_a_turn<K: Subject>(lock: &RedisLock<K>) -> u64 {
    gives_back(lock.lock().unwrap())
}
