//! What a row plays on, and what must be so in Redis when it is over.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::{Exclusive, Reentrancy};
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind, RedisLock};
use redis_concurrent_testkit::{eventually, expires_at, wait_until};

use crate::server_days::connected;
use crate::support::{LONG, ms};

/// What a loaded machine may add to a time limit.
pub const LATE: Duration = ms(4000);
/// A lease that is renewed in time on a loaded machine too, so often.
pub const LEASE: Duration = ms(3000);
pub const EVERY: Duration = ms(300);
/// The same for rows that hold for longer than a lease: so a machine that stands still for some seconds does
/// not end it.
pub const LASTING: Duration = ms(5000);
/// The lock under test.
pub const NAME: &str = "it";

/// A kind of lock that rows are played on.
pub trait Tried: Exclusive + Default {}
impl<K: Exclusive + Default> Tried for K {}

/// A timed try that fails, and how long it took. Once more where a busy machine had no answer for it in its time.
#[track_caller]
pub fn in_vain<T>(limit: Duration, attempt: impl Fn(Duration) -> Result<Option<T>, Error>) {
    eventually(LONG, || {
        let began = Instant::now();
        let outcome = attempt(limit);
        let took = began.elapsed();
        assert!(took < limit + LATE, "late: {took:?} of {limit:?}");
        if outcome.as_ref().is_err_and(Error::is_unavailable) {
            return None;
        }
        assert!(outcome.unwrap().is_none());
        assert!(took >= limit, "early: {took:?} of {limit:?}");
        Some(())
    });
}

/// Where one lock of a row has its keys.
pub struct Place {
    pub port: u16,
    pub database: u32,
}

/// Waits until there is nothing of `what` any more.
#[track_caller]
pub fn nothing<T: Debug>(what: &str, mut look: impl FnMut() -> Vec<T>) {
    let began = Instant::now();
    loop {
        let rest = look();
        if rest.is_empty() {
            return;
        }
        assert!(began.elapsed() < LONG, "left behind, {what}: {rest:?}");
        thread::sleep(ms(2));
    }
}

impl Place {
    /// Plays a row here, and looks what is left of it in Redis.
    pub fn play<K: Tried>(self, fair: bool, row: fn(&Fixture<K>)) {
        let fixture = Fixture { place: self, fair, clients: Mutex::default(), kind: PhantomData };
        row(&fixture);
        fixture.end();
    }

    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same database, by another port.
    pub fn url_at(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/{}", self.database)
    }

    pub fn namespace(&self) -> String {
        format!("n{}", self.database)
    }
}

/// The place and the clients of one lock of a row.
pub struct Fixture<K: Tried> {
    pub place: Place,
    pub fair: bool,
    clients: Mutex<Vec<Client>>,
    kind: PhantomData<K>,
}

impl<K: Tried> Fixture<K> {
    /// Another client; it stands for another process.
    pub fn client(&self) -> Client {
        // Heartbeats are as often as usual.
        self.client_with(|b| b.command_timeout(ms(3000)))
    }

    /// One whose requests have the time of a machine on which very many threads work at once.
    pub fn patient(&self) -> Client {
        self.client_with(|b| b.command_timeout(LONG))
    }

    /// A client that does not listen for as long as it only holds: it would, once it has held a lock for a heartbeat, which
    /// here is a third of the lease.
    pub fn deaf(&self) -> Client {
        self.client_with(|b| b.command_timeout(LONG).waiter_timeout(3 * LONG))
    }

    pub fn client_with(&self, set: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
        let client = connected(|| {
            let builder = Client::builder().url(&self.place.url()).namespace(&self.place.namespace());
            // No row is about how long that takes, and a hundred clients may connect on a busy machine.
            set(builder.connect_timeout(LONG))
        });
        self.clients.lock().push(client.clone());
        client
    }

    /// The lock under test, for this client.
    pub fn lock_of(&self, client: &Client) -> RedisLock<K> {
        self.named(client, NAME)
    }

    /// The lock under test, for another client.
    pub fn lock(&self) -> RedisLock<K> {
        self.lock_of(&self.client())
    }

    pub fn named(&self, client: &Client, name: &str) -> RedisLock<K> {
        let lock = client.lock_with_kind(name, K::default());
        if self.fair { lock.fair() } else { lock }
    }

    pub fn reentrant(&self) -> bool {
        K::REENTRANCY == Reentrancy::Counted
    }

    /// The key of the lock under test, or with a suffix another one of its keys.
    pub fn key(&self, suffix: &str) -> String {
        format!("{}:{{{NAME}}}{suffix}", self.place.namespace())
    }

    pub fn redis(&self) -> redis::Connection {
        redis::Client::open(self.place.url()).unwrap().get_connection().unwrap()
    }

