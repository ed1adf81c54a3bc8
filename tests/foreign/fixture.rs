//! A server, and on it the key that everybody locks.

use std::thread;
use std::time::Duration;

use redis::{Connection, cmd};
use redis_concurrent::kinds::Exclusive;
use redis_concurrent::{Client, RedisLock, SimpleLock};
use redis_concurrent_testkit::wait_until;

use crate::one_server::{self, Subject};
use crate::support::{LONG, ms};

/// The key: with a hash tag, as other keys of its owners' have it.
pub const KEY: &str = "job:{nightly}:lock";

/// Where those that wait for it stand.
pub const QUEUE: &str = "rc:{nightly}:at:job:{nightly}:lock:queue";

/// What a foreign holder's lock lasts where its end is not the point.
pub const LEASE: Duration = ms(60_000);

pub type Fixture = one_server::Fixture<SimpleLock>;

impl Subject for SimpleLock {
    const QUEUE: &str = QUEUE;

    fn of(client: &Client) -> Self {
        client.simple_lock_at(KEY)
    }
}

impl Fixture {
    /// A program of somebody else's.
    pub fn foreign_holder(&self, text: &str) -> ForeignHolder {
        ForeignHolder { redis: self.server.connection().unwrap(), text: text.into() }
    }
}

/// Whatever the kind: while a thread waits for a condition, others have the lock, and it comes back by a signal.
impl<K: Exclusive> one_server::Fixture<RedisLock<K>>
where
    RedisLock<K>: Subject,
{
    pub fn a_condition_lets_others_in(&self, others: impl FnOnce()) {
        let (waiter, signaller) = (self.patient(), self.patient());
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = waiter.lock().unwrap();
                assert!(waiter.condition("done").wait_with(&mut guard, LONG).unwrap());
                guard.unlock().unwrap();
            });
            let done = signaller.condition("done");
            wait_until(LONG, "one waits", || done.wait_queue_length(&signaller.lock().unwrap()).unwrap() > 0);
            others();
            let guard = signaller.lock().unwrap();
            done.signal(&guard).unwrap();
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
    }
}

/// Locks as the documentation of Redis has it: `SET key text NX PX lease`, and to unlock a script that deletes
/// the key while it has that text.
pub struct ForeignHolder {
    redis: Connection,
    text: Vec<u8>,
}

impl ForeignHolder {
    pub fn takes(&mut self, lease: Duration) -> bool {
        let mut set = cmd("SET");
        set.arg(KEY).arg(&self.text).arg("NX").arg("PX").arg(lease.as_millis() as u64);
        set.query::<Option<String>>(&mut self.redis).unwrap().is_some()
    }

    pub fn frees(&mut self) -> bool {
        let delete = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
        cmd("EVAL").arg(delete).arg(1).arg(KEY).arg(&self.text).query(&mut self.redis).unwrap()
    }
}
