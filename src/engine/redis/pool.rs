//! The pool of connections: r2d2's.

#[cfg(shuttle)]
pub(crate) use super::wire::memory::{Pool, Pooled, breathe, pool};

#[cfg(not(shuttle))]
pub(crate) use self::real::{Pool, Pooled, breathe, pool};

#[cfg(not(shuttle))]
mod real {
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::Builder;
    use std::time::Duration;

    use crate::engine::redis::connection::ConnectionManager;
    use crate::settings::Config;

    /// How many threads a pool starts.
    const THREADS: usize = 3;

    pub(crate) type Pool = r2d2::Pool<ConnectionManager>;
    pub(crate) type Pooled = r2d2::PooledConnection<ConnectionManager>;

    /// The pause of a thread that waits for others' connections, as it could not have one of its own.
    pub(crate) fn breathe() {
        std::thread::sleep(Duration::from_millis(10));
    }

    /// The pool panics if it cannot start its threads.
    pub(crate) fn pool(config: &Config, manager: ConnectionManager) -> io::Result<Pool> {
        can_start(THREADS)?;
        let builder = r2d2::Pool::builder()
            .max_size(config.max_connections)
            .min_idle(Some(0))
            // Without an age limit the pool schedules nothing, so its threads can end.
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(config.connect_timeout)
            // That would double the cost of a lock; a broken one is replaced and its request sent again anyway.
            .test_on_check_out(false)
            .error_handler(Box::new(r2d2::NopErrorHandler));
        // Another program may have started the last thread that was available since.
        catch_unwind(AssertUnwindSafe(|| builder.build_unchecked(manager)))
            .map_err(|_| io::Error::other("the pool could not be built"))
    }

    /// Whether that many threads can exist at once.
    fn can_start(threads: usize) -> io::Result<()> {
        let (stay, go) = crossbeam_channel::bounded::<()>(0);
        let started = (0..threads).map(|_| {
            let go = go.clone();
            // No message is ever sent: they end when the sender is dropped.
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
