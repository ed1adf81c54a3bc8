//! Servers that know nothing of each other, and locks over them.

use std::time::{Duration, Instant};

use redis_concurrent::guard::Ownership;
use redis_concurrent::{Client, ClientBuilder, Guard, RedLock, RedLockClient};
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use crate::support::connected;

/// Long enough for whatever is sure to come.
pub const LONG: Duration = Duration::from_secs(20);
/// A lease of which a loaded machine misses nothing.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long a server may take in a test that is not about that: a loaded machine stands still at times.
pub const PATIENT: Duration = Duration::from_millis(3000);
/// The lock that a test is about.
pub const NAME: &str = "it";

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Servers, each started a moment ago.
pub struct Fixture {
    pub servers: Vec<RedisServer>,
}

impl Fixture {
    pub fn of(n: usize) -> Fixture {
        Fixture { servers: (0..n).map(|_| RedisServer::start().unwrap()).collect() }
    }

    pub fn five() -> Fixture {
        Fixture::of(5)
    }

    /// A client of each; together they stand for another process.
    pub fn clients(&self, set: impl Fn(ClientBuilder) -> ClientBuilder) -> Vec<Client> {
        let builder = |server: &RedisServer| Client::builder().url(&server.url()).lease(LEASE);
        self.servers.iter().map(|server| connected(|| set(builder(server)))).collect()
    }

    /// Another process, patient, and sure that nothing was granted before.
    pub fn red(&self) -> RedLockClient {
        self.red_with(|b| b)
    }

    pub fn red_with(&self, set: impl Fn(ClientBuilder) -> ClientBuilder) -> RedLockClient {
        RedLockClient::new(self.clients(set)).unwrap().skip_startup_delay().with_node_timeout(PATIENT)
    }

    /// The lock's holder on each server.
    pub fn owners(&self) -> Vec<Option<String>> {
        let key = format!("rc:{{{NAME}}}");
        let get = |server: &RedisServer| -> Option<String> {
            redis::cmd("GET").arg(&key).query(&mut server.connection().ok()?).ok()?
        };
        self.servers.iter().map(get).collect()
    }

    /// On how many servers it is held.
    pub fn held_on(&self) -> usize {
        self.owners().iter().flatten().count()
    }

    #[track_caller]
    pub fn await_held_on(&self, n: usize) {
        wait_until(LONG, &format!("held on {n} servers"), || self.held_on() == n);
    }

    /// A hold that all servers have granted. A majority is enough for a call that acquires: another reply may come
    /// later, and counts then, unless it takes longer than the node timeout.
    #[track_caller]
    pub fn by_all<O: Ownership>(&self, take: impl Fn() -> Guard<RedLock, O>) -> Guard<RedLock, O> {
        eventually(3 * LONG, || {
            let (guard, began) = (take(), Instant::now());
            while guard.servers() < self.servers.len() && began.elapsed() < PATIENT {
                std::thread::sleep(ms(5));
            }
            (guard.servers() == self.servers.len()).then_some(guard)
        })
    }

    /// For how long each server keeps the lock.
    pub fn leases(&self) -> Vec<Duration> {
        let key = format!("rc:{{{NAME}}}");
        let pttl = |server: &RedisServer| -> i64 {
            redis::cmd("PTTL").arg(&key).query(&mut server.connection().unwrap()).unwrap()
        };
        self.servers.iter().map(|s| Duration::from_millis(pttl(s).try_into().unwrap_or(0))).collect()
    }

    /// Keys that are neither a last number nor ended owners with an end of their own.
    pub fn lasting_keys(&self) -> Vec<String> {
        let mut rest = Vec::new();
        for server in &self.servers {
            let mut redis = server.connection().unwrap();
            for key in server.keys().unwrap() {
                let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut redis).unwrap();
                let may_last = key.ends_with(":fence") || key.ends_with(":tombstones");
                if ttl != -2 && !(may_last && ttl > 0) {
                    rest.push(key);
                }
            }
        }
        rest
    }

    /// Well within a lease nothing is left.
    #[track_caller]
    pub fn nothing_stays(&self) {
        wait_until(LEASE / 2, "nothing is left behind", || self.lasting_keys().is_empty());
    }

    pub fn request_count(&self) -> u64 {
        let calls = |server: &RedisServer| -> u64 {
            let calls = server.command_calls().unwrap();
            ["evalsha", "eval"].iter().filter_map(|it| calls.get(*it)).sum()
        };
        self.servers.iter().map(calls).sum()
    }
}
