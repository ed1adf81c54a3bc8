//! What is stored under a name, whatever kind of lock it is: for operators of a service.

mod listing;
mod view;

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, Value};

pub use self::listing::Listing;
pub use self::view::{BlockedThread, ConditionWaiter, Deadlock, Inspection, KeyInfo, deadlocks};
use self::view::{Lookup, command};
pub use crate::address::Sentinels;
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::not_connected;
use crate::engine::redis::resp::{number, text};
use crate::engine::servers::server::Server;
pub use crate::error::printable;
use crate::error::{Error, ErrorKind};
use crate::lock::holder::take_away;
pub use crate::lock::holder::{ForcedUnlock, HeldBy};
pub use crate::lock::inspect::{Holder, Process, Waiter};
use crate::names::Names;

/// The tag in the state of a rate limiter.
const RATE_LIMITER: &str = "rate limiter";

impl Client {
    /// Returns everything about a name, whatever its kind; `None` if nothing is stored under it. Read-only
    /// (except that expired holders may be dropped). Sends a few requests, each for at most the command timeout;
    /// for a lock with many holders or waiters, one for every few dozen of them.
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
    /// let found = client.inspect("stock:42")?.expect("it is held");
    /// assert_eq!(found.kind, "reentrant lock");
    /// assert_eq!(found.holders[0].token, Some(guard.token()));
    /// assert!(found.waiters.is_empty() && client.inspect("stock:43")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable`, also without permission for TYPE; `Closed`, `Forked`, and `InvalidInput` for an invalid
    /// name.
    pub fn inspect(&self, name: &str) -> Result<Option<Inspection>, Error> {
        self.inspect_behind(&Names::new(&self.shared().config.namespace, name)?)
    }

    /// The same for a lock at a user-chosen key: a [simple lock](Client::simple_lock_at), or one that is
    /// shared with [Redisson](Client::redisson_lock).
    ///
    /// # Errors
    /// See [`inspect`](Client::inspect); `InvalidInput` for an invalid key.
    pub fn inspect_key(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.inspect_behind(&Names::at_key(&self.shared().config.namespace, key)?)
    }

    /// Retries if the lock became one of another kind between the request for its kind and those that examine
    /// it: a lock that nobody holds is free and of no kind until it is acquired. Also retries once if the
    /// lock is now on another server of the cluster.
    fn inspect_behind(&self, names: &Names) -> Result<Option<Inspection>, Error> {
        const ATTEMPTS: u32 = 10;
        let (route, mut attempt, mut is_first_server) = (&self.shared().route, 1, true);
        loop {
            let server = route.to(route.slot(names.key().as_bytes()));
            match self.inspect_once(names, server) {
                Err(e) if e.kind() == ErrorKind::WrongType && attempt < ATTEMPTS => attempt += 1,
                Err(e) if e.is_unavailable() && is_first_server && self.asks_where(server) => {
                    is_first_server = false;
                }
                outcome => return outcome.map_err(|e| e.about(names.name())),
            }
        }
    }

