//! The client of one Redis server or cluster: what all locks that it creates share.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, ServerError};

use crate::clock::Moment;
use crate::engine;
use crate::engine::call::backoff::{Backoff, pause};
use crate::engine::call::held::UNKNOWN;
use crate::engine::call::outcomes::failed;
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::watching::Watching;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::{Pools, THREADS, THREADS_OF_SEVERAL};
use crate::engine::redis::probe::probe;
use crate::engine::redis::refusal::refused;
use crate::engine::redis::slots::Node;
use crate::engine::renewal::renewer::Renewer;
use crate::engine::renewal::successor::connected;
use crate::engine::servers::cluster::Cluster;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::takeover;
use crate::error::{Error, ErrorKind};
use crate::guard::OwnedGuard;
use crate::kind::Kind;
use crate::kinds::{Redisson, RedissonFenced, Reentrant, Simple, Spring};
use crate::lock::receipt::Receipt;
use crate::lock::{RedisLock, RedissonFencedLock, RedissonLock, ReentrantLock, SimpleLock, SpringLock};
use crate::observe::{Observation, Observer, Observers};
use crate::script::Script;
use crate::settings::Config;
use crate::wait::Wait;

/// A client of one Redis server, or of one cluster; it creates the locks. Cheap to clone, and meant to live
/// as long as the process; locks and guards keep it alive.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let lock = client.reentrant_lock("stock:42");
/// let guard = lock.lock()?;
/// // no other thread, in any process, is here now
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// A client has a pool of connections; one channel on which it receives its grants (with a thread, started by
/// the first wait, the first hold that lasts longer than a heartbeat, or the first use of
/// [`lost`](crate::Guard::lost)); a connection for its renewals (with a thread, started by the first one);
/// and a share of the process's renewal thread. If [sentinels](crate::ClientBuilder::url) name its
/// server, one thread per sentinel listens to it. A client of a cluster has these for each primary where it
/// waits or holds. Three threads open the connections of the pool; in a cluster, six open those of all pools.
///
/// A client belongs to the process that created it. In a forked child its calls return
/// [`Forked`](ErrorKind::Forked) and release none of the parent's holds. Fork before the first client is
/// created, or let the child exec: a client that a child creates while its parent has one may hang, as the
/// child has copies of the parent's mutexes but not of the threads that wait there. A child is known by its
/// process id: one that has its parent's, as process 1 of a PID namespace that process 1 of another created,
/// is taken for its parent, and must not use what it inherited.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Shared>);

impl Client {
    /// Opens one connection to each server, to check that it is reachable and can serve this library.
    pub(crate) fn probe(&self) -> Result<(), Error> {
        let channel = self.0.channel();
        match &self.0.route {
            Route::One(server) => {
                probe(&server.manager, &channel).map(|info| connected(&self.0, server, &info))
            }
            Route::Cluster(cluster) => cluster.probe(&channel),
        }
    }

    /// Starts a client of the server that `manager` connects to or, if there are nodes, of their cluster;
    /// `manager` then connects to the first of them.
    pub(crate) fn start(
        config: Config,
        manager: ConnectionManager,
        nodes: &[Node],
        observers: Observers,
    ) -> Result<Client, Error> {
        let threads = if nodes.is_empty() { THREADS } else { THREADS_OF_SEVERAL };
        let pools = Pools::new(&config, threads).map_err(|e| {
            ErrorKind::Unavailable
                .because("the threads of the connection pool could not be started")
                .caused_by(e)
        })?;
        let route = match nodes {
            [] => Route::One(Server::new(manager, &pools, None)),
            [first, others @ ..] => Route::Cluster(Box::new(Cluster::new(manager, pools, first, others))),
        };
        let shared = Shared::new(config, route, Renewer::current(), observers);
        takeover::keep_up(&shared);
        takeover::watch(&shared)?;
        Ok(Client(shared))
    }

    /// The lock `name` of the kind [`Simple`]: a string key, not reentrant.
    ///
    /// Creating a handle sends no request and cannot fail: an invalid name is reported by the first call on
    /// it.
    pub fn simple_lock(&self, name: &str) -> SimpleLock {
        self.lock_with_kind(name, Simple)
    }

