//! What scenarios use: processes with one lock each, and threads in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo};
use shuttle::rand::{Rng, thread_rng};

use super::server::{Faults, Server};
use crate::CancellationToken;
use crate::clock::Moment;
use crate::engine;
use crate::engine::call::acquire;
use crate::engine::call::end::{How, end};
use crate::engine::call::release::Stay;
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::pool::{Pools, THREADS};
use crate::engine::redis::wire::memory;
use crate::engine::renewal::renewer::Renewer;
use crate::engine::servers::route::Route;
use crate::engine::state::lock_state::{Acquired, HolderId, Request, Terms};
use crate::error::Error;
use crate::kind::Kind;
use crate::kinds::Reentrant;
use crate::observe::Observers;
use crate::settings::Config;
use crate::sync::{self, Condvar, Mutex, time};
use crate::wait::Wait;

pub(super) const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How long a process keeps a lock with a linger time.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Longer than a listener that is cut a few times pauses in all, and shorter than a heartbeat: who needs that was not
/// notified.
pub(super) const PAUSES: Duration = Duration::from_millis(300);

/// Begins an execution: no threads, time at its start, nothing in Redis.
pub(super) fn begin() -> Arc<Server> {
    time::begin();
    let server = Arc::new(Server::default());
    memory::lead_over(server.clone());
    server
}

/// Returns one of the two, as the scheduler chooses.
pub(super) fn either<T>(a: T, b: T) -> T {
    if thread_rng().gen_bool(0.5) { a } else { b }
}

/// Lets other threads run.
pub(super) fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

fn config() -> Config {
    // Handed on within the process, or by Redis only.
    let local_handoff = either(Duration::ZERO, Duration::from_millis(1));
    Config { local_handoff, renew_every: RENEW_EVERY, drop_waits: true, ..Config::default() }
}

fn entry_of<K: Kind>(shared: &Arc<Shared>, name: &str) -> Arc<LockEntry> {
    LockEntries::get::<K>(shared, name, false).expect("a name, and room for it")
}

/// A client, and its handle of the lock.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) shared: Arc<Shared>,
    pub(super) entry: Arc<LockEntry>,
}

impl Process {
    /// Creates a process with its own renewal thread, as real processes have.
    pub(super) fn new() -> Process {
        Process::with(Arc::default(), Observers::default())
    }

    /// Creates a process whose calls without a deadline fail as soon as Redis is unreachable.
    pub(super) fn hasty() -> Process {
        let config = Config { unreachable_timeout: Duration::ZERO, ..config() };
        Process::made(config, Arc::default(), Observers::default())
    }

    /// Creates a process whose client may have at most this many connections.
    pub(super) fn with_connections(most: u32) -> Process {
        let config = Config { max_connections: most, ..config() };
        Process::made(config, Arc::default(), Observers::default())
    }

    /// Creates a process whose drops do not wait for a reply where a connection is idle.
    pub(super) fn that_drops(connections: u32) -> Process {
        let config = Config { max_connections: connections, drop_waits: false, ..config() };
        Process::made(config, Arc::default(), Observers::default())
    }

    /// Ends the hold as a guard that is dropped does.
    pub(super) fn drops(&self, acquired: Acquired) {
        end(&self.entry, acquired.ticket, How::Dropped { unread: true }).expect("nothing is told to a drop");
    }

    /// Whether replies are left unread.
    pub(super) fn owes_replies(&self) -> bool {
        let last = self.entry.server().backend.aside.take(|_| true);
        let owes = last.is_some();
        // As any caller does that takes it.
        last.into_iter().for_each(|mut last| last.catch_up(Moment::NEVER).expect("no fault"));
        owes
    }

    /// Returns the same process with its handle of another lock.
    pub(super) fn at(&self, name: &str) -> Process {
        Process { shared: self.shared.clone(), entry: entry_of::<Reentrant>(&self.shared, name) }
    }

    pub(super) fn with(renewer: Arc<Renewer>, observers: Observers) -> Process {
        Process::made(config(), renewer, observers)
    }

