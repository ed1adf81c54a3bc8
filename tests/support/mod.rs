//! What the tests of this folder and its neighbours share: an observer that remembers, seeded random numbers,
//! and ways to see what a process or a server still has.

// Each test binary uses only part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::ConnectionLike;
use redis_concurrent::kinds::Kind;
use redis_concurrent::observe::{AcquiredVia, LockInfo, LossReason, Observer};
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind, RedisLock, ReentrantLock};
use redis_concurrent_testkit::{Child, RedisServer, eventually, is_role, wait_until};

/// Far less than the default lease, and far more than anything takes that happens at once.
pub const SOON: Duration = Duration::from_secs(5);
pub const LONG: Duration = Duration::from_secs(20);

/// Where nothing listens. It is no port that was free a moment ago: a server that another test starts may get that one.
pub const NOBODYS_PORT: u16 = 1;
pub const NOWHERE: &str = "redis://127.0.0.1:1/";

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn builder(url: &str) -> ClientBuilder {
    Client::builder().url(url)
}

/// For a client that sends what is asked of it and nothing else: its heartbeats and renewals, which are requests, too, come
/// after the test.
pub fn quiet(builder: ClientBuilder) -> ClientBuilder {
    builder.waiter_timeout(10 * LONG).lease(10 * LONG)
}

/// A machine that is busy may take longer than these short timeouts for the first answer.
#[track_caller]
pub fn connected(set: impl Fn() -> ClientBuilder) -> Client {
    eventually(LONG, || match set().connect() {
        Ok(client) => Some(client),
        Err(error) => {
            assert!(error.is_unavailable(), "{error:#}");
            eprintln!("{error:#}");
            None
        }
    })
}

#[track_caller]
pub fn connect(server: &RedisServer) -> Client {
    patiently(&server.url())
}

/// A client each of whose requests has the time that its reply takes on the busiest machine.
#[track_caller]
pub fn patiently(url: &str) -> Client {
    connected(|| unhurried(url))
}

/// The settings of such a client.
pub fn unhurried(url: &str) -> ClientBuilder {
    builder(url).connect_timeout(LONG).command_timeout(LONG)
}

/// A client that neither renews nor repeats a request by itself while a test runs: a waiter that gets in was
/// admitted, or woken up.
pub fn patient(server: &RedisServer) -> Client {
    let minutes = Duration::from_secs(120);
    connected(|| unhurried(&server.url()).lease(minutes).waiter_timeout(minutes))
}

/// Waits for the lock and releases it. Returns when it was acquired. Times out, so that a failing test ends.
#[track_caller]
pub fn comes_in<K: Kind>(lock: &RedisLock<K>) -> Instant {
    let guard = lock.try_lock_for(LONG).unwrap().expect("in time");
    let came = Instant::now();
    guard.unlock().unwrap();
    came
}

/// What is reported to an observer, without names and durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Acquired(AcquiredVia),
    Released,
    Renewed,
    Lost(LossReason),
    Reconnected,
    UnlockFailed(ErrorKind),
}

/// An observer that remembers what was reported to it.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    pub fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    pub fn count(&self, what: Event) -> usize {
        self.0.lock().iter().filter(|h| **h == what).count()
    }

    pub fn failures(&self) -> usize {
        self.0.lock().iter().filter(|h| matches!(h, Event::UnlockFailed(_))).count()
    }

    pub fn losses(&self) -> usize {
        self.0.lock().iter().filter(|h| matches!(h, Event::Lost(_))).count()
    }

    fn note(&self, what: Event) {
        self.0.lock().push(what);
    }
}

impl Observer for Recorder {
    fn acquired(&self, _: LockInfo<'_>, _: Duration, way: AcquiredVia) {
        self.note(Event::Acquired(way));
    }
    fn released(&self, _: LockInfo<'_>, _: Duration) {
        self.note(Event::Released);
    }
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        self.note(Event::Renewed);
    }
    fn lost(&self, _: LockInfo<'_>, why: LossReason) {
        self.note(Event::Lost(why));
    }
    fn reconnected(&self, _: Duration) {
        self.note(Event::Reconnected);
    }
    fn unlock_failed(&self, _: LockInfo<'_>, error: &Error) {
        self.note(Event::UnlockFailed(error.kind()));
    }
}

/// Sets the flag when it is dropped: threads that go on until then end also where a test fails. Else their scope
/// would wait for them for ever.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Reproducible random numbers: the seed is printed, and read from the environment.
pub struct Random(u64);

impl Random {
    pub fn new(test: &str) -> Self {
        let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("{test}: SEED={seed}");
        Random::of(seed)
    }

    pub fn of(seed: u64) -> Self {
        Random(seed)
    }

    pub fn fork(&mut self) -> Self {
        Random(self.next())
    }

    /// Returns a seed for another process.
    pub fn seed(&mut self) -> String {
        self.next().to_string()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below))
    }
}