    /// The lock of the kind [`Simple`] whose string key is exactly `key`: it excludes, and is excluded by,
    /// any client in any language that locks by `SET key owner NX PX lease`.
    ///
    /// Among clients of this library it is a simple lock like any other, whose name is the key. Its other
    /// keys in Redis are in the client's namespace and in the slot of `key`. A string that another program
    /// has set is a holder too; [`holder`](RedisLock::holder) returns its owner. A foreign holder does not
    /// notify waiters when it releases the lock, so meanwhile they ask every quarter of a second, and when
    /// the foreign lease expires. Foreign clients do not queue either: one may acquire the lock ahead of the
    /// waiters here whenever the key is free. A string without an expiry holds the lock until it is deleted;
    /// [`force_unlock`](RedisLock::force_unlock) does that. Foreign holders have no fencing tokens: those of
    /// this lock order only what this library does under it.
    ///
    /// If `key` is where a [`simple_lock`](Client::simple_lock) of this client's namespace keeps its state,
    /// the result is that lock, under its name.
    ///
    /// Creating a handle sends no request and cannot fail: an invalid key is reported by the first call on
    /// it, as `InvalidInput`. A key has 1 to 1,024 bytes, is not another key of a lock, and has no `}` except
    /// in or after a valid hash tag: otherwise no other key could be put into its slot.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// # let mut redis = server.connection()?;
    /// let client = Client::connect(&url)?;
    /// let lock = client.simple_lock_at("nightly:report");
    ///
    /// // another program, with a different client
    /// let mut theirs = redis::cmd("SET");
    /// theirs.arg("nightly:report").arg("cron@db7").arg("NX").arg("PX").arg(3000);
    /// theirs.exec(&mut redis)?;
    ///
    /// assert!(lock.try_lock()?.is_none());
    /// assert_eq!(lock.holder()?.map(|holder| holder.owner).as_deref(), Some("cron@db7"));
    /// let guard = lock.lock()?; // once that lease has expired
    /// let refused: Option<String> = theirs.query(&mut redis)?;
    /// assert_eq!(refused, None);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn simple_lock_at(&self, key: &str) -> SimpleLock {
        RedisLock::at(&self.0, Simple, key)
    }

    /// The lock `name` of the kind [`Reentrant`]: its holder may acquire it again.
    #[doc(alias = "mutex")]
    #[doc(alias = "getLock")]
    pub fn reentrant_lock(&self, name: &str) -> ReentrantLock {
        self.lock_with_kind(name, Reentrant)
    }

    /// The lock that Redisson, in Java, calls `redisson.getLock(key)`: it excludes, and is excluded by, each
    /// `RLock` and `RFencedLock` of that name, and a release on either side wakes the waiters of the other.
    ///
    /// Among clients of this library it is a lock like any other, whose name is the key, with leases, losses,
    /// conditions and receipts. Its other keys in Redis are in the client's namespace and in the slot of
    /// `key`. While a Redisson client holds the lock, the client of a waiter listens to
    /// `redisson_lock__channel:{key}`, where Redisson announces a release; if the holder dies, waiters wait
    /// until its lease expires. Redisson's waiters have no queue position: when the lock is released here
    /// while one of them waits, Redisson has 25 ms to acquire it before the next waiter here does.
    /// [`holder`](RedisLock::holder) returns Redisson's owners, `<client uuid>:<thread id>`, without a
    /// process or a time; [`force_unlock`](RedisLock::force_unlock) takes the lock away from them.
    ///
    /// Tokens order only what this library does under the lock. A `getFairLock` of that name is excluded, but
    /// its waiters are not woken: they listen to channels of their own. A hash at the key that is not such a
    /// lock (a map, an `RReadWriteLock`) is reported as `WrongType`. For valid keys see
    /// [`simple_lock_at`](Client::simple_lock_at).
    ///
    /// Creating a handle sends no request and cannot fail: an invalid key is reported by the first call on
    /// it.
    ///
    /// ```
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// let lock = client.redisson_lock("stock:42"); // in Java: redisson.getLock("stock:42")
    /// let guard = lock.lock()?;
    /// // No thread of any Java program is here now.
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getLock")]
    pub fn redisson_lock(&self, key: &str) -> RedissonLock {
        RedisLock::at(&self.0, Redisson, key)
    }

    /// The lock that Redisson, in Java, calls `redisson.getFencedLock(key)`. It is the same lock as
    /// [`redisson_lock`](Client::redisson_lock) of that key, and its fencing tokens order the holds of both
    /// sides: [`token`](crate::Guard::token) is what `lockAndGetToken` returns there, from the counter
    /// `redisson_lock_token:{key}`.
    ///
    /// Each hold gets its number from Redis, so such a lock is always [fair](RedisLock::fair). The counter
    /// does not survive the loss of Redis's data: tokens then begin at 1 again. A re-entry keeps the token of
    /// the hold; in Redisson, it gets a new one.
    ///
    /// Creating a handle sends no request and cannot fail: an invalid key is reported by the first call on
    /// it.
    pub fn redisson_fenced_lock(&self, key: &str) -> RedissonFencedLock {
        RedisLock::at(&self.0, RedissonFenced, key)
    }

    /// The lock that Spring Integration, in Java, calls
    /// `new RedisLockRegistry(connections, registry).obtain(key)`, of a registry in its `PUB_SUB_LOCK` mode:
    /// each side excludes the other, and a release on either side wakes the waiters of the other. (With
    /// registries in their default mode, whose waiters ask every 100 ms, a
    /// [`simple_lock_at`](Client::simple_lock_at) of `<registry>:<key>` works as well. All callers of this
    /// library must use the same one of the two.)
    ///
    /// Among clients of this library it is a lock like any other, whose name is `<registry>:<key>`. A release
    /// publishes that name to `<registry>-channel`; while a Spring client holds the lock, the client of a
    /// waiter listens there. Spring's waiters have no queue position: when the lock is released here while
    /// any client of the registry listens, Spring has 25 ms to acquire it before the next caller here does,
    /// and then not again for 100 ms. Waiters wait for a holder in Java until the registry's expiry at the
    /// latest, which Spring does not renew by itself. Tokens order only what this library does under the
    /// lock.
    ///
    /// Creating a handle sends no request and cannot fail: an invalid key is reported by the first call on
    /// it.
    ///
    /// ```
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// let lock = client.spring_lock("orders", "42"); // in Java: registry.obtain("42")
    /// let guard = lock.lock()?;
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spring_lock(&self, registry: &str, key: &str) -> SpringLock {
        RedisLock::at(&self.0, Spring::of(registry), &format!("{registry}:{key}"))
    }

    /// The lock `name` of any kind, including your own.
    pub fn lock_with_kind<K: Kind>(&self, name: &str, kind: K) -> RedisLock<K> {
        RedisLock::new(&self.0, kind, name)
    }

    /// Adopts the hold of `receipt`: from then on it belongs to this client, with a full lease, renewed
    /// unless it was a fixed one, and with its original fencing token. A receipt works once. `K` is the
    /// [kind](Receipt::kind) of the receipt, as a type. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `NotOwner` if the hold has ended, or the receipt was used before; `WrongType` if `K` is another kind,
    /// or the key is in use by something else; `InvalidInput` for a kind whose rule has no `kind.transfer`;
    /// `Unavailable`, `Closed`, `Forked`. `OutcomeUnknown` if Redis did not reply: if the hold was adopted
    /// nevertheless, it is released in the background; if not, the receipt is still valid.
    pub fn adopt<K: Kind + Default>(&self, receipt: &Receipt) -> Result<OwnedGuard<K>, Error> {
        let lock = match receipt.is_at_key() {
            true => RedisLock::at(&self.0, K::default(), receipt.name()),
            false => self.lock_with_kind(receipt.name(), K::default()),
        };
        lock.adopt(receipt)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Sleeps for `time`, or until the end of the call or of the client.
    pub(crate) fn pause(&self, time: Duration, wait: &Wait<'_>) {
        pause(&self.0, Moment::now().after(time), wait);
    }

    /// Sleeps for a random time after one more attempt that collided with others', and took so long.
    pub(crate) fn back_off(&self, backoff: &mut Backoff, took: Duration, longest: Duration, wait: &Wait<'_>) {
        backoff.pause(&self.0, took, longest, wait);
    }

    /// Runs a script that is not an operation on a lock, over keys of one slot, each in two parts. Errors show
    /// `name`. Blocks for at most the command timeout, and no longer than `wait` allows.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply to a script that writes.
    pub(crate) fn eval<T: FromRedisValue, A: AsRef<[u8]>>(
        &self,
        name: &str,
        (effect, script): (Effect, &Script),
        keys: &[[&str; 2]],
        args: &[A],
        wait: &Wait<'_>,
    ) -> Result<T, Error> {
        let limit = wait.limit(Moment::now(), self.0.config.command_timeout);
        self.0.usable().map_err(|e| e.about(name))?;
        let reply = self.0.eval(script, keys, args, limit, effect == Effect::Adds).map_err(|failure| {
            if effect == Effect::Reads { failure.error() } else { failed(failure, UNKNOWN) }.about(name)
        })?;
        redis::from_redis_value(reply.value).map_err(|e| {
            Error::new(ErrorKind::Protocol, name).because("unexpected reply from a script").caused_by(e)
        })
    }

    /// Makes Redis watch `keys` on one connection: see [`Watching`].
    pub(crate) fn watch<'a>(&'a self, keys: &[Vec<u8>], wait: &'a Wait<'a>) -> Result<Watching<'a>, Error> {
        Watching::begin(&self.0, keys, wait).map_err(Failure::error)
    }

    /// What an error reply means.
    pub(crate) fn refused(reply: ServerError) -> Error {
        refused(reply.into()).error()
    }

    /// The number of requests that this client has sent so far, by all its threads.
    pub fn request_count(&self) -> u64 {
        self.0.route.servers().iter().map(|server| server.backend.request_count()).sum()
    }

    /// Adds an observer of this client's locks, until the [`Observation`] is dropped. An observer for the
    /// client's whole life is passed to the [builder](crate::ClientBuilder::observer).
    pub fn observe(&self, observer: impl Observer) -> Observation {
        self.0.observers.observe(observer)
    }

    /// Closes the client and all its clones: waiting threads get [`Closed`](ErrorKind::Closed), every guard's
    /// [`lost`](crate::Guard::lost) token is cancelled, all holds are released, observers are told of what they
    /// have not been told yet, and threads and connections end. Blocks for one second at most; calling it again
    /// has no effect.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a hold could not be released in time: it expires with its lease, and each such hold
    /// was reported to the observer.
    pub fn close(&self) -> Result<(), Error> {
        engine::call::close(&self.0)
    }
}

/// What a script does to state that is not a lock's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// The same if it is sent twice.
    Sets,
    /// More if it is sent twice: so it is sent once.
    Adds,
}

shows!(Client as "Client", |it| "uuid": it.0.uuid);

#[cfg(all(test, not(shuttle)))]
#[path = "../verify/unit/client.rs"]
mod tests;