    /// What the lock's key says of its owner.
    pub fn owner(&self) -> Option<String> {
        let (command, field) = match K::NAME {
            "write lock" => ("HGET", Some("writer")),
            _ if self.reentrant() => ("HGET", Some("owner")),
            _ => ("GET", None),
        };
        redis::cmd(command).arg(self.key("")).arg(field).query(&mut self.redis()).unwrap()
    }

    /// How long the lock's key lives yet.
    pub fn pttl(&self) -> Duration {
        let ms: i64 = redis::cmd("PTTL").arg(self.key("")).query(&mut self.redis()).unwrap();
        Duration::from_millis(ms.try_into().expect("it has an end"))
    }

    /// What stays of a barrier for a minute: it has an end, and nobody is in it. Taken away here, as
    /// nothing else may stay.
    pub fn bygone(&self) {
        let limit = Duration::from_secs(60);
        nothing("of the parties that passed", || -> Vec<String> {
            let fields: Vec<String> = redis::cmd("HKEYS").arg(self.key("")).query(&mut self.redis()).unwrap();
            fields.into_iter().filter(|field| field.contains(':')).collect()
        });
        assert!(self.pttl() > Duration::ZERO && self.pttl() <= limit);
        let _: () = redis::cmd("DEL").arg(self.key("")).query(&mut self.redis()).unwrap();
    }

    /// When the lock's key ends, by the server's clock.
    pub fn ends_at(&self) -> Duration {
        expires_at(&mut self.redis(), &self.key("")).unwrap().expect("it has an end")
    }

    /// The server's clock, in whole milliseconds as keys end.
    pub fn server_time(&self) -> Duration {
        let (s, us): (u64, u64) = redis::cmd("TIME").query(&mut self.redis()).unwrap();
        Duration::from_millis(s * 1000 + us / 1000)
    }

    /// The owner ids that wait in Redis, the next one first.
    pub fn positions(&self) -> Vec<String> {
        redis::cmd("ZRANGE").arg(self.key(":queue")).arg(0).arg(-1).query(&mut self.redis()).unwrap()
    }

    #[track_caller]
    pub fn await_positions(&self, n: usize) {
        wait_until(LONG, &format!("{n} queue positions"), || self.positions().len() == n);
    }

    /// The channels that somebody listens to.
    pub fn channels(&self) -> Vec<String> {
        let pattern = format!("{}:*", self.place.namespace());
        redis::cmd("PUBSUB").arg("CHANNELS").arg(pattern).query(&mut self.redis()).unwrap()
    }

    /// A row that takes a lot of threads or of time: one lock after the other.
    pub fn one_after_the_other(&self) -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock()
    }

    /// With guards, waiters and handles gone: no key but fences and tombstones, which end by
    /// themselves; no lock in use; with the clients closed no channel, no connection.
    fn end(self) {
        let server = format!("redis://127.0.0.1:{}/", self.place.port);
        let mut redis = redis::Client::open(server).unwrap().get_connection().unwrap();
        nothing("keys", || {
            let _: () = redis::cmd("SELECT").arg(self.place.database).query(&mut redis).unwrap();
            let rest = lasting_keys(&mut redis);
            let _: () = redis::cmd("SELECT").arg(0).query(&mut redis).unwrap();
            rest
        });
        for client in self.clients.into_inner() {
            // A row may have closed it, with guards that were leaked.
            let reply = client.simple_lock("nobody's").is_locked();
            if !reply.is_err_and(|e| e.kind() == ErrorKind::Closed) {
                wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
                client.close().unwrap();
            }
        }
        let (database, channels) = (format!(" db={} ", self.place.database), self.place.namespace() + ":*");
        nothing("connections", || {
            let all: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis).unwrap();
            all.lines().filter(|line| line.contains(&database)).map(str::to_owned).collect()
        });
        nothing("channels", || -> Vec<String> {
            redis::cmd("PUBSUB").arg("CHANNELS").arg(&channels).query(&mut redis).unwrap()
        });
    }
}

/// The keys of a database but for fences and tombstones that have an end.
fn lasting_keys(redis: &mut redis::Connection) -> Vec<String> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(redis).unwrap();
    if keys.is_empty() {
        return keys;
    }
    let mut ends = redis::pipe();
    for key in &keys {
        ends.cmd("PTTL").arg(key);
    }
    let ends: Vec<i64> = ends.query(redis).unwrap();
    let may_last = |key: &str| key.ends_with(":fence") || key.ends_with(":tombstones");
    keys.into_iter().zip(ends).filter(|(key, end)| !may_last(key) || *end == -1).map(|(key, _)| key).collect()
}
