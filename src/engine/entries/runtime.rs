//! What all locks of one client share, and what ends with it. This file holds the parts and checks whether
//! they may be used. What a part does is in its own file, and nothing about single locks is here.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::process;
use crate::engine::redis::resp::PackedCall;
use crate::engine::renewal::renewer::Renewer;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::state::lock_state::Shape;
use crate::error::{Error, ErrorKind};
use crate::kind::Kind;
use crate::names::{self, fresh_uuid, inbox_prefix};
use crate::observe::Observers;
use crate::script::{Script, Scripts};
use crate::settings::Config;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, RandomState};

/// How many bits a number of [`Shared::sequence`] has.
pub(crate) const SEQUENCE_BITS: u32 = 41;

/// What all locks of a kind share: the composed scripts, and the shape.
type Common = (Arc<Scripts>, Arc<Shape>);

/// What clones of a client, its locks and its guards share.
pub(crate) struct Shared {
    /// Unique among the clients of this process.
    pub(crate) id: u64,
    /// Unique among all clients: the first half of every owner id.
    pub(crate) uuid: String,
    /// Process id, host and client name, as other clients see them.
    pub(crate) identity: String,
    pub(crate) config: Config,
    /// The prefix of its channel and the waiter timeout, as the arguments of a script; in a cluster, each lock has a
    /// channel of its own.
    pub(crate) receiver: PackedCall,
    /// The servers, and which of them has which key.
    pub(crate) route: Route,
    pub(crate) entries: Mutex<LockEntries>,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) observers: Observers,
    kinds: Mutex<HashMap<TypeId, Common>>,
    pid: u32,
    sequence: AtomicU64,
    /// The key of the order in which owner numbers are used, and of the [proof](Self::proof) that a process is a
    /// copy of this one.
    pub(crate) secret: RandomState,
    closed: AtomicBool,
    /// Whether it was closed because this process is a copy of another one.
    copied: AtomicBool,
    /// Cancelled when the client is closed: wakes threads that sleep without an entry.
    pub(crate) ended: CancellationToken,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        route: Route,
        renewer: Arc<Renewer>,
        observers: Observers,
    ) -> Arc<Shared> {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let id = CLIENTS.fetch_add(1, Ordering::Relaxed);
        #[cfg(unix)]
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        #[cfg(not(unix))]
        let host = std::env::var("COMPUTERNAME").unwrap_or_default();
        let identity = format!("{} {host} {}", std::process::id(), config.client_name);
        let waiter_timeout = config.waiter_timeout.as_millis().to_string();
        Arc::new(Shared {
            id,
            uuid: fresh_uuid(&identity),
            identity,
            receiver: PackedCall::default().with(&[inbox_prefix(&config.namespace), waiter_timeout]),
            config,
            route,
            entries: Mutex::default(),
            renewer,
            observers,
            kinds: Mutex::default(),
            pid: std::process::id(),
            sequence: AtomicU64::new(1),
            secret: RandomState::default(),
            closed: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            ended: CancellationToken::new(),
        })
    }

    /// Returns the client's own channel.
    pub(crate) fn channel(&self) -> String {
        names::channel(&self.config.namespace, &self.uuid)
    }

    /// Runs a script that is not an operation on a lock, over keys of one slot, each in two parts.
    pub(crate) fn eval<A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[[&str; 2]],
        args: &[A],
        limit: Moment,
        once: bool,
    ) -> Result<Reply, Failure> {
        let slot = self.route.slot(keys.first().map_or(b"", |[key, _]| key.as_bytes()));
        let call = PackedCall::over(&script.by_sha, &PackedCall::keys(keys)).with(args);
        let mut command = Command::script(script, call);
        command.once = once;
        self.route.ask(slot, &[command], None, limit)
    }

    /// Returns a number of [`SEQUENCE_BITS`] bits that was never returned before, and that nobody can guess:
    /// who knows an owner id, and may publish, can lie to its waiter. A Feistel network shuffles all numbers; with fewer
    /// than four rounds, numbers of the same low half would tell of each other.
    pub(crate) fn sequence(&self) -> u64 {
        const LOW: u32 = SEQUENCE_BITS / 2;
        let n = self.sequence.fetch_add(1, Ordering::Relaxed);
        let (mut high, mut low) = (n >> LOW, n % (1 << LOW));
        // One number to hash each time, in which the halves are told apart: it takes half of the instructions.
        // It begins with the half that changes: the other is the same for a million numbers.
        for round in 0..2 {
            high ^= self.secret.hash_one(low << 2 | round) % (1 << (SEQUENCE_BITS - LOW));
            low ^= self.secret.hash_one(high << 2 | 2 | round) % (1 << LOW);
        }
        high << LOW | low
    }

    /// Returns what all locks of a kind share.
    pub(crate) fn kind<K: Kind>(&self) -> Result<Common, Error> {
        let key = TypeId::of::<K>();
        let mut kinds = self.lock(&self.kinds, Moment::now())?;
        if let Some(known) = kinds.get(&key) {
            return Ok(known.clone());
        }
        let made = Scripts::shared(key, || Scripts::of(K::RULE))
            .map_err(|why| ErrorKind::InvalidInput.because(format!("the rule of the {}: {why}", K::NAME)))?;
        let shape = Shape {
            sharing: K::SHARING,
            reentrancy: K::REENTRANCY,
            local_handoff: self.config.local_handoff,
            heartbeat: self.config.waiter_timeout.min(self.config.lease) / 3,
            // As `let_in()` in lua/lib/queue.lua.
            first_lease: self.config.waiter_timeout.max(Duration::from_secs(1)),
        };
        let made = (made, Arc::new(shape));
        kinds.insert(key, made.clone());
        Ok(made)
    }

    /// Checks that this is the process that created the client.
    ///
    /// # Errors
    /// `Forked` if it is not: connections, threads and holds are the parent's.
    pub(crate) fn same_process(&self) -> Result<(), Error> {
        self.is_process(process::id(Moment::now()))
    }

    fn is_process(&self, id: u32) -> Result<(), Error> {
        if id == self.pid {
            return Ok(());
        }
        Err(ErrorKind::Forked.because("fork before creating a client, or exec"))
    }

    /// Locks one of this client's mutexes. Checks first which process this is: in a forked child, a thread
    /// that does not exist there may hold it forever, and where threads wait for it, unlocking it takes a lock
    /// of the whole process, which such a thread may hold, too. `now` is the time that the caller has just
    /// read: see [`process::id`].
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>, now: Moment) -> Result<MutexGuard<'a, T>, Error> {
        self.is_process(process::id(now))?;
        Ok(mutex.lock())
    }

    /// Locks the table of entries, which all threads of the client share: see [`lock`](Self::lock).
    ///
    /// # Errors
    /// `Forked` in a forked child.
    pub(crate) fn entries(&self) -> Result<MutexGuard<'_, LockEntries>, Error> {
        self.lock(&self.entries, Moment::now())
    }

    /// Returns the entries of the locks that are at this server now.
    pub(crate) fn entries_at(&self, server: &Arc<Server>) -> Vec<Arc<LockEntry>> {
        // The others are dropped here, outside the mutex: dropping the last reference to an entry locks it.
        let mut entries = self.entries.lock().all();
        entries.retain(|entry| Arc::ptr_eq(entry.server(), server));
        entries
    }

    /// Checks that the client may send requests: it is not closed, and this is not a forked child.
    pub(crate) fn usable(&self) -> Result<(), Error> {
        self.same_process()?;
        self.not_closed()
    }

    /// Checks that the client is not closed.
    pub(crate) fn not_closed(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(self.explained(Error::new(ErrorKind::Closed, "")));
        }
        Ok(())
    }

    /// Returns what only this client, and the same one in a copy of its process, can say about `mark`.
    pub(crate) fn proof(&self, mark: &str) -> String {
        self.secret.hash_one(mark).to_string()
    }

    /// Records why the client is about to be closed: this process is a copy of another one.
    pub(crate) fn is_a_copy(&self) {
        self.copied.store(true, Ordering::Release);
    }

    /// Returns the error, with the reason if it says that the client is closed and no caller closed it.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match error.kind() == ErrorKind::Closed && self.copied.load(Ordering::Acquire) {
            true => error.because("this process is a copy of another, which goes on: create a new client"),
            false => error,
        }
    }

    /// Marks the client as closed: it sends nothing more. Returns whether it was open before.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.same_process().is_err() {
            return;
        }
        for server in self.route.servers() {
            server.stop();
            // Its threads may keep the server for a tick.
            server.backend.close();
        }
        self.renewer.remove(self.id);
    }
}
