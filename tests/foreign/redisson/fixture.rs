//! A server, a lock, and a client that keeps the lock as Redisson's documentation and its commands show it.

use std::time::Duration;

use redis::{Connection, cmd};
use redis_concurrent::Client;
use redis_concurrent::interop::RedissonLock;
use redis_concurrent_testkit::wait_until;

use crate::one_server::{self, Subject};
use crate::support::LONG;

pub const KEY: &str = "stock:42";

/// The lock's queue, and what it remembers beside its state.
pub const QUEUE: &str = "rc:{stock:42}:at:queue";
pub const TOMBSTONES: &str = "rc:{stock:42}:at:tombstones";

/// Where Redisson announces that the lock is free.
pub const CHANNEL: &str = "redisson_lock__channel:{stock:42}";

/// What a hold lasts where its end is not the point.
pub const LEASE: Duration = Duration::from_secs(60);

pub type Fixture = one_server::Fixture<RedissonLock>;

impl Subject for RedissonLock {
    const QUEUE: &str = QUEUE;

    fn of(client: &Client) -> Self {
        client.redisson_lock(KEY)
    }
}

impl Fixture {
    /// A thread of a client of Redisson's.
    pub fn java(&self, thread: u32) -> Java {
        let owner = format!("67e55044-10b1-426f-9247-bb680e5fe0c8:{thread}");
        Java { redis: self.server.connection().unwrap(), owner }
    }

    /// How many listen to Redisson's channel.
    #[track_caller]
    pub fn listeners(&self) -> usize {
        self.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", CHANNEL]).1
    }

    #[track_caller]
    pub fn await_listeners(&self, n: usize) {
        wait_until(LONG, &format!("{n} listen to Redisson's channel"), || self.listeners() == n);
    }
}

/// What a thread of Redisson's sends.
pub struct Java {
    redis: Connection,
    pub owner: String,
}

impl Java {
    /// Takes it, or takes it once more. Returns what remains of the holder's lease where it is busy.
    pub fn takes(&mut self, lease: Duration) -> Result<(), i64> {
        let script = "local inside = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 \
                      if not inside and redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end \
                      redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        let mut eval = cmd("EVAL");
        eval.arg(script).arg(1).arg(KEY).arg(&self.owner).arg(lease.as_millis() as u64);
        eval.query::<Option<i64>>(&mut self.redis).unwrap().map_or(Ok(()), Err)
    }

    /// Gives it back once: whether that was the last time, `None` if it is not inside.
    pub fn frees(&mut self) -> Option<bool> {
        let script = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end \
                      if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end \
                      redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '0') return 1";
        cmd("EVAL").arg(script).arg(1).arg(KEY).arg(&self.owner).arg(CHANNEL).query(&mut self.redis).unwrap()
    }

    /// Takes it away from its holder, whoever that is.
    pub fn forces(&mut self) -> bool {
        let script = "local n = redis.call('DEL', KEYS[1]) if n == 1 then redis.call('PUBLISH', ARGV[1], '0') end return n";
        cmd("EVAL").arg(script).arg(1).arg(KEY).arg(CHANNEL).query(&mut self.redis).unwrap()
    }
}