    fn made(config: Config, renewer: Arc<Renewer>, observers: Observers) -> Process {
        static SERVER: OnceLock<ConnectionInfo> = OnceLock::new();
        let server = SERVER.get_or_init(|| "redis://memory".into_connection_info().expect("a URL"));
        let manager = ConnectionManager::new(server.clone(), None, Credentials::default(), &config);
        let pools = Pools::new(&config, THREADS).expect("no threads");
        let server = engine::servers::server::Server::new(manager, &pools, None);
        let route = Route::One(server);
        let shared = Shared::new(config, route, renewer, observers);
        let entry = entry_of::<Reentrant>(&shared, "lock");
        Process { shared, entry }
    }

    /// Returns its handle of the lock of that kind: each kind has one lock.
    pub(super) fn entry<K: Kind>(&self) -> Arc<LockEntry> {
        entry_of::<K>(&self.shared, "lock")
    }

    /// Waits for the lock as thread `thread`.
    pub(super) fn lock(&self, thread: u64, wait: &Wait<'_>) -> Result<Option<Acquired>, Error> {
        self.lock_on(thread, wait, self.shared.config.lease, false)
    }

    /// Waits for the lock with a lease that is not renewed.
    pub(super) fn lock_for(&self, thread: u64, lease: Duration) -> Result<Option<Acquired>, Error> {
        self.lock_on(thread, &Wait::forever(), lease, true)
    }

    /// Waits for the lock, which its process keeps afterwards.
    pub(super) fn lock_lingering(&self, thread: u64) -> Result<Option<Acquired>, Error> {
        let (wait, lease) = (Wait::forever(), self.shared.config.lease);
        let terms = Terms { linger: LINGER.into(), ..Terms::new(lease, "") };
        acquire(&self.entry, None, &request(thread, terms, &wait), &wait)
    }

    fn lock_on(
        &self,
        thread: u64,
        wait: &Wait<'_>,
        lease: Duration,
        fixed: bool,
    ) -> Result<Option<Acquired>, Error> {
        let terms = Terms { fixed, ..Terms::new(lease, "") };
        acquire(&self.entry, None, &request(thread, terms, wait), wait)
    }

    pub(super) fn unlock(&self, acquired: Acquired) -> Result<(), Error> {
        end(&self.entry, acquired.ticket, How::Released(Stay::Agreed))
    }

    /// Releases where requests get lost: the release may have to continue in the background.
    pub(super) fn unlock_some_time(&self, acquired: Acquired) {
        let done = self.unlock(acquired);
        assert!(done.as_ref().err().is_none_or(goes_on), "{done:?}");
    }

    /// Starts its listener.
    pub(super) fn starts_to_listen(&self) {
        engine::hearing::listener::start(&self.shared, self.entry.server()).expect("a thread");
    }

    /// Starts its listener, and waits until it is up.
    pub(super) fn listen(&self) {
        self.starts_to_listen();
        while !self.entry.server().inbox.is_up() {
            shuttle::thread::yield_now();
        }
    }

    /// Whether the lock state is as it was before any thread came.
    pub(super) fn is_idle(&self) -> bool {
        self.entry.core.lock().lock_state.is_idle()
    }

    /// Closes the client, and checks that its threads have ended with it.
    pub(super) fn close(&self) {
        engine::call::close(&self.shared).expect("everything was released in time");
        let now = Moment::default();
        assert!(self.entry.server().wait_for_end(now), "a thread of the server's is left");
        assert!(
            self.shared.renewer.wait_for_end(&self.shared.route.servers(), now),
            "the renewal thread is left"
        );
    }
}

/// Returns what thread `thread` requests.
pub(super) fn request(thread: u64, terms: Terms, wait: &Wait<'_>) -> Request {
    let holder = HolderId::thread(thread);
    Request { holder, thread, terms, once: wait.once, from: None, instead: false, most: None }
}

/// What the lock protects: checks that only one thread is inside at a time, and that tokens rise.
#[derive(Default)]
pub(super) struct Room {
    taken: AtomicBool,
    newest: AtomicU64,
    visits: AtomicU64,
}

impl Room {
    pub(super) fn visit(&self, acquired: Acquired) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "one-owner: two are in the room");
        let before = self.newest.swap(acquired.token, Ordering::SeqCst);
        assert!(acquired.token > before, "token {} after {before}", acquired.token);
        step();
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.taken.store(false, Ordering::SeqCst);
    }

    pub(super) fn visits(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }
}

