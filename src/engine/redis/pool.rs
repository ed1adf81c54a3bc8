//! The pool of connections: r2d2's.

#[cfg(shuttle)]
pub(crate) use crate::engine::redis::wire::memory::{Pool, Pooled, Pools, Threads, breathe, is_exhausted};

#[cfg(not(shuttle))]
pub(crate) use self::real::{Pool, Pooled, Pools, Threads, breathe, is_exhausted};

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::redis::connection::Connection;
use crate::sync::Mutex;

/// A connection that was taken from the pool. Boxed, as it is moved a dozen times on its way to a request and back.
pub(crate) type Given = Box<Pooled>;

/// How many threads open the connections of a client with one server, and of a client with several.
pub(crate) const THREADS: usize = 3;
pub(crate) const THREADS_OF_SEVERAL: usize = 6;

#[cfg(not(shuttle))]
mod real {
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::thread::Builder;

    use scheduled_thread_pool::ScheduledThreadPool;

    use crate::engine::redis::connection::ConnectionManager;
    use crate::settings::Config;

    pub(crate) type Pool = r2d2::Pool<ConnectionManager>;
    pub(crate) type Pooled = r2d2::PooledConnection<ConnectionManager>;

    /// The threads that connect.
    pub(crate) type Threads = Arc<ScheduledThreadPool>;

    /// The pause of a thread that waits for one of the others' connections, as it could not get one of its
    /// own.
    pub(crate) fn breathe() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }

    /// Whether the pool has as many connections as it may, all of them in use.
    pub(crate) fn is_exhausted(pool: &Pool) -> bool {
        let state = pool.state();
        state.idle_connections == 0 && state.connections >= pool.max_size()
    }

    /// Makes the pools of a client's servers, which share the threads that connect.
    pub(crate) struct Pools {
        config: Config,
        pub(crate) threads: Threads,
    }

    impl Pools {
        /// Starts `threads` threads, which end with the last pool.
        pub(crate) fn new(config: &Config, threads: usize) -> io::Result<Pools> {
            can_start(threads)?;
            let builder = ScheduledThreadPool::builder().num_threads(threads);
            let builder = builder.thread_name_pattern("r2d2-worker-{}");
            // It panics if another program has started the last thread that was available.
            let threads = catch_unwind(AssertUnwindSafe(|| builder.build()))
                .map_err(|_| io::Error::other("the pool could not be built"))?;
            Ok(Pools { config: config.clone(), threads: Arc::new(threads) })
        }

        pub(crate) fn pool(&self, manager: ConnectionManager) -> Pool {
            r2d2::Pool::builder()
                .max_size(self.config.max_connections)
                .min_idle(Some(0))
                // Without an age limit the pool schedules nothing, so its threads can end.
                .idle_timeout(None)
                .max_lifetime(None)
                .connection_timeout(self.config.connect_timeout)
                // A test would double the cost of a lock; a broken connection is replaced anyway, and its
                // request sent again.
                .test_on_check_out(false)
                .error_handler(Box::new(r2d2::NopErrorHandler))
                .thread_pool(self.threads.clone())
                .build_unchecked(manager)
        }
    }

    /// Checks that this many threads can exist at once.
    fn can_start(threads: usize) -> io::Result<()> {
        let (stay, go) = crossbeam_channel::bounded::<()>(0);
        let started = (0..threads).map(|_| {
            let go = go.clone();
            // No message is ever sent: the threads end when the sender is dropped.
            Builder::new().name("rc-can-start".to_owned()).spawn(move || go.recv().is_err())
        });
        let started: Vec<_> = started.collect();
        drop(stay);
        started.into_iter().try_for_each(|thread| {
            // They do nothing that could panic.
            let _ = thread?.join();
            Ok(())
        })
    }
}

/// After how long a thread of the pool reads a reply that was left unread: others may wait for what it says.
const READ_AFTER: Duration = Duration::from_millis(20);

/// Connections that are not in use, but that the pool would give out again more slowly; and those on which a reply is
/// still to be read, as the request that must go behind the one that was not waited for finds its connection here.
/// The pool counts them as in use: if a thread waits for it, they return.
#[derive(Clone, Default)]
pub(crate) struct Aside(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Those that were put aside last come last, each with about when that was.
    connections: Vec<(Moment, Given)>,
    /// How many threads wait for the pool: while any does, no connection is put aside.
    waiting: usize,
    /// Whether a thread of the pool will look.
    looked_after: bool,
}

impl Aside {
    /// Puts aside a connection on which a reply is unread. If threads wait for the pool, it goes there instead,
    /// and this blocks for the reply.
    pub(crate) fn put(&self, connection: Given, threads: &Threads) {
        let now = Moment::now();
        let mut state = self.0.lock();
        if state.waiting > 0 {
            drop(state);
            return read(vec![(now, connection)], Moment::NEVER);
        }
        state.connections.push((now, connection));
        if !mem::replace(&mut state.looked_after, true) {
            let aside = self.clone();
            threads.execute_with_dynamic_delay(READ_AFTER, move || {
                let more = aside.read_older_than(Moment::now().before(READ_AFTER), Moment::NEVER);
                more.then_some(READ_AFTER)
            });
        }
    }

    /// Keeps one for the next request, unless threads wait for the pool.
    pub(super) fn keep(&self, connection: Given) {
        let mut state = self.0.lock();
        if state.waiting == 0 && connection.is_sound() {
            state.connections.push((connection.used, connection));
        }
    }

    /// From now on all go to the pool.
    pub(super) fn end(&self) {
        self.0.lock().waiting += 1;
        self.read_older_than(Moment::NEVER, Moment::now());
    }

    /// Takes out the one that was put aside last, of those that will do.
    pub(crate) fn take(&self, will_do: impl Fn(&Connection) -> bool) -> Option<Given> {
        let mut state = self.0.lock();
        let at = state.connections.iter().rposition(|(_, connection)| will_do(connection))?;
        Some(state.connections.remove(at).1)
    }

    /// The same for a thread that `waits` for the pool if there is none.
    pub(super) fn last_or<E>(&self, waits: impl FnOnce() -> Result<Given, E>) -> Result<Given, E> {
        let mut state = self.0.lock();
        if let Some((_, last)) = state.connections.pop() {
            return Ok(last);
        }
        state.waiting += 1;
        drop(state);
        let found = waits();
        self.0.lock().waiting -= 1;
        found
    }

    /// Reads what is unread on those that were put aside until `then`, until `limit` at most, and gives them to the
    /// pool. Returns whether there are others.
    pub(crate) fn read_older_than(&self, then: Moment, limit: Moment) -> bool {
        let mut state = self.0.lock();
        let due = state.connections.iter().take_while(|(since, _)| *since <= then).count();
        let due = state.connections.drain(..due).collect();
        state.looked_after = state.connections.iter().any(|(_, connection)| connection.unread.is_some());
        let more = state.looked_after;
        drop(state);
        read(due, limit);
        more
    }
}

fn read(unread: Vec<(Moment, Given)>, limit: Moment) {
    for (_, mut connection) in unread {
        let limit = connection.unread.as_ref().map_or(limit, |unread| unread.limit.min(limit));
        // An error is the unread request's.
        let _ = connection.catch_up(limit);
    }
}
