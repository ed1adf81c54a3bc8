//! The pool of connections: r2d2's.

#[cfg(shuttle)]
pub(crate) use crate::engine::redis::wire::memory::{Pool, Pooled, Pools, breathe, is_exhausted};

#[cfg(not(shuttle))]
pub(crate) use self::real::{Pool, Pooled, Pools, breathe, is_exhausted};

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
        threads: Arc<ScheduledThreadPool>,
    }

    impl Pools {
        /// Starts `threads` threads, which end with the last pool.
        pub(crate) fn new(config: &Config, threads: usize) -> io::Result<Pools> {
            can_start(threads)?;
            // Another program may have started the last thread that was available.
            let threads = unpanicked(|| {
                let pool = ScheduledThreadPool::builder().num_threads(threads);
                pool.thread_name_pattern("r2d2-worker-{}").build()
            })?;
            Ok(Pools { config: config.clone(), threads: Arc::new(threads) })
        }

        pub(crate) fn pool(&self, manager: ConnectionManager) -> io::Result<Pool> {
            let builder = r2d2::Pool::builder()
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
                .thread_pool(self.threads.clone());
            unpanicked(|| builder.build_unchecked(manager))
        }
    }

    /// Catches the panic of a pool that cannot start its threads.
    fn unpanicked<T>(make: impl FnOnce() -> T) -> io::Result<T> {
        catch_unwind(AssertUnwindSafe(make)).map_err(|_| io::Error::other("the pool could not be built"))
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