/// The threads of a scenario.
#[derive(Default)]
pub(super) struct Threads {
    playing: Arc<(Mutex<usize>, Condvar)>,
}

impl Threads {
    pub(super) fn play(&self, name: &str, part: impl FnOnce() + Send + 'static) {
        *self.playing.0.lock() += 1;
        let playing = self.playing.clone();
        let thread = sync::thread::Builder::new().name(name.to_owned()).spawn(move || {
            part();
            *playing.0.lock() -= 1;
            playing.1.notify_all();
        });
        thread.expect("a thread");
    }

    /// Adds a thread that waits for the lock as long as it takes, and visits the room.
    pub(super) fn visitor(&self, process: &Process, room: &Arc<Room>, thread: u64, times: usize) {
        let (process, room) = (process.clone(), room.clone());
        self.play(&format!("visitor-{thread}"), move || {
            for _ in 0..times {
                let acquired =
                    process.lock(thread, &Wait::forever()).expect("no fault").expect("no deadline");
                room.visit(acquired);
                process.unlock(acquired).expect("no fault");
            }
        });
    }

    /// Like `visitor`, with a handle by which its process keeps the lock.
    pub(super) fn lingering_visitor(&self, process: &Process, room: &Arc<Room>, thread: u64, times: usize) {
        let (process, room) = (process.clone(), room.clone());
        self.play(&format!("lingering-{thread}"), move || {
            for _ in 0..times {
                let acquired = process.lock_lingering(thread).expect("no fault").expect("no deadline");
                room.visit(acquired);
                process.unlock(acquired).expect("no fault");
            }
        });
    }

    /// Like `visitor`, where requests get lost.
    pub(super) fn hardy_visitor(&self, process: &Process, room: &Arc<Room>, thread: u64) {
        let (process, room) = (process.clone(), room.clone());
        self.play(&format!("visitor-{thread}"), move || {
            let acquired =
                process.lock(thread, &Wait::forever()).expect("not for long").expect("no deadline");
            room.visit(acquired);
            process.unlock_some_time(acquired);
        });
    }

    /// Adds a thread that gives up meanwhile, by its deadline or by its token.
    pub(super) fn impatient(&self, process: &Process, room: &Arc<Room>, thread: u64, limit: Limit) {
        let (process, room) = (process.clone(), room.clone());
        self.play(&format!("impatient-{thread}"), move || {
            let outcome = match &limit {
                Limit::Time(limit) => process.lock(thread, &Wait::timeout(*limit)),
                Limit::Token(token) => process.lock(thread, &Wait::forever().cancelled_by(token)),
            };
            match outcome {
                Ok(Some(acquired)) => {
                    room.visit(acquired);
                    process.unlock(acquired).expect("no fault");
                }
                Ok(None) => assert!(matches!(limit, Limit::Time(_))),
                Err(e) => assert!(e.is_cancelled() && matches!(limit, Limit::Token(_)), "{e}"),
            }
        });
    }

    /// Waits until all threads are done.
    pub(super) fn bow(&self) {
        let mut playing = self.playing.0.lock();
        while *playing > 0 {
            self.playing.1.wait(&mut playing);
        }
    }
}

pub(super) enum Limit {
    Time(Duration),
    Token(CancellationToken),
}

/// Ends all faults, and waits until what was lost has been made up for.
pub(super) fn make_good(server: &Server, processes: &[Process]) {
    server.go_wrong(Faults::default());
    server.wait_until_empty();
    for process in processes {
        // The repetition that settled it may not have been confirmed yet.
        let done = engine::call::close(&process.shared);
        assert!(done.as_ref().err().is_none_or(Error::is_outcome_unknown), "{done:?}");
    }
}

/// Checks that everybody is gone, that nothing is left in the lock states and in Redis, and that clients end
/// with their threads.
pub(super) fn curtain(server: &Server, processes: &[Process]) {
    for process in processes {
        assert!(process.is_idle(), "{:?}", process.entry.core.lock().lock_state);
    }
    for process in processes {
        process.close();
    }
    server.is_left_empty();
}

/// Whether the release was not answered or not carried out, and so is repeated until it is.
fn goes_on(error: &Error) -> bool {
    error.is_outcome_unknown() || error.is_unavailable()
}
