//! What the tests of bad input and of bad days have in common.

// Each test binary takes in this file, and none needs all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Connection, FromRedisValue, cmd};
use redis_concurrent::{
    Client, ClientBuilder, Error, ErrorKind, Exclusive, Guard, LockInfo, LossReason, Observer, RedisLock,
};
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

/// How long a test waits for what must come: long, as machines stall.
pub const SURELY: Duration = Duration::from_secs(10);

/// One command's time limit in these tests.
pub const COMMAND: Duration = Duration::from_millis(400);

/// How long a position is kept of which nothing is heard: a heartbeat is a third of it.
pub const HEARD: Duration = Duration::from_millis(900);

/// A kind that the tests of this folder are about.
pub trait Subject: Exclusive + Copy {}
impl<K: Exclusive + Copy> Subject for K {}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Settings with short times. Leases are renewed every second and last three: what a test does
/// not mean to lose it does not lose by a stall.
pub fn brisk(url: &str) -> ClientBuilder {
    Client::builder()
        .url(url)
        .lease(ms(3000))
        .waiter_timeout(HEARD)
        .connect_timeout(COMMAND)
        .command_timeout(COMMAND)
        .unreachable_timeout(SURELY)
}

/// The same for where no silence is waited for: a command has all the time that it may have.
pub fn lively(url: &str) -> ClientBuilder {
    brisk(url).command_timeout(HEARD)
}

/// A machine that is busy may take longer than these short timeouts for the first answer.
pub fn connected(set: impl Fn() -> ClientBuilder) -> Client {
    eventually(SURELY, || match set().connect() {
        Ok(client) => Some(client),
        Err(error) => {
            assert!(error.is_unavailable(), "{error:#}");
            eprintln!("{error:#}");
            None
        }
    })
}

pub fn connect(url: &str) -> Client {
    connected(|| lively(url))
}

/// A lease so short that its loss can be waited for.
pub const SHORT_LEASE: Duration = Duration::from_millis(900);

/// How much later than its deadline a call may end: a quarter of a second, where the machine has
/// nothing else to do than these tests. What is neglected is late by more than the seconds of a busy one.
fn grace() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let is_shared = std::env::var_os("CI").is_some() || load > cores as f64;
    if is_shared { ms(5000) } else { ms(250) }
}

/// Runs `call`, which must end by `limit`, and returns what it gave. Prints how it kept to it.
#[track_caller]
pub fn on_time<T>(what: &str, limit: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = call();
    let took = start.elapsed();
    eprintln!("overshoot: {:>4} ms of {limit:?}: {what}", took.saturating_sub(limit).as_millis());
    assert!(took <= limit + grace(), "{what} took {took:?}, not {limit:?}");
    outcome
}

/// No message of the chain contains another behind it: a reporter prints them all.
#[track_caller]
pub fn assert_tells_nothing_twice(error: &Error) {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |it| (*it).source());
    let told: Vec<_> = chain.map(ToString::to_string).collect();
    for (i, message) in told.iter().enumerate() {
        assert!(told[i + 1..].iter().all(|below| !message.contains(below)), "{told:?}");
    }
}

/// The error of `outcome`, which must be of this kind and about the lock `name`.
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

/// One command from outside, on a connection of its own.
#[track_caller]
pub fn ask<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    on(&mut server.connection().unwrap(), words)
}

/// One command on this connection.
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

/// Where a lock's state is.
pub fn key(name: &str) -> String {
    format!("rc:{{{name}}}")
}

/// Whether a process has a queue position for the lock `name`.
pub fn is_queued(server: &RedisServer, name: &str) -> bool {
    ask::<u64>(server, &["ZCARD", &format!("{}:queue", key(name))]) > 0
}

/// A port that nobody listens on: one that a server just had.
pub fn nobodys_port() -> u16 {
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    server.port()
}

/// How many processes have a queue position for the lock `name`.
pub fn wait_for_queue(server: &RedisServer, name: &str) {
    wait_until(SURELY, "a queue position", || is_queued(server, name));
}

/// Waits until nothing of ours is left but fences and tombstones, each with an end, and no lock
/// in these clients, whose handles must be gone. `spared` are keys of the test itself.
#[track_caller]
pub fn nothing_stays_but(spared: &[&str], server: &RedisServer, clients: &[&Client]) {
    let mut left = Vec::new();
    let start = Instant::now();
    while start.elapsed() < SURELY {
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
        if left.is_empty() && clients.iter().all(|it| it.lock_count() == 0) {
            return;
        }
        std::thread::sleep(ms(5));
    }
    let locks: Vec<_> = clients.iter().map(|it| it.lock_count()).collect();
    panic!("left behind: {left:?}, and {locks:?} locks in the clients");
}

#[track_caller]
pub fn nothing_stays(server: &RedisServer, clients: &[&Client]) {
    nothing_stays_but(&[], server, clients);
}

/// What an observer has heard.
#[derive(Clone, Default)]
pub struct Ear(Arc<Heard>);

#[derive(Default)]
pub struct Heard {
    pub renewed: AtomicUsize,
    pub reconnected: AtomicUsize,
    pub lost: Mutex<Vec<LossReason>>,
    pub unlock_failed: Mutex<Vec<Error>>,
}

impl std::ops::Deref for Ear {
    type Target = Heard;

    fn deref(&self) -> &Heard {
        &self.0
    }
}

impl Ear {
    pub fn losses(&self) -> Vec<LossReason> {
        self.lost.lock().clone()
    }

    /// Waits for `n` renewals more.
    #[track_caller]
    pub fn wait_for_renewals(&self, n: usize) {
        let before = self.renewed.load(SeqCst);
        wait_until(SURELY, "renewals", || self.renewed.load(SeqCst) >= before + n);
    }
}

impl Observer for Ear {
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

/// Another process, as far as Redis can tell: gets the lock within `limit`, and gives it back.
#[track_caller]
pub fn another_gets_in<K: Subject>(server: &RedisServer, kind: K, name: &str, limit: Duration) -> u64 {
    let client = connected(|| Client::builder().url(&server.url()));
    let lock = client.lock_with_kind(name, kind);
    let start = Instant::now();
    let guard = lock.try_lock_for(limit).unwrap().unwrap_or_else(|| panic!("still taken after {limit:?}"));
    eprintln!("the next owner got in after {:?}", start.elapsed());
    unlocks(guard)
}

/// Waits for the lock, and gives it back. Returns the token.
pub fn takes_a_turn<K: Subject>(lock: &RedisLock<K>) -> u64 {
    unlocks(lock.lock().unwrap())
}

fn unlocks<K: Subject>(guard: Guard<'_, K>) -> u64 {
    let token = guard.token();
    guard.unlock().unwrap();
    token
}
