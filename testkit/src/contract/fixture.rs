//! The environment of one case of the contract.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Commands;

use redis_concurrent::internals;
use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
use redis_concurrent::{Client, ClientBuilder, RedisLock};

use super::place::Place;
use crate::{RedisServer, scripts, wait_until};

/// Longer than anything here takes on a busy machine, unless it hangs.
pub(super) const LONG: Duration = Duration::from_secs(15);

/// The keys of a lock.
type Keys = [String; 6];

/// How to make the locks under test, and the locks that exclude them.
pub(super) struct Play<'a, K: Kind, W: Kind> {
    pub(super) make: &'a (dyn Fn(&Client, &str) -> RedisLock<K> + Sync),
    pub(super) keep_out: &'a (dyn Fn(&Client, &str) -> RedisLock<W> + Sync),
    /// Whether the lock under test has one holder at a time, and so excludes itself.
    pub(super) one_holder: bool,
    /// Deletes the state that the kind keeps for its users.
    pub(super) forget: &'a (dyn Fn(&Client, &str) + Sync),
}

impl<K: Kind, W: Kind> Clone for Play<'_, K, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind, W: Kind> Copy for Play<'_, K, W> {}

/// The server, lock name and clients of one case.
pub(super) struct Fixture<'a, K: Kind, W: Kind> {
    url: String,
    /// The server that has the lock.
    server: Arc<RedisServer>,
    name: String,
    play: Play<'a, K, W>,
    clients: Mutex<Vec<Client>>,
    /// The keys of the lock under test, known once its first handle exists.
    keys: OnceLock<Keys>,
}

impl<'a, K: Kind, W: Kind> Fixture<'a, K, W> {
    pub(super) fn new(place: &Place, case: &str, play: Play<'a, K, W>) -> Self {
        let name = format!("contract {case}");
        Fixture {
            url: place.url(),
            server: place.server_of(&name),
            name,
            play,
            clients: Mutex::default(),
            keys: OnceLock::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn exclusive(&self) -> bool {
        K::SHARING == Sharing::Exclusive
    }

    /// Whether two callers that acquire the lock are never inside together.
    pub(super) fn one_holder(&self) -> bool {
        self.play.one_holder
    }

    pub(super) fn reentry(&self) -> Reentrancy {
        K::REENTRANCY
    }

    /// A client that neither renews nor repeats requests by itself while a case runs: a waiter that gets the
    /// lock within that time was woken.
    pub(super) fn patient(&self) -> Client {
        let minute = Duration::from_secs(60);
        self.client(|b| b.lease(minute * 2).waiter_timeout(minute * 2).command_timeout(LONG))
    }

    /// A client that renews often; its lease is as long as a machine may stand still.
    pub(super) fn brisk(&self) -> Client {
        let often = Duration::from_millis(300);
        self.client(|b| b.lease(LONG).renew_every(often).waiter_timeout(LONG).command_timeout(LONG))
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().url(&self.url).client_name("contract").connect_timeout(LONG)
    }

    pub(super) fn client(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let client = match set(self.builder()).connect() {
            Ok(client) => client,
            Err(error) => panic!("{error:#}"),
        };
        self.clients.lock().push(client.clone());
        client
    }

    /// The lock under test, from this client.
    pub(super) fn lock(&self, client: &Client) -> RedisLock<K> {
        let lock = (self.play.make)(client, &self.name);
        if let Ok(keys) = internals::keys(&lock) {
            self.keys.get_or_init(|| keys);
        }
        lock
    }

    /// The lock that excludes the lock under test, from this client; the same lock, if it has one holder.
    pub(super) fn keeper_of(&self, client: &Client) -> RedisLock<W> {
        (self.play.keep_out)(client, &self.name)
    }

    /// The lock under test, from a client of its own.
    pub(super) fn fresh(&self) -> RedisLock<K> {
        self.lock(&self.patient())
    }

    /// The lock that excludes it, from a client of its own.
    pub(super) fn keeper(&self) -> RedisLock<W> {
        self.keeper_of(&self.patient())
    }

    /// Both locks, from one client.
    pub(super) fn both(&self) -> (RedisLock<K>, RedisLock<W>) {
        let client = self.patient();
        (self.lock(&client), self.keeper_of(&client))
    }

    pub(super) fn other(&self, client: &Client, name: &str) -> RedisLock<K> {
        (self.play.make)(client, &format!("{} {name}", self.name))
    }

    pub(super) fn redis(&self) -> redis::Connection {
        match self.server.connection() {
            Ok(connection) => connection,
            Err(error) => panic!("{error:#}"),
        }
    }

    fn keys(&self) -> Keys {
        match self.keys.get() {
            Some(keys) => keys.clone(),
            None => panic!("its keys are asked for before there is a lock"),
        }
    }

    /// Sends the acquire request of a process that is killed right after.
    pub(super) fn ask_as_the_dead(
        &self,
        lock: &RedisLock<K>,
        how: &str,
        lease: Duration,
        waiter_timeout: Duration,
    ) {
        let made = match scripts(K::RULE) {
            Ok(made) => made,
            Err(why) => panic!("{why}"),
        };
        let (lease, waiter_timeout) = (lease.as_millis().to_string(), waiter_timeout.as_millis().to_string());
        let mut eval = redis::cmd("EVAL");
        eval.arg(made.acquire)
            .arg(self.keys().len())
            .arg(&self.keys())
            .arg("dead:1")
            .arg(lease)
            .arg("rc:inbox:")
            .arg(waiter_timeout);
        // Of the highest priority, so that none passes it.
        eval.arg(how).arg(lock.kind().args()).arg("1 1 host dead").arg(&["", "", "", "3"]);
        let reply: redis::RedisResult<redis::Value> = eval.query(&mut self.redis());
        assert!(reply.is_ok(), "{reply:?}");
    }

    pub(super) fn state_key(&self) -> String {
        let [state, ..] = self.keys();
        state
    }

    /// How many queue positions there are in Redis.
    pub(super) fn positions(&self) -> usize {
        let [_, queue, ..] = self.keys();
        match self.redis().zcard(queue) {
            Ok(n) => n,
            Err(error) => panic!("{error:#}"),
        }
    }

    pub(super) fn await_positions(&self, n: usize) {
        wait_until(LONG, &format!("{n} queue positions in Redis"), || self.positions() == n);
    }

    /// Checks that once guards and waiters are gone, there is no holder and nothing is left but the users'
    /// own state: no key except the fence and tombstones, which expire by themselves; no lock in use; and
    /// every client can be closed.
    pub(super) fn end(&self) {
        let last = self.patient();
        let lock = self.lock(&last);
        wait_until(LONG, "nobody holds it", || matches!(lock.is_locked(), Ok(false)));
        drop(lock);
        (self.play.forget)(&last, &self.name);
        let [state, queue, positions, fence, gone, conditions] = self.keys();
        let mut redis = self.redis();
        wait_until(LONG, "no key is left", || {
            [&state, &queue, &positions, &conditions]
                .iter()
                .all(|key| matches!(redis.exists(*key), Ok(false)))
        });
        for key in [fence, gone] {
            let ttl: i64 = redis.pttl(&key).unwrap_or(0);
            assert!(ttl > 0 || ttl == -2, "{key} has no time to live");
        }
        for client in self.clients.lock().iter() {
            wait_until(LONG, "no lock is in use", || lock_count(client) == 0);
            assert!(client.close().is_ok(), "closing");
        }
    }
}