    fn inspect_once(&self, names: &Names, server: &Server) -> Result<Option<Inspection>, Error> {
        let keys: Vec<String> =
            names.keys().iter().chain([&names.fenced()]).map(|parts| parts.concat()).collect();
        let mut commands: Vec<_> = keys.iter().map(|key| command(&["PTTL", key])).collect();
        commands.extend(keys.iter().map(|key| command(&["MEMORY", "USAGE", key])));
        commands.extend([
            command(&["TYPE", &keys[0]]),
            command(&["HGET", &keys[0], "kind"]),
            command(&["HGET", &keys[6], "token"]),
            command(&["HGET", &keys[0], "used"]),
        ]);
        let answers = self.exchange(server, &commands)?;
        answers.first().map_or(Ok(()), view::answered)?;
        let of = |i: usize| number(answers.get(i));
        let n = keys.len();
        let there = (0..n).filter(|i| of(*i) != Some(-2));
        let infos: Vec<_> = there
            .map(|i| KeyInfo {
                key: keys[i].clone(),
                ttl: of(i).and_then(|ms| ms.try_into().ok()).map(Duration::from_millis),
                bytes: of(n + i).and_then(|bytes| bytes.try_into().ok()),
            })
            .collect();
        if infos.is_empty() {
            return Ok(None);
        }
        // Without these two answers the lock would be mistaken for another kind. (The other answers may be
        // missing.)
        for answer in answers.iter().skip(2 * n).take(2) {
            view::answered(answer)?;
        }
        let (type_of, tag) = (text(answers.get(2 * n)), text(answers.get(2 * n + 1)));
        let (view, kind) = view::of(type_of.as_deref().unwrap_or_default(), tag);
        let mut found = Inspection::of(names.name(), kind);
        found.fenced = text(answers.get(2 * n + 2)).and_then(|token| token.parse().ok());
        found.keys = infos;
        if found.kind == RATE_LIMITER {
            let used = text(answers.get(2 * n + 3)).and_then(|it| it.parse::<f64>().ok());
            found.counts.extend(used.map(|it| ("used", it.ceil() as i64)));
        }
        // Redisson's locks have no field with their kind.
        let may_be_redissons = view.is_none() && names.is_at_key() && type_of.as_deref() == Some("hash");
        if let Some(view) = view.or_else(|| may_be_redissons.then_some(&view::REDISSON)) {
            let (lookups, inspections) = (view.lookups(0, names, true), std::slice::from_mut(&mut found));
            let failed = Lookup::ask_all(self, server, lookups, inspections)?;
            match failed.into_iter().next().map(|(_, e)| Client::refused(e)) {
                None if may_be_redissons => view.tag.clone_into(&mut found.kind),
                Some(e) if !may_be_redissons || e.kind() != ErrorKind::WrongType => return Err(e),
                _ => {}
            }
        }
        Ok(Some(found))
    }

    /// Returns an iterator over all locks of the client's namespace that are held or waited for, in no
    /// particular order. See [`Listing`], which can also show those that nobody holds.
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
    /// for found in client.list() {
    ///     let found = found?;
    ///     println!("{} {} {:?}", found.name, found.kind, found.holders.first().map(|it| &it.process));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> Listing {
        Listing::new(self)
    }

    /// Returns the circles of threads that wait for each other's locks, in no particular order. A circle is known
    /// once its threads have waited for the [deadlock timeout](crate::ClientBuilder::deadlock_timeout); normally one
    /// of them then gives up within two heartbeats. One that lasts goes through read holds, of which another one
    /// may end the wait. Locks at keys of your own are not looked at, and of each lock the first few dozen waiters
    /// are. Blocks as [`list`](Client::list) does: the threads are not all read at one time, so a circle that just
    /// ended may be among them.
    ///
    /// # Errors
    /// Those of [`list`](Client::list).
    pub fn deadlocks(&self) -> Result<Vec<Deadlock>, Error> {
        let waiters = self.list().map(|found| Ok(found?.waiters)).collect::<Result<Vec<_>, Error>>()?;
        Ok(deadlocks(waiters.iter().flatten()))
    }

    /// Takes the lock of this name, of whatever kind, from its holders: see
    /// [`force_unlock_if`](crate::RedisLock::force_unlock_if). For a semaphore it releases permits, for an inventory
    /// reservations; the numbers of permits and of goods themselves are not changed.
    ///
    /// # Errors
    /// `Refused` for what has no holders: a latch, a barrier, a rate limiter, or a kind that is not one of
    /// this library's. `NotOwner` if nothing is stored under the name. Otherwise as for those methods.
    pub fn force_unlock_if(
        &self,
        name: &str,
        held_by: &HeldBy,
        reason: &str,
        gently: bool,
    ) -> Result<ForcedUnlock, Error> {
        let Some(found) = self.inspect(name)? else {
            return Err(Error::new(ErrorKind::NotOwner, name).because("there is no such lock"));
        };
        let why = match (&*found.kind, view::named(&found.kind)) {
            ("count-down latch", _) => "a latch has no holders: reset or delete its count instead",
            ("cyclic barrier", _) => "a barrier has no holders: reset it instead",
            (RATE_LIMITER, _) => "a rate limiter has no holders: delete what was used instead",
            (_, Some(view)) => {
                let entry = (view.entry)(self.shared(), name)?;
                return take_away(&entry, view.modes, held_by, reason, gently);
            }
            (_, None) => "its kind is not one of this library's",
        };
        Err(Error::new(ErrorKind::Refused, name).because(why))
    }

    /// Asks the cluster which server now has the locks of this one, which failed: blocks for at most the
    /// command timeout. Returns false if there is no cluster.
    fn asks_where(&self, server: &Server) -> bool {
        self.0.route.lost(server, Moment::now().after(self.0.config.command_timeout))
    }

    /// Sends all requests at once; error replies are among the answers.
    fn exchange(&self, server: &Server, requests: &[Command<'_>]) -> Result<Vec<Value>, Error> {
        self.shared().usable()?;
        let limit = Moment::now().after(self.shared().config.command_timeout);
        let exchanged = server.backend.exchange(None, requests, limit).map_err(Failure::error)?;
        Ok(exchanged.replies(requests.len()))
    }
}

