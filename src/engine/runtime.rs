//! What all locks of one client share, and what ends with it.

use std::any::TypeId;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::entry::{LockEntries, LockEntry};
use super::listener::Inbox;
use super::process;
use super::redis::backend::Backend;
use super::redis::connection::ConnectionManager;
use super::redis::requests;
use super::redis::server_info::LastServer;
use super::renewal::renewer::Renewer;
use super::state::lock_state::{PendingRelease, Shape};
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::kind::{Exclusive, Kind};
use crate::names::inbox_prefix;
use crate::observe::{LossReason, Watch};
use crate::script::Scripts;
use crate::settings::Config;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// How long `close` may take in all.
const CLOSE_LIMIT: Duration = Duration::from_millis(900);
/// What of it is left for the threads to end.
const END_LIMIT: Duration = Duration::from_millis(300);

/// What all locks of a kind share: the composed scripts, and what they are like here.
type Common = (Arc<Scripts>, Arc<Shape>);

/// The key of the conditions of kind `K` in the table of the kinds' scripts.
struct ConditionsOf<K>(PhantomData<K>);

/// What clones of a client, its locks and its guards share.
pub(crate) struct Shared {
    /// Distinguishes the clients of a process.
    pub(crate) id: u64,
    /// Distinguishes the clients of the world: the first half of every owner id.
    pub(crate) uuid: String,
    /// pid, host and client name: what others see of us.
    pub(crate) identity: String,
    pub(crate) config: Config,
    pub(crate) inbox_prefix: String,
    /// The waiter timeout in milliseconds, as scripts take it.
    pub(crate) waiter_timeout: String,
    pub(crate) manager: ConnectionManager,
    pub(crate) backend: Backend,
    pub(crate) server: LastServer,
    pub(crate) entries: Mutex<LockEntries>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) watch: Watch,
    kinds: Mutex<HashMap<TypeId, Common>>,
    pid: u32,
    sequence: AtomicU64,
    closed: AtomicBool,
    /// Cancelled when it is closed: wakes the sleepers that have no entry.
    pub(crate) ended: CancellationToken,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        manager: ConnectionManager,
        backend: Backend,
        renewer: Arc<Renewer>,
        watch: Watch,
    ) -> Arc<Shared> {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let id = CLIENTS.fetch_add(1, Ordering::Relaxed);
        renewer.add(id, config.renew_every, config.renewal_timeout());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Arc::new(Shared {
            id,
            uuid: uuid::Uuid::new_v4().to_string(),
            identity: format!("{} {host} {}", std::process::id(), config.client_name),
            inbox_prefix: inbox_prefix(&config.namespace),
            waiter_timeout: config.waiter_timeout.as_millis().to_string(),
            config,
            manager,
            backend,
            server: LastServer::default(),
            entries: Mutex::default(),
            inbox: Arc::default(),
            renewer,
            watch,
            kinds: Mutex::default(),
            pid: std::process::id(),
            sequence: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            ended: CancellationToken::new(),
        })
    }

    /// A number never given before.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// What all locks of a kind share.
    pub(crate) fn kind<K: Kind>(&self) -> Result<Common, Error> {
        self.composed::<K>(TypeId::of::<K>(), Scripts::of)
    }

    /// The composed scripts of the conditions of a kind's locks.
    pub(crate) fn condition_scripts<K: Exclusive>(&self) -> Result<Arc<Scripts>, Error> {
        Ok(self.composed::<K>(TypeId::of::<ConditionsOf<K>>(), Scripts::of_conditions)?.0)
    }

    fn composed<K: Kind>(
        &self,
        key: TypeId,
        compose: impl FnOnce(&str) -> Result<Scripts, String>,
    ) -> Result<Common, Error> {
        let mut kinds = self.lock(&self.kinds)?;
        if let Some(known) = kinds.get(&key) {
            return Ok(known.clone());
        }
        let made = compose(K::RULE).map_err(|why| {
            Error::new(ErrorKind::InvalidInput, "").because(format!("the rule of the {}: {why}", K::NAME))
        })?;
        let shape = Shape {
            sharing: K::SHARING,
            reentrancy: K::REENTRY,
            local_handoff: self.config.local_handoff,
            beat: self.config.waiter_timeout.min(self.config.lease) / 3,
        };
        let made = (Arc::new(made), Arc::new(shape));
        kinds.insert(key, made.clone());
        Ok(made)
    }

    /// Whether this is the process that made the client.
    ///
    /// # Errors
    /// `Forked` if it is not: connections, threads and holds are the parent's.
    pub(crate) fn same_process(&self) -> Result<(), Error> {
        self.is_process(std::process::id())
    }

    fn is_process(&self, id: u32) -> Result<(), Error> {
        if id == self.pid {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forked, "").because("fork before making a client, or exec"))
    }

    /// Locks one of this client's mutexes. In a forked child it may be held forever by a thread that does not
    /// exist there: so a thread that finds it held first checks which process this is.
    ///
    /// # Errors
    /// `Forked` in a child, if it was held when it was forked.
    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, Error> {
        if let Some(guard) = mutex.try_lock() {
            return Ok(guard);
        }
        self.same_process()?;
        Ok(mutex.lock())
    }

    /// Has the client listen for what its holders are to be told. Waits for nothing.
    pub(crate) fn listen(self: &Arc<Self>) {
        if !self.inbox.is_up()
            && let Err(error) = self.inbox.start(self)
        {
            tracing::warn!(
                error = %format_args!("{error:#}"),
                "a holder cannot be told of a forced unlock before its next renewal"
            );
        }
    }

    /// Whether it may send anything.
    pub(crate) fn usable(&self) -> Result<(), Error> {
        self.same_process()?;
        self.not_closed()
    }

    /// The same, for a call that has just read the clock: see [`process::id`].
    pub(crate) fn usable_at(&self, now: Moment) -> Result<(), Error> {
        self.is_process(process::id(now))?;
        self.not_closed()
    }

    fn not_closed(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, ""));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// See [`Client::close`](crate::Client::close).
    pub(crate) fn close(self: &Arc<Self>) -> Result<(), Error> {
        self.same_process()?;
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let limit = Moment::now().after(CLOSE_LIMIT);
        self.ended.cancel();
        // First all guards and waiters are notified, then Redis.
        let mut leaving = Vec::new();
        // Not in the head of the loop: that would keep the table locked for all of it.
        let entries = self.entries.lock().all();
        for entry in entries {
            let mut core = entry.core.lock();
            let mine = core.lock_state.close(Moment::now());
            let tokens: Vec<_> = mine.iter().filter_map(|l| core.asked_lost(l.owner)).collect();
            let holds = mine.iter().filter(|l| core.forget(l.owner).is_some()).count();
            let under_way = core.under_way.clone();
            core.wake_all();
            drop(core);
            for token in tokens {
                token.cancel();
            }
            for _ in 0..holds {
                self.watch.tell(|o| o.lost(entry.observed(), LossReason::Closed));
            }
            // Its sender has no reply yet: a copy may run later.
            let under_way = under_way.into_iter().map(|l| PendingRelease { unsettled: true, ..l });
            leaving.extend(mine.into_iter().chain(under_way).map(|l| (entry.clone(), l)));
        }
        self.inbox.stop();
        // What was to be released in the background is sent now: perhaps once more.
        let unfinished = self.renewer.remove(self.id).into_iter();
        leaving.extend(
            unfinished.map(|(entry, leaving)| (entry, PendingRelease { unsettled: true, ..leaving })),
        );
        let leave = |(entry, leaving): &(Arc<LockEntry>, PendingRelease), eval: bool| {
            let mut request = Vec::new();
            requests::pack_leave(&mut request, entry, leaving, eval);
            request
        };
        let requests: Vec<_> = leaving.iter().map(|it| leave(it, false)).collect();
        let sent = self.backend.pipeline(&requests, limit.before(END_LIMIT), |i| {
            leaving.get(i).map(|it| leave(it, true)).unwrap_or_default()
        });
        let failed: Vec<_> =
            leaving.iter().zip(&sent).filter(|(_, ok)| !**ok).map(|((entry, _), _)| entry).collect();
        let left = failed.len();
        for entry in failed {
            let error = entry.error(
                Error::new(ErrorKind::Closed, "").because("not released in time: it ends with its lease"),
            );
            self.watch.tell(|o| o.unlock_failed(entry.observed(), &error));
        }
        // A message of our own ends the listener's read at once.
        let bye = redis::cmd("PUBLISH").arg(format!("{}{}", self.inbox_prefix, self.uuid)).arg("bye").clone();
        if self.inbox.is_up() {
            let _ = self.backend.command(&bye, limit.before(END_LIMIT / 2));
        }
        self.backend.close();
        let ended = self.inbox.wait_for_end(limit) & self.renewer.wait_for_end(self.id, limit);
        if !ended {
            tracing::warn!("a thread of the closed client is still ending");
        }
        if left == 0 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::OutcomeUnknown, "")
            .because(format!("{left} locks were not released in time and end with their leases")))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.same_process().is_err() {
            return;
        }
        self.inbox.stop();
        self.renewer.remove(self.id);
    }
}