/// Runs `body` in a process of its own, so that all of its threads and sockets belong to the test, and which
/// is killed if it hangs. `test` is the full name of the calling test.
pub fn alone(test: &str, body: impl FnOnce()) {
    if is_role(test) {
        return body();
    }
    let mut child = Child::spawn(test, &[]).unwrap();
    // Even on the slowest machine, a process that takes longer than this hangs.
    let status = child.wait_within(6 * LONG).unwrap();
    assert!(status.success(), "{test}, in a process of its own: {status}");
}

/// Returns the names of this process's threads that begin with `prefix`.
pub fn threads(prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end in between.
        if let Ok(name) = std::fs::read_to_string(task.unwrap().path().join("comm"))
            && name.starts_with(prefix)
        {
            names.push(name.trim_end().to_owned());
        }
    }
    names
}

/// Returns how many sockets this process has open.
pub fn sockets() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let target = |path: &Path| std::fs::read_link(path).unwrap_or_default();
    fds.filter(|fd| fd.as_ref().is_ok_and(|fd| target(&fd.path()).to_string_lossy().starts_with("socket:")))
        .count()
}

pub fn channels(server: &RedisServer) -> Vec<String> {
    let mut connection = server.connection().unwrap();
    redis::cmd("PUBSUB").arg("CHANNELS").query(&mut connection).unwrap()
}

pub fn pttl(server: &RedisServer, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(&mut server.connection().unwrap()).unwrap()
}

pub fn exists(server: &RedisServer, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(&mut server.connection().unwrap()).unwrap()
}

pub fn delete(server: &RedisServer, key: &str) -> bool {
    redis::cmd("DEL").arg(key).query(&mut server.connection().unwrap()).unwrap()
}

/// Returns the outcome of a call with a timeout of a few milliseconds, in which no reply may have arrived.
pub fn in_brief<T>(outcome: Result<Option<T>, Error>) -> Option<T> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        outcome => outcome.unwrap(),
    }
}

/// Repeats a call with a short timeout until Redis replied in that time.
#[track_caller]
pub fn replied<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    eventually(LONG, || match call() {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        outcome => Some(outcome.unwrap()),
    })
}

/// The error of such a call, once Redis replied in time.
#[track_caller]
pub fn refused<T>(mut call: impl FnMut() -> Result<T, Error>) -> Error {
    replied(|| match call() {
        Err(error) if error.kind() != ErrorKind::Unavailable => Ok(error),
        outcome => outcome.map(|_| panic!("it was not refused")),
    })
}

/// Waits until a hold was renewed three times: each time, more time is left than a moment before.
#[track_caller]
pub fn renewed_again(left: impl Fn() -> Duration) {
    let (mut before, mut times) = (left(), 0);
    wait_until(LONG, "it is renewed again and again", || {
        let now = left();
        times += usize::from(now > before);
        before = now;
        times >= 3
    });
}

/// A hash's fields with their values, or else the key's dump.
pub type Content = Vec<Vec<u8>>;

/// Returns what a key contains; `None` if it does not exist. Unlike `DUMP`, this does not depend on the order
/// in which a server keeps the fields of a hash, which differs between servers and changes as it grows.
pub fn content(redis: &mut impl ConnectionLike, key: &str) -> Option<Content> {
    let kind: String = redis::cmd("TYPE").arg(key).query(redis).unwrap();
    if kind != "hash" {
        let dump: Option<Vec<u8>> = redis::cmd("DUMP").arg(key).query(redis).unwrap();
        return dump.map(|dump| vec![dump]);
    }
    let fields: BTreeMap<Vec<u8>, Vec<u8>> = redis::cmd("HGETALL").arg(key).query(redis).unwrap();
    Some(fields.into_iter().flat_map(|(field, value)| [field, value]).collect())
}

/// Waits until Redis has nothing but fences and tombstones, all of which expire.
#[track_caller]
pub fn nothing_left(server: &RedisServer) {
    let rest = || -> Vec<String> {
        let mut keys = server.keys().unwrap();
        keys.retain(|k| !(k.ends_with(":fence") || k.ends_with(":tombstones")) || pttl(server, k) == -1);
        keys
    };
    wait_until(LONG, "only fences and tombstones are left", || rest().is_empty());
}

/// Waits until `n` threads wait for the lock, over all processes.
#[track_caller]
pub fn queued<K: Kind>(lock: &RedisLock<K>, n: usize) {
    wait_until(LONG, "so many wait", || lock.queue_length().unwrap() == n);
}

/// Checks that another caller can acquire the lock at once, and releases it. Returns the token.
#[track_caller]
pub fn free_at_once(lock: &ReentrantLock) -> u64 {
    let began = Instant::now();
    let guard = lock.try_lock_for(SOON).unwrap().expect("the lock is free");
    assert!(began.elapsed() < SOON, "the lock was free only after {:?}", began.elapsed());
    let token = guard.token();
    guard.unlock().unwrap();
    token
}

/// Returns microseconds on a clock that all processes of this machine share.
pub fn clock() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

pub fn env(name: &str) -> String {
    std::env::var(name).unwrap()
}