impl Client {
    /// Returns how to connect to the servers that have this client's locks: the single server, the primary
    /// that its sentinels name, or the primaries of its cluster, as far as this client knows them. Contains
    /// the user and the password: do not log it. After the next failover it may be another server.
    ///
    /// Blocks for at most the connect timeout if sentinels must be asked.
    ///
    /// ```
    /// use redis_concurrent::{Client, redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// for info in client.primaries()? {
    ///     let mut connection = redis::Client::open(info)?.get_connection()?;
    ///     let get = redis::cmd("CONFIG").arg(&["GET", "maxmemory-policy"]).to_owned();
    ///     let policy: Vec<String> = get.query(&mut connection)?;
    ///     assert_eq!(policy[1], "noeviction");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable`, `Closed`, `Forked`.
    pub fn primaries(&self) -> Result<Vec<ConnectionInfo>, Error> {
        self.shared().usable()?;
        self.servers_with_locks().iter().map(info).collect()
    }

    /// Returns the one of the [`primaries`](Client::primaries) that has the lock `name`.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`, `Forked`, and `InvalidInput` for an invalid name.
    pub fn primary_of(&self, name: &str) -> Result<ConnectionInfo, Error> {
        self.behind(&Names::new(&self.shared().config.namespace, name)?)
    }

    /// The same for a lock at a user-chosen key, as [`inspect_key`](Client::inspect_key) is for
    /// [`inspect`](Client::inspect).
    ///
    /// # Errors
    /// See [`primary_of`](Client::primary_of).
    pub fn primary_of_key(&self, key: &str) -> Result<ConnectionInfo, Error> {
        self.behind(&Names::at_key(&self.shared().config.namespace, key)?)
    }

    /// Returns the [sentinels](crate::ClientBuilder::url) that name this client's primary; `None` if
    /// there are none. Sends no request.
    pub fn sentinels(&self) -> Option<Sentinels> {
        let servers = self.shared().route.servers();
        let (master, nodes) = servers.first()?.manager.sentinels.as_ref()?.named();
        Some(Sentinels { master: master.to_owned(), nodes: nodes.to_vec() })
    }

    fn behind(&self, names: &Names) -> Result<ConnectionInfo, Error> {
        let shared = self.shared();
        let server = shared.route.to(shared.route.slot(names.key().as_bytes()));
        shared.usable().and_then(|()| info(server)).map_err(|e| e.about(names.name()))
    }

    /// Leaves out the nodes of a cluster that were configured but are replicas.
    fn servers_with_locks(&self) -> Vec<Arc<Server>> {
        let route = &self.shared().route;
        route.servers().into_iter().filter(|server| route.leads_to(server)).collect()
    }
}

fn info(server: &Arc<Server>) -> Result<ConnectionInfo, Error> {
    server.manager.info().map_err(|e| not_connected(e).error())
}
